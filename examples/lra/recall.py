# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Recall: pairs of a key and a value are listed twice, in different orders, and values of the second list are hidden and
to be named, as in the associative recall of Zoology (Arora et al., 2023, arXiv 2312.04927).

    k3 v1  k1 v4  k2 v1 | k2 ?  k3 ?  k1 ?        the answers: v1, v1, v4

It takes two steps: a value has to learn its key from the token before it, and a hidden value has to find that key.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .task import NO_LABEL, Task, split_of


HIDDEN_ID = 1  # 0 is padding, values and then keys follow


@dataclass(frozen=True)
class Recall(Task):
    """
    Args:
        length: tokens of an example, four for each pair.
        num_keys: different keys, of which each example has as many as it has pairs. Not given: twice that.
        num_values: different values.
        num_hidden: values of the second list that are hidden. Not given: all.

    Raises:
        ValueError: if an example does not consist of pairs, or there are too few keys or pairs.
    """

    length: int = 64
    num_keys: int | None = None
    num_values: int = 16
    num_hidden: int | None = None

    name = "recall"
    per_token: ClassVar[bool] = True

    def __post_init__(self):
        if self.length < 8 or self.length % 4:
            raise ValueError(f"`length` is {self.length}; give a multiple of 4, at least 8: a pair takes 4 tokens.")
        if self.num_keys is not None and self.num_keys < self.num_pairs:
            raise ValueError(f"`num_keys` is {self.num_keys}; give at least the {self.num_pairs} keys of an example.")
        if self.num_hidden is not None and not 1 <= self.num_hidden <= self.num_pairs:
            raise ValueError(f"`num_hidden` is {self.num_hidden}; give 1 to {self.num_pairs}, or None for all.")

    @property
    def num_pairs(self) -> int:
        return self.length // 4

    @property
    def first_key(self) -> int:
        return HIDDEN_ID + 1 + self.num_values

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(str(value) for value in range(self.num_values))

    @property
    def vocab_size(self) -> int:
        return self.first_key + (self.num_keys or 2 * self.num_pairs)

    @property
    def max_length(self) -> int:
        return self.length

    def example(self, split: str, index: int, seed: int) -> dict:
        generator = self.generator(split, index, seed)
        while True:
            keys = generator.choice(np.arange(self.first_key, self.vocab_size), self.num_pairs, replace=False)
            pairs = np.stack((keys, generator.integers(self.num_values, size=self.num_pairs)), axis=-1)
            again = generator.permutation(pairs)
            hidden = generator.permutation(self.num_pairs) < (self.num_hidden or self.num_pairs)
            if split_of(np.concatenate((pairs, again)).tobytes()) == split:
                break
        labels = np.full((2, self.num_pairs, 2), NO_LABEL)
        labels[1, hidden, 1] = again[hidden, 1]
        tokens = np.stack((pairs, again))
        tokens[..., 1] += HIDDEN_ID + 1
        tokens[1, hidden, 1] = HIDDEN_ID
        return {"input_ids": tokens.flatten().tolist(), "labels": labels.flatten().tolist()}
