# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The real huggingface_hub client against a Hub on this machine (hub_server.py)."""

import json
import os
import re
import shutil
import subprocess
import sys

import huggingface_hub
import pytest
import torch
from deploy_lion.cli import main
from hub_checkpoints import TEXTS, image_checkpoint, text_checkpoint, text_tokenizer
from hub_server import PART_SIZE, READ_TOKEN, ROUTES, WRITE_TOKEN, File, Handler, Repo
from hub_upload_lion import UploadError, create_bundle, push_folder, upload_checkpoint
from hub_upload_lion.checkpoint import load_model
from hub_upload_lion.publish import upload as upload_module
from hub_upload_lion.publish.clean_process import HIDDEN, CleanLoad
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
from transformers import BertConfig, BertModel, Trainer, TrainingArguments
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from modeling_lion import LionForMaskedLM


# How the client sends LFS files; its business.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>' to upload raw bytes:DeprecationWarning")

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


def local_files(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def elsewhere(code, hub, home):
    """Run code in a process that does not have this package, with nothing in its caches."""
    environment = os.environ | {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HOME": str(home),
        "HF_TOKEN": READ_TOKEN,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": "",
    }
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
    assert hub.requests == []
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
    shown = elsewhere(code + "\nprint(type(model).__module__, outputs.logits.shape)", hub, tmp_path / "home")
    assert "'score'" in shown and "transformers_modules.me.my_hyphen_lion" in shown


@pytest.mark.slow
def test_plain_pushes_and_an_encoder_load_elsewhere(hub, tmp_path, capsys, no_clean_process, monkeypatch):
    """A model, a tokenizer, an image processor, a Trainer and, by the command, an encoder of sentences."""
    folder = image_checkpoint(tmp_path / "image")
    load_model(folder).push_to_hub("me/plain", token=WRITE_TOKEN)
    AutoImageProcessor.from_pretrained(folder).push_to_hub("me/plain", token=WRITE_TOKEN)
    text = load_model(text_checkpoint(tmp_path / "text"))
    text.push_to_hub("me/words", token=WRITE_TOKEN)
    text_tokenizer().push_to_hub("me/words", token=WRITE_TOKEN)
    arguments = TrainingArguments(str(tmp_path / "run"), report_to="none", use_cpu=True, hub_model_id="me/trained")
    Trainer(text, arguments, processing_class=text_tokenizer()).push_to_hub(token=WRITE_TOKEN)
    assert hub.files("me/trained")["model.safetensors"] == hub.files("me/words")["model.safetensors"]
    modules = [Transformer(str(tmp_path / "text")), Pooling(32, pooling_mode="cls"), Dense(32, 8)]
    encoder = SentenceTransformer(modules=modules, device="cpu")
    encoder.save(str(tmp_path / "encoder"))
    checked = []  # what it checks takes another process, in test_sentence_modules.py
    monkeypatch.setattr("hub_upload_lion.publish.bundle.check_embeddings", lambda *args: checked.append(args))
    assert main(["upload", str(tmp_path / "encoder"), "me/encoder", "--license", "mit"]) == 0
    assert "sentence-transformers computes the same" in capsys.readouterr().out and len(checked) == 1
    code = f"""
from PIL import Image
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, pipeline
for name in ("me/words", "me/trained"):
    print(pipeline("fill-mask", model=name, trust_remote_code=True)("The lion [MASK].")[0]["token_str"])
print(type(AutoModel.from_pretrained("me/plain", trust_remote_code=True)).__module__)
print(pipeline("image-classification", model="me/plain", trust_remote_code=True)(Image.new("RGB", (9, 9))))
encoder = SentenceTransformer("me/encoder", trust_remote_code=True, device="cpu")
print(encoder.encode({TEXTS[:2]}).tolist())
"""
    shown = elsewhere(code, hub, tmp_path / "home")
    assert "transformers_modules.me.plain" in shown and "zebra" in shown
    assert abs(encoder.encode(TEXTS[:2]) - json.loads(shown.splitlines()[-1])).max() < 1e-5


@pytest.fixture
def downloads(hub, tmp_path, monkeypatch):
    """From the Hub, into a cache of the test's own."""
    address = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.mark.slow
def test_a_download_that_breaks_within_a_file_goes_on_where_it_was(hub, bundle, downloads, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 1 << 12)  # what is kept when it breaks
    push_folder(bundle, "me/lion")
    weights = "GET .*/resolve/.*/model.safetensors"
    hub.fail(weights, cut_answer=(3 << 12) + 100, times=2)
    model = LionForMaskedLM.from_pretrained("me/lion")
    asked = [start for path, start in hub.downloads if path == "model.safetensors"]
    assert asked == [0, 3 << 12, 6 << 12]
    expected = LionForMaskedLM.from_pretrained(bundle).state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in model.state_dict().items())


@pytest.mark.slow
def test_a_download_that_ended_within_a_file_works_when_called_again(hub, bundle, downloads, tmp_path, capsys):
    push_folder(bundle, "me/lion")
    weights = "GET .*/resolve/.*/model.safetensors"
    hub.fail(weights, cut_answer=5000)
    hub.fail(weights, drop_after=0, times=100)
    assert main(["verify", "me/lion"]) == 1
    assert "The connection broke while me/lion was downloaded (Server disconnected" in capsys.readouterr().err
    assert not list((tmp_path / "cache").rglob("model.safetensors"))
    hub.faults.clear()
    model = LionForMaskedLM.from_pretrained("me/lion")
    assert hub.downloads.count(("config.json", 0)) == 1
    expected = LionForMaskedLM.from_pretrained(bundle).state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in model.state_dict().items())


@pytest.mark.slow
def test_an_encoder_on_the_hub_becomes_a_lion(hub, tmp_path, downloads):
    """With its modules, whose folders have to be asked for, and without what no LION is made of."""
    tokenizer = text_tokenizer()
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 40}
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    modules = [Transformer(str(tmp_path / "bert")), Pooling(24, pooling_mode="mean"), Dense(24, 8)]
    encoder = SentenceTransformer(modules=modules, device="cpu")
    encoder.save(str(tmp_path / "encoder"))
    files = local_files(tmp_path / "encoder") | {"pytorch_model.bin": b"a pickle", "onnx/model.onnx": b"a graph"}
    hub.repos["me/encoder"] = repo = Repo(private=False)
    repo.commit("main", {path: File(data, is_lfs=False) for path, data in files.items()})
    assert main(["convert", "me/encoder", str(tmp_path / "lion")]) == 0
    assert hub.count(r"resolve/.*/2_Dense/model.safetensors") and not hub.count(r"GET .*resolve/.*\.(bin|onnx)")
    found = SentenceTransformer(str(tmp_path / "lion"), device="cpu").encode(TEXTS)
    assert found.shape == (len(TEXTS), 8) and abs(encoder.encode(TEXTS) - found).max() < 1e-5


def test_everything_arrives_in_one_commit(hub, bundle):
    url = push_folder(bundle, "me/lion")
    assert hub.files("me/lion") == local_files(bundle)
    repo = hub.repos["me/lion"]
    assert len(repo.commits) == 2 and not repo.private  # the empty one, and ours
    assert url == f"{hub.endpoint}/me/lion/commit/{repo.refs['main']}"
    size = (bundle / "model.safetensors").stat().st_size
    assert hub.count("^PUT /lfs/[0-9a-f]+/[0-9]+$") == -(-size // PART_SIZE)


def test_small_weights_arrive_in_one_piece(hub, bundle, monkeypatch):
    monkeypatch.setattr("hub_server.PART_SIZE", 1 << 30)
    push_folder(bundle, "me/lion")
    assert hub.count("^PUT /lfs/[0-9a-f]+$") == 1 and hub.files("me/lion") == local_files(bundle)


def test_a_repository_can_be_private(hub, bundle):
    push_folder(bundle, "me/secret", private=True)
    assert hub.repos["me/secret"].private and hub.files("me/secret") == local_files(bundle)


def test_private_files_do_not_go_to_a_public_repository(hub, bundle):
    huggingface_hub.HfApi().create_repo("me/lion")
    for create_pr in (False, True):
        with pytest.raises(ValueError, match="me/lion exists and everybody can see it"):
            push_folder(bundle, "me/lion", private=True, create_pr=create_pr, revision="experiment")
    assert hub.repos["me/lion"].refs.keys() == {"main"} and hub.files("me/lion") == {} and hub.objects == {}


@pytest.mark.slow
def test_a_branch_is_made(hub, bundle):
    push_folder(bundle, "me/lion", revision="experiment")
    assert hub.files("me/lion", "experiment") == local_files(bundle) and hub.files("me/lion") == {}
    push_folder(bundle, "me/lion", revision="experiment")


@pytest.mark.slow
def test_a_pull_request_is_opened(hub, bundle, monkeypatch):
    push_folder(bundle, "them/lion")
    changed = bundle.parent / "changed"
    shutil.copytree(bundle, changed, dirs_exist_ok=True)
    (changed / "README.md").write_text((bundle / "README.md").read_text() + "\nMore.\n")
    monkeypatch.setenv("HF_TOKEN", READ_TOKEN)
    url = push_folder(changed, "them/lion", create_pr=True)
    assert url.endswith("them/lion/discussions/1")
    assert hub.files("them/lion", "refs/pr/1") == local_files(changed)
    assert hub.files("them/lion") == local_files(bundle)


@pytest.mark.slow
def test_an_unchanged_bundle_makes_no_commit(hub, bundle):
    push_folder(bundle, "me/lion")
    push_folder(bundle, "me/lion")
    assert len(hub.repos["me/lion"].commits) == 2


def test_weights_of_an_earlier_upload_go(hub, bundle, tmp_path):
    """One file and shards in one repository: transformers would take the one, whichever is newer."""
    checkpoint = text_checkpoint(tmp_path / "in")
    sharded = create_bundle(checkpoint, tmp_path / "out", license="mit", max_shard_size="40KB").folder
    push_folder(bundle, "me/lion")
    push_folder(sharded, "me/lion")
    assert hub.files("me/lion") == local_files(sharded)
    push_folder(bundle, "me/lion")
    assert hub.files("me/lion") == local_files(bundle)


@pytest.mark.slow
def test_files_of_the_user_in_the_repository_stay(hub, bundle):
    push_folder(bundle, "me/lion")
    huggingface_hub.HfApi().upload_file(path_or_fileobj=b"x", path_in_repo="notes/model.md", repo_id="me/lion")
    push_folder(bundle, "me/lion")
    assert hub.files("me/lion")["notes/model.md"] == b"x"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "status", "advice"),
    [
        ("POST /api/repos/create", 401, "hf auth login"),
        ("POST /api/repos/create", 500, "in trouble"),
        ("POST .*/preupload/", 403, "may not write there: use one with write access to me/lion"),
        ("POST .*/objects/batch", 429, "wait some minutes"),
        ("PUT /lfs/", 413, "smaller --max-shard-size"),
        ("POST .*/commit/", 400, "does not accept"),
        ("POST .*/commit/", 409, "Somebody else changed me/lion"),
        ("POST .*/commit/", 418, "The Hub answered 418"),
    ],
)
def test_failures_are_explained_and_leave_nothing(hub, bundle, pattern, status, advice):
    hub.fail(pattern, status=status, times=100)
    with pytest.raises(UploadError, match=advice) as failure:
        push_folder(bundle, "me/lion")
    assert re.search(r"No file was committed|Nothing was sent", str(failure.value))
    assert "me/lion" not in hub.repos or hub.files("me/lion") == {}
    assert WRITE_TOKEN not in str(failure.value)
    hub.faults.clear()
    push_folder(bundle, "me/lion")  # the same call again
    assert hub.files("me/lion") == local_files(bundle)


@pytest.mark.parametrize("pattern", ["preupload", "batch", "PUT /lfs/[0-9a-f]+/2", "/verify", "tree"])
def test_the_client_gets_over_short_failures(hub, bundle, pattern):
    if pattern == "tree" and huggingface_hub.__version__.startswith("1."):
        pytest.skip("huggingface_hub 1 does not ask again for the list of files")
    hub.fail(pattern, status=503, times=2)
    hub.fail(pattern, drop_after=10, times=1)
    push_folder(bundle, "me/lion")
    assert hub.files("me/lion") == local_files(bundle)


@pytest.mark.slow
def test_a_dropped_connection_is_resumed(hub, bundle):
    sharded = bundle.parent / "sharded"
    if not sharded.exists():
        create_bundle(bundle, sharded, max_shard_size="40KB")
    weights = [name for name in local_files(sharded) if name.endswith(".safetensors")]
    hub.fail("POST .*/commit/", drop_after=1000, times=100)
    with pytest.raises(UploadError, match="connection broke.*goes on with what is missing"):
        push_folder(sharded, "me/lion")
    assert hub.files("me/lion") == {}
    sent = hub.count("^PUT /lfs/")
    assert sent >= len(weights) > 2
    hub.faults.clear()
    push_folder(sharded, "me/lion")
    assert hub.count("^PUT /lfs/") == sent  # not one of them was sent again
    assert hub.files("me/lion") == local_files(sharded)


@pytest.mark.slow
def test_a_connection_dropped_within_the_weights(hub, bundle):
    hub.fail("PUT /lfs/[0-9a-f]+/2", drop_after=1000, times=100)
    with pytest.raises(UploadError, match="connection broke"):
        push_folder(bundle, "me/lion")
    assert hub.files("me/lion") == {} and hub.objects == {}
    hub.faults.clear()
    push_folder(bundle, "me/lion")
    assert hub.files("me/lion") == local_files(bundle)


def test_an_upload_that_breaks_within_a_file_goes_on_with_that_part(hub, bundle):
    hub.fail("PUT /lfs/[0-9a-f]+/2", drop_after=1000, times=2)
    push_folder(bundle, "me/lion")
    assert hub.files("me/lion") == local_files(bundle)
    parts = -(-(bundle / "model.safetensors").stat().st_size // PART_SIZE)
    assert [hub.count(f"^PUT /lfs/[0-9a-f]+/{part}$") for part in range(1, parts + 1)] == [1, 3] + [1] * (parts - 2)


def test_a_lost_answer_to_a_commit_is_no_failure(hub, bundle):
    hub.fail("POST .*/commit/", lose_answer=True)
    assert push_folder(bundle, "me/lion").endswith("/me/lion")
    assert hub.files("me/lion") == local_files(bundle)


def test_what_is_not_known_is_not_claimed(hub, bundle, monkeypatch):
    hub.fail("POST .*/commit/", lose_answer=True)

    def break_after_the_commit(self, *args):
        self.hub.fail("GET .*/tree/", drop_after=0, times=100)
        return Handler.commit(self, *args)

    routes = [(m, p, break_after_the_commit if f is Handler.commit else f) for m, p, f in ROUTES]
    monkeypatch.setattr("hub_server.ROUTES", routes)
    with pytest.raises(UploadError, match="holds what it held before or, if the commit had just been sent, all"):
        push_folder(bundle, "me/lion")
    assert hub.files("me/lion") == local_files(bundle)


@pytest.mark.slow
def test_a_lost_answer_to_a_pull_request_is_said(hub, bundle):
    push_folder(bundle, "them/lion")
    hub.fail("POST .*/commit/", lose_answer=True, times=100)
    (bundle / "more.txt").write_text("more\n")
    try:
        with pytest.raises(UploadError, match="Look whether it has a new pull request"):
            push_folder(bundle, "them/lion", create_pr=True)
    finally:
        (bundle / "more.txt").unlink()
    assert hub.files("them/lion") == local_files(bundle)


def test_damage_on_the_way_is_found(hub, bundle, monkeypatch):
    monkeypatch.setattr("hub_server.PART_SIZE", 1 << 30)
    hub.fail("PUT /lfs/", damage=True)
    with pytest.raises(UploadError, match="(?s)is not what was sent.*model.safetensors has another content"):
        push_folder(bundle, "me/lion")


def test_files_that_the_hub_ignores_are_missed(hub, bundle, monkeypatch):
    """A .gitignore in the repository makes the Hub drop files, and say that all is well."""
    preupload = Handler.preupload

    def ignores_json(self, *args):
        status, content, headers = preupload(self, *args)
        for file in content["files"]:
            file["shouldIgnore"] = file["path"] == "tokenizer.json"
        return status, content, headers

    routes = [(m, p, ignores_json if f is preupload else f) for m, p, f in ROUTES]
    monkeypatch.setattr("hub_server.ROUTES", routes)
    with pytest.raises(UploadError, match="tokenizer.json is missing"):
        push_folder(bundle, "me/lion")


@pytest.mark.slow
def test_a_change_in_between_is_not_overwritten(hub, bundle, monkeypatch):
    push_folder(bundle, "me/lion")
    list_repo_files = huggingface_hub.HfApi.list_repo_files

    def somebody_else_commits(api, repo_id, **kwargs):
        result = list_repo_files(api, repo_id, **kwargs)
        monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", list_repo_files)
        api.upload_file(path_or_fileobj=b"theirs", path_in_repo="README.md", repo_id=repo_id)
        return result

    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", somebody_else_commits)
    changed = bundle.parent / "changed2"
    shutil.copytree(bundle, changed, dirs_exist_ok=True)
    (changed / "README.md").write_text((bundle / "README.md").read_text() + "\nMore.\n")
    with pytest.raises(UploadError, match="Somebody else changed"):
        push_folder(changed, "me/lion")
    assert hub.files("me/lion")["README.md"] == b"theirs"


def test_an_interruption_says_what_is_there(hub, bundle, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(huggingface_hub.HfApi, "create_commit", interrupted)
    with pytest.raises(UploadError, match="Interrupted. me/lion holds what it held before or"):
        push_folder(bundle, "me/lion")
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", interrupted)
    with pytest.raises(UploadError, match="Interrupted. No file was committed"):
        push_folder(bundle, "me/lion")
    assert hub.files("me/lion") == {}


def test_tokens_that_do_not_do(hub, bundle, monkeypatch):
    for token, advice in ((READ_TOKEN, "may not write"), ("wrong", "not logged in"), ("", "not logged in")):
        monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(UploadError, match=advice):
            push_folder(bundle, "me/lion")
    assert hub.repos == {}


def test_a_pull_request_needs_a_repository(hub, bundle):
    with pytest.raises(UploadError, match="no repository me/nothing"):
        push_folder(bundle, "me/nothing", create_pr=True)


@pytest.mark.slow
def test_a_repository_is_verified(hub, bundle, tmp_path, downloads, capsys):
    push_folder(bundle, "me/lion", revision="experiment")
    assert main(["verify", "me/lion", "--revision", "experiment", "--dtypes", "float32"]) == 0
    assert "All kernels agree" in capsys.readouterr().out
    assert (tmp_path / "cache" / "models--me--lion").is_dir()
    assert main(["verify", "me/lion", "--dtypes", "float32"]) == 1  # nothing on the main branch
    assert "me/lion" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lion", "me/lion/base", "me/li on", "-/x"])
def test_names_that_are_none(hub, bundle, name):
    with pytest.raises(ValueError, match="USER/NAME|[Rr]epo id"):
        upload_checkpoint(bundle, name, dry_run=True)
    assert hub.requests == []


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
    assert hub.requests == []


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


@pytest.mark.parametrize("name", ["README.md", "model.safetensors"])
def test_another_content_of_the_same_size_is_found(hub, bundle, tmp_path, name):
    push_folder(bundle, "me/lion")
    other = tmp_path / "other"
    shutil.copytree(bundle, other)
    data = (other / name).read_bytes()
    (other / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (found,) = upload_module.differences(huggingface_hub.HfApi(), "me/lion", None, other)
    assert found.startswith(f"{name} has another content")
