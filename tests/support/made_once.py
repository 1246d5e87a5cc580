# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What several test files need and what takes long to make: the first process of pytest-xdist makes it for all."""

import os
import re
import shlex
import warnings
from pathlib import Path

import pytest
from deploy_lion.cli import main
from filelock import FileLock


ROOT = Path(__file__).parents[2]
CHECKPOINT = "checkpoints/lion-minilm-l6"
PAGE = (ROOT / "docs/guides/recipes.md").read_text(encoding="utf-8")
COMMANDS = {name: line for line, name in re.findall(rf"^(lion \w+ {CHECKPOINT} (my-\w+).*)$", PAGE, re.MULTILINE)}


def made_by_recipes(name: str, factory: pytest.TempPathFactory) -> Path:
    """
    The folder of that name that a command of docs/guides/recipes.md makes from the checkpoint: `my-bundle` or
    `my-graph`. It lies beside a link `checkpoints`, as in a clone.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "recipes"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            (folder / "checkpoints").symlink_to(ROOT / "checkpoints")
        if not (folder / name).exists():
            command, checkpoint, _, *options = shlex.split(COMMANDS[name], comments=True)[1:]
            options += ["--lengths"] * (command == "export")  # none: times are of no interest here
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # exporters use what torch calls deprecated
                assert main([command, str(folder / checkpoint), str(folder / name), *options]) == 0
    return folder / name
