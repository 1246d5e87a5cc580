# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tokens of the tasks on words: the most frequent ones of the training texts, and one token for all others."""

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np


UNKNOWN_ID = 1  # 0 is padding
PATTERN = re.compile(r"\w+|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Words and single other characters, in lower case."""
    return PATTERN.findall(text.lower())


def vocabulary(words: Iterable[str], size: int, first_id: int) -> dict[str, int]:
    """Ids of the `size` most frequent words, from `first_id` on."""
    frequent = Counter(words).most_common(size)
    return {word: first_id + n for n, (word, _) in enumerate(frequent)}


def encode(words: Iterable[str], ids: dict[str, int]) -> np.ndarray:
    return np.array([ids.get(word, UNKNOWN_ID) for word in words])
