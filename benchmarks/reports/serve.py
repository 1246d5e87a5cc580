# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What `bench_serve.py` measured: requests per second."""

from collections import defaultdict

from measure import latest

from reports.cells import grid
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
