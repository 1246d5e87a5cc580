# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The interface of the tasks, splits that do not overlap, and data sets on disk."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar
from zlib import crc32

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value


SPLITS = ("train", "validation", "test")
PAD_ID = 0
NO_LABEL = -100  # what transformers' losses leave out


@dataclass(frozen=True)
class Task(ABC):
    """
    Sequences to classify. A subclass is a frozen dataclass whose fields are the sizes of the task; equal fields, seed
    and index give the same example.

    An example is `{"input_ids": list of int, "label": int}`, or, of a task `per_token`, `{"input_ids": list of int,
    "labels": list of int}`, one label for each token, `NO_LABEL` where nothing is asked. Tokens are numbers from 1 to
    `vocab_size - 1`; 0 is left for padding. Of a task with a `grid` they are the grey values of an image instead, from
    0 to 255, row by row.
    """

    name: ClassVar[str]
    per_token: ClassVar[bool] = False
    version: ClassVar[int] = (
        1  # count up where a change of the code changes examples, so that stored ones are not used
    )

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """Names of the classes."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Tokens, the padding included."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """Most tokens of an example."""

    @property
    def grid(self) -> tuple[int, int] | None:
        """Height and width, if the tokens are pixels."""
        return None

    @property
    def source(self) -> str:
        """Name what the examples depend on beside fields and seed: cached ones are used only while it is the same."""
        return ""

    def size_of(self, split: str) -> int | None:
        """The number of examples, if it is limited."""
        return None

    @abstractmethod
    def example(self, split: str, index: int, seed: int) -> dict:
        """One example; those of different splits are different."""

    def generator(self, split: str, index: int, seed: int) -> np.random.Generator:
        """A random generator for one example, so that several processes generate the same examples as one."""
        return np.random.default_rng([seed, crc32(self.name.encode()), SPLITS.index(split), index])


class SquareImageTask(Task):
    """A task of grey images, `side` x `side` pixels; a subclass has the field `side`."""

    side: int
    vocab_size = 256

    @property
    def max_length(self) -> int:
        return self.side**2

    @property
    def grid(self) -> tuple[int, int]:
        return self.side, self.side


def split_of(content: bytes) -> str:
    """The split of an example, by a checksum of it; drawing until the split is the right one makes disjoint splits."""
    return SPLITS[crc32(content) % len(SPLITS)]


def generate(task: Task, split: str, indices: list[int], seed: int, **kwargs) -> Iterator[dict]:
    for index in indices:
        yield task.example(split, index, seed)


def load_task(
    task: Task, sizes: dict[str, int], cache_dir: str | None = None, seed: int = 0, num_proc: int | None = None
) -> DatasetDict:
    """
    The examples of a task, generated once and then read from `cache_dir`.

    Args:
        task: with its sizes.
        sizes: number of examples per split; a task with fewer gives all it has.
        cache_dir: folder; `None` is that of the datasets library.
        seed: other examples for other seeds.
        num_proc: processes that generate them. The examples are the same for any number.

    Returns:
        A split for each one in `sizes`, with the columns `input_ids` and `label`, or `labels` of a task `per_token`.

    Raises:
        ValueError: for a split that is not "train", "validation" or "test", or without examples.
    """
    labels = {"labels": List(Value("int32"))} if task.per_token else {"label": ClassLabel(names=list(task.labels))}
    features = Features({"input_ids": List(Value("int32"))} | labels)
    splits = {}
    for split, count in sizes.items():
        if split not in SPLITS:
            raise ValueError(f"There is no split {split!r}; choose of {', '.join(SPLITS)}.")
        if count < 1:
            raise ValueError(f"The size of the split {split!r} is {count}; give at least 1.")
        limit = task.size_of(split)
        indices = list(range(count if limit is None else min(count, limit)))
        splits[split] = Dataset.from_generator(
            generate,
            features=features,
            cache_dir=cache_dir,
            gen_kwargs={
                "task": task,
                "split": split,
                "indices": indices,
                "seed": seed,
                "version": task.version,
                "source": task.source,
            },
            num_proc=num_proc,
            split=split,
        )
    return DatasetDict(splits)
