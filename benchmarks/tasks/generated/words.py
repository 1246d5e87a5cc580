# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Words of the docstrings of this Python installation: the most frequent ones have a token each, and one stands for all
others.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from zlib import crc32

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import numpy as np
from training_lion.scripts.docstrings import collect_docstrings, python_files, python_folders

from .task import SPLITS


UNKNOWN_ID = 1  # 0 is padding
PATTERN = re.compile(r"\w+|[^\w\s]")


def folders_or_default(folders: tuple[str, ...]) -> tuple[str, ...]:
    return folders or tuple(python_folders())


def fingerprint(folders: tuple[str, ...]) -> str:
    """Changes with the files that are installed."""
    checksum = 0
    for file in python_files(folders_or_default(folders)):
        checksum = crc32(f"{file} {Path(file).stat().st_size}".encode(), checksum)
    return f"{checksum:08x}"


@cache
def words_of(folders: tuple[str, ...], max_bytes: int) -> dict[str, list[str]]:
    """
    All words of each split, one file after the other. A file is of one split, by a checksum of its path: 70 % are for
    training. No paragraph comes twice.
    """
    folders, found = folders_or_default(folders), {}
    for part in collect_docstrings(folders, max_bytes):
        found |= part
    words: dict[str, list[str]] = {split: [] for split in SPLITS}
    for file, paragraphs in sorted(found.items()):
        folder = max((f for f in folders if Path(file).is_relative_to(f)), key=len)  # they may lie in each other
        share = crc32(Path(file).relative_to(folder).as_posix().encode()) % 100
        of_split = words[SPLITS[0 if share < 70 else 1 if share < 85 else 2]]
        for paragraph in paragraphs:
            of_split += split_words(paragraph)
    return words


def split_words(text: str) -> list[str]:
    """Words and single other characters, in lower case."""
    return PATTERN.findall(text.lower())


def vocabulary(words: Iterable[str], size: int, first_id: int) -> dict[str, int]:
    """Ids of the `size` most frequent words, from `first_id` on."""
    frequent = Counter(words).most_common(size)
    return {word: first_id + n for n, (word, _) in enumerate(frequent)}


def encode(words: Iterable[str], ids: dict[str, int]) -> np.ndarray:
    return np.array([ids.get(word, UNKNOWN_ID) for word in words])
