# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""A table of `bench_conversions.py`: ways to make an encoder linear."""

from collections import defaultdict

from measure import latest

from reports.cells import grid, mean_std
from reports.registry import Read, table


COLUMNS = {
    "neighbours kept, 512 tokens": "neighbour_overlap_512",
    "2,048": "neighbour_overlap_2048",
    "cosine, 512 tokens": "cosine_512",
    " 2,048": "cosine_2048",
    "names found, 2,048": "names_found_2048",
    "time ÷ softmax, 2,048 tokens": "time_2048",
    "8,192": "time_8192",
}


@table("conversions", csv="conversions")
def conversions(read: Read) -> str:
    """How near an encoder stays to its softmax, one change of its conversion in each row."""
    ways, rows = defaultdict(list), latest(read("conversions"), "way", "steps", "seed")
    for (way, steps, _), row in rows.items():
        ways[way if steps == 100 else f"{way}, {steps} steps"].append(row)
    cells = {}
    for way, of in ways.items():
        cells[way] = {"seeds": str(len(of))}
        for title, name in COLUMNS.items():
            cells[way][title] = mean_std([row[name] for row in of], 2 if "time" in name else 3)
    return grid(cells)
