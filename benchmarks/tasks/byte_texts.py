# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Texts as bytes, after the tasks `text` and `retrieval` of the Long Range Arena, from the long pages of manuals that
tasks/real_data.py prepares (`documents`): which part of a manual is a page from, and are two pages from the same part?
The arena reads reviews of films and pairs of papers, two papers by two encoders; here, one sequence has both pages.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from datasets import Dataset

from .generated.task import SPLITS


VOCAB_SIZE = 258  # padding, the bytes from 1 on, and what stands between two pages
BETWEEN = 257


def to_ids(text: str, length: int) -> list[int]:
    return [1 + byte for byte in text.encode()[:length]]


def pages(folder: Path, split: str) -> list[dict]:
    lines = (folder / "documents" / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def text_splits(folder: Path, length: int, most: int) -> tuple[dict[str, Dataset], int]:
    """
    The first `length` bytes of pages with the number of their part, `labels` of one number.

    Args:
        folder: of `real_data.prepare`. most: examples for training.

    Returns:
        The splits, and the number of parts.
    """
    parts = sorted({row["label"] for row in pages(folder, "train")})
    splits = {}
    for split in SPLITS:
        rows = pages(folder, split)[: most if split == "train" else None]
        found = [{"input_ids": to_ids(x["text"], length), "labels": [parts.index(x["label"])]} for x in rows]
        splits[split] = Dataset.from_list(found)
    return splits, len(parts)


def pairs(rows: list[dict], length: int, count: int, seed: int) -> Iterator[dict]:
    """Pairs of pages, half of them of the same part, as the bytes of both with `BETWEEN` in the middle."""
    generator = np.random.default_rng([seed, count])
    of_part: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        of_part.setdefault(row["label"], []).append(number)
    several = [part for part, numbers in of_part.items() if len(numbers) > 1]
    for index in range(count):
        part = several[generator.integers(len(several))]
        first, second = generator.choice(of_part[part], 2, replace=False)
        if index % 2:
            others = [x for x in of_part if x != part]
            second = generator.choice(of_part[others[generator.integers(len(others))]])
        first, second = (to_ids(rows[x]["text"], (length - 1) // 2) for x in (first, second))
        yield {"input_ids": [*first, BETWEEN, *second], "labels": [1 - index % 2]}


def retrieval_splits(folder: Path, length: int, most: int) -> tuple[dict[str, Dataset], int]:
    """Pairs of pages within each split; arguments and result as those of `text_splits`."""
    splits = {}
    for number, split in enumerate(SPLITS):
        count = most if split == "train" else max(most // 10, 20)
        splits[split] = Dataset.from_list(list(pairs(pages(folder, split), length, count, number)))
    return splits, 2
