# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
import json
import pickle
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch
import yaml
from conftest import with_masks
from deploy_lion.cli import main
from hub_checkpoints import TEXTS, image_checkpoint, linear_checkpoint, text_checkpoint, text_tokenizer
from hub_upload_lion import create_bundle, load_in_clean_process
from hub_upload_lion.checkpoint import load_model
from hub_upload_lion.publish import clean_process
from hub_upload_lion.publish.bundle import is_bundle, open_bundle
from hub_upload_lion.publish.refusals import find_refusals
from safetensors.torch import load_file, save_file
from safetensors.torch import save as safetensors
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, BertTokenizer

import modeling_lion
from configuration_lion import AUTO_MODELS
from modeling_lion import LionForMaskedLM, LionTokenizer
from modeling_lion.attention.implementation_names import FORMS
from modeling_lion.attention.lion_attention import lion_attention
from modeling_lion.linearized.attention_functions import LINEARIZED_FORMS
from modeling_lion.mixers.linear import LinearMixer
from modeling_lion.portable_code import portable_code


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return text_checkpoint(tmp_path_factory.mktemp("bundle") / "text")


@pytest.fixture(scope="module")
def bundle(checkpoint, tmp_path_factory):
    target = tmp_path_factory.mktemp("bundle") / "made"
    return create_bundle(checkpoint, target, license="apache-2.0", name="me/lion")


@pytest.fixture
def measured_before(bundle, monkeypatch):
    """For tests of other things: measuring the kernels takes most of the time."""
    monkeypatch.setattr(
        "hub_upload_lion.publish.bundle.verify_checkpoint", lambda *args, **kwargs: bundle.verification
    )


def test_a_bundle_is_complete(bundle):
    code = {"configuration_lion.py", "modeling_lion.py", "triton_lion.py"}
    data = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert set(bundle.files) == code | data
    assert bundle.files == {path.name: path.stat().st_size for path in bundle.folder.iterdir()}
    assert bundle.verification.passed and bundle.metadata["license"] == "apache-2.0"
    config = json.loads((bundle.folder / "config.json").read_text())
    assert config["auto_map"] == {"AutoConfig": "configuration_lion.LionConfig"} | {
        auto_class: f"modeling_lion.{model}" for auto_class, model in AUTO_MODELS["text"].items()
    }


def test_whoever_may_read_one_file_may_read_all(bundle):
    assert len({path.stat().st_mode for path in bundle.folder.rglob("*") if path.is_file()}) == 1


def test_the_code_is_that_of_the_package(bundle):
    code = {path.name: path.read_text(encoding="utf-8") for path in bundle.folder.glob("*.py")}
    assert code == portable_code()


def test_every_auto_class_is_in_the_auto_map():
    classes = [getattr(modeling_lion, name) for name in modeling_lion.__all__]
    models = {c.__name__ for c in classes if isinstance(c, type) and issubclass(c, modeling_lion.LionPreTrainedModel)}
    assert models - {"LionPreTrainedModel"} == {m for names in AUTO_MODELS.values() for m in names.values()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "grey image",
        pytest.param("segmented image", marks=with_masks),
        "BertForMaskedLM",
        "ViTForImageClassification",
    ],
)
def test_a_bundle_works_where_the_package_is_not(kind, tmp_path):
    """tests/repository/test_recommended.py uploads the others, texts and images in colours."""
    is_linear = kind.endswith(("LM", "Classification"))
    if is_linear:
        folder = linear_checkpoint(tmp_path / "in", kind)
    else:
        options = {"num_channels": 1} if kind == "grey image" else {"class_name": "LionForSemanticSegmentation"}
        folder = image_checkpoint(tmp_path / "in", **options)
    folder = create_bundle(folder, tmp_path / "out", license="mit").folder
    result = load_in_clean_process(folder)
    assert set(result.kernels) == set(LINEARIZED_FORMS if is_linear else FORMS)
    assert result.model_class.startswith("transformers_modules.")
    tasks = {"grey image": "image-classification", "segmented image": "image-segmentation"}
    tasks |= {"BertForMaskedLM": "fill-mask", "ViTForImageClassification": "image-classification"}
    assert result.pipeline == tasks[kind] and "score" in result.pipeline_output
    assert result.tokenizer_needs_trust is (False if tasks[kind] == "fill-mask" else None)


def test_a_backbone_is_published_as_the_encoder_that_it_is(tmp_path):
    folder = image_checkpoint(tmp_path, "LionBackbone", out_indices=[1, 2])
    backbone, model = modeling_lion.LionBackbone.from_pretrained(folder), load_model(folder)
    assert type(model) is modeling_lion.LionModel and model.config.out_indices == [1, 2]
    ours = backbone.lion.state_dict()
    assert ours.keys() == model.state_dict().keys() and all(
        torch.equal(ours[k], v) for k, v in model.state_dict().items()
    )


def test_a_process_that_computes_otherwise_is_noticed(bundle, monkeypatch):

    def fake_run(command, *, cwd, **kwargs):
        request = torch.load(Path(cwd) / "request.pt", weights_only=True)
        model, outputs = load_model(bundle.folder), {}
        for kernel in request["kernels"]:
            model.set_attn_implementation(kernel)
            with torch.no_grad():
                outputs[kernel] = {"logits": model(**request["inputs"]).logits}
        outputs["rnn"]["logits"][0, 0, 0] += 1e-6
        torch.save({"outputs": outputs, "tokens": {}}, Path(cwd) / "answer.pt")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", fake_run)
    with pytest.raises(ValueError, match="`logits` of the 'rnn' kernel differs"):
        load_in_clean_process(bundle.folder)


def test_a_bundle_that_does_not_load_is_noticed(bundle, monkeypatch):
    failure = subprocess.CompletedProcess([], 1, stderr="ImportError: no such thing")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: failure)
    with pytest.raises(ValueError, match="does not load in a process without this package.*\n.*no such thing"):
        load_in_clean_process(bundle.folder)


def test_the_tokenizer_is_the_same(bundle, checkpoint):
    tokenizer = AutoTokenizer.from_pretrained(bundle.folder)
    assert type(tokenizer) is BertTokenizer  # not ours, which needs code of the repository
    for arguments in [(TEXTS[0],), (TEXTS[0], TEXTS[1]), ("[MASK] unseen, Wörter",)]:
        assert dict(tokenizer(*arguments)) == dict(LionTokenizer.from_pretrained(checkpoint)(*arguments))


def test_a_bundle_is_the_same_every_time(checkpoint, bundle, tmp_path):
    """Else an upload that was interrupted could not go on."""
    again = create_bundle(checkpoint, tmp_path / "again", license="apache-2.0", name="me/lion")
    for name in bundle.files:
        assert (again.folder / name).read_bytes() == (bundle.folder / name).read_bytes(), name


def test_with_the_package_local_code_is_used(bundle):
    model = AutoModelForMaskedLM.from_pretrained(bundle.folder, trust_remote_code=True)
    assert type(model) is LionForMaskedLM
    assert type(AutoModel.from_pretrained(bundle.folder)) is modeling_lion.LionModel


def test_large_weights_are_sharded(checkpoint, tmp_path, measured_before):
    made = create_bundle(checkpoint, tmp_path / "sharded", license="mit", max_shard_size="40KB")
    assert "model.safetensors.index.json" in made.files and "model.safetensors" not in made.files
    assert sum(name.endswith(".safetensors") for name in made.files) > 2
    assert open_bundle(made.folder).files == made.files


def test_a_bundle_of_a_downloaded_model_holds_its_own_code(bundle, tmp_path):
    """transformers marks code of downloads as "user/repository--file.Class"."""
    config = json.loads((bundle.folder / "config.json").read_text())
    model = load_model(bundle.folder)
    model.config.auto_map = {key: f"someone/else--{value}" for key, value in config["auto_map"].items()}
    model.config.auto_map["AutoModelForDreaming"] = "dreaming.LionForDreaming"
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    assert saved == config["auto_map"] | {"AutoModelForDreaming": "dreaming.LionForDreaming"}


def test_a_readme_of_the_user_is_copied(checkpoint, tmp_path, measured_before):
    folder = text_checkpoint(tmp_path / "in")
    (folder / "README.md").write_text("---\nlicense: mit\ntags: [zoo]\n---\n\n# Our lion\n\nIt is tame.\n")
    made = create_bundle(folder, tmp_path / "out", language="en")
    text = (made.folder / "README.md").read_text()
    assert text.endswith("# Our lion\n\nIt is tame.\n")
    assert made.metadata["license"] == "mit" and made.metadata["language"] == "en"
    assert made.metadata["tags"][0] == "zoo" and made.metadata["pipeline_tag"] == "fill-mask"
    assert is_bundle(made.folder) and not is_bundle(folder) and not is_bundle(checkpoint)
    (made.folder / "README.md").write_text("---\nlicense: mit\ntags: [lion]\n---\n\nAbout the animal.\n")
    assert not is_bundle(made.folder)
    header = "---\nlicense: mit\ntags: [generated_from_trainer]\n---\n\n"
    comment = (
        "<!-- This model card has been generated automatically according to the information the Trainer had -->\n"
    )
    for name, text, is_own in (
        ("out2", f"{comment}Ours", False),
        ("out3", "Ours, generated automatically", True),
    ):
        (folder / "README.md").write_text(header + text)
        made = create_bundle(folder, tmp_path / name)
        assert ("Ours" in (made.folder / "README.md").read_text()) == is_own


def test_metadata_of_the_user_stays_as_it_is(tmp_path, measured_before):
    """Also beside a checkpoint of the Trainer, and results that huggingface_hub would merge, or refuse."""
    results = [{"dataset": {"name": name, "type": "glue"}, "metrics": [{"type": "accuracy", "value": value}]}
               for name, value in (("SST-2", 91.3), ("QQP", 40.0))]  # fmt: skip
    results = [{"task": {"type": "text-classification"}} | result for result in results]
    given = {"license": "mit", "inference": False, "model-index": [{"name": "a", "results": results}]}
    given["model-index"].append({"name": "b", "results": [{"metrics": [{"type": "f1", "value": 1}]}]})
    folder = text_checkpoint(tmp_path / "in" / "checkpoint-5")
    (folder / "README.md").write_text(f"---\n{json.dumps(given)}\n---\n\n# Mine\n")
    (folder / "all_results.json").write_text('{"eval_loss": 0.5, "eval_iou": [0.1, 0.2], "eval_f1": null}')
    card = (create_bundle(tmp_path / "in", tmp_path / "out").folder / "README.md").read_text()
    assert given.items() <= yaml.safe_load(card.split("---\n")[1]).items() and card.endswith("# Mine\n")
    (folder / "README.md").write_text(f"---\n{json.dumps(given)}\n---\n")
    card = (create_bundle(tmp_path / "in", tmp_path / "out2").folder / "README.md").read_text()
    assert given.items() <= yaml.safe_load(card.split("---\n")[1]).items() and "loss | 0.5" in card


def test_links_to_the_outside_are_refused(bundle, tmp_path):
    copy = shutil.copytree(bundle.folder, tmp_path / "copy")
    (copy / "notes.txt").symlink_to(copy / "README.md")
    assert find_refusals(copy) == []
    (copy / "notes.txt").unlink()
    (copy / "notes.txt").symlink_to(__file__)
    assert [reason.startswith("notes.txt is a link to something outside") for reason in find_refusals(copy)] == [True]


@pytest.mark.parametrize("license", [None, "unknown", "other", " "])
def test_without_a_licence_a_bundle_is_for_oneself(license, checkpoint, tmp_path, capsys, measured_before):
    given = [] if license is None else ["--license", license]
    assert main(["bundle", str(checkpoint), str(tmp_path / "out"), *given]) == 0
    assert "Note: no licence, so this is for your own use" in capsys.readouterr().out
    assert load_model(tmp_path / "out").config.modality == "text"
    for folder in (checkpoint, tmp_path / "out"):
        options = given if folder == checkpoint else []
        assert main(["upload", str(folder), "me/lion", "--dry-run", *options]) == 1
        assert "The licence is open" in capsys.readouterr().err


def test_a_missing_tokenizer_or_processor_is_refused(tmp_path, measured_before):
    text, image = text_checkpoint(tmp_path / "text"), image_checkpoint(tmp_path / "image")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (text / name).unlink()
    (image / "preprocessor_config.json").unlink()
    with pytest.raises(ValueError, match="no tokenizer in"):
        create_bundle(text, tmp_path / "out", license="mit")
    with pytest.raises(ValueError, match="no image processor in"):
        create_bundle(image, tmp_path / "out", license="mit")
    empty = text_checkpoint(tmp_path / "empty")
    (empty / "tokenizer.json").unlink()  # transformers makes a tokenizer of no words
    with pytest.raises(OSError, match="There is no tokenizer in .*empty"):
        create_bundle(empty, tmp_path / "out", license="mit")
    (empty / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(ValueError, match="tokenizer in .*empty knows no words"):
        create_bundle(empty, tmp_path / "out", license="mit")
    assert not (tmp_path / "out").exists()


def test_files_that_cannot_be_read_are_named(tmp_path, capsys, measured_before):
    folder = text_checkpoint(tmp_path / "in")
    for name, content, message in (
        ("trainer_state.json", "{bad", "trainer_state.json is damaged"),
        ("README.md", "---\nlicense: [mit\n---\n", "metadata at the top of .*README.md cannot be read"),
    ):
        (folder / name).write_text(content)
        assert main(["bundle", str(folder), str(tmp_path / "out"), "--license", "mit"]) == 1
        assert re.search(message, capsys.readouterr().err)
        (folder / name).unlink()


def test_weights_that_are_not_finite_are_refused(tmp_path):
    folder = text_checkpoint(tmp_path / "nan")
    weights = load_file(folder / "model.safetensors")
    weights["lion.layers.0.mlp.up_proj.bias"][3] = float("inf")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"NaN or infinite numbers in lion\.layers\.0\.mlp\.up_proj\.bias"):
        create_bundle(folder, tmp_path / "out", license="mit")
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-5])
    with pytest.raises(ValueError, match="damaged or cut short"):
        create_bundle(folder, tmp_path / "out", license="mit")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_kernels_that_disagree_are_refused(checkpoint, bundle, tmp_path, monkeypatch):
    def doubles(*args, **kwargs):
        output, weights = lion_attention(*args, **kwargs)
        return 2 * output, weights

    monkeypatch.setitem(LinearMixer.forms, "rnn", doubles)
    for make in (
        lambda: create_bundle(checkpoint, tmp_path / "out", license="mit"),
        lambda: open_bundle(bundle.folder),
    ):
        with pytest.raises(ValueError, match="kernels do not agree") as failure:
            make()
        assert "rnn" in str(failure.value) and "chunk" not in str(failure.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("training_args.bin", b"anything", "pickle"),
        ("optimizer.pt", b"anything", "pickle"),
        ("model.weights", pickle.dumps({"a": 1}, protocol=4), "pickle"),
        ("notes.md", b"first\nlogin with hf_" + b"aB3" * 12 + b" please", "line 2, holds .* Hugging Face token"),
        ("key.txt", b"-----BEGIN " + b"OPENSSH PRIVATE KEY-----\n", "private key"),
        ("run.sh", b"export AWS=AKIA" + b"ABCDEFGH12345678", "AWS"),
        ("module/x.safetensors", safetensors({"w": torch.ones(1)}, {"note": "ghp_" + "a1B2" * 9}), "GitHub"),
        ("y.safetensors", safetensors({"hf_" + "aB3" * 12: torch.ones(1)}, None), "Hugging Face token"),
        (".eval_results/x.yaml", b"token: ghp_" + b"a1B2" * 9, "GitHub"),
    ],
)
def test_pickles_and_secrets_are_refused(tmp_path, name, content, reason):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError("\n".join(find_refusals(tmp_path)))


def test_what_torch_save_writes_is_a_pickle_by_any_name(tmp_path):
    torch.save({"a": torch.zeros(1)}, tmp_path / "weights.data")
    with zipfile.ZipFile(tmp_path / "pictures.zip", "w") as archive:
        archive.writestr("lion.txt", "no pickle")
    (tmp_path / "hf_transfer.md").write_text("set hf_transfer, hf_home and hf_hub_disable_xet")
    (reason,) = find_refusals(tmp_path)
    assert reason.startswith("weights.data is a pickle")


def test_hidden_files_stay_here(tmp_path):
    for name in (".git/config", ".cache/x.pt", "__pycache__/m.pyc", ".DS_Store"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\x80\x04")
    assert find_refusals(tmp_path) == []


def test_the_command_makes_a_bundle(checkpoint, tmp_path, capsys, measured_before):
    arguments = ["--license", "cc-by-4.0", "--language", "en", "de", "--datasets", "zoo/roars", "--name", "me/cat"]
    assert main(["bundle", str(checkpoint), str(tmp_path / "out"), *arguments]) == 0
    out = capsys.readouterr().out
    assert "model.safetensors" in out and "total" in out and "license: cc-by-4.0" in out
    assert main(["bundle", str(checkpoint), str(tmp_path / "out"), *arguments]) == 1
    assert "exists and is not empty" in capsys.readouterr().err
    assert main(["bundle", str(tmp_path / "nowhere"), str(tmp_path / "out3"), "--license", "mit"]) == 1
    assert "no folder" in capsys.readouterr().err


def test_the_tokenizer_class_itself_is_saved_with_its_code(tmp_path):
    text_tokenizer().save_pretrained(tmp_path)
    assert "class LionTokenizer(" in (tmp_path / "configuration_lion.py").read_text()
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path), LionTokenizer)


def test_a_clean_process_that_takes_too_long_is_named(monkeypatch):
    monkeypatch.setattr(clean_process, "MOST_SECONDS", 0.01)
    with pytest.raises(ValueError, match=r"my-model was not loaded in 0\.01 seconds"):
        clean_process.run_in_clean_process(clean_process.answer_request, {"num_threads": 1}, "my-model")
