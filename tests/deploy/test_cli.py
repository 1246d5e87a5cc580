# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The command `lion`: what it says of a checkpoint that is not there."""

import pytest
from deploy_lion.cli import main


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
