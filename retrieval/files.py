# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Write files atomically, and detect changed files."""

import contextlib
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from uuid import uuid4


def state_of(path: str | Path) -> tuple[int, int, int, int]:
    """
    Return size, modification time, change time (both in nanoseconds) and inode of a file. Size and modification time
    are not enough: `rsync -t`, `cp -p` and reproducible builds keep them when contents change.
    """
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def hash_of(path: str | Path) -> str:
    """Return the hash of the contents of a file: 32 hexadecimal digits."""
    found = blake2b(digest_size=16)
    with open(path, "rb") as file:
        while data := file.read(2**20):
            found.update(data)
    return found.hexdigest()


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """
    Yield a temporary path to write to. It replaces `path` once it is on the disk as a whole. Leftovers of killed
    processes have names that begin with "_", which readers of Parquet ignore.
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
