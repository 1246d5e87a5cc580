# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The tables and pictures of the pages, each registered where it is made: `reports/NAME.py` has those of `bench_NAME.py`.

    @table("packing", csv="packing")
    def packing(read: Read) -> str:

is the text between `<!-- begin: packing -->` and `<!-- end -->` on a page, and `packing.csv` the table that it shows.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple


# Returns the rows of a CSV file, by its name without ".csv" and by values of its columns.
Read = Callable[..., list[dict]]


class Table(NamedTuple):
    """
    Text of a page.

    Args:
        make: returns the Markdown, "" if nothing was measured.
        csv: names of the CSV files that it shows.
        is_measured: whether it needs a run.
        shown: a regular expression of the rows that our pages show; tables of which it finds none have all.
        left_out: a regular expression of the titles of columns that our pages leave out.
    """

    make: Callable[[Read], str]
    csv: tuple[str, ...]
    is_measured: bool
    shown: str
    left_out: str

    def on_page(self, text: str) -> str:
        """The text with at most `MOST_ROWS` rows in each of its tables, and a link to what is not shown."""

        def shortened(match: re.Match) -> str:
            header, line, *rows = match[0].splitlines()
            rows = [row for row in rows if re.search(self.shown, row)] or rows
            lines = [x[1:-1].split("|") for x in (header, line, *rows[:MOST_ROWS])]
            titles = enumerate(lines[0])
            columns = [i for i, title in titles if not (self.left_out and re.search(self.left_out, title))]
            return "".join(f"|{'|'.join(cells[i] for i in columns)}|\n" for cells in lines)

        short = re.sub(r"(?:^\|.*\n)+", shortened, f"{text.strip()}\n", flags=re.MULTILINE)
        if short.strip() == text.strip():
            return text
        links = ", ".join(f"[{name}.csv](../../benchmarks/results/{name}.csv)" for name in self.csv)
        return f"{short}\nAll rows: {links}."


MOST_ROWS = 11
TABLES: dict[str, Table] = {}
PICTURES: dict[str, Callable] = {}


def table(
    name: str,
    *,
    csv: str | tuple[str, ...] = (),
    is_measured: bool = True,
    shown: str = "",
    left_out: str = "",
    **arguments,
):
    """
    Register a function `(read, **arguments) -> str` under a name; the other arguments are those of `Table`.

    Raises:
        ValueError: if another table has the name.
    """

    def register(make: Callable) -> Callable:
        if name in TABLES:
            raise ValueError(f"Two tables have the name {name!r}; give one of them another.")
        csvs = (csv,) if isinstance(csv, str) else csv
        TABLES[name] = Table(partial(make, **arguments), csvs, is_measured, shown, left_out)
        return make

    return register


def picture(name: str):
    """
    Register a function `(read, plt) -> figure | None`, which draws `images/NAME.png`.

    Raises:
        ValueError: if another picture has the name.
    """

    def register(draw: Callable) -> Callable:
        if name in PICTURES:
            raise ValueError(f"Two pictures have the name {name!r}; give one of them another.")
        PICTURES[name] = draw
        return draw

    return register
