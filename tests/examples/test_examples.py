# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The examples run on small real data, leave folders that load, go on where they stopped, and refuse nonsense."""

import json
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from conftest import with_masks
from datasets import Dataset
from huggingface_hub.errors import StrictDataclassError
from PIL import Image
from transformers import AutoModelForImageClassification, AutoModelForMaskedLM, TrainingArguments, pipeline

from configuration_lion import lion_preset
from modeling_lion import LionConfig, LionForImageClassification, LionForMaskedLM, LionTokenizer, lion_image_processor


EXAMPLES = Path(__file__).parents[2] / "examples"
TEXT_CONFIG = (
    "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64,max_position_embeddings=32"
)
IMAGE_CONFIG = (
    "image_size=8,patch_size=2,hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64,"
    "initializer_range=0.1"
)
TRAINING = ["--do_train", "--do_eval", "--use_cpu", "--dataloader_pin_memory", "False", "--disable_tqdm", "True"]


@pytest.fixture(scope="module")
def text_files(tmp_path_factory) -> dict[str, Path]:
    """Docstrings of torch's optimizers and of one module of the standard library."""
    folder = tmp_path_factory.mktemp("text")
    lines = [line.strip() for line in torch.optim.Adam.__doc__.splitlines() + torch.optim.SGD.__doc__.splitlines()]
    lines += [line.strip() for line in json.__doc__.splitlines() + Path.__doc__.splitlines()]
    files = {}
    for split, part in (("train", lines[:-30]), ("validation", lines[-30:])):
        files[split] = folder / f"{split}.txt"
        files[split].write_text("\n".join(part), encoding="utf-8")
    files["json"] = folder / "train.json"
    files["json"].write_text("\n".join(json.dumps({"text": line}) for line in lines if line), encoding="utf-8")
    return files


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory) -> Path:
    """Handwritten noughts and ones."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("digits")
    digits = load_digits(n_class=2)
    for index, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        name = ("nought", "one")[label]
        path = folder / ("validation" if index % 5 == 0 else "train") / name / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 255 / 16).astype("uint8")).save(path)
    return folder


def text_arguments(files: dict[str, Path], output_dir: Path, *more: str) -> list[str]:
    return [
        *("--config_name", "lion-s-text-base", "--config_overrides", TEXT_CONFIG, "--vocab_size", "300"),
        *("--train_file", str(files["train"]), "--validation_file", str(files["validation"]), *TRAINING),
        *("--output_dir", str(output_dir), "--cache_dir", str(output_dir.parent / "cache"), "--max_steps", "6"),
        *more,
    ]


def image_arguments(folder: Path, output_dir: Path, *more: str) -> list[str]:
    return [
        *("--config_name", "lion-s-image-tiny", "--config_overrides", IMAGE_CONFIG, *TRAINING),
        *("--train_dir", str(folder / "train"), "--output_dir", str(output_dir)),
        *("--cache_dir", str(output_dir.parent / "cache"), "--max_steps", "20"),
        *more,
    ]


def results(folder: Path, split: str) -> dict:
    return json.loads((folder / f"{split}_results.json").read_text())


@pytest.mark.slow
def test_mlm_leaves_metrics_and_a_folder_that_loads(text_files, tmp_path):
    out = tmp_path / "out"
    trainer = import_module("run_mlm").main(text_arguments(text_files, out))
    metrics = results(out, "eval")
    assert metrics["perplexity"] == pytest.approx(torch.tensor(metrics["eval_loss"]).exp().item(), rel=1e-5)
    assert 0 <= metrics["eval_accuracy"] <= 1
    assert "train_loss" in results(out, "train") and results(out, "all").keys() >= metrics.keys()
    model = AutoModelForMaskedLM.from_pretrained(out)
    assert isinstance(model, LionForMaskedLM)
    assert model.config.vocab_size == len(trainer.processing_class) <= 300
    answers = pipeline("fill-mask", model=str(out))("the learning [MASK] is a float", top_k=3)
    assert len(answers) == 3


def test_no_token_of_a_text_is_left_out(tmp_path):
    run_mlm = import_module("run_mlm")
    rows = Dataset.from_dict({"text": [f"a lion sleeps {n} hours where the grass gives shade" for n in range(1100)]})
    tokenizer = run_mlm.train_tokenizer(rows, LionConfig(), 100)
    found = run_mlm.tokenize(rows, tokenizer, run_mlm.DataTrainingArguments(), 4096, TrainingArguments(str(tmp_path)))
    lengths = [len(ids) for ids in found["input_ids"]]
    assert sum(lengths) == sum(map(len, tokenizer(rows["text"][:])["input_ids"])) and max(lengths) == 4096


def test_going_on_with_another_vocabulary_is_refused(tmp_path):
    run_mlm, Setup = import_module("run_mlm"), import_module("training_lion.scripts.training").Setup
    text = "a lion sleeps where the tall dry grass of the plain gives shade and wakes when night falls"
    datasets = {"train": Dataset.from_dict({"text": [text]})}
    full = len(run_mlm.train_tokenizer(datasets["train"], LionConfig(), 5000))

    def load(size, checkpoint=str(tmp_path)):
        arguments = run_mlm.MlmModelArguments(vocab_size=size)
        setup = Setup(arguments, None, TrainingArguments(str(tmp_path)), LionConfig(), checkpoint)
        return run_mlm.load_tokenizer(setup, datasets)

    load(40, checkpoint=None).save_pretrained(tmp_path)
    assert len(load(40)) == len(load(None)) == 40 < full < 5000
    for size in (39, 41, 5000):
        with pytest.raises(ValueError, match=f"--vocab_size is {size}, but the tokenizer of .* has 40 entries"):
            load(size)
    load(5000, checkpoint=None).save_pretrained(tmp_path)  # all that the text has, so a larger size asks for the same
    assert len(load(5000)) == len(load(6000)) == len(load(full)) == full


HALVING = """
import torch
from modeling_lion import register_mixer
from modeling_lion.mixers.linear import LinearMixer

@register_mixer
class HalvingMixer(LinearMixer):
    name, description = "halving", "that halves"

    def log_decay(self, hidden_states):
        return torch.full((self.config.num_attention_heads,), -0.7)
"""


@pytest.mark.slow
def test_a_mixer_of_ones_own_is_trained(text_files, tmp_path, forgets_mixers):
    (tmp_path / "halving.py").write_text(HALVING, encoding="utf-8")
    mixers = ["--mixers", str(tmp_path / "halving.py")]
    fields = ["--config_overrides", f"{TEXT_CONFIG},mixer_type=halving"]
    trainer = import_module("run_mlm").main(text_arguments(text_files, tmp_path / "mlm", *mixers, *fields))
    assert trainer.model.config.mixer_type == "halving" and (tmp_path / "mlm" / "halving.py").is_file()
    arguments = own_arguments(tmp_path / "mlm", tmp_path / "out", own_table(tmp_path, ".csv"), *mixers)
    trainer = import_module("run_glue").main([*arguments, "--max_steps", "2"])
    assert type(trainer.model.lion.layers[0].attention.mixer).__name__ == "HalvingMixer"


def test_a_mixer_that_is_not_there(text_files, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ValueError, match="--mixers names .*half.py, which is not a file"):
        import_module("run_mlm").main(text_arguments(text_files, tmp_path / "mlm", "--mixers", "half.py"))
    (tmp_path / "json.py").touch()
    with pytest.raises(ValueError, match="--mixers .*json.py: another module is called json; rename the file"):
        import_module("run_mlm").main(text_arguments(text_files, tmp_path, "--mixers", str(tmp_path / "json.py")))


@pytest.mark.parametrize("collator_class", ["DataCollatorForSeededMasking", "DataCollatorForSeededPacking"])
def test_mlm_masks_are_those_of_the_sequence_in_every_batch(collator_class):
    """So that batches of other sizes, and more processes, give the same losses."""
    texts = ["the lion sleeps in the shade of the tree", "a lion roars", "two zebras drink at the river"] * 3
    tokenizer = LionTokenizer.train_from_iterator(texts, vocab_size=80)
    rows = [tokenizer(text, return_special_tokens_mask=True) for text in texts[:3]]
    collate = getattr(import_module("run_mlm"), collator_class)(tokenizer, mlm_probability=0.5, seed=0)

    def masked(rows: list) -> list:
        """Masked tokens and labels of the sequences, one after the other, without padding."""
        batch = collate([dict(row) for row in rows])
        is_real = batch["input_ids"] != tokenizer.pad_token_id
        return list(zip(batch["input_ids"][is_real].tolist(), batch["labels"][is_real].tolist(), strict=True))

    alone = [masked([row]) for row in rows]
    assert any(label != -100 for row in alone for _, label in row)
    assert masked(rows) == sum(alone, []) and masked(rows[:0:-1]) == alone[2] + alone[1]


@pytest.mark.parametrize(
    "workers",
    [
        (),
        pytest.param(
            ("--dataloader_num_workers", "1", "--dataloader_persistent_workers", "True"), marks=pytest.mark.slow
        ),
    ],
    ids=["no_workers", "persistent_workers"],
)
def test_mlm_masks_other_tokens_in_every_epoch_and_the_same_after_a_resume(text_files, tmp_path, monkeypatch, workers):
    run_mlm = import_module("run_mlm")
    batches = []
    training_step = run_mlm.MlmTrainer.training_step

    def keep(trainer, model, inputs, *args):
        batches.append((inputs["input_ids"], inputs["labels"]))
        return training_step(trainer, model, inputs, *args)

    monkeypatch.setattr(run_mlm.MlmTrainer, "training_step", keep)
    # Three epochs of three sequences, one in a batch; stopped within the second.
    more = ("--max_train_samples", "3", "--per_device_train_batch_size", "1", "--max_steps", "9", "--save_steps", "4")
    more += ("--eval_strategy", "steps", "--eval_steps", "4", *workers)
    trainer = run_mlm.main(text_arguments(text_files, tmp_path / "whole", *more))
    masks = {}
    for input_ids, labels in batches:
        tokens = torch.where(labels == -100, input_ids, labels)
        masks.setdefault(tuple(tokens.flatten().tolist()), set()).add(tuple((labels != -100).flatten().tolist()))
    assert [len(different) for different in masks.values()] == [3, 3, 3]
    assert (int(trainer.train_collator.epoch), int(trainer.data_collator.epoch)) == (2, 0)
    assert trainer.evaluate()["eval_loss"] == results(tmp_path / "whole", "eval")["eval_loss"]

    whole = batches.copy()
    batches.clear()
    checkpoint = tmp_path / "whole" / "checkpoint-4"
    resumed = ("--resume_from_checkpoint", str(checkpoint))
    run_mlm.main(text_arguments(text_files, tmp_path / "resumed", *more, *resumed))
    for (input_ids, labels), (expected_ids, expected_labels) in zip(batches, whole[4:], strict=True):
        assert torch.equal(input_ids, expected_ids) and torch.equal(labels, expected_labels)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        ("--line_by_line", "--max_seq_length", "24"),
        ("--line_by_line", "--max_tokens_per_batch", "96"),
        ("--streaming",),
        ("--attn_implementation", "chunk", "--dtype", "bfloat16"),
        ("--max_train_samples", "4", "--max_eval_samples", "2"),
    ],
    ids=["line_by_line", "packed", "streaming", "chunk_bfloat16", "max_samples"],
)
def test_mlm_options(text_files, tmp_path, more):
    trainer = import_module("run_mlm").main(text_arguments(text_files, tmp_path / "out", *more))
    assert results(tmp_path / "out", "eval")["eval_loss"] > 0
    if "--max_train_samples" in more:
        assert (len(trainer.train_dataset), len(trainer.eval_dataset)) == (4, 2)
    if "--attn_implementation" in more:
        assert trainer.model.config._attn_implementation == "chunk" and trainer.model.dtype == torch.bfloat16


@pytest.mark.slow
def test_mlm_reads_its_arguments_from_a_file(text_files, tmp_path):
    arguments = {
        "config_name": "lion-d-text-base",
        "config_overrides": TEXT_CONFIG,
        "vocab_size": 300,
        "train_file": str(text_files["train"]),
        "output_dir": str(tmp_path / "out"),
        "cache_dir": str(tmp_path / "cache"),
        "do_train": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "max_steps": 1,
    }
    (tmp_path / "arguments.json").write_text(json.dumps(arguments))
    trainer = import_module("run_mlm").main([str(tmp_path / "arguments.json")])
    assert trainer.model.config.mixer_type == "decay" and trainer.model.config.hidden_size == 32


def test_recipe_for_mlm(text_files, tmp_path):
    more = text_arguments(text_files, tmp_path / "out")
    more = more[more.index("--config_overrides") :]  # the recipe names the configuration
    trainer = import_module("run_mlm").main(
        [str(EXAMPLES / "recipes" / "mlm-base.yaml"), *more, "--streaming", "--logging_steps", "2"]
        + ["--adam_beta2", "0.97"]
    )
    arguments = trainer.args
    assert trainer.data_collator.mlm_probability == 0.3
    assert (arguments.learning_rate, arguments.adam_beta1, arguments.adam_beta2, arguments.weight_decay) == (
        8e-4,
        0.9,
        0.97,  # given after the recipe, and so instead of its own
        1e-5,
    )
    assert arguments.get_warmup_steps(1000) == 60 and arguments.optim.startswith("adamw")
    assert trainer.state.global_step == 6 and trainer.model.config.hidden_size == 32
    assert list((tmp_path / "out").rglob("events.out.tfevents*"))
    with Image.open(tmp_path / "out" / "training.png") as image:
        assert image.size[0] > 500


@pytest.mark.slow
def test_runs_of_a_sweep_are_files(text_files, tmp_path, monkeypatch):
    """The block of the page writes them; run_mlm.py takes two, with smaller models and data."""
    page = (EXAMPLES.parent / "docs" / "guides" / "pretrain.md").read_text(encoding="utf-8")
    block, *_ = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "pretrain.md", "exec"), {})
    lines = text_files["train"].read_text(encoding="utf-8").splitlines()
    LionTokenizer.train_from_iterator(lines, 200).save_pretrained("tokenizer")  # as the line above the runs
    files = sorted(tmp_path.glob("run-*.yaml"))
    runs = [yaml.safe_load(path.read_text()) for path in files]
    assert len({run["learning_rate"] for run in runs}) == 8 and all(
        5e-4 <= run["learning_rate"] <= 5e-3 for run in runs
    )
    more = text_arguments(text_files, tmp_path / "out")[2:]  # the file names the configuration
    of_files = {"--output_dir", "--vocab_size"}
    more = [word for n, word in enumerate(more) if not of_files & {*more[max(n - 1, 0) : n + 1]}]
    for path, run in zip(files[:2], runs, strict=False):
        trainer = import_module("run_mlm").main([str(path), *more, "--max_seq_length", "24"])
        assert trainer.args.learning_rate == run["learning_rate"] and trainer.args.seed == run["seed"]
        folder = tmp_path / run["output_dir"]
        assert list(folder.rglob("events.out.tfevents*")) and "eval_loss" in results(folder, "eval")


def test_recipe_for_mlm_large_differs_in_size_and_learning_rate():
    base, large = (
        yaml.safe_load((EXAMPLES / "recipes" / f"mlm-{size}.yaml").read_text()) for size in ("base", "large")
    )
    differ = {name: large[name] for name in base.keys() | large.keys() if base.get(name) != large.get(name)}
    assert differ == {"config_name": "lion-text-large", "learning_rate": "2e-4"}


def test_the_length_follows_config_overrides(tmp_path):
    models, arguments = (import_module(f"training_lion.scripts.{name}") for name in ("models", "arguments"))
    lion_preset("lion-text-small").save_pretrained(tmp_path)
    for name in ("lion-text-small", str(tmp_path)):
        model_args = arguments.ModelArguments(config_name=name, config_overrides="max_position_embeddings=2048")
        assert models.load_config(model_args).context_length == 2048


def test_words_of_a_recipe_stay_words(tmp_path):
    """To YAML, they are true and false."""
    arguments = import_module("training_lion.scripts.arguments")
    (tmp_path / "recipe.yaml").write_text(
        "output_dir: yes\nmixers: [on, off]\nsave_strategy: no\ndo_train: yes\ndo_eval: no\nbf16: false\n"
        "accelerator_config: {even_batches: false}\ncache_dir: 2024_01\nconfig_name: 12:30\ndtype:\n"
    )
    classes = (arguments.ModelArguments, arguments.TrainingArguments)
    model_args, training_args = arguments.parse_arguments(classes, [str(tmp_path / "recipe.yaml")])
    assert (training_args.output_dir, model_args.mixers) == ("yes", ["on", "off"])
    assert (model_args.cache_dir, model_args.config_name, model_args.dtype) == ("2024_01", "12:30", None)
    assert training_args.save_strategy == "no" and training_args.do_train and not training_args.do_eval
    assert not training_args.bf16 and training_args.accelerator_config.even_batches is False


def test_a_recipe_must_hold_arguments(tmp_path):
    (tmp_path / "recipe.yaml").write_text("learning_rate")
    with pytest.raises(ValueError, match="must hold arguments by name"):
        import_module("run_mlm").main([str(tmp_path / "recipe.yaml")])
    (tmp_path / "recipe.yaml").write_text("output_dir: here\nlaerning_rate: 1.0")
    with pytest.raises(ValueError, match="laerning_rate"):
        import_module("run_mlm").main([str(tmp_path / "recipe.yaml")])
    with pytest.raises(ValueError, match="There is nothing to do"):  # an option that ends so is none
        import_module("run_mlm").main(
            [f"--train_file={tmp_path / 'recipe.json'}", "--output_dir", str(tmp_path / "out")]
        )


@pytest.mark.slow
def test_recipe_for_images(image_folder, tmp_path):
    """Mixtures, crops and mirror images teach it, too, new ones in every epoch and the same ones after a resume."""
    recipe = str(EXAMPLES / "recipes" / "images.yaml")
    common = "--report_to none --max_steps 48 --max_train_samples 128 --per_device_train_batch_size 8 --mixup 0.4"
    common += " --min_crop 0.8 --learning_rate 5e-3 --eval_strategy no --save_strategy steps --save_steps 24"
    common = [*common.split(), "--config_overrides", IMAGE_CONFIG + ",patch_order=snake"]
    module = import_module("run_image_classification")
    whole = module.main([recipe, *image_arguments(image_folder, tmp_path / "whole", *common)])
    assert type(whole).__name__ == "MixupTrainer" and whole.args.label_smoothing_factor == 0.1
    assert whole.model.config.patch_order == "snake"
    assert results(tmp_path / "whole", "eval")["eval_accuracy"] > 0.7
    shutil.copytree(tmp_path / "whole" / "checkpoint-24", tmp_path / "again" / "checkpoint-24")
    again = module.main([recipe, *image_arguments(image_folder, tmp_path / "again", *common)])
    for name, parameter in again.model.named_parameters():
        torch.testing.assert_close(parameter, whole.model.get_parameter(name), atol=1e-6, rtol=1e-5, msg=name)
    epoch = whole.train_dataset.format["format_kwargs"]["transform"].epoch
    assert int(epoch) == 2
    images = []
    for n in (0, 1, 1):
        epoch.fill_(n)
        images.append(torch.stack(whole.train_dataset[:8]["pixel_values"]))
    assert not torch.equal(images[0], images[1]) and torch.equal(images[1], images[2])


@pytest.mark.parametrize(("processes", "count"), [(1, 4), (2, 8)])
def test_mixtures_have_the_mean_over_all_processes(processes, count):
    """DDP averages gradients, and `num_items_in_batch` counts the images of all."""
    trainer_class = import_module("run_image_classification").MixupTrainer
    trainer = trainer_class.__new__(trainer_class)
    trainer.mixup, trainer.state, trainer.get_tp_size = 0.4, SimpleNamespace(global_step=0), lambda: 1
    trainer.accelerator = SimpleNamespace(num_processes=processes)
    arguments = {"seed": 0, "process_index": 0, "label_smoothing_factor": 0.0}
    trainer.args = SimpleNamespace(**arguments, average_tokens_across_devices=True)
    inputs = {"pixel_values": torch.rand(4, 3, 2, 2), "labels": torch.tensor([0, 1, 0, 1])}
    answer = SimpleNamespace(logits=torch.zeros(4, 2))
    model = type("Model", (), {"training": True, "__call__": lambda self, pixel_values: answer})()
    loss = trainer.compute_loss(model, inputs, num_items_in_batch=torch.tensor(count))
    torch.testing.assert_close(loss, torch.tensor(2.0).log())


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            "mixer_type=delta,largest_beta=2.0,normalization=rms,feature_map=silu",
            {"mixer_type": "delta", "largest_beta": 2.0},
        ),
        ("num_key_heads=2,classifier_dropout=0.1", {"num_key_heads": 2, "classifier_dropout": 0.1}),
        ("mixer_type=lit,use_gated_mlp=no", {"mixer_type": "lit", "use_gated_mlp": False}),
        ("layer_norm_eps=1e-4,hidden_dropout_prob=0", {"layer_norm_eps": 1e-4, "hidden_dropout_prob": 0.0}),
        (
            'num_hidden_layers=2,layer_types=["linear_attention","full_attention"]',
            {"layer_types": ["linear_attention", "full_attention"]},
        ),
    ],
)
@pytest.mark.parametrize("is_saved", [False, True])
def test_every_field_can_be_overridden(overrides, expected, is_saved, tmp_path):
    """Also those without a value, lists, and fields of a mixer's own."""
    models, name = import_module("training_lion.scripts.models"), "lion-text-base"
    if is_saved:
        lion_preset(name).save_pretrained(tmp_path)
        name = str(tmp_path)
    arguments = import_module("training_lion.scripts.arguments").ModelArguments(
        config_name=name, config_overrides=overrides
    )
    config = models.load_config(arguments)
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize("segmentation", [False, pytest.param(True, marks=with_masks)], ids=["classes", "masks"])
def test_a_trained_image_model_reads_images_of_the_size_that_is_asked_for(segmentation, tmp_path):
    """Or says that it cannot: a table of positions is of one size."""
    models = import_module("training_lion.scripts.models")
    size = {"image_size": 8, "patch_size": 2, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    for name, positions in (("free", "none"), ("table", "absolute")):
        config = lion_preset("lion-image-small", **size, position_embedding_type=positions)
        LionForImageClassification(config).save_pretrained(tmp_path / name)
        lion_image_processor(config, segmentation, image_mean=[0.1, 0.2, 0.3]).save_pretrained(tmp_path / name)

    def load(name, overrides):
        folder = str(tmp_path / name)
        arguments = import_module("training_lion.scripts.arguments").ModelArguments(
            model_name_or_path=folder, config_overrides=overrides
        )
        config = models.load_config(arguments)
        model = models.load_model(AutoModelForImageClassification, arguments, config)
        return model, models.load_processor(arguments, config, segmentation)

    model, processor = load("free", "image_size=[16,32]")
    pixels = processor(Image.new("RGB", (20, 20)), return_tensors="pt")["pixel_values"]
    assert pixels.shape[2:] == (16, 32) and model(pixels).logits.shape == (1, 2)
    assert [*processor.image_mean] == [0.1, 0.2, 0.3]
    assert hasattr(processor, "post_process_semantic_segmentation") == segmentation
    for name in ("free", "table"):
        assert load(name, "hidden_dropout_prob=0.2")[1].size["height"] == 8
    with pytest.raises(ValueError, match="has image_size=16, but .*table has weights for its own size"):
        load("table", "image_size=16")


GLUE_ROWS = {
    "cola": ({"sentence": "The lion sleeps."}, {"sentence": "Sleeps sleeps the."}),
    "sst2": ({"sentence": "a dull lion"}, {"sentence": "a fine lion"}),
    "mrpc": ({"sentence1": "It roars.", "sentence2": "It flies."}, {"sentence1": "It roars.", "sentence2": "A roar."}),
    "stsb": ({"sentence1": "It roars.", "sentence2": "It flies."}, {"sentence1": "It roars.", "sentence2": "A roar."}),
    "qqp": ({"question1": "Who?", "question2": "When?"}, {"question1": "Who?", "question2": "Who is it?"}),
    "mnli": ({"premise": "It roars.", "hypothesis": "It is loud."}, {"premise": "It roars.", "hypothesis": "It may."}),
    "qnli": ({"question": "Who roars?", "sentence": "A lion."}, {"question": "Who roars?", "sentence": "At dawn."}),
    "rte": (
        {"sentence1": "It roars.", "sentence2": "It is loud."},
        {"sentence1": "It roars.", "sentence2": "It flies."},
    ),
}


@pytest.fixture(scope="module")
def glue_model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("glue") / "model"
    texts = [text for rows in GLUE_ROWS.values() for row in rows for text in row.values()]
    tokenizer = LionTokenizer.train_from_iterator(texts, vocab_size=120)
    sizes = dict(part.split("=") for part in TEXT_CONFIG.split(","))
    config = LionConfig(vocab_size=len(tokenizer), initializer_range=0.1, **{k: int(v) for k, v in sizes.items()})
    torch.manual_seed(0)  # a fixture of the module is made before `repeatable`
    LionForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def glue_arguments(task: str, model: Path, output_dir: Path, file: Path) -> list[str]:
    """Of a task of the benchmark, by its recipe."""
    arguments = [str(EXAMPLES / "recipes" / "glue.yaml"), "--task_name", task, "--model_name_or_path", str(model)]
    arguments += ["--train_file", str(file), "--validation_file", str(file), *TRAINING]
    return [*arguments, "--output_dir", str(output_dir), "--cache_dir", str(output_dir.parent / "cache")]


@pytest.mark.slow
@pytest.mark.parametrize("task", GLUE_ROWS)
def test_glue(task, glue_model, tmp_path):
    """Tasks are measured as the benchmark measures them; those of a kind learn two examples by heart."""
    module = import_module("run_glue")
    kind = module.GLUE_TASKS[task]
    labels = list(kind.labels[:2]) if task in ("rte", "mnli") else [0, 1] if kind.labels else [0.5, 4.5]
    rows = [json.dumps(row | {"label": label}) for row, label in zip(GLUE_ROWS[task], labels, strict=True)] * 8
    (tmp_path / "data.jsonl").write_text("\n".join(rows))
    is_trained = task in ("cola", "mnli", "stsb")
    options = ["--do_train", str(is_trained), "--max_steps", "24", "--learning_rate", "5e-3"]
    options += ["--per_device_train_batch_size", "8", "--max_seq_length", "24"]
    options += ["--report_to", "none", "--eval_strategy", "no", "--save_strategy", "no"]
    trainer = module.main([*glue_arguments(task, glue_model, tmp_path / "out", tmp_path / "data.jsonl"), *options])
    metrics = results(tmp_path / "out", "eval")
    for name in kind.metrics:
        assert metrics[f"eval_{name}"] == (pytest.approx(1, abs=0.02) if is_trained else pytest.approx(0, abs=1)), name
    assert trainer.model.config.num_labels == max(1, len(kind.labels))


def test_glue_goes_on_from_a_checkpoint_and_logs(glue_model, tmp_path):
    rows = [json.dumps(row | {"label": i}) for i, row in enumerate(GLUE_ROWS["rte"])] * 16
    (tmp_path / "data.jsonl").write_text("\n".join(rows))

    def run(output_dir):
        arguments = glue_arguments("rte", glue_model, output_dir, tmp_path / "data.jsonl")
        options = ["--per_device_train_batch_size", "4", "--save_steps", "5", "--num_train_epochs", "1"]
        trainer = import_module("run_glue").main([*arguments, *options])
        return trainer.model.state_dict()

    whole = run(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole" / "checkpoint-5", tmp_path / "again" / "checkpoint-5")
    resumed = run(tmp_path / "again")
    assert all(torch.equal(resumed[name], weight) for name, weight in whole.items())
    assert list((tmp_path / "whole").rglob("events.out.tfevents*")) and (tmp_path / "whole" / "training.png").exists()


def test_glue_refuses(glue_model, tmp_path):
    module = import_module("run_glue")
    arguments = glue_arguments("rte", glue_model, tmp_path / "out", tmp_path / "data.json")
    for row, message in (
        ({"sentence1": "a", "label": 0}, "has no column sentence2, but sentence1, label"),
        (
            {"sentence1": "a", "sentence2": "b", "label": "maybe"},
            "has the labels entailment, not_entailment; the data",
        ),
    ):
        (tmp_path / "data.json").write_text(json.dumps(row))
        with pytest.raises(ValueError, match=message):
            module.main(arguments)
    position = arguments.index("--validation_file")
    del arguments[position : position + 2]
    with pytest.raises(ValueError, match="give --train_file and --validation_file"):
        module.main(arguments)


def test_glue_refuses_texts_longer_than_a_table_of_positions(glue_model, tmp_path):
    config = LionConfig.from_pretrained(glue_model, mixer_type="lit", position_embedding_type=None)
    LionForMaskedLM(config).save_pretrained(tmp_path / "table")
    LionTokenizer.from_pretrained(glue_model).save_pretrained(tmp_path / "table")
    args = own_arguments(tmp_path / "table", tmp_path / "out", own_table(tmp_path, ".csv"), "--max_seq_length", "64")
    with pytest.raises(ValueError, match="--max_seq_length is 64 tokens, .* 32 .*: give --max_seq_length 32"):
        import_module("run_glue").main(args)


OWN_ROWS = [("a fine lion", "good"), ("a dull lion", "bad"), ("a fine day", "good"), ("a dull day", "bad")]


def own_table(folder: Path, suffix: str, **columns: list) -> str:
    """A table of these columns as a file; "text" and "label" unless given."""
    columns = {"text": [row[0] for row in OWN_ROWS], "label": [row[1] for row in OWN_ROWS]} | columns
    dataset = Dataset.from_dict({name: values for name, values in columns.items() if values is not None})
    path = folder / f"data{suffix}"
    {".csv": dataset.to_csv, ".jsonl": dataset.to_json, ".parquet": dataset.to_parquet}[suffix](path)
    return str(path)


def own_arguments(model: Path, output_dir: Path, file: str, *more: str) -> list[str]:
    arguments = ["--model_name_or_path", str(model), "--train_file", file, "--validation_file", file, *TRAINING]
    arguments += ["--output_dir", str(output_dir), "--cache_dir", str(output_dir.parent / "cache")]
    return [*arguments, "--report_to", "none", "--save_strategy", "no", "--max_steps", "20", *more]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suffix", "columns", "labels"),
    [
        (".csv", {}, {0: "bad", 1: "good"}),
        (".parquet", {"label": [7, 3, 7, 3], "source": [1, 2, 3, 4]}, {0: "3", 1: "7"}),
        (".jsonl", {"pair": ["yes", "no", "yes", "no"]}, {0: "bad", 1: "good"}),
        (".jsonl", {"label": [["fine", "x"], ["dull", "x"], ["fine"], ["dull"]]}, {0: "dull", 1: "fine", 2: "x"}),
        (".csv", {"label": [4.5, 0.5, 4.0, 1.0]}, {0: "LABEL_0"}),
    ],
    ids=["names", "numbers", "pairs", "many_labels", "regression"],
)
def test_a_table_of_ones_own_needs_no_task(glue_model, tmp_path, suffix, columns, labels):
    module, out = import_module("run_glue"), tmp_path / "out"
    file = own_table(tmp_path, suffix, **columns)
    names = ["--text_columns", "text", "pair"] if "pair" in columns else []
    trainer = module.main(own_arguments(glue_model, out, file, "--learning_rate", "5e-3", "--max_steps", "40", *names))
    assert trainer.model.config.id2label == labels
    assert {*trainer.train_dataset.column_names} == {"input_ids", "token_type_ids", "attention_mask", "labels"}
    metrics = results(out, "eval")
    assert metrics["eval_pearson" if len(labels) == 1 else "eval_accuracy"] > 0.9
    # Texts alone get labels and scores.
    (tmp_path / "texts").mkdir()
    texts = own_table(tmp_path / "texts", ".parquet", label=None, pair=columns.get("pair"))
    arguments = ["--model_name_or_path", str(out), "--do_predict", "--predict_file", texts, *names, "--use_cpu"]
    module.main([*arguments, "--output_dir", str(tmp_path / "labelled"), "--report_to", "none"])
    rows = [json.loads(line) for line in (tmp_path / "labelled" / "predictions.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == [text for text, _ in OWN_ROWS]
    if len(labels) == 1:
        assert all(abs(row["score"] - value) < 2 for row, value in zip(rows, columns["label"], strict=True))
        return
    expected = columns.get("label", [label for _, label in OWN_ROWS])
    assert [sorted(row["labels"]) if len(labels) == 3 else row["label"] for row in rows] == [
        x if isinstance(x, list) else str(x) for x in expected
    ]
    assert all(row["scores"].keys() == {*labels.values()} for row in rows)
    # Evaluated alone, the model says what the labels are.
    arguments = own_arguments(out, tmp_path / "again", file, *names)
    arguments.remove("--do_train")
    del arguments[2:4]
    module.main(arguments)
    assert results(tmp_path / "again", "eval")["eval_accuracy"] == metrics["eval_accuracy"]


def test_the_length_of_the_training_is_remembered(glue_model, tmp_path, capsys):
    """Labels are in a column of another name."""
    module, file, model = (
        import_module("run_glue"),
        own_table(tmp_path, ".csv", label=None, kind=list("wxyz")),
        tmp_path / "out",
    )
    options = ("--max_steps", "1", "--max_seq_length", "4", "--label_column", "kind")
    module.main(own_arguments(glue_model, model, file, *options))
    assert "train: 4 of 4 texts are cut off at 4 tokens" in capsys.readouterr().out
    assert LionTokenizer.from_pretrained(model).model_max_length == 4
    arguments = own_arguments(model, tmp_path / "again", file, "--label_column", "kind")
    arguments.remove("--do_train")
    trainer = module.main(arguments)
    assert all(len(ids) == 4 for ids in trainer.eval_dataset["input_ids"])


def test_neither_a_task_nor_a_file(glue_model, tmp_path):
    arguments = own_arguments(glue_model, tmp_path / "out", "file")
    position = arguments.index("--train_file")
    del arguments[position : position + 4]
    with pytest.raises(ValueError, match="Give --task_name .one of cola, .*or data of your own by --train_file"):
        import_module("run_glue").main(arguments)


def test_mlm_refuses_data_without_text(text_files, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n  \n\n")
    with pytest.raises(ValueError, match="no text in 3 rows"):
        import_module("run_mlm").main(text_arguments(text_files | {"validation": empty}, tmp_path / "out"))


@pytest.mark.parametrize("trains", [True, False])
def test_who_held_rows_out_is_said(trains, tmp_path, caplog):
    arguments = TrainingArguments(tmp_path, do_train=trains, do_eval=True, use_cpu=True, report_to="none")
    import_module("training_lion.scripts.data_files").warn_of_seen_rows(arguments)
    assert ("A training without --do_eval has read it" in caplog.text) == (not trains)


@pytest.mark.slow
def test_mlm_splits_off_a_validation(text_files, tmp_path):
    args = text_arguments({"train": text_files["json"], "validation": ""}, tmp_path / "out", "--line_by_line")
    position = args.index("--validation_file")
    args[position : position + 2] = ["--validation_split_percentage", "20"]
    trainer = import_module("run_mlm").main(args)
    assert len(trainer.eval_dataset) == pytest.approx(0.25 * len(trainer.train_dataset), abs=1)


@pytest.mark.slow
def test_mlm_goes_on_from_a_model_and_from_a_checkpoint(text_files, tmp_path):
    run_mlm = import_module("run_mlm")
    whole = run_mlm.main(text_arguments(text_files, tmp_path / "whole", "--save_steps", "3", "--max_steps", "6"))
    checkpoint = tmp_path / "whole" / "checkpoint-3"
    # Asked for by name, in another folder; and found in the output folder itself.
    named = ("--resume_from_checkpoint", str(checkpoint))
    resumed = run_mlm.main(text_arguments(text_files, tmp_path / "resumed", *named))
    found = run_mlm.main(text_arguments(text_files, tmp_path / "whole", "--max_steps", "7"))
    assert resumed.state.global_step == 6 and found.state.global_step == 7
    # Killed while a checkpoint was written: the last file is not there.
    shutil.copytree(tmp_path / "whole" / "checkpoint-7", tmp_path / "whole" / "checkpoint-9")
    (tmp_path / "whole" / "checkpoint-9" / "trainer_state.json").unlink()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "whole" / "checkpoint-9" / name).unlink()
    named = ("--max_steps", "8", "--resume_from_checkpoint", str(tmp_path / "whole" / "checkpoint-9"))
    with pytest.raises(ValueError, match="checkpoint-9 is incomplete: .* Go on from .*checkpoint-7"):
        run_mlm.main(text_arguments(text_files, tmp_path / "whole", *named))
    last = run_mlm.main(text_arguments(text_files, tmp_path / "whole", *named[:-1]))
    assert last.state.global_step == 8
    for name, weight in whole.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], weight, rtol=0, atol=0)

    args = text_arguments(text_files, tmp_path / "evaluated")
    args[:6] = ["--model_name_or_path", str(tmp_path / "resumed")]
    args[args.index("--do_train")] = "--max_train_samples=2"  # says nothing of an evaluation
    run_mlm.main(args)
    assert results(tmp_path / "evaluated", "eval")["eval_loss"] == pytest.approx(
        results(tmp_path / "resumed", "eval")["eval_loss"], rel=1e-6
    )


def test_mlm_refuses_to_go_on_from_the_checkpoint_of_another_model(text_files, tmp_path):
    """Whether it is found in the folder or asked for."""
    run_mlm = import_module("run_mlm")
    run_mlm.main(text_arguments(text_files, tmp_path / "out", "--max_steps", "1"))
    other = TEXT_CONFIG + ",feature_map=elu,hidden_dropout_prob=0.1,chunk_size=16"
    more = ["--config_overrides", other, "--max_steps", "2"]
    for resumed in ([], ["--resume_from_checkpoint", str(tmp_path / "out" / "checkpoint-1")]):
        with pytest.raises(
            ValueError, match="feature_map silu_norm .now elu., hidden_dropout_prob 0.0 .*--output_dir"
        ) as e:
            run_mlm.main(text_arguments(text_files, tmp_path / "out", *more, *resumed))
        assert "chunk_size" not in str(e.value)
    same = run_mlm.main(
        text_arguments(text_files, tmp_path / "out", "--max_steps", "2")
        + ["--config_overrides", TEXT_CONFIG + ",chunk_size=16"]
    )
    assert same.state.global_step == 2


@pytest.mark.slow
def test_image_classification_leaves_metrics_and_a_folder_that_loads(image_folder, tmp_path):
    out = tmp_path / "out"
    args = ("--validation_dir", str(image_folder / "validation"), "--learning_rate", "3e-3", "--min_crop", "0.9")
    import_module("run_image_classification").main(image_arguments(image_folder, out, *args))
    assert results(out, "eval")["eval_accuracy"] > 0.8  # noughts and ones
    assert "train_loss" in results(out, "all")
    model = AutoModelForImageClassification.from_pretrained(out)
    assert isinstance(model, LionForImageClassification)
    assert model.config.id2label == {0: "nought", 1: "one"} and model.config.label2id == {"nought": 0, "one": 1}
    files = sorted((image_folder / "validation").glob("*/*.png"))
    answers = pipeline("image-classification", model=str(out))([str(file) for file in files], top_k=1)
    is_right = [answer[0]["label"] == file.parent.name for answer, file in zip(answers, files, strict=True)]
    assert sum(is_right) / len(files) == pytest.approx(results(out, "eval")["eval_accuracy"])


@pytest.mark.slow
def test_image_classification_fine_tunes_on_other_labels(image_folder, tmp_path):
    script = import_module("run_image_classification")
    ten = ("--config_overrides", IMAGE_CONFIG + ",num_channels=1", "--max_steps", "2", "--random_flip")
    script.main(image_arguments(image_folder, tmp_path / "first", *ten))
    args = image_arguments(image_folder, tmp_path / "second", "--max_steps", "2", "--train_val_split", "0.5")
    args[:4] = ["--model_name_or_path", str(tmp_path / "first")]
    trainer = script.main(args)
    assert trainer.model.config.num_channels == 1
    assert len(trainer.train_dataset) == pytest.approx(len(trainer.eval_dataset), abs=1)


@pytest.mark.slow
def test_image_classification_goes_by_the_names_of_the_classes(image_folder, tmp_path):
    script = import_module("run_image_classification")
    only = {name: tmp_path / f"only-{name}" for name in ("one", "nought", "two", "others")}
    for folder, name, new_name in (
        ("one", "one", "one"),
        ("nought", "nought", "nought"),
        ("two", "one", "two"),
        ("others", "one", "two"),
        ("others", "nought", "three"),
    ):
        shutil.copytree(image_folder / "validation" / name, only[folder] / new_name)

    # Folders of one class have the label 0 for it, whatever it is in the model.
    out = tmp_path / "out"
    more = ("--validation_dir", str(only["one"]), "--learning_rate", "3e-3")
    script.main(image_arguments(image_folder, out, *more))
    accuracies = {"one": results(out, "eval")["eval_accuracy"]}
    model_args = ["--model_name_or_path", str(out), *TRAINING[2:], "--cache_dir", str(tmp_path / "cache")]

    def evaluate(folder):
        script.main(
            [*model_args, "--do_eval", "--validation_dir", str(folder), "--output_dir", str(tmp_path / "eval")]
        )
        return results(tmp_path / "eval", "eval")["eval_accuracy"]

    assert evaluate(only["one"]) == accuracies["one"] > 0.8
    assert evaluate(only["nought"]) > 0.8
    with pytest.raises(ValueError, match=r"model has the labels nought, one; the data has two \(validation images\)"):
        evaluate(only["two"])
    with pytest.raises(ValueError, match=r"the data has two \(validation"):
        script.main(image_arguments(image_folder, tmp_path / "other", "--validation_dir", str(only["two"])))

    # Going on with fewer classes keeps the model's labels; others need a new head.
    def go_on(*more):
        return script.main(
            [*model_args, "--do_train", "--output_dir", str(tmp_path / "more"), "--max_steps", "1", *more]
        )

    assert go_on("--train_dir", str(only["one"])).model.config.label2id == {"nought": 0, "one": 1}
    shutil.rmtree(tmp_path / "more")
    with pytest.raises(ValueError, match="classes three, two of the training images.*--ignore_mismatched_sizes"):
        go_on("--train_dir", str(only["others"]))
    trainer = go_on("--train_dir", str(only["others"]), "--ignore_mismatched_sizes")
    assert trainer.model.config.id2label == {0: "three", 1: "two"}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"--train_file": "missing.txt"}, FileNotFoundError, "--train_file missing.txt"),
        ({"--train_file": None}, ValueError, "--do_train needs --train_file"),
        ({"--dataset_name": "wikitext"}, ValueError, "or by --dataset_name"),
        ({"--model_name_or_path": "somewhere"}, ValueError, "either --model_name_or_path"),
        ({"--config_name": "lion-xl"}, ValueError, "Did you mean lion-text-small"),
        ({"--config_overrides": "hidden_size"}, ValueError, "field=value"),
        ({"--config_overrides": "hidden_size=33"}, StrictDataclassError, "num_attention_heads"),
        ({"--config_overrides": "width=32"}, ValueError, "width"),
        ({"--config_overrides": "vocab_size=99"}, ValueError, "--vocab_size"),
        (
            {"--config_overrides": TEXT_CONFIG + ",mixer_type=lit", "--max_seq_length": "64"},
            ValueError,
            "--max_seq_length is 64 tokens, the model has positions for 32 .*: give --max_seq_length 32",
        ),
        ({"--tokenizer_name": "somewhere"}, ValueError, "--vocab_size is for a new tokenizer"),
        ({"--mlm_probability": "1.5"}, ValueError, "mlm_probability"),
        ({"--validation_split_percentage": "0"}, ValueError, "1 to 99"),
        ({"--resume_from_checkpoint": "missing"}, ValueError, "missing is no folder"),
        ({"--streaming": "True", "--max_steps": None}, ValueError, "--max_steps"),
        ({"--streaming": "True", "--max_tokens_per_batch": "64"}, ValueError, "--max_tokens_per_batch needs"),
        ({"--attn_implementation": "sdpa"}, ValueError, "not a form of the mixer"),
    ],
)
def test_mlm_refuses(text_files, tmp_path, change, error, message):
    args = text_arguments(text_files, tmp_path / "out")
    for name, value in change.items():
        if name in args:
            position = args.index(name)
            args[position : position + 2] = [] if value is None else [name, value]
        else:
            args += [name, value]
    with pytest.raises(error, match=message):
        import_module("run_mlm").main(args)
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (("--validation_dir", "missing"), FileNotFoundError, "--validation_dir missing"),
        (("--train_dir", "nought"), ValueError, "one sub-folder per class"),
        (("--train_val_split", "1"), ValueError, "between 0 and 1"),
        (("--min_crop", "0"), ValueError, "min_crop"),
        (("--image_column_name", "photo"), ValueError, "no column photo, but image, label"),
        (("--dataset_name", "mnist"), ValueError, "or by --dataset_name"),
    ],
)
def test_image_classification_refuses(image_folder, tmp_path, more, error, message):
    more = tuple(str(image_folder / "train" / value) if value == "nought" else value for value in more)
    with pytest.raises(error, match=message):
        import_module("run_image_classification").main(image_arguments(image_folder, tmp_path / "out", *more))


def test_docstrings_are_found_once_and_files_do_not_straddle_the_split(tmp_path):
    docstrings = import_module("training_lion.scripts.docstrings")
    folder = str(Path(json.__file__).parents[1] / "concurrent"), str(Path(json.__file__).parent)
    train, validation = docstrings.collect_docstrings(folder, seed=3)
    assert train and validation and not train.keys() & validation.keys()
    texts = [text for split in (train, validation) for texts in split.values() for text in texts]
    assert len({text.lower() for text in texts}) == len(texts) > 20
    assert not any("\n" in text or ">>>" in text for text in texts)
    assert (train, validation) == docstrings.collect_docstrings(folder, seed=3)
    (tmp_path / "broken.py").write_text("def f(:\n")
    with pytest.raises(ValueError, match="too few docstrings"):
        docstrings.collect_docstrings([str(tmp_path)])


def test_demo_clears_only_its_own_folder(tmp_path):
    demo = import_module("demo")
    mine, others = tmp_path / "mine", tmp_path / "others"
    demo.empty_folder(mine)
    (mine / "stale").touch()
    demo.empty_folder(mine)
    assert not (mine / "stale").exists()
    others.mkdir()
    (others / "thesis.txt").touch()
    with pytest.raises(SystemExit, match="not made by the demo"):
        demo.empty_folder(others)
    assert (others / "thesis.txt").exists()


@pytest.mark.parametrize(("busy", "threads"), [(0.0, 2), (30.0, 1), (55.0, 1), (100.0, 1)])
def test_demo_takes_the_threads_that_are_idle(monkeypatch, capsys, busy, threads):
    demo = import_module("demo")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(demo.psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr(demo.psutil, "cpu_percent", lambda interval: busy)
    torch.set_num_threads(2)
    demo.use_idle_threads()
    assert torch.get_num_threads() == threads
    assert f"use {busy / 50:.1f} of 2 cores: computing with {threads} of 2 threads" in capsys.readouterr().out
    torch.set_num_threads(2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # asked for
    demo.use_idle_threads()
    assert torch.get_num_threads() == 2 and not capsys.readouterr().out
