# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Imports files that register mixers: the option `--mixers` of commands and scripts."""

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from configuration_lion.registry import MIXERS


def import_mixers(files: Iterable[str | Path]) -> list[str]:
    """
    Import files that register mixers or feature maps (`modeling_lion.register_mixer`), each as a module of its own
    name, which saving a model can find. Returns the names of the mixers that they register. Raises a ValueError if a
    file does not exist, or another module has its name.
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
