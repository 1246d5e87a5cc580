# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_passages.py`: passages of documents."""

from collections import defaultdict

from measure import latest

from reports.cells import grid, number
from reports.registry import Read, table


def passage_rows(read: Read) -> dict[str, dict]:
    """The row of all queries, by encoder and way to read, and of trainings one for each seed."""
    found = latest(read("passages"), "encoder", "reading", "steps", "seed", "training_dtype", "min_place", "max_place")
    by_name = defaultdict(list)
    for (encoder, reading, steps, seed, dtype, *_), row in found.items():
        trained = "" if steps is None else f", {steps} steps, seed {seed}"
        trained += ", float32" if dtype == "float32" else ""
        by_name[f"{encoder}, {reading}{trained}"].append(row)
    # The others are of documents' beginnings, middles and ends.
    return {name: max(rows, key=lambda row: row["max_place"] - row["min_place"]) for name, rows in by_name.items()}


def score_of_queries(row: dict, name: str) -> str:
    return f"{row[name]:.3f} ± {row[f'{name}_error']:.3f}"


@table("passages", csv="passages")
def passages(read: Read) -> str:
    columns = {
        "with_names": "queries with the name",
        "without_names": "without the name",
        "documents_best_passage": "documents, best passage",
        "documents_one_vector": "documents, one vector",
    }
    table = {}
    for name, row in passage_rows(read).items():
        table[name] = {title: score_of_queries(row, column) for column, title in columns.items()}
        table[name]["time ÷ pieces"] = number(row["time_of_pieces"])
    return grid(table)
