# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Definitions that stand far above: docstrings of this Python installation, word by word, in whose first quarter names
are given values, and in whose last quarter the values are asked for.

    ... returns the number of bytes . SET n7 v3 if the file is closed , ... GET n7 ...        the answer: v3

A question is at least half of the text away from its definition. Texts of any length have as many definitions, so that
a model that is trained on short texts can be tested on long ones. In training, the names in definitions are to be
labelled with the value on their right, too, as in `recall`.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from .task import NO_LABEL, SPLITS, Task
from .words import UNKNOWN_ID, encode, fingerprint, vocabulary, words_of


SET_ID, GET_ID = UNKNOWN_ID + 1, UNKNOWN_ID + 2  # values, names and then words follow


@dataclass(frozen=True)
class Definitions(Task):
    """
    Args:
        length: tokens of an example.
        num_words: the most frequent words of the training texts, which have a token of their own.
        num_definitions: in an example, each of another name, which is asked for once.
        num_names: different names.
        num_values: different values.
        max_bytes: of docstrings to collect.
        folders: where to look for them. Not given: in the Python installation that runs this.

    Raises:
        ValueError: if a quarter of the text has no room for the definitions, or there are fewer names than that.
    """

    length: int = 512
    num_words: int = 1000
    num_definitions: int = 8
    num_names: int = 32
    num_values: int = 16
    max_bytes: int = 30_000_000
    folders: tuple[str, ...] = ()

    name = "definitions"

    def __post_init__(self):
        least = 4 * 3 * self.num_definitions
        if self.length < least:
            raise ValueError(
                f"`length` is {self.length}; give at least {least} for `num_definitions` {self.num_definitions}."
            )
        if self.num_names < self.num_definitions:
            raise ValueError(f"`num_names` is {self.num_names}; give at least {self.num_definitions}.")

    @property
    def num_labels(self) -> int:
        return self.num_values

    @property
    def vocab_size(self) -> int:
        return self.first_word + self.num_words

    @property
    def source(self) -> str:
        return fingerprint(self.folders)

    @property
    def first_name(self) -> int:
        return GET_ID + 1 + self.num_values

    @property
    def first_word(self) -> int:
        return self.first_name + self.num_names

    def example(self, split: str, index: int, seed: int) -> dict:
        generator = self.generator(split, index, seed)
        words = word_ids(self)[split]
        count = self.num_definitions
        quarter = self.length // 4
        start = generator.integers(len(words))
        ids = np.take(words, np.arange(start, start + self.length), mode="wrap")
        labels = np.full(self.length, NO_LABEL)
        names = self.first_name + generator.choice(self.num_names, count, replace=False)
        values = generator.integers(self.num_values, size=count)
        above = spread(generator, quarter, count, 3)
        ids[above], ids[above + 1], ids[above + 2] = SET_ID, names, GET_ID + 1 + values
        if split == "train":
            labels[above + 1] = values
        below = self.length - quarter + spread(generator, quarter, count, 2)
        order = generator.permutation(count)
        ids[below], ids[below + 1], labels[below + 1] = GET_ID, names[order], values[order]
        return {"input_ids": ids.tolist(), "labels": labels.tolist()}


def spread(generator: np.random.Generator, room: int, count: int, width: int) -> np.ndarray:
    """Places of `count` items of so many tokens that do not overlap, in order, `(count,)`."""
    slots = room - count * (width - 1)
    return np.sort(generator.choice(slots, count, replace=False)) + np.arange(count) * (width - 1)


@cache
def word_ids(task: Definitions) -> dict[str, np.ndarray]:
    words = words_of(task.folders, task.max_bytes)
    ids = vocabulary(words["train"], task.num_words, task.first_word)
    return {split: encode(words[split], ids) for split in SPLITS}
