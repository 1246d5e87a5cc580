# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What is sent to the Hub, what is refused, and that it loads elsewhere by its name; without a network."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from deploy_lion.cli import main
from hub_checkpoints import TEXTS, image_checkpoint, text_checkpoint, text_tokenizer
from hub_in_memory import as_downloaded, refusal
from hub_upload_lion import UploadError, create_bundle, push_folder, upload_checkpoint
from hub_upload_lion.checkpoint import load_model
from hub_upload_lion.publish import upload as upload_module
from hub_upload_lion.publish.clean_process import HIDDEN, CleanLoad
from sentence_checkpoints import sentence_checkpoint
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling
from transformers import BertConfig, BertModel, Trainer, TrainingArguments
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from modeling_lion.pretrained import explain_damaged_weights


RESULTS = [{"dataset": {"id": "zoo/roars", "task_id": "default"}, "value": 91.5, "notes": "fine-tuned"}]
LOADED = CleanLoad(("rnn",), "x.y", False, "fill-mask", None, {"torch": "2", "transformers": "5"})
HIDE = f"import sys; sys.modules.update(dict.fromkeys({HIDDEN!r}))\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("upload")
    text_checkpoint(folder / "text")
    return create_bundle(folder / "text", folder / "bundle", license="apache-2.0", name="me/lion").folder


@pytest.fixture
def no_clean_process(monkeypatch):
    """For tests of what comes after; loading in a process of its own is tested in test_bundle.py."""
    monkeypatch.setattr(upload_module, "load_in_clean_process", lambda folder: LOADED)


def local_files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def changed(bundle: Path, parent: Path) -> Path:
    """A copy with another card."""
    shutil.copytree(bundle, parent / "changed")
    with (parent / "changed" / "README.md").open("a") as file:
        file.write("\nMore.\n")
    return parent / "changed"


def elsewhere(code: str, repositories: dict[str, dict[str, bytes]], home: Path) -> str:
    """Run code in a process that does not have this package, where these repositories are on the Hub."""
    for name, files in repositories.items():
        as_downloaded(files, name, home / "hub")
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(home), "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    result = subprocess.run([sys.executable, "-c", HIDE + code], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


@pytest.mark.slow
def test_train_dry_run_push_load_elsewhere(hub, tmp_path, capsys, no_clean_process):
    """The path of a new user, by the commands of the README, to the end: the code of the model card runs."""
    tokenizer = text_tokenizer()

    model = load_model(text_checkpoint(tmp_path / "start", vocab_size=len(tokenizer)))
    data = [{**tokenizer(text), "labels": tokenizer(text)["input_ids"]} for text in TEXTS[:4]]
    arguments = TrainingArguments(
        str(tmp_path / "run"), max_steps=2, logging_steps=1, report_to="none", use_cpu=True, save_steps=2
    )
    trainer = Trainer(model, arguments, train_dataset=data[:1], eval_dataset=data[:1], processing_class=tokenizer)
    trainer.train()
    trainer.save_model()
    trainer.save_metrics("all", {"eval_loss": 1.25, "eval_runtime": 3.0, "perplexity": 3.49})
    trainer.save_state()
    results = tmp_path / "roars.yaml"
    results.write_text(json.dumps(RESULTS))
    options = ["--license", "apache-2.0", "--language", "en", "--eval-results", str(results)]
    command = ["upload", str(tmp_path / "run"), "me/my-lion", *options]

    assert main([*command, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert hub.asked == []
    planned = dict(re.findall(r"^(\S+\.\S+)  +(\S+ \S*B)$", out, flags=re.MULTILINE))
    assert "outputs identical in" in out and "pipeline 'fill-mask' ran" in out and "license: apache-2.0" in out

    assert main(command) == 0
    assert "Everything arrived" in capsys.readouterr().out
    arrived = hub.files("me/my-lion")
    assert set(arrived) == set(planned) and ".eval_results/roars.yaml" in arrived
    assert not [name for name in arrived if name.endswith((".bin", ".pt"))]

    card = arrived["README.md"].decode()
    assert "| zoo/roars | default | 91.5 | fine-tuned |" in card and "| perplexity | 3.49 |" in card
    (code,) = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    assert 'name = "me/my-lion"' in code
    shown = elsewhere(
        code + "\nprint(type(model).__module__, outputs.logits.shape)", {"me/my-lion": arrived}, tmp_path / "home"
    )
    assert "'score'" in shown and "transformers_modules.me.my_hyphen_lion" in shown


@pytest.mark.slow
def test_saved_folders_and_an_encoder_load_elsewhere(hub, tmp_path, capsys, no_clean_process, monkeypatch):
    """What a model, a processor, a Trainer and, by the command, an encoder of sentences give to the Hub."""
    image_checkpoint(tmp_path / "image")
    for load in (load_model, AutoImageProcessor.from_pretrained):
        load(tmp_path / "image").save_pretrained(tmp_path / "plain")
    arguments = TrainingArguments(str(tmp_path / "trained"), report_to="none", use_cpu=True)
    text = load_model(text_checkpoint(tmp_path / "text"))
    Trainer(text, arguments, processing_class=text_tokenizer()).save_model()
    modules = [Pooling(32, pooling_mode="cls"), Dense(32, 8)]
    folder = sentence_checkpoint(tmp_path / "encoder", tmp_path / "text", *modules)
    encoder = SentenceTransformer(str(folder), device="cpu")
    checked = []  # what it checks takes another process, in test_sentence_modules.py
    monkeypatch.setattr("hub_upload_lion.publish.bundle.check_embeddings", lambda *args: checked.append(args))
    assert main(["upload", str(tmp_path / "encoder"), "me/encoder", "--license", "mit"]) == 0
    assert "sentence-transformers computes the same" in capsys.readouterr().out and len(checked) == 1
    code = f"""
from PIL import Image
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, pipeline
print(pipeline("fill-mask", model="me/trained", trust_remote_code=True)("The lion [MASK].")[0]["token_str"])
print(type(AutoModel.from_pretrained("me/plain", trust_remote_code=True)).__module__)
print(pipeline("image-classification", model="me/plain", trust_remote_code=True)(Image.new("RGB", (9, 9))))
encoder = SentenceTransformer("me/encoder", trust_remote_code=True, device="cpu")
print(encoder.encode({TEXTS[:2]}).tolist())
"""
    repositories = {f"me/{name}": local_files(tmp_path / name) for name in ("plain", "trained")}
    shown = elsewhere(code, repositories | {"me/encoder": hub.files("me/encoder")}, tmp_path / "home")
    assert "transformers_modules.me.plain" in shown and "zebra" in shown
    assert abs(encoder.encode(TEXTS[:2]) - json.loads(shown.splitlines()[-1])).max() < 1e-5


def test_a_download_that_broke_is_explained():
    """And not taken for a repository without weights, as transformers says."""
    with (
        pytest.raises(OSError, match="connection broke while me/lion was downloaded .disconnected.: call this again"),
        explain_damaged_weights("me/lion"),
    ):
        raise OSError("there are no weights") from type("ReadError", (type("TransportError", (OSError,), {}),), {})(
            "disconnected"
        )


@pytest.mark.slow
def test_an_encoder_on_the_hub_becomes_a_lion(tmp_path, monkeypatch):
    """With its modules, whose folders have to be asked for, and without what no LION is made of."""
    tokenizer = text_tokenizer()
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 40}
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    modules = [Pooling(24), Dense(24, 8)]
    folder = sentence_checkpoint(tmp_path / "encoder", tmp_path / "bert", *modules)
    encoder = SentenceTransformer(str(folder), device="cpu")
    files = local_files(tmp_path / "encoder") | {"pytorch_model.bin": b"a pickle", "onnx/model.onnx": b"a graph"}
    as_downloaded(files, "me/encoder", tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    asked = []

    def snapshot_download(repo_id, revision, allow_patterns):
        asked.extend(huggingface_hub.utils.filter_repo_objects(files, allow_patterns=allow_patterns))
        return huggingface_hub.snapshot_download(repo_id, revision=revision)

    monkeypatch.setattr("hub_upload_lion.sentence_modules.snapshot_download", snapshot_download)
    assert main(["convert", "me/encoder", str(tmp_path / "lion")]) == 0
    assert "2_Dense/model.safetensors" in asked and not [x for x in asked if x.endswith((".bin", ".onnx"))]
    found = SentenceTransformer(str(tmp_path / "lion"), device="cpu").encode(TEXTS)
    assert found.shape == (len(TEXTS), 8) and abs(encoder.encode(TEXTS) - found).max() < 1e-5


@pytest.mark.slow
def test_a_repository_is_verified(bundle, tmp_path, monkeypatch, capsys):
    as_downloaded(local_files(bundle), "me/lion", tmp_path / "cache", revision="experiment")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    assert main(["verify", "me/lion", "--revision", "experiment", "--dtypes", "float32"]) == 0
    assert "All kernels agree" in capsys.readouterr().out
    assert main(["verify", "me/lion", "--dtypes", "float32"]) == 1  # nothing on the main branch
    assert "me/lion" in capsys.readouterr().err


@pytest.mark.slow
def test_everything_arrives_in_one_commit(hub, bundle, tmp_path):
    assert push_folder(bundle, "me/lion") == "https://huggingface.co/me/lion/commit/1"
    assert hub.commits["me/lion"] == [{}, local_files(bundle)] and not hub.private
    push_folder(bundle, "me/lion")  # nothing is new
    assert len(hub.commits["me/lion"]) == 2
    again = changed(bundle, tmp_path)
    url = push_folder(again, "me/lion", create_pr=True)
    assert url.endswith("me/lion/discussions/1") and hub.files("me/lion", "refs/pr/1") == local_files(again)
    push_folder(again, "me/lion", revision="experiment")
    push_folder(again, "me/lion", revision="experiment")
    assert hub.files("me/lion", "experiment") == local_files(again) and hub.files("me/lion") == local_files(bundle)


def test_private_files_do_not_go_to_a_public_repository(hub, bundle):
    push_folder(bundle, "me/secret", private=True)
    assert hub.private == {"me/secret"} and hub.files("me/secret") == local_files(bundle)
    hub.create_repo("me/lion")
    for create_pr in (False, True):
        with pytest.raises(ValueError, match="me/lion exists and everybody can see it"):
            push_folder(bundle, "me/lion", private=True, create_pr=create_pr, revision="experiment")
    assert hub.refs["me/lion"] == {"main": 0} and hub.commits["me/lion"] == [{}]


def test_weights_of_an_earlier_upload_go(hub, bundle, tmp_path):
    """One file and shards in one repository: transformers would take the one, whichever is newer. Others stay."""
    checkpoint = text_checkpoint(tmp_path / "in")
    sharded = create_bundle(checkpoint, tmp_path / "out", license="mit", max_shard_size="40KB").folder
    own = {"notes/model.md": b"x", ".gitattributes": b"y"}
    hub.create_repo("me/lion")
    hub.commits["me/lion"][0] |= own
    for folder in (bundle, sharded, bundle):
        push_folder(folder, "me/lion")
        assert hub.files("me/lion") == local_files(folder) | own


@pytest.mark.parametrize("method", ["create_repo", "create_commit", "list_repo_tree"])
def test_failures_are_explained(method, hub, bundle):
    """With all that the client says, also of a large file; the same call works again."""
    hub.fails[method] = RuntimeError("Error while uploading 'model.safetensors'")
    hub.fails[method].__cause__ = refusal(413, "Too large")
    with pytest.raises(UploadError) as failure:
        push_folder(bundle, "me/lion")
    assert "me/lion holds what it held before, or all of them" in str(failure.value)
    assert str(failure.value).endswith("Error while uploading 'model.safetensors' Too large (413)")
    assert hub.commits.get("me/lion", [{}])[-1] == (local_files(bundle) if method == "list_repo_tree" else {})
    hub.fails.clear()
    push_folder(bundle, "me/lion")
    assert hub.files("me/lion") == local_files(bundle)


def test_a_pull_request_needs_a_repository(hub, bundle):
    with pytest.raises(UploadError, match="Repository Not Found: me/nothing"):
        push_folder(bundle, "me/nothing", create_pr=True)
    assert hub.commits == {}


def test_a_change_in_between_is_not_overwritten(hub, bundle, tmp_path, monkeypatch):
    push_folder(bundle, "me/lion")
    theirs = {"README.md": b"theirs"}

    def somebody_else_commits(repo_id, *, revision):
        hub.commits[repo_id].append(theirs)
        hub.refs[repo_id]["main"] = 2
        return []

    monkeypatch.setattr(hub, "list_repo_files", somebody_else_commits)
    with pytest.raises(UploadError, match="A commit has happened since"):
        push_folder(changed(bundle, tmp_path), "me/lion")
    assert hub.files("me/lion") == theirs


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("tokenizer.json", "is missing"),  # as a .gitignore in the repository makes the Hub drop files
        ("README.md", "has another content .git-sha1 "),
        ("model.safetensors", "has another content .sha256 "),
    ],
)
def test_damage_on_the_way_is_found(name, damage, hub, bundle, monkeypatch):
    list_repo_tree = hub.list_repo_tree

    def damaged(repo_id, **options):
        files = hub.files(repo_id)
        data = files.pop(name)
        if damage != "is missing":
            files[name] = data[:-1] + bytes([data[-1] ^ 1])
        return list_repo_tree(repo_id, **options)

    monkeypatch.setattr(hub, "list_repo_tree", damaged)
    with pytest.raises(UploadError, match=f"(?s)is not what was sent.*\n{name} {damage}"):
        push_folder(bundle, "me/lion")


@pytest.mark.parametrize("name", ["lion", "me/lion/base", "me/li on", "-/x"])
def test_names_that_are_none(hub, bundle, name):
    with pytest.raises(ValueError, match="USER/NAME|[Rr]epo id"):
        upload_checkpoint(bundle, name, dry_run=True)
    assert hub.asked == []


def test_what_must_not_be_published_is_not_sent(hub, bundle, tmp_path, capsys, no_clean_process):
    folder = tmp_path / "copy"
    shutil.copytree(bundle, folder)
    (folder / "optimizer.pt").write_bytes(b"x")
    (folder / "notes.txt").write_text("hf_" + "aB3" * 12)
    assert main(["upload", str(folder), "me/lion"]) == 1
    err = capsys.readouterr().err
    assert "optimizer.pt is a pickle" in err and "notes.txt, line 1" in err and "aB3" not in err
    (folder / "optimizer.pt").unlink()
    (folder / "notes.txt").unlink()
    card = (folder / "README.md").read_text()
    (folder / "README.md").write_text(card.replace("license: apache-2.0\n", ""))
    assert main(["upload", str(folder), "me/lion"]) == 1
    assert "licence is open" in capsys.readouterr().err
    (folder / "README.md").write_text(card)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    assert main(["upload", str(folder), "me/lion"]) == 1
    assert "no tokenizer" in capsys.readouterr().err
    assert main(["upload", str(tmp_path / "nowhere"), "me/lion"]) == 1
    assert hub.asked == []


@pytest.mark.slow
def test_a_bundle_goes_as_it_is(hub, bundle, capsys, no_clean_process, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(bundle, folder)
    (folder / "lion.txt").write_text("a file of the user's own\n")
    assert main(["upload", str(folder), "me/lion", "--private", "--commit-message", "Roar"]) == 0
    assert hub.files("me/lion") == local_files(folder)
    assert "Note" not in capsys.readouterr().out
    assert main(["upload", str(folder), "me/lion", "--license", "mit"]) == 1
    assert "edit its README.md" in capsys.readouterr().err
    assert main(["upload", str(folder), "me/tiger", "--dry-run"]) == 0
    assert "README.md does not say how to load me/tiger" in capsys.readouterr().out
