# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The command `lion`: what it says of a checkpoint that is not there."""

import pytest
from hub_upload_lion.cli import main


@pytest.mark.parametrize(
    "arguments",
    [["convert", "out"], ["app"], ["verify"], ["export", "out"]],
    ids=" ".join,
)
def test_a_missing_folder_is_named(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    missing = str(tmp_path / "nowhere")
    command, *others = arguments
    assert main([command, missing, *others]) == 1
    first, *others = capsys.readouterr().err.splitlines()
    assert first == f"There is no file or folder {missing}: it is looked for on the Hugging Face Hub."
    assert any(f"lion {command}: There is no file or folder {missing}, so" in line for line in others)
