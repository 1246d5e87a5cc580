# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_serve.py` and `bench_embed.py`: requests per second, time of a text, cost of a corpus."""

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


@table("serve latency", csv="serve_latency")
def serve_latency(read: Read) -> str:
    """Mean time of a text by the number of clients, beside FastAPI."""
    rows = [
        [
            f"{clients}, {server}",
            *(f"{row[name]:.3g} s" for name in ("mean", "cpu_seconds")),
            f"{row['of_fastapi']:.2f}",
        ]
        for (clients, server), row in latest(read("serve_latency"), "clients", "server").items()
    ]
    titles = ["clients, server", "mean wait", "CPU time of a text", "wait ÷ FastAPI's"]
    return markdown_table(titles, rows) if rows else ""


@table("embed", csv="embed")
def embed(read: Read) -> str:
    """CPU time of `lion embed` beside `encode`."""
    rows = [
        [
            f"{row['count']:,} {texts}, {way}",
            f"{row['seconds']:.3g} s",
            f"{row['of_encode']:.2f}",
            f"{row['of_teacher']:.2f}",
        ]
        for (texts, way), row in latest(read("embed"), "texts", "way").items()
    ]
    titles = ["texts, way", "CPU time", "÷ `encode`", "÷ `encode` with all-MiniLM-L6-v2"]
    return markdown_table(titles, rows) if rows else ""
