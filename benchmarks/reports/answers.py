# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_answers.py`: `lion search`, and what it is compared with."""

from measure import latest

from reports.cells import duration, grid, number
from reports.registry import Read, table


WHOLE = "everything read"


def rows_of(read: Read, *, is_quality: bool) -> list[dict]:
    """The latest row of each method and folder, of those with or without nDCG@10."""
    found = latest(read("answers"), "packages", "files", "method")
    return [row for row in found.values() if (row["ndcg"] is not None) == is_quality]


def cost_cells(row: dict) -> dict[str, str]:
    """Cells of the time, the memory and the disk that a method takes."""
    seconds = {"index": "index_seconds", "first answer": "cold_seconds", "later answer": "later_seconds"}
    size = {"memory": "memory_bytes", "disk": "disk_bytes"}
    cells = {title: "" if row[name] is None else duration(row[name]) for title, name in seconds.items()}
    return cells | {x: "" if row[name] is None else f"{row[name] / 1e6:,.0f} MB" for x, name in size.items()}


@table("answers quality", csv="answers", shown=r"^\| (?!256 read|everything read, titles)")
def quality(read: Read) -> str:
    rows = rows_of(read, is_quality=True)
    whole = {(row["packages"], row["files"]): row["ndcg"] for row in rows if row["method"] == WHOLE}
    found = {}
    for row in rows:
        of_whole = whole.get((row["packages"], row["files"]))
        cells = {"nDCG@10": f"{row['ndcg']:.3f} ± {row['ndcg_error']:.3f}"}
        cells["÷ everything read"] = number(row["ndcg"] / of_whole if of_whole else None)
        found[row["method"]] = cells
    return grid(found, "way to search")


@table("answers cost", csv="answers")
def cost(read: Read) -> str:
    rows = [*rows_of(read, is_quality=False), *rows_of(read, is_quality=True)]
    found = {}
    for row in rows:
        cells = cost_cells(row)
        if cells["index"]:
            found[f"{row['method']}, {row['passages']:,} passages"] = cells
    return grid(found, "CPU time of one core")
