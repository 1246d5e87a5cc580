# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Files that are there as a whole, or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4


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
