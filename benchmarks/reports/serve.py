# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_serve.py`: requests per second."""

from collections import defaultdict

from measure import latest

from reports.cells import grid, markdown_table
from reports.registry import Read, table


@table("serve", csv="serve")
def serve(read: Read) -> str:
    """Requests per second of the server, and of the same server with padded batches, by length."""
    rows = defaultdict(dict)
    for (tokens,), row in latest(read("serve"), "tokens").items():
        column = f"{tokens:,} tokens" if isinstance(tokens, int) else f"{tokens} tokens"
        for name, side in (("this server", "lion"), ("padded", "padded")):
            rate = row[f"{side}_per_second"]
            rows[name][column] = f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"
    return grid(rows)


@table("serve load", csv="serve_load")
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
    return markdown_table(["tokens, server", "requests per second", "p50", "p95", "peak memory"], rows) if rows else ""
