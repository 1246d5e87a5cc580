# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_branches.py`."""

from collections import defaultdict

from measure import latest

from reports.cells import grid
from reports.registry import Read, table


@table("branches", csv="branches", shown=r"\| ((512|2,048) tokens, |8,192 tokens, both)")
def branches(read: Read) -> str:
    """How near a distilled encoder is to its teacher with both branches and with each alone, on texts of a length."""
    names = {"both": "both branches", "window": "the window alone", "linear": "the linear sum alone"}
    columns = {"neighbour_overlap": "neighbours kept", "cosine": "cosine", "names_found": "names found"}
    found, table = latest(read("branches"), "encoder", "length", "branches"), defaultdict(dict)
    for (_, length, name), row in sorted(found.items(), key=lambda item: (item[0][1], list(names).index(item[0][2]))):
        cells = {title: f"{row[what]:.3f}" for what, title in columns.items()}
        table[f"{length:,} tokens, {names[name]}"] = cells | {"texts": str(row["texts"])}
    return grid(table)
