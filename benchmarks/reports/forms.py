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
    found = latest([{"mode": None} | row for row in read("forms")], "form", "chunk_size", "mode", "length")
    cases = sorted({key[:2] for key in found}, key=lambda case: ([*NAMES].index(case[0]), case[1] or 0))
    columns = sorted({key[2:] for key in found}, key=lambda key: (key[0] or "", key[1]))
    rows = {}
    for form, size in cases:
        times, memory = {}, {}
        for mode, length in columns:
            row = found.get((form, size, mode, length))
            title = f"{mode + ', ' if mode else ''}{length:,} tokens"
            times[title] = duration(row["median"]) if row else ""
            memory[f"{title}, MiB"] = f"{row['peak_memory_bytes'] / 2**20:,.0f}" if row else ""
        rows[NAMES[form].format(size)] = times | memory
    return grid(rows)
