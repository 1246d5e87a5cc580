# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Text classification, byte by byte: which package is a docstring from? (The Arena's texts are film reviews of IMDb,
which would have to be downloaded.)

The names of the packages are replaced by "_". Validation and test texts are from other files than those for training.
"""

import re
from dataclasses import dataclass
from functools import cache

from .documents import DocumentTask, documents, window
from .task import SPLITS


@dataclass(frozen=True)
class Text(DocumentTask):
    """
    Args:
        longest: bytes of an example; the Arena has up to 4096.
        num_packages: classes: the packages with the most text of those that have files in every split.
    """

    num_packages: int = 4

    name = "text"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(texts(self)["train"])

    def example(self, split: str, index: int, seed: int) -> dict:
        generator = self.generator(split, index, seed)
        label = int(generator.integers(len(self.labels)))
        files = texts(self)[split][self.labels[label]]
        file = files[generator.integers(len(files))]
        return {"input_ids": window(generator, file, self.longest), "label": label}


@cache
def texts(task: Text) -> dict[str, dict[str, list[list[str]]]]:
    """Paragraphs of each file, by split and package, in the order of the labels."""
    found = documents(task.folders, task.max_bytes)
    sizes = {
        package: sum(len(p) for split in SPLITS for file in found[split][package].values() for p in file)
        for package in found["train"]
        if all(package in found[split] for split in SPLITS)
    }
    packages = sorted(sorted(sizes, key=lambda package: (-sizes[package], package))[: task.num_packages])
    if len(packages) < max(2, task.num_packages):
        raise ValueError(
            f"Only {len(packages)} packages have docstrings in every split: lower `num_packages` "
            f"({task.num_packages}), at least 2, or raise `max_bytes` ({task.max_bytes})."
        )
    names = re.compile("|".join(map(re.escape, packages)), re.IGNORECASE)
    anonymise = lambda paragraphs: [names.sub("_", paragraph) for paragraph in paragraphs]
    return {
        split: {package: [anonymise(file) for file in found[split][package].values()] for package in packages}
        for split in SPLITS
    }
