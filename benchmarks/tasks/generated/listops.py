# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
ListOps (Nangia and Bowman, arXiv 1804.06028), as in the Long Range Arena but shorter: the value, 0 to 9, of nested
lists such as `[MAX 2 9 [MIN 4 7 ] 0 ]`. The operators are the least, the largest, the median (without its fraction)
and the sum modulo 10. Each of two to `most_arguments` arguments is a list with probability ¼, and a digit at the
largest depth.
"""

from dataclasses import dataclass
from random import Random
from statistics import median

from .task import Task, split_of


OPERATORS = {"[MIN": min, "[MAX": max, "[MED": lambda values: int(median(values)), "[SM": lambda x: sum(x) % 10}
SYMBOLS = [*map(str, range(10)), *OPERATORS, "]"]
LIST_PROBABILITY = 0.25


@dataclass(frozen=True)
class ListOps(Task):
    """
    Args:
        length: the most symbols of an example.
        shortest: the fewest.
        most_arguments: of a list.
        depth: of lists in lists.
    """

    length: int = 256
    shortest: int = 64
    most_arguments: int = 10
    depth: int = 10

    name = "listops"

    def __post_init__(self):
        if not 4 <= self.shortest <= self.length or self.most_arguments < 2 or self.depth < 1:
            raise ValueError(f"{self} has no examples: give 4 ≤ shortest ≤ length, most_arguments ≥ 2, depth ≥ 1.")

    @property
    def num_labels(self) -> int:
        return 10

    @property
    def vocab_size(self) -> int:
        return 1 + len(SYMBOLS)

    def tree(self, random: Random, depth: int, symbols: list[str]) -> int:
        """
        Append the symbols of a list that is so deep inside of others. Return its value, which is of no use once
        `symbols` exceeds `length`: the list is cut short there.
        """
        operator, values = random.choice(list(OPERATORS)), []
        symbols.append(operator)
        for _ in range(random.randint(2, self.most_arguments)):
            if depth < self.depth and random.random() < LIST_PROBABILITY:
                values.append(self.tree(random, depth + 1, symbols))
            else:
                values.append(random.randrange(10))
                symbols.append(str(values[-1]))
            if len(symbols) > self.length:
                return 0
        symbols.append("]")
        return OPERATORS[operator](values)

    def example(self, split: str, index: int, seed: int) -> dict:
        """`labels` has one number, of the whole sequence."""
        # Many lists are too long or too short, and Python's numbers are drawn several times as fast as NumPy's.
        random = Random(int(self.generator(split, index, seed).integers(2**63)))
        while True:
            value = self.tree(random, 1, symbols := [])
            if self.shortest <= len(symbols) <= self.length and split_of(" ".join(symbols).encode()) == split:
                return {"input_ids": [1 + SYMBOLS.index(x) for x in symbols], "labels": [value]}
