# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The left neighbour: which token stands before each one? Random tokens, every one of which is to be labelled with the
token on its left, and the first with 0. A model that cannot tell left from right guesses between two neighbours.
"""

from dataclasses import dataclass

from .task import Task, split_of


@dataclass(frozen=True)
class Neighbour(Task):
    """
    Args:
        length: tokens of an example.
        num_symbols: different tokens.
    """

    length: int = 32
    num_symbols: int = 32

    name = "neighbour"

    @property
    def num_labels(self) -> int:
        return self.vocab_size

    @property
    def vocab_size(self) -> int:
        return self.num_symbols + 1

    def example(self, split: str, index: int, seed: int) -> dict:
        generator = self.generator(split, index, seed)
        while True:
            tokens = generator.integers(1, self.vocab_size, self.length)
            if split_of(tokens.tobytes()) == split:
                return {"input_ids": tokens.tolist(), "labels": [0, *tokens[:-1].tolist()]}
