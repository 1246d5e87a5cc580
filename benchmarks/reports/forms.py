# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The table of `bench_forms.py`: time and memory of the forms."""

from measure import latest

from reports.cells import duration, grid
from reports.registry import Read, table


NAMES = {  # in the order of the rows
    "rnn": "recurrent",
    "chunk": "chunks of {:,} tokens",
    "pairs": "published loop over pairs of chunks of {:,}",
    "keys": "published loop over chunks of {:,} keys",
    "parallel": "parallel",
    "softmax": "softmax",
}


# Not the published loop over chunks of keys, or of 1,024 tokens.
@table(
    "forms",
    csv="forms",
    shown=r"^\| (recurrent|parallel|softmax|chunks of [\d,]+ tokens|.* pairs of chunks of \d+) \|",
)
def forms(read: Read) -> str:
    found = latest(read("forms"), "form", "chunk_size", "length")
    cases = sorted({key[:2] for key in found}, key=lambda case: ([*NAMES].index(case[0]), case[1] or 0))
    lengths = sorted({key[2] for key in found})
    rows = {}
    for form, size in cases:
        cells = {n: found.get((form, size, n)) for n in lengths}
        times = {f"{n:,} tokens": duration(row["median"]) if row else "" for n, row in cells.items()}
        memory = {n: f"{row['peak_memory_bytes'] / 2**20:,.0f}" if row else "" for n, row in cells.items()}
        rows[NAMES[form].format(size)] = times | {f"{n:,} tokens, MiB": cell for n, cell in memory.items()}
    return grid(rows)
