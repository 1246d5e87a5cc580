# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Which package is a module from? Source code, word by word, without the names of the packages. A training example begins
anywhere in a module; an example to test begins where the module does, so that longer ones read more of the same ones.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zlib import crc32

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import numpy as np
from docstrings import python_files

from .documents import folders_or_default
from .task import SPLITS
from .words import WordTask, encode, split_words, vocabulary


@dataclass(frozen=True)
class Modules(WordTask):
    """
    Args:
        num_packages: classes: the packages with the most modules that are long enough.
        min_length: tokens of the shortest module that is used for validation and test.
        max_modules: of a package, in the order of a checksum of their path; of these 70 % are for training.

    Raises:
        ValueError: if there are fewer than `num_packages` packages with long modules in every split.
    """

    num_packages: int = 8
    min_length: int = 4096
    max_modules: int = 400

    name = "modules"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(modules_of(self.folders, self.num_packages, self.min_length, self.max_modules)["train"])

    def size_of(self, split: str) -> int | None:
        """Lower the sizes of the test to the modules that there are."""
        return None if split == "train" else sum(map(len, ids_of(self)[split].values()))

    def example(self, split: str, index: int, seed: int) -> dict:
        packages = ids_of(self)[split]
        if split != "train":
            everything = [(label, ids) for label, name in enumerate(self.labels) for ids in packages[name]]
            label, ids = everything[np.random.default_rng(seed).permutation(len(everything))[index]]
            return {"input_ids": ids[: self.length].tolist(), "label": label}
        generator = self.generator(split, index, seed)
        label = int(generator.integers(len(self.labels)))
        modules = packages[self.labels[label]]
        ids = modules[generator.integers(len(modules))]
        start = generator.integers(max(1, len(ids) - self.length + 1))
        return {"input_ids": ids[start : start + self.length].tolist(), "label": label}


@cache
def modules_of(
    folders: tuple[str, ...], num_packages: int, min_length: int, max_modules: int
) -> dict[str, dict[str, list[list[str]]]]:
    """Words of modules by split and package, the latter in the order of the labels."""
    folders = folders_or_default(folders)
    files: dict[str, list[tuple[int, str]]] = {}
    for file in python_files(folders):
        folder = max((f for f in folders if Path(file).is_relative_to(f)), key=len)  # they may lie in each other
        path = Path(file).relative_to(folder)
        if len(path.parts) > 1:
            files.setdefault(path.parts[0], []).append((crc32(path.as_posix().encode()), file))
    found: dict[str, dict[str, list[list[str]]]] = {split: {} for split in SPLITS}
    largest = sorted(files, key=lambda package: (-len(files[package]), package))
    for package in largest:
        by_split: dict[str, list[list[str]]] = {split: [] for split in SPLITS}
        for checksum, file in sorted(files[package])[:max_modules]:
            split = SPLITS[0 if checksum % 100 < 70 else 1 if checksum % 100 < 85 else 2]
            words = split_words(Path(file).read_text(encoding="utf-8", errors="replace"))
            if split == "train" and words or len(words) >= min_length:
                by_split[split].append(words)
        if all(by_split.values()):
            for split in SPLITS:
                found[split][package] = by_split[split]
        if len(found["train"]) == num_packages:
            break
    else:
        raise ValueError(
            f"Only {len(found['train'])} packages have modules of `min_length` {min_length} words in every split: "
            f"lower it, or `num_packages` ({num_packages})."
        )
    return {split: dict(sorted(found[split].items())) for split in SPLITS}


@cache
def ids_of(task: Modules) -> dict[str, dict[str, list[np.ndarray]]]:
    """Tokens of modules by split and package; words that contain the name of a package are unknown."""
    found = modules_of(task.folders, task.num_packages, task.min_length, task.max_modules)
    words = [word for modules in found["train"].values() for module in modules for word in module]
    named = {word for word in set(words) if any(name.lower().strip("_") in word for name in task.labels)}
    ids = vocabulary((word for word in words if word not in named), task.num_words, task.first_word)
    return {
        split: {package: [encode(module, ids) for module in modules] for package, modules in found[split].items()}
        for split in SPLITS
    }
