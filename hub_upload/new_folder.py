# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Output folders that are there complete, or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """
    A folder to write to, that gets its name `path` only if nothing goes wrong; until then it lies beside it.

    Raises:
        FileExistsError: if `path` is a file, or a folder that is not empty.
    """
    path = Path(path).absolute()
    if path.is_file() or path.is_dir() and any(path.iterdir()):
        raise FileExistsError(f"{path} exists and is not empty: choose another output folder, or empty this one.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield temporary
        if path.is_dir():
            path.rmdir()
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)  # mkdtemp makes folders for one user only
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
