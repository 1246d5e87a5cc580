# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The tasks on words: tokens are the most frequent ones of the training texts, and one stands for all others."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .documents import fingerprint
from .task import Task


UNKNOWN_ID = 1  # 0 is padding
PATTERN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class WordTask(Task):
    """
    A task on words.

    Args:
        length: most tokens of an example.
        num_words: the most frequent words of the training texts, which have a token of their own.
        folders: where to look. Not given: in the Python installation that runs this.
    """

    length: int = 512
    num_words: int = 1000
    folders: tuple[str, ...] = ()

    first_word = UNKNOWN_ID + 1

    @property
    def vocab_size(self) -> int:
        return self.first_word + self.num_words

    @property
    def max_length(self) -> int:
        return self.length

    @property
    def source(self) -> str:
        return fingerprint(self.folders)


def split_words(text: str) -> list[str]:
    """Words and single other characters, in lower case."""
    return PATTERN.findall(text.lower())


def vocabulary(words: Iterable[str], size: int, first_id: int) -> dict[str, int]:
    """Ids of the `size` most frequent words, from `first_id` on."""
    frequent = Counter(words).most_common(size)
    return {word: first_id + n for n, (word, _) in enumerate(frequent)}


def encode(words: Iterable[str], ids: dict[str, int]) -> np.ndarray:
    return np.array([ids.get(word, UNKNOWN_ID) for word in words])
