# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
ListOps: what is `[MAX 2 9 [MIN 4 7 ] 0 ]`? Nested lists of digits with operators (Nangia and Bowman, 2018,
arXiv 1804.06028), with the sizes of the Long Range Arena (Tay et al., 2020, arXiv 2011.04006).

A tree is an operator with probability 1/4, above the greatest depth, else a digit; an operator has 2 to 10 arguments.
The answer is a digit: MIN, MAX, MED (the median; of an even number of arguments the mean of the middle two, rounded
down) and SM (the sum, modulo 10).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .task import Task, split_of


def median(values: list[int]) -> int:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": median,
    "[SM": lambda values: sum(values) % 10,
}
DIGITS = tuple("0123456789")
TOKENS = ("[PAD]", *DIGITS, *OPERATORS, "]")
IDS = {token: i for i, token in enumerate(TOKENS)}
OPERATOR_PROBABILITY = 0.25


class TooLong(Exception):
    """A tree is longer than the greatest length."""


@dataclass(frozen=True)
class ListOps(Task):
    """
    Args:
        min_length, longest: tokens of an example, brackets included.
        max_depth: of operators within operators.
        max_arguments: of an operator; the least are 2.
    """

    min_length: int = 500
    longest: int = 2000
    max_depth: int = 10
    max_arguments: int = 10

    name = "listops"
    labels = DIGITS
    vocab_size = len(TOKENS)

    @property
    def max_length(self) -> int:
        return self.longest

    def example(self, split: str, index: int, seed: int) -> dict:
        generator = self.generator(split, index, seed)
        while True:
            tokens: list[str] = []
            try:
                answer = self.grow(generator, tokens, depth=1, is_operator=True)
            except TooLong:
                continue
            if len(tokens) >= self.min_length and split_of(" ".join(tokens).encode()) == split:
                return {"input_ids": [IDS[token] for token in tokens], "label": answer}

    def grow(self, generator: np.random.Generator, tokens: list[str], depth: int, is_operator: bool) -> int:
        """Append a random tree to `tokens`; returns its value."""
        if not is_operator:
            value = int(generator.integers(10))
            tokens.append(DIGITS[value])
            return value
        operator = list(OPERATORS)[generator.integers(len(OPERATORS))]
        tokens.append(operator)
        values = []
        for _ in range(generator.integers(2, self.max_arguments + 1)):
            nested = depth < self.max_depth and generator.random() < OPERATOR_PROBABILITY
            values.append(self.grow(generator, tokens, depth + 1, nested))
            if len(tokens) >= self.longest:  # the bracket below would be one more
                raise TooLong
        tokens.append("]")
        return OPERATORS[operator](values)
