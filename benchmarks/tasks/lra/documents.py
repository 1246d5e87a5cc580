# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The documents of the tasks on bytes: the docstrings of each file of this Python installation."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zlib import crc32

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import numpy as np
from docstrings import collect_docstrings, python_files, python_folders

from .task import SPLITS, Task


SEPARATOR_ID = 257
VOCAB_SIZE = 258  # padding, 256 bytes, the separator


@dataclass(frozen=True)
class DocumentTask(Task):
    """
    A task on bytes of documents.

    Args:
        longest: bytes of an example.
        max_bytes: of docstrings to collect.
        folders: where to look. Not given: in the Python installation that runs this.
    """

    longest: int = 4096
    max_bytes: int = 30_000_000
    folders: tuple[str, ...] = ()

    vocab_size = VOCAB_SIZE

    @property
    def max_length(self) -> int:
        return self.longest

    @property
    def source(self) -> str:
        return fingerprint(self.folders)


def folders_or_default(folders: tuple[str, ...]) -> tuple[str, ...]:
    return folders or tuple(python_folders())


def fingerprint(folders: tuple[str, ...]) -> str:
    """Changes with the files that are installed."""
    checksum = 0
    for file in python_files(folders_or_default(folders)):
        checksum = crc32(f"{file} {Path(file).stat().st_size}".encode(), checksum)
    return f"{checksum:08x}"


@cache
def documents(folders: tuple[str, ...], max_bytes: int) -> dict[str, dict[str, dict[str, list[str]]]]:
    """
    Paragraphs by split, package and file; a package is the first part of a file's path below its folder. Files are of
    one split, by a checksum of their path: 70 % are for training. No paragraph comes twice.
    """
    folders = folders_or_default(folders)
    found = {}
    for part in collect_docstrings(folders, max_bytes):
        found |= part
    result: dict[str, dict[str, dict[str, list[str]]]] = {split: {} for split in SPLITS}
    for file, paragraphs in sorted(found.items()):
        folder = max((f for f in folders if Path(file).is_relative_to(f)), key=len)  # they may lie in each other
        path = Path(file).relative_to(folder)
        share = crc32(path.as_posix().encode()) % 100
        split = SPLITS[0 if share < 70 else 1 if share < 85 else 2]
        result[split].setdefault(path.parts[0], {})[file] = paragraphs
    return result


def window(generator: np.random.Generator, paragraphs: list[str], length: int) -> list[int]:
    """At most `length` bytes of consecutive paragraphs, as tokens: from a random paragraph on, or all if they fit."""
    starts = [n for n in range(len(paragraphs)) if sum(len(p) + 1 for p in paragraphs[n:]) >= length] or [0]
    start = starts[generator.integers(len(starts))]
    return encode(" ".join(paragraphs[start:]))[:length]


def encode(text: str) -> list[int]:
    return [byte + 1 for byte in text.encode("utf-8", "replace")]
