# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Files that are there as a whole, or not at all, and whether they have changed."""

import contextlib
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from uuid import uuid4


def state_of(path: str | Path) -> tuple[int, int, int, int]:
    """
    Size, time of the contents, time of any change, and number of a file. `rsync -t`, `cp -p` and reproducible builds
    keep the first two of other contents.
    """
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def hash_of(path: str | Path) -> str:
    """The hash of the contents of a file."""
    found = blake2b(digest_size=16)
    with open(path, "rb") as file:
        while data := file.read(2**20):
            found.update(data)
    return found.hexdigest()


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """
    A file to write, which takes the place of another when all of it is on the disk. What a killed process leaves
    begins with "_", as files that readers of Parquet ignore.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"_{path.name}.{uuid4().hex[:12]}")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
