# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Retrieval, byte by byte: are two documents docstrings of the same Python file? (The Arena's documents are papers, which
cite each other or do not; they would have to be downloaded.)

The two documents are one sequence, with a separator between them; the Arena encodes each separately. Validation and
test documents are from other files than those for training.
"""

from dataclasses import dataclass
from functools import cache

from .documents import SEPARATOR_ID, DocumentTask, documents, window


@dataclass(frozen=True)
class Retrieval(DocumentTask):
    """
    Args:
        longest: bytes of both documents; the Arena has up to 8000.
    """

    longest: int = 8000

    name = "retrieval"
    labels = ("apart", "together")

    def example(self, split: str, index: int, seed: int) -> dict:
        generator = self.generator(split, index, seed)
        files = long_files(self)[split]
        label = int(generator.integers(2))
        # Drawn in the same way for both labels: the start of one file, and the rest of the same file or of another.
        first, other = generator.choice(len(files), 2, replace=False)
        second = first if label else other
        length = (self.longest - 1) // 2
        cut = generator.integers(1, len(files[first]))
        rest = cut if label else generator.integers(1, len(files[second]))
        left, right = window(generator, files[first][:cut], length), window(generator, files[second][rest:], length)
        return {"input_ids": [*left, SEPARATOR_ID, *right], "label": label}


@cache
def long_files(task: Retrieval) -> dict[str, list[list[str]]]:
    """Paragraphs of the files that can be cut in two, by split."""
    found = documents(task.folders, task.max_bytes)
    result = {
        split: [file for package in packages.values() for file in package.values() if len(file) >= 2]
        for split, packages in found.items()
    }
    if short := [split for split, files in result.items() if len(files) < 2]:
        raise ValueError(
            f"There are fewer than two files with docstrings to cut for {', '.join(short)}: raise `max_bytes` "
            f"({task.max_bytes})."
        )
    return result
