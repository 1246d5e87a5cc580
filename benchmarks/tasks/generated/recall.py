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

import numpy as np

from .task import NO_LABEL, Task, split_of


SEPARATOR_ID, FILLER_ID = 1, 2  # 0 is padding; values and then keys follow


@dataclass(frozen=True)
class Recall(Task):
    """
    Args:
        length: tokens of an example: three for each pair, a separator, and filler anywhere but within pairs.
        num_pairs: not given: as many as there is room for.
        num_keys: different keys, of which each example has as many as it has pairs. Not given: twice that.
        num_values: different values.

    Raises:
        ValueError: if there is no room for the pairs, there are no two, or fewer keys than pairs.
    """

    length: int = 64
    num_pairs: int | None = None
    num_keys: int | None = None
    num_values: int = 16

    name = "recall"

    def __post_init__(self):
        room = (self.length - 1) // 3
        if room < 2:
            raise ValueError(f"`length` is {self.length}; give at least 7, for two pairs.")
        if not 2 <= self.pairs <= room:
            raise ValueError(f"`num_pairs` is {self.num_pairs}; give 2 to {room} for `length` {self.length}.")
        if self.keys < self.pairs:
            raise ValueError(f"`num_keys` is {self.num_keys}; give at least the {self.pairs} of an example.")

    @property
    def pairs(self) -> int:
        return (self.length - 1) // 3 if self.num_pairs is None else self.num_pairs

    @property
    def keys(self) -> int:
        return 2 * self.pairs if self.num_keys is None else self.num_keys

    @property
    def first_key(self) -> int:
        return FILLER_ID + 1 + self.num_values

    @property
    def num_labels(self) -> int:
        return self.num_values

    @property
    def vocab_size(self) -> int:
        return self.first_key + self.keys

    def example(self, split: str, index: int, seed: int) -> dict:
        generator = self.generator(split, index, seed)
        filler = self.length - 1 - 3 * self.pairs
        while True:
            keys = generator.choice(np.arange(self.first_key, self.vocab_size), self.pairs, replace=False)
            values = generator.integers(self.num_values, size=self.pairs)
            names = values + FILLER_ID + 1
            order = generator.permutation(self.pairs)
            first = self.spread(generator, np.stack((keys, names), axis=-1), filler // 2)
            second = self.spread(generator, keys[order, None], filler - filler // 2)
            tokens = np.concatenate((first, [SEPARATOR_ID], second))
            if split_of(tokens.tobytes()) == split:
                break
        of_key = dict(zip(keys.tolist(), values.tolist(), strict=True))
        labels = [of_key.get(token, NO_LABEL) for token in tokens.tolist()]
        if split != "train":
            labels[: len(first)] = [NO_LABEL] * len(first)
        return {"input_ids": tokens.tolist(), "labels": labels}

    def spread(self, generator: np.random.Generator, items: np.ndarray, filler: int) -> np.ndarray:
        """Items, `(n, width)`, one after the other, with filler anywhere between them."""
        slots = np.sort(generator.choice(len(items) + filler, len(items), replace=False))
        tokens = np.full(items.size + filler, FILLER_ID)
        before = slots - np.arange(len(items))  # filler before each item
        starts = before + items.shape[1] * np.arange(len(items))
        tokens[starts[:, None] + np.arange(items.shape[1])] = items
        return tokens
