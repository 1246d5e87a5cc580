# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The table of `bench_forms.py`: time and memory of the forms."""

from measure import latest

from reports.cells import duration, grid
from reports.registry import Read, table


def form_name(form: str, chunk_size: int | None) -> str:
    return f"chunks of {chunk_size:,} tokens" if chunk_size else {"rnn": "recurrent"}.get(form, form)


@table("forms", csv="forms")
def forms(read: Read) -> str:
    found = latest(read("forms"), "form", "chunk_size", "length")
    order = {"rnn": 0, "chunk": 1, "parallel": 2}
    cases = sorted({key[:2] for key in found}, key=lambda case: (order[case[0]], case[1] or 0))
    lengths = sorted({key[2] for key in found})
    rows = {}
    for case in cases:
        cells = {n: found.get((*case, n)) for n in lengths}
        rows[form_name(*case)] = {f"{n:,} tokens": duration(row["median"]) if row else "" for n, row in cells.items()}
        rows[form_name(*case)] |= {
            f"{n:,} tokens, MiB": f"{row['peak_memory_bytes'] / 2**20:,.0f}" if row else "" for n, row in cells.items()
        }
    return grid(rows)
