# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Handwritten digits, pixel by pixel: scikit-learn's 1797 scans of 8 x 8 pixels, instead of the Arena's CIFAR-10, which
would have to be downloaded.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from .task import SPLITS, Task


@dataclass(frozen=True)
class Digits(Task):
    """All scans, as grey values: 60 % for training, 20 % each for validation and test, stratified by digit."""

    name = "digits"
    labels = tuple("0123456789")
    vocab_size = 256
    max_length = 64
    grid = (8, 8)

    def size_of(self, split: str) -> int:
        return len(scans(0)[split])

    def example(self, split: str, index: int, seed: int) -> dict:
        pixels, label = scans(seed)[split][index]
        return {"input_ids": pixels.tolist(), "label": label}


@cache
def scans(seed: int) -> dict[str, list[tuple[np.ndarray, int]]]:
    """Pixels, from 0 to 255, and label; `seed` decides which scans are in which split."""
    digits = load_digits()
    pixels = np.round(digits.data * (255 / 16)).astype(np.uint8)
    # A few scans are duplicates, which must not be in different splits.
    _, unique = np.unique(pixels, axis=0, return_index=True)
    train, others = train_test_split(
        np.sort(unique), test_size=0.4, random_state=seed, stratify=digits.target[np.sort(unique)]
    )
    validation, test = train_test_split(others, test_size=0.5, random_state=seed, stratify=digits.target[others])
    parts = dict(zip(SPLITS, (train, validation, test), strict=True))
    return {split: [(pixels[i], int(digits.target[i])) for i in part] for split, part in parts.items()}
