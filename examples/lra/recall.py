# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Recall: pairs of a key and a value are listed, then the keys again in another order, each of whose values is to be
named, as in the associative recall of Zoology (Arora et al., 2023, arXiv 2312.04927).

    k3 v1 k1 v4 k2 v1 | k2 k3 k1        the answers: v1, v1, v4

It takes two steps: a key of the first list has to read the value on its right, then one of the second list has to find
it. In training the keys of the first list are to be named a value, too: of the second step alone, softmax attention
with rotary positions learnt nothing in 800 steps of 32 examples.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .task import NO_LABEL, Task, split_of


SEPARATOR_ID = 1  # 0 is padding; values and then keys follow


@dataclass(frozen=True)
class Recall(Task):
    """
    Args:
        length: tokens of an example at most: three for each pair, and a separator.
        num_keys: different keys, of which each example has as many as it has pairs. Not given: twice that.
        num_values: different values.

    Raises:
        ValueError: if an example has no two pairs, or there are fewer keys than pairs.
    """

    length: int = 64
    num_keys: int | None = None
    num_values: int = 16

    name = "recall"
    per_token: ClassVar[bool] = True

    def __post_init__(self):
        if self.num_pairs < 2:
            raise ValueError(f"`length` is {self.length}; give at least 7, for two pairs.")
        if self.num_keys is not None and self.num_keys < self.num_pairs:
            raise ValueError(f"`num_keys` is {self.num_keys}; give at least the {self.num_pairs} of an example.")

    @property
    def num_pairs(self) -> int:
        return (self.length - 1) // 3

    @property
    def first_key(self) -> int:
        return SEPARATOR_ID + 1 + self.num_values

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
            values = generator.integers(self.num_values, size=self.num_pairs)
            order = generator.permutation(self.num_pairs)
            pairs = np.stack((keys, values + SEPARATOR_ID + 1), axis=-1)
            tokens = np.concatenate((pairs.flatten(), [SEPARATOR_ID], keys[order]))
            if split_of(tokens.tobytes()) == split:
                break
        labels = np.full(len(tokens), NO_LABEL)
        labels[-self.num_pairs :] = values[order]
        if split == "train":
            labels[: 2 * self.num_pairs : 2] = values
        return {"input_ids": tokens.tolist(), "labels": labels.tolist()}
