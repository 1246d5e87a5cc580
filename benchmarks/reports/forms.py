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
    """Forward."""
    return in_mode(read, None)


@table("forms in training", csv="forms")
def forms_in_training(read: Read) -> str:
    """Forward and backward."""
    return in_mode(read, "training")


def in_mode(read: Read, mode: str | None) -> str:
    rows = [row for row in read("forms") if row.get("mode") == mode]
    found = latest(rows, "form", "chunk_size", "length")
    cases = sorted({key[:2] for key in found}, key=lambda case: ([*NAMES].index(case[0]), case[1] or 0))
    lengths = sorted({length for _, _, length in found})
    cells = {}
    for form, size in cases:
        times, memory = {}, {}
        for length in lengths:
            row = found.get((form, size, length))
            times[f"{length:,} tokens"] = duration(row["median"]) if row else ""
            memory[f"{length:,} tokens, MiB"] = f"{row['peak_memory_bytes'] / 2**20:,.0f}" if row else ""
        cells[NAMES[form].format(size)] = times | memory
    return grid(cells)
