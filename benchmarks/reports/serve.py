# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_serve.py`: requests per second."""

from measure import latest

from reports.cells import markdown_table
from reports.registry import Read, table


@table("serve load", csv="serve_load", shown=r"\| (512|32 to 2048|16|16 beside 29000), ", left_out="memory")
def serve_load(read: Read) -> str:
    """Requests per second, times and memory of servers, by length."""
    rows = []
    for (tokens, server), row in latest(read("serve_load"), "tokens", "server").items():
        times = (
            f"{row['per_second']:.3g}",
            f"{row['p50']:.3g} s",
            f"{row['p95']:.3g} s",
            f"{row['memory_mb']:.0f} MB",
        )
        rows.append([f"{tokens}, {server}", *times])
    titles = ["tokens, server", "requests per second", "median wait", "95 % wait at most", "peak memory"]
    return markdown_table(titles, rows) if rows else ""
