# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""An encoder of sentence-transformers on its way from training to somebody else computes the same embeddings."""

import inspect
import json
import re
import shutil
from types import SimpleNamespace

import pytest
import torch
from deploy_lion.cli import main
from hub_checkpoints import TEXTS, image_checkpoint, text_checkpoint
from hub_upload_lion import create_bundle
from hub_upload_lion import sentence_modules as sentence_module
from hub_upload_lion.publish.bundle import open_bundle
from hub_upload_lion.sentence_modules import check_embeddings, embed, encoder_class, sentence_files
from PIL import Image
from safetensors.torch import load_file, save_file
from sentence_checkpoints import sentence_checkpoint
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling


pytestmark = pytest.mark.slow


LONG = "the lion hunts " * 200


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder as SentenceTransformer saves it: pooling of the first token, a projection, normalization, prompts."""
    folder = tmp_path_factory.mktemp("sentence")
    torch.manual_seed(0)
    modules = [Pooling(32, pooling_mode="cls"), Dense(32, 8), Normalize()]
    options = {"prompts": {"query": "Where: "}, "default_prompt_name": "query"}
    return sentence_checkpoint(folder / "encoder", text_checkpoint(folder / "lion"), *modules, **options)


@pytest.fixture(scope="module")
def bundle(saved, tmp_path_factory):
    return create_bundle(saved, tmp_path_factory.mktemp("sentence") / "bundle", license="mit", name="me/encoder")


@pytest.fixture
def quick(bundle, monkeypatch):
    """For tests of other things: no measurement of the kernels, no other process."""
    monkeypatch.setattr(
        "hub_upload_lion.publish.bundle.verify_checkpoint", lambda *args, **kwargs: bundle.verification
    )
    monkeypatch.setattr("hub_upload_lion.publish.bundle.check_embeddings", lambda *args: None)


@pytest.fixture
def in_this_process(monkeypatch):
    """The answer runs from its source alone, as in another process, which takes seconds to start."""

    def run(answer, request, name):
        namespace = {"torch": torch}
        exec(inspect.getsource(answer), namespace)
        return namespace[answer.__name__](request)

    monkeypatch.setattr(sentence_module, "run_in_clean_process", run)


def test_a_bundle_holds_the_encoder(saved, bundle, in_this_process):
    names = {"modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"}
    names |= {"1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "3_Normalize/config.json"}
    assert names <= set(bundle.files)
    for name in names:
        assert (bundle.folder / name).read_bytes() == (saved / name).read_bytes(), name
    expected = SentenceTransformer(str(saved), device="cpu").encode([*TEXTS, LONG])
    found = SentenceTransformer(str(bundle.folder), device="cpu").encode([*TEXTS, LONG])
    assert found.shape == (len(TEXTS) + 1, 8) and abs(found - expected).max() < 1e-6
    assert bundle.metadata["library_name"] == "sentence-transformers"
    assert bundle.metadata["pipeline_tag"] == "sentence-similarity"
    card = (bundle.folder / "README.md").read_text(encoding="utf-8")
    assert 'encoder = SentenceTransformer("me/encoder", trust_remote_code=True)' in card
    assert "sentence_transformers_model_id" not in card
    assert bundle.left_out == ("README.md",) and open_bundle(bundle.folder).files == bundle.files


def test_a_dry_run_names_what_goes_and_what_stays(saved, tmp_path, capsys, quick, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(saved, folder / "checkpoint-3")
    for name in (
        "checkpoint-3/optimizer.pt",
        "checkpoint-3/2_Dense/run.py",
        "eval/scores.csv",
        "notes/a/b.txt",
        ".x/y",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    shutil.copytree(saved, folder / "checkpoint-2")
    loaded = SimpleNamespace(versions={"torch": "2", "transformers": "5"}, kernels=("rnn",), pipeline=None)
    monkeypatch.setattr("hub_upload_lion.publish.upload.load_in_clean_process", lambda folder: loaded)
    assert main(["upload", str(folder), "me/encoder", "--license", "mit", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^2_Dense/model\.safetensors  .*B$", out, flags=re.MULTILINE)
    (stays,) = re.findall("^Left out: (.*)$", out, flags=re.MULTILINE)
    of_checkpoint = [f"checkpoint-3/{name}" for name in ("2_Dense/run.py", "README.md", "optimizer.pt")]
    assert stays.split(", ") == [".x/", "checkpoint-2/", *of_checkpoint, "eval/", "notes/"]


def test_other_kinds_of_encoders(tmp_path, monkeypatch, bundle, in_this_process):
    monkeypatch.setattr(
        "hub_upload_lion.publish.bundle.verify_checkpoint", lambda *args, **kwargs: bundle.verification
    )
    text = text_checkpoint(tmp_path / "text", "LionForSequenceClassification", num_labels=1)
    CrossEncoder(str(text), device="cpu").save_pretrained(str(tmp_path / "cross"))
    made = create_bundle(tmp_path / "cross", tmp_path / "cross-bundle", license="mit")
    assert made.metadata["pipeline_tag"] == "text-ranking" and "modules.json" in made.files
    pairs = [(TEXTS[0], text) for text in TEXTS[:3]]
    scores = [CrossEncoder(str(folder), device="cpu").predict(pairs) for folder in (tmp_path / "cross", made.folder)]
    assert abs(scores[0] - scores[1]).max() < 1e-6
    sparse = SparseEncoder(str(text_checkpoint(tmp_path / "mlm")), device="cpu")
    sparse.save_pretrained(str(tmp_path / "sparse"))
    request = {"class": encoder_class(tmp_path / "sparse"), "source": str(tmp_path / "sparse"), "trust": False}
    for found, expected in zip(
        embed(request | {"texts": TEXTS[:3]})["embeddings"], sparse.encode(TEXTS[:3]), strict=True
    ):
        torch.testing.assert_close(found, expected.to_dense())
    image = image_checkpoint(tmp_path / "image")
    SentenceTransformer(str(image), device="cpu").save_pretrained(str(tmp_path / "pictures"))
    made = create_bundle(tmp_path / "pictures", tmp_path / "pictures-bundle", license="mit")
    assert SentenceTransformer(str(made.folder), device="cpu").encode([Image.new("RGB", (9, 9))]).shape == (1, 32)


def test_other_embeddings_are_noticed(saved, bundle, tmp_path, in_this_process):
    other = tmp_path / "other"
    shutil.copytree(bundle.folder, other)
    (other / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 32, "pooling_mode": "mean"}')
    with pytest.raises(ValueError, match="embeddings of sentence-transformers from .*encoder are not those"):
        check_embeddings(other, saved, "text")


def test_an_encoder_that_does_not_load_is_noticed(saved, bundle, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(bundle.folder, other)
    weights = load_file(other / "2_Dense" / "model.safetensors")
    save_file({name: x[:4].contiguous() for name, x in weights.items()}, other / "2_Dense" / "model.safetensors")
    with pytest.raises(ValueError, match="does not load in a process without this package"):
        check_embeddings(other, saved, "text")


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({}, "modules.json is no list of modules"),
        ([{"path": "1_Pooling"}], "modules.json is no list of modules"),
        ("{bad", "modules.json is no list of modules"),
        (
            [{"path": "../other", "type": "sentence_transformers.models.Pooling"}],
            "`path` '../other' is no folder inside",
        ),
        ([{"path": "/etc", "type": "sentence_transformers.models.Pooling"}], "`path` '/etc' is no folder inside"),
        ([{"path": ".git", "type": "sentence_transformers.models.Pooling"}], "`path` '.git' is no folder inside"),
        ([{"path": "1_Pooling", "type": "my_code.Pooling"}], "`type` 'my_code.Pooling' is code of its own"),
    ],
)
def test_modules_that_are_refused(saved, tmp_path, modules, message, quick):
    folder = tmp_path / "in"
    shutil.copytree(saved, folder)
    (folder / "modules.json").write_text(modules if isinstance(modules, str) else json.dumps(modules))
    with pytest.raises(ValueError, match=re.escape(message)):
        create_bundle(folder, tmp_path / "out", license="mit")
    assert not (tmp_path / "out").exists()


def test_links_pickles_and_tokens_do_not_come_along(saved, tmp_path, quick):
    (tmp_path / "secret.json").write_text("{}")
    folder = tmp_path / "in"
    shutil.copytree(saved, folder)
    link = folder / "1_Pooling" / "more.json"
    link.symlink_to(tmp_path / "secret.json")
    with pytest.raises(ValueError, match="more.json is a link to something outside"):
        create_bundle(folder, tmp_path / "out", license="mit")
    link.unlink()
    link.write_text("hf_" + "aB3" * 12)
    with pytest.raises(ValueError, match="1_Pooling/more.json, line 1, holds what looks like a Hugging Face token"):
        create_bundle(folder, tmp_path / "out", license="mit")
    link.unlink()
    (folder / "2_Dense" / "model.safetensors").rename(folder / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(ValueError, match="2_Dense/pytorch_model.bin is a pickle.*save_pretrained"):
        create_bundle(folder, tmp_path / "out", license="mit")
    assert not (tmp_path / "out").exists()


def test_settings_that_cannot_be_read_are_named(saved, tmp_path, quick):
    folder = tmp_path / "in"
    shutil.copytree(saved, folder)
    settings = folder / "config_sentence_transformers.json"
    for content, message in (
        ("{bad", "is damaged"),
        ("[]", "is damaged"),
        ('{"model_type": "os"}', "`model_type` is 'os'"),
    ):
        settings.write_text(content)
        with pytest.raises(ValueError, match=f"config_sentence_transformers.json:? {message}"):
            create_bundle(folder, tmp_path / "out", license="mit")


def test_without_sentence_transformers_nothing_is_lost_in_silence(saved, monkeypatch):
    monkeypatch.setattr(sentence_module, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="install it .*or delete modules.json to publish the LION alone"):
        check_embeddings(saved, saved, "text")


def test_a_folder_without_modules_has_none(tmp_path):
    (tmp_path / "sentence_bert_config.json").write_text("{}")
    assert sentence_files(tmp_path) == []
