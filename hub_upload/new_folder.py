# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Output folders that exist complete, or not at all."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """
    A folder to write to. It is moved to `path` when the `with` block ends, and deleted if the block raises.

    Raises:
        FileExistsError: if `path` is a file, or a folder that is not empty.
    """
    path = Path(path).absolute()
    if path.is_file() or path.is_dir() and any(path.iterdir()):
        raise FileExistsError(f"{path} exists and is not empty: choose another output folder, or empty this one.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as temporary:
        folder = Path(temporary) / path.name
        folder.mkdir()
        yield folder
        if path.is_dir():
            path.rmdir()
        folder.rename(path)
