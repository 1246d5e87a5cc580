# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""A table of `bench_packing.py`: packed and padded batches."""

from measure import latest

from reports.cells import grid
from reports.registry import Read, table


NAMES = {"lit": "LION-LIT", "decay": "LION-D", "selective": "LION-S"}


@table("packing", csv="packing")
def packing(read: Read) -> str:
    found = latest(read("packing"), "mixer", "batches")
    rows = {
        f"{NAMES[mixer]}, {batches}": {
            "padding": f"{100 * row['share_of_padding']:.0f} %",
            "real tokens per second": f"{row['tokens'] / row['median']:,.0f}",
            "times as fast as padded": f"{found[mixer, 'padded']['median'] / row['median']:.2f}",
        }
        for (mixer, batches), row in found.items()
    }
    return grid(rows)
