# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_global_layers.py`."""

from collections import defaultdict

from measure import latest

from reports.cells import grid
from reports.registry import Read, table


@table("global layers", csv="global_layers")
def global_layers(read: Read) -> str:
    """Masked-LM loss of a small ModernBERT with linear global layers, and its marks that are far away."""
    found, rows = latest(read("global_layers"), "model", "length"), defaultdict(dict)
    for (model, length), row in found.items():
        rows[model][f"masked-LM loss, {length:,} tokens"] = f"{row['loss']:.3f}"
    for (model, length), row in found.items():
        rows[model][f"far marks right, {length:,}"] = f"{100 * row['right']:.0f} %"
    return grid(rows)
