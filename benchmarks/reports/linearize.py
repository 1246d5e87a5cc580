# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_linearize.py`: encoders with linear layers."""

from collections import defaultdict

from measure import latest

from reports.cells import duration, grid
from reports.registry import Read, table


@table("linearize", csv="linearize")
def linearized(read: Read) -> str:
    """LION inside of an encoder ÷ the encoder, and ÷ its pieces, by length."""
    found = latest(read("linearize"), "keeps_memory", "encoder", "mode", "length", "way")
    rows = defaultdict(dict)
    for (keeps_memory, encoder, mode, length, way), row in found.items():
        name = f"{encoder}, {'training step' if mode == 'train' else 'inference'}"
        name += ", freed memory kept" if keeps_memory else ""
        source, lion = (found.get((keeps_memory, encoder, mode, length, x)) for x in ("source", "lion"))
        if source is None or lion is None:  # the run has not come so far
            continue
        column = f"{length:,} tokens"
        if way == "source":
            rows[f"{name}: source"][column] = duration(row["median"])
        elif way == "pieces":
            rows[f"{name}: linear ÷ pieces"][column] = f"{lion['median'] / row['median']:.2f}"
        else:
            what = "every text linear" if way == "all linear" else "linearized"
            rows[f"{name}: {what} ÷ source"][column] = f"{row['median'] / source['median']:.2f}"
    return grid(rows)
