# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The command `lion`: its commands and version, and what it says of a checkpoint that is not there."""

import importlib
import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import deploy_lion
import hub_upload_lion
import pytest
import torch
from deploy_lion.cli import COMMANDS, main
from hub_upload_lion import verify
from retrieval_lion.search import command as search


@pytest.mark.parametrize(
    "arguments",
    [["convert", "out"], ["app"], ["verify"], ["export", "out"]],
    ids=" ".join,
)
def test_a_missing_folder_is_named(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    command, *others = arguments
    assert main([command, "nowhere", *others]) == 1
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "There is no file or folder nowhere: it is looked for on the Hugging Face Hub."
    assert any(f"lion {command}: There is no file or folder nowhere, so" in line for line in others)


@pytest.mark.parametrize("missing", ["/nowhere/model", "../nowhere", "./nowhere", "a/b/nowhere"])
def test_a_path_is_not_looked_for_on_the_hub(missing, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["verify", missing]) == 1
    assert capsys.readouterr().err == f"lion verify: There is no file or folder {missing}.\n"


def test_options_may_stand_between_words(monkeypatch):
    given = []
    monkeypatch.setattr(search, "run", given.append)
    assert main(["search", "notes", "--top", "3", "a", "query"]) == 0
    assert given[0].words == ["notes", "a", "query"] and given[0].top == 3


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_package_names_the_extra(name, monkeypatch, capsys):
    def missing(*_):
        raise ModuleNotFoundError("No module named 'lxml'")

    monkeypatch.setattr("deploy_lion.cli.import_module", missing)
    assert main([name, "notes"]) == 1
    advice = re.fullmatch(rf"lion {name}: No module named 'lxml'. .*'\.\[(\w+)\]'.*\n", capsys.readouterr().err)
    assert advice[1] in importlib.metadata.metadata("lion-transformers").get_all("Provides-Extra")


def test_every_command_has_a_module():
    for module_name, _ in COMMANDS.values():
        module = importlib.import_module(module_name, "deploy_lion")
        assert callable(module.add_arguments) and callable(module.run)


@pytest.mark.parametrize("package", [deploy_lion, hub_upload_lion])
def test_public_names_are_imported_when_asked_for(package):
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError):
        package.no_such_thing  # noqa: B018


def test_the_version_is_that_of_pyproject(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    (number,) = re.findall('^version = "(.*)"$', text, flags=re.MULTILINE)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"lion-transformers {number}, torch {torch.__version__.split('+')[0]}")


def test_importing_is_light():
    code = "import sys, hub_upload_lion, deploy_lion, deploy_lion.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_command_removes_what_it_has_not_finished_before_it_ends(monkeypatch, tmp_path):
    ended = []

    def killed(args):
        with tempfile.TemporaryDirectory(dir=tmp_path):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)

    monkeypatch.setattr(verify, "run", killed)
    before = signal.signal(signal.SIGTERM, lambda *_: ended.append([*tmp_path.iterdir()]))
    try:
        with pytest.raises(SystemExit):
            main(["verify", "x"])
        assert ended == [[]]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_interruptions_end_the_command(monkeypatch, capsys):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "run", interrupted)
    assert main(["verify", "x"]) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "inf", "nan"])
def test_limits_of_the_server_are_numbers_above_0(value, capsys):
    assert main(["serve", "model", "--timeout", value]) == 1
    assert f"--timeout is {float(value)}: give a number above 0" in capsys.readouterr().err
