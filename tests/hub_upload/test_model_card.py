# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
import json
import math
import re

import pytest
import yaml
from hub_checkpoints import image_checkpoint, linear_checkpoint, linear_encoder, text_checkpoint
from hub_upload_lion import create_bundle, verify_checkpoint
from hub_upload_lion.checkpoint import load_model
from hub_upload_lion.publish.model_card import auto_class_of, complete_metadata, model_card, read_eval_results
from huggingface_hub import EvalResultEntry, ModelCard, parse_eval_result_entries
from transformers import AutoImageProcessor
from transformers.models.auto.image_processing_auto import AutoImageProcessor as LoadedImageProcessor

from configuration_lion import AUTO_MODELS


HEADS = [(modality, name) for modality, models in AUTO_MODELS.items() for name in sorted({*models.values()})]
HEADS.remove(("image", "LionBackbone"))  # published as a LionModel: the weights are the same
STATE = {
    "global_step": 300,
    "epoch": 2.5,
    "train_batch_size": 16,
    "total_flos": 1.5e12,
    "log_history": [
        {"step": 100, "loss": 6.5, "learning_rate": 1e-4},
        {"step": 200, "loss": 4.25, "learning_rate": 5e-4},
        {"step": 200, "eval_loss": 4.5, "eval_runtime": 1.0, "eval_samples_per_second": 3.0, "epoch": 2.0},
        {"step": 300, "loss": 3.75, "learning_rate": 1e-5},
    ],
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return text_checkpoint(tmp_path_factory.mktemp("card") / "text")


@pytest.fixture(scope="module")
def measured(checkpoint):
    return verify_checkpoint(checkpoint, dtypes=("float32",))


def write_card(folder, measured, metadata=None, **facts):
    model = load_model(folder)
    return model_card(model, "me/lion", complete_metadata(model, metadata or {"license": "mit"}), measured, **facts)


@pytest.mark.parametrize(("modality", "class_name"), HEADS, ids=lambda x: x)
def test_the_code_on_the_card_runs(modality, class_name, tmp_path, measured, capsys):
    if modality == "image" and AutoImageProcessor is not LoadedImageProcessor:
        pytest.skip("transformers 5.17 has AutoImageProcessor, by which the card loads, with torchvision only")
    make = {"text": text_checkpoint, "image": image_checkpoint}[modality]
    folder = make(tmp_path / "model", class_name)
    card = write_card(folder, measured)
    (code,) = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    assert f"{auto_class_of(load_model(folder))}.from_pretrained" in code
    namespace = {}
    exec(code.replace("me/lion", str(folder)), namespace)
    assert type(namespace["model"]).__name__ == class_name and namespace["outputs"][0].isfinite().all()


def test_metadata_is_what_the_hub_reads(tmp_path):
    for make, tag in ((text_checkpoint, "fill-mask"), (image_checkpoint, "image-classification")):
        model = load_model(make(tmp_path / tag))
        metadata = complete_metadata(model, {"license": "mit", "tags": ["zoo"], "language": None})
        assert metadata["pipeline_tag"] == tag and metadata["library_name"] == "transformers"
        assert metadata["tags"] == ["zoo", "lion", "linear-attention", "custom_code"] and "language" not in metadata


def test_a_card_reads_back(checkpoint, measured):
    given = {"license": "mit", "language": ["en"], "datasets": ["zoo/texts"], "base_model": "me/older"}
    card = ModelCard(write_card(checkpoint, measured, given))
    for key, value in given.items():
        assert card.data.to_dict()[key] == value
    assert card.text.strip().startswith("# lion\n") and "LION-S" in card.text


def test_facts_are_those_of_the_model(tmp_path, measured):
    model = load_model(text_checkpoint(tmp_path / "m", mixer_type="decay", norm_position="pre"))
    card = write_card(tmp_path / "m", measured)
    count = sum(p.numel() for p in model.parameters())
    for line in (
        f"| parameters | {count:,} |",
        "| layers | 2 |",
        "| mixer | `decay` |",
        "| norms | `pre` |",
    ):
        assert line in card
    assert "LION-D" in card and "RetNet" in card
    image_checkpoint(tmp_path / "image")
    card = write_card(tmp_path / "image", measured)
    assert "| image | 24x32 pixels |" in card and "| labels | cat, lion, zebra |" in card and "`snake`" in card


def test_facts_of_an_encoder_that_became_linear(tmp_path):
    folder = linear_checkpoint(tmp_path / "text", "BertForSequenceClassification", options={"layers": [0]})
    card = write_card(folder, verify_checkpoint(folder, dtypes=("float32",)), {"base_model": "zoo/bert"})
    for line in (
        "| encoder | `bert` |",
        "| exact up to | 24 tokens, where it computes what the encoder did, to the bit |",
        "| layers that are linear | 1 of 2 |",
        "| mixer | `selective` |",
        "| window | 8 tokens on each side |",
        "| started from | zoo/bert |",
        '| `"sdpa"` | the encoder as it was | the square of the length |',
        "| `lion_rnn` | float32 | 1e-05 |",
    ):
        assert line in card, line
    (code,) = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    namespace = {}
    exec(code.replace("me/lion", str(folder)), namespace)
    assert type(namespace["model"]).__name__ == "LionBertForSequenceClassification"
    alone = linear_encoder("BertForNextSentencePrediction")
    with pytest.raises(ValueError, match="NextSentencePrediction has no task that the Hub knows"):
        auto_class_of(alone)


def test_measured_errors_are_on_the_card(checkpoint, measured):
    card = write_card(checkpoint, measured)
    worst = measured.worst("rnn", "float32")
    assert f"| `rnn` | float32 | {10.0 ** math.ceil(math.log10(worst.error)):.0e} |" in card
    assert measured.inputs in card


def test_training_and_evaluation_come_from_the_trainer(checkpoint, measured):
    card = write_card(checkpoint, measured, {"license": "mit", "datasets": ["zoo/texts"]}, trainer_state=STATE)
    for line in (
        "| data | zoo/texts |",
        "| steps | 300 |",
        "| epochs | 2.5 |",
        "| batch size per device | 16 |",
        "| highest learning rate | 0.0005 |",
        "| training loss | 6.5 at step 100, 3.75 at step 300 |",
        "| loss | 4.5 |",
    ):
        assert line in card
    assert "runtime" not in card and "samples" not in card
    card = write_card(checkpoint, measured, trainer_state=STATE, metrics={"eval_accuracy": 0.875, "train_loss": 1.0})
    assert "| accuracy | 0.875 |" in card and "| loss | 4.5 |" not in card and "train_loss" not in card


def test_there_are_no_empty_sections(checkpoint, measured):
    card = write_card(checkpoint, measured)
    full = write_card(checkpoint, measured, trainer_state=STATE, eval_results=[EvalResultEntry("a/b", "c", 1.5)])
    assert "## Training" in full and "## Training" not in card
    for text in (card, full):
        assert not re.search(r"^#.*\n+(#|\Z)", text.split("---\n", 2)[2], flags=re.MULTILINE)
        assert "None" not in text and "nan" not in text


def test_limits_fit_the_model(tmp_path, measured):
    text_checkpoint(tmp_path / "absolute", position_embedding_type="absolute")
    assert "at most 128 tokens" in write_card(tmp_path / "absolute", measured)
    image_checkpoint(tmp_path / "image", position_embedding_type="absolute")
    assert "interpolate_pos_encoding" in write_card(tmp_path / "image", measured)


def test_evaluation_results_are_in_the_format_of_the_hub(checkpoint, tmp_path):
    entry = {"dataset": {"id": "zoo/roars", "task_id": "default"}, "value": 91.5, "date": "2026-01-02", "notes": "x"}
    (tmp_path / "roars.json").write_text(json.dumps([entry]))
    made = create_bundle(checkpoint, tmp_path / "out", license="mit", eval_results=tmp_path / "roars.json")
    saved = yaml.safe_load((made.folder / ".eval_results" / "roars.yaml").read_text())
    assert saved == [entry]
    assert parse_eval_result_entries(saved)[0].value == 91.5


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ({"value": float("nan")}, "the value of zoo/roars is nan"),
        ({"source": {"name": "X"}}, "source_url"),
    ],
)
def test_results_that_the_hub_would_not_show_are_refused(tmp_path, addition, message):
    entry = {"dataset": {"id": "zoo/roars", "task_id": "default"}, "value": 91.5}
    (tmp_path / "results.yaml").write_text(yaml.safe_dump([entry | addition]))
    with pytest.raises(ValueError, match=message):
        read_eval_results(tmp_path / "results.yaml")


@pytest.mark.parametrize("content", ["", "[]", "accuracy: 0.9", '[{"value": 1}]', "{", '["a"]'])
def test_other_results_are_explained(tmp_path, content):
    (tmp_path / "results.yaml").write_text(content)
    with pytest.raises(ValueError, match="(?s)no list of evaluation results.*task_id: sst2"):
        read_eval_results(tmp_path / "results.yaml")
