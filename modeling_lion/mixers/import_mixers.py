# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Files that register mixers, by their paths: the option `--mixers` of commands and scripts."""

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from configuration_lion.registry import MIXERS


def import_mixers(files: Iterable[str | Path]) -> list[str]:
    """
    Import files that register mixers or feature maps (`modeling_lion.register_mixer`).

    Args:
        files: paths of Python files. Each becomes a module of its name, so that a model is saved with it.

    Returns:
        The names of the mixers that were not known before.

    Raises:
        ValueError: if a file is not there, or another module has its name.
    """
    known = {*MIXERS}
    for path in map(Path, files):
        if not path.is_file():
            raise ValueError(f"--mixers names {path}, which is not a file.")
        sys.path.insert(0, str(path.resolve().parent))
        module = import_module(path.stem)
        if Path(module.__file__ or "").resolve() != path.resolve():
            raise ValueError(f"--mixers {path}: another module is called {path.stem}; rename the file.")
    return [name for name in MIXERS if name not in known]
