# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Results of the paper and of the authors' blog, as they were published."""

from reports.cells import grid
from reports.registry import Read, table


ARENA = "LRA "  # in front of the columns of the Long Range Arena


def columns_of(read: Read, is_of_arena: bool) -> str:
    """The table of some columns, with the models that have any of them."""
    table = {}
    for row in read("published"):
        model, cells = row.pop("model"), {}
        for name, x in row.items():
            if name.startswith(ARENA) == is_of_arena:
                cells[name.removeprefix(ARENA)] = "" if x is None else str(x)
        if any(cells.values()):
            table[model] = cells
    return grid(table)


@table("published", is_measured=False)
def published(read: Read) -> str:
    return columns_of(read, False)


@table("published lra", is_measured=False)
def published_lra(read: Read) -> str:
    return columns_of(read, True)
