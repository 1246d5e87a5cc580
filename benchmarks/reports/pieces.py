# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_pieces.py`: whole texts beside a BERT that reads pieces."""

from collections import defaultdict

from measure import latest

from reports.cells import duration, grid
from reports.registry import Read, table


def piece_rows(read: Read) -> dict[tuple, tuple[dict, dict]]:
    """Rows by group, dtype, length and model, each with that of the BERT that reads pieces."""
    found = latest(read("pieces"), "group", "dtype", "length", "model")
    pairs = {key: (row, found[(*key[:3], "BERT")]) for key, row in found.items()}
    return {key: (row, peer) for key, (row, peer) in pairs.items() if row is not peer}


def ratios_to_pieces(read: Read) -> dict[tuple, str]:
    return {key: f"{row['median'] / peer['median']:.2f}" for key, (row, peer) in piece_rows(read).items()}


@table("pieces", csv="pieces", shown="LION ÷")
def pieces(read: Read) -> str:
    """A whole text ÷ a BERT that reads it in pieces, by length."""
    ratios, rows = ratios_to_pieces(read), defaultdict(dict)
    for (group, dtype, length, model), (row, peer) in piece_rows(read).items():
        name = f"{model} ÷ {peer['model']}, {group}"
        cell = f"{ratios[group, dtype, length, model]} ({duration(row['median'])})"
        rows[f"{name}, {dtype}"][f"{length:,} tokens"] = cell
    return grid(rows)
