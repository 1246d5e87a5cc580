# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_context.py`: passages that only the text around them explains, and sets of ConTEB."""

import statistics

import torch
from measure import latest
from training_lion.scripts.ranking import mean_and_error, ndcg_of_ranks

from reports.cells import grid, number
from reports.passages import score_of_queries
from reports.registry import Read, table


FROM = ("all-MiniLM-L6-v2", "pieces with names")  # what others are compared with
COLUMNS = {"with_names": "queries with the name", "without_names": "without the name"}
DIFFERENCE = "− named pieces"
# The rows of both tables that our pages show, beside others.
SHOWN = "pieces with (names|headings)|"


def rows_of(read: Read, name: str) -> list[dict]:
    """The last rows of a table, for each set, encoder, way to read and range of distances; the best ones first."""
    found = latest(read(name), "set", "encoder", "reading", "min_distance", "max_distance").values()
    return sorted(found, key=lambda row: (row["set"], row["min_distance"], -(row["with_names"] or 0)))


def is_everywhere(row: dict, rows: list[dict]) -> bool:
    """Whether a row is of all queries, and not of a range of distances."""
    return row["queries"] == max(x["queries"] for x in rows)


def numbers(cell: int | float | str) -> torch.Tensor:
    return torch.tensor([int(x) for x in str(cell).split()])


def difference(row: dict, reference: dict, what: str) -> str:
    """
    The mean difference of two rows, and its standard error, clustered by document. Empty if they have other queries.
    """
    if row["owners"] != reference["owners"]:
        return ""
    gains = [ndcg_of_ranks(numbers(x[f"ranks_{what}"])) for x in (row, reference)]
    mean, error = mean_and_error(gains[0] - gains[1], numbers(row["owners"]))
    return f"{mean:+.3f} ± {error:.3f}".replace("-", "−")


@table("context", csv="context", shown=SHOWN + "trained on sections|all-MiniLM-L6-v2, 512")
def context(read: Read) -> str:
    rows = rows_of(read, "context")
    everywhere = [row for row in rows if is_everywhere(row, rows)]
    reference = next((x for x in everywhere if (x["encoder"], x["reading"]) == FROM), None)
    table = {}
    for row in everywhere:
        cells = {}
        for what, title in COLUMNS.items():
            cells[title] = score_of_queries(row, what)
            if reference is not None:
                cells[f"{DIFFERENCE}, {title}"] = "" if row is reference else difference(row, reference, what)
        cells["time ÷ named pieces"] = number(row["time_of_named_pieces"])
        table[f"{row['encoder']}, {row['reading']}"] = cells
    return grid(table)


def range_title(row: dict) -> str:
    low, high = row["min_distance"], row["max_distance"]
    text = "none" if high == 1 else f"under {high:,} characters" if low <= 1 else f"{low:,} or more"
    return f"{text} ({row['queries']})"


@table("context by distance", csv="context", shown=SHOWN + "(passages|in one pass|sentences), one pass")
def context_by_distance(read: Read) -> str:
    """Queries with names, by how much text is between the passage that names the subject and theirs."""
    rows = rows_of(read, "context")
    table: dict[str, dict[str, str]] = {}
    for row in rows:
        if not is_everywhere(row, rows):
            cells = table.setdefault(f"{row['encoder']}, {row['reading']}", {})
            cells[range_title(row)] = score_of_queries(row, "with_names")
    return grid(table)


@table("conteb", csv="conteb")
def conteb(read: Read) -> str:
    """nDCG@10 of each set and their mean, times 100, as ConTEB has it."""
    found: dict[str, dict[str, float]] = {}
    for row in rows_of(read, "conteb"):
        found.setdefault(f"{row['encoder']}, {row['reading']}", {})[row["set"]] = 100 * row["without_names"]
    sets = {name for of_row in found.values() for name in of_row}
    table = {}
    for title, of_row in found.items():
        table[title] = {name: f"{of_row[name]:.1f}" if name in of_row else "" for name in sorted(sets)}
        table[title]["mean"] = f"{statistics.mean(of_row.values()):.1f}" if of_row.keys() == sets else ""
    return grid(table)
