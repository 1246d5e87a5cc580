# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The interface of the tasks, splits that do not overlap, and data sets on disk."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar
from zlib import crc32

import numpy as np
from datasets import Dataset, DatasetDict, Features, List, Value


SPLITS = ("train", "validation", "test")
PAD_ID = 0
NO_LABEL = -100  # what transformers' losses leave out


@dataclass(frozen=True)
class Task(ABC):
    """
    Sequences whose tokens are to be labelled. A subclass is a frozen dataclass whose fields are the sizes of the task;
    equal fields, seed and index give the same example.

    An example is `{"input_ids": list of int, "labels": list of int}`, one label for each token, `NO_LABEL` where
    nothing is asked; or one label, of the whole sequence (`OF_SEQUENCES`). Tokens are numbers from 1 to `vocab_size -
    1`; 0 is left for padding.
    """

    name: ClassVar[str]
    version: ClassVar[int] = (
        1  # count up where a change of the code changes examples, so that stored ones are not used
    )
    length: int

    @property
    @abstractmethod
    def num_labels(self) -> int:
        """Classes of a token."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Tokens, the padding included."""

    @property
    def source(self) -> str:
        """Name what the examples depend on beside fields and seed: cached ones are used only while it is the same."""
        return ""

    @abstractmethod
    def example(self, split: str, index: int, seed: int) -> dict:
        """One example; those of different splits are different."""

    def generator(self, split: str, index: int, seed: int) -> np.random.Generator:
        """A random generator for one example, so that several processes generate the same examples as one."""
        return np.random.default_rng([seed, crc32(self.name.encode()), SPLITS.index(split), index])


def split_of(content: bytes) -> str:
    """The split of an example, by a checksum of it; drawing until the split is the right one makes disjoint splits."""
    return SPLITS[crc32(content) % len(SPLITS)]


def generate(task: Task, split: str, indices: list[int], seed: int, **kwargs) -> Iterator[dict]:
    for index in indices:
        yield task.example(split, index, seed)


def load_task(task: Task, sizes: dict[str, int], cache_dir: str, seed: int = 0) -> DatasetDict:
    """
    The examples of a task, generated once and then read from `cache_dir`.

    Args:
        task: with its sizes.
        sizes: number of examples per split.
        cache_dir: folder.
        seed: other examples for other seeds.

    Returns:
        A split for each one in `sizes`, with the columns `input_ids` and `labels`.

    Raises:
        ValueError: for a split that is not "train", "validation" or "test", or without examples.
    """
    features = Features({name: List(Value("int32")) for name in ("input_ids", "labels")})
    splits = {}
    for split, count in sizes.items():
        if split not in SPLITS:
            raise ValueError(f"There is no split {split!r}; choose of {', '.join(SPLITS)}.")
        if count < 1:
            raise ValueError(f"The size of the split {split!r} is {count}; give at least 1.")
        splits[split] = Dataset.from_generator(
            generate,
            features=features,
            cache_dir=cache_dir,
            gen_kwargs={
                "task": task,
                "split": split,
                "indices": list(range(count)),
                "seed": seed,
                "version": task.version,
                "source": task.source,
            },
            split=split,
        )
    return DatasetDict(splits)
