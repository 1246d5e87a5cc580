# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What is shipped: the wheel, the wheel away from the checkout, and the rules for code that goes to the Hub."""

import ast
import doctest
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import deploy_lion
import hub_upload_lion
import pytest
import tokenization_lion
from deploy_lion import cli
from processes import wait_until_free

import configuration_lion
import modeling_lion


ROOT = Path(__file__).resolve().parents[2]
# Import name and folder of every package that is installed.
PACKAGES = {
    "configuration_lion": ROOT / "configuration_lion",
    "deploy_lion": ROOT / "deploy",
    "hub_upload_lion": ROOT / "hub_upload",
    "modeling_lion": ROOT / "modeling_lion",
    "retrieval_lion": ROOT / "retrieval",
    "tokenization_lion": ROOT / "tokenization",
    "training_lion": ROOT / "training",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy: a build leaves files behind that would go into the next one."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "build", "dist", "outputs", "*.egg-info", "*.whl", "__pycache__")
    shutil.copytree(ROOT, folder / "source", ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--no-index", "--wheel-dir", folder, folder / "source"],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(code, folder, *, path=None, options=()):
    """Run code in a new process, in `folder`; returns what it printed to stdout and stderr."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    result = subprocess.run(
        [sys.executable, *options, "-c", code],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.mark.slow
def test_wheel_has_the_packages_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    code = {name for name in names if ".dist-info/" not in name}
    expected = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*.py")
    }
    assert {name for name in code if name.endswith(".py")} == expected
    others = {"hub_upload_lion/publish/model_card.md", *(f"{package}/py.typed" for package in PACKAGES)}
    assert {name for name in code if not name.endswith(".py")} == others
    assert {name.split("/")[0] for name in code} == set(PACKAGES)
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_wheel_works_away_from_the_checkout_and_without_pillow(unpacked, tmp_path):
    """
    Importing it prints nothing, the complaints of auto_docstring included, and warns of nothing. Text needs no
    Pillow.
    """
    save = """
import configuration_lion, deploy_lion, modeling_lion, tokenization_lion, hub_upload_lion, retrieval_lion
import training_lion
import json, pathlib, torch, transformers, warnings
assert configuration_lion.LionConfig is modeling_lion.LionConfig
assert configuration_lion.lion_preset is modeling_lion.lion_preset
packages = (configuration_lion, deploy_lion, hub_upload_lion, modeling_lion, retrieval_lion, tokenization_lion,
            training_lion)
print(json.dumps([str(pathlib.Path(p.__file__).parent.parent) for p in packages]))
warnings.simplefilter("default")
transformers.logging.disable_progress_bar()
from modeling_lion import LionForMaskedLM, lion_preset
config = lion_preset("lion-s-text-base", hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                     intermediate_size=32, vocab_size=50)
torch.manual_seed(0)
model = LionForMaskedLM(config).eval()
model.save_pretrained("saved")
torch.save(model(torch.arange(12)[None]).logits.detach(), "logits.pt")
"""
    load = """
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *args: None if name.split(".")[0] == "PIL" else find_spec(name, *args)
sys.modules["PIL"] = None
import torch, modeling_lion
from transformers import AutoModelForMaskedLM
model = AutoModelForMaskedLM.from_pretrained("saved", attn_implementation="chunk").eval()
torch.testing.assert_close(model(torch.arange(12)[None]).logits, torch.load("logits.pt"))
try:
    modeling_lion.lion_image_processor(modeling_lion.LionConfig(modality="image"))
except ImportError as error:
    print("PIL" in str(error))
"""
    printed = run(save, tmp_path, path=unpacked, options=("-W", "error"))
    assert json.loads(printed) == [str(unpacked)] * len(PACKAGES)
    assert run(load, tmp_path, path=unpacked).strip().endswith("True")


LION = """
from deploy_lion.cli import main
for arguments in {}:
    assert not main(arguments)
"""
ENCODER = """
from modeling_lion import LionModel, LionTokenizer, lion_preset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
tokenizer = LionTokenizer.train_from_iterator(["a lion sleeps", "bread needs flour"] * 9, vocab_size=60)
sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
LionModel(lion_preset("lion-text-small", vocab_size=len(tokenizer), **sizes)).save_pretrained("model")
tokenizer.save_pretrained("model")
SentenceTransformer(modules=[Transformer("model"), Pooling(32)], device="cpu").save("encoder")
"""
# Of a server's process: it is asked once, and then it is ended.
ASK = """
import json, os, signal, socket, sys, threading, time, urllib.error, urllib.request
import retrieval_lion
from deploy_lion.cli import main
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
def ask():
    body = json.dumps({"input": ["a lion sleeps", "bread needs flour"]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/embeddings", body)
    for _ in range(600):
        try:
            with urllib.request.urlopen(request) as answer:
                print(retrieval_lion.__file__, len(json.load(answer)["data"][1]["embedding"]), flush=True)
            break
        except urllib.error.URLError:
            time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=ask).start()
main(["serve", "encoder", "--port", str(port)])
"""


@pytest.mark.slow
def test_commands_of_the_wheel(unpacked, tmp_path, monkeypatch):
    """In another folder: search, also with a process in the background, which ends, embed, and a server."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "notes").mkdir()
    for name, text in (("lion", "A lion sleeps."), ("bread", "Bread needs flour.")):
        (tmp_path / "notes" / f"{name}.txt").write_text(text)
    search = ["search", "notes", "a lion", "--model", "encoder", "--json", "--keep_minutes"]
    commands = [[*search, "0"], ["embed", "notes", "--out", "vectors", "--model", "encoder"], ["--help"]]
    shown = run(ENCODER + LION.format(commands), tmp_path, path=unpacked)
    assert "Wrote 2 vectors to vectors" in shown and all(f"    {name} " in shown for name in cli.COMMANDS)
    for printed in (shown, run(LION.format([[*search, "0.05"]]), tmp_path, path=unpacked)):
        (found,) = (json.loads(line) for line in printed.splitlines() if line.startswith("{"))
        assert found["complete"] and {x["place"] for x in found["answers"]} == {"lion.txt:1", "bread.txt:1"}
    printed = run(ASK, tmp_path, path=unpacked).splitlines()
    assert f"{unpacked / 'retrieval_lion' / '__init__.py'} 32" in printed
    (lock,) = tmp_path.glob("lion-*/*.lock")
    wait_until_free(lock)


@pytest.mark.slow
def test_functions_within_functions_have_no_union_in_their_annotations():
    """torch.compile makes such functions anew, and that of torch 2.9 on Python 3.10 cannot make a type `X | Y`."""
    not_compiled = "segments.py"
    files = [path for path in PACKAGES["modeling_lion"].rglob("*.py") if path.name != not_compiled]
    trees = {str(path): ast.parse(path.read_text()) for path in files if path.name != "portable_code.py"}
    functions = [(name, x) for name, tree in trees.items() for x in ast.walk(tree) if isinstance(x, ast.FunctionDef)]
    inner = [(name, y) for name, x in functions for y in ast.walk(x) if isinstance(y, ast.FunctionDef) and y is not x]
    assert len(inner) > 10
    for name, function in inner:
        notes = [x.annotation for x in ast.walk(function.args) if isinstance(x, ast.arg)] + [function.returns]
        unions = [x for note in notes if note for x in ast.walk(note) if isinstance(x, ast.BinOp)]
        assert not unions, f"{name}: {function.name}"


def public_objects():
    for package in (configuration_lion, deploy_lion, hub_upload_lion, modeling_lion, tokenization_lion):
        for name in package.__all__:
            yield f"{package.__name__}.{name}", getattr(package, name)


def test_public_names_are_on_the_reference_pages():
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
    shown = set(re.findall(r"^::: [\w.]+\.(\w+)$", pages, flags=re.MULTILINE))
    assert {name.split(".")[-1] for name, value in public_objects() if callable(value)} <= shown


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, value in public_objects() if ">>>" in (value.__doc__ or "")],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_examples_of_public_names_run(name, value, monkeypatch):
    monkeypatch.chdir(ROOT)
    (test,) = doctest.DocTestFinder(recurse=False).find(value, name, globs={})
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
