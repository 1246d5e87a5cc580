# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_retrieval.py`: search in long documents."""

import math
from collections import defaultdict

from measure import latest

from reports.cells import grid
from reports.registry import Read, table


@table(
    "retrieval",
    csv="retrieval",
    shown=r"^\| (teacher, 256, best|LION, (256, (best|mean)|first (256|2048)|whole)) ",
    left_out="memory",
)
def retrieval(read: Read) -> str:
    """Encoders as they come, on the most documents that were measured."""
    rows = [row for row in read("retrieval") if "trained" not in row["encoder"]]
    return retrieval_table([row for row in rows if row["candidates"] == max(x["candidates"] for x in rows)])


@table("retrieval, softmax", csv="retrieval", shown=r"^\| LION.*, (256, (mean|best.*)|whole) ", left_out="memory")
def retrieval_by_softmax(read: Read) -> str:
    """The same encoder by softmax and by LION, and its pieces, on the documents that were read by softmax last."""
    rows = read("retrieval")
    counts = [row["candidates"] for row in rows if "softmax" in row["encoder"]]
    return retrieval_table([row for row in rows if row["candidates"] in counts[-1:]])


TRAINED_SHOWN = r"^\| (teacher, 256, best|LION, whole|LION trained.*, (best|whole)) "


@table("retrieval, trained", csv="retrieval", shown=TRAINED_SHOWN, left_out=r"\(|memory")
def retrieval_trained(read: Read) -> str:
    """Encoders that were trained on long documents, and the best of what they began with, on the same documents."""
    rows = read("retrieval")
    counts = [row["candidates"] for row in rows if "trained" in row["encoder"]]
    best = (("teacher", "256, best"), ("LION", "whole"))
    chosen = [row for row in rows if "trained" in row["encoder"] or (row["encoder"], row["method"]) in best]
    return retrieval_table([row for row in chosen if row["candidates"] in counts[-1:]])


def retrieval_table(rows: list[dict]) -> str:
    found = latest(rows, "encoder", "method", "min_tokens", "max_tokens")
    by_method = defaultdict(list)
    for (encoder, method, *_), row in found.items():
        by_method[f"{encoder}, {method}"].append(row)
    table = defaultdict(dict)
    for name, parts in by_method.items():
        for row in parts:
            column = f"{row['min_tokens']:,}–{row['max_tokens']:,} tokens ({row['documents']})"
            table[name][column] = f"{row['ndcg']:.2f} ± {row['ndcg_error']:.2f}"
        count, seconds = (sum(row[column] for row in parts) for column in ("documents", "seconds"))
        table[name]["all"] = all_ranges(parts)
        table[name]["documents per second"] = f"{count / seconds:.2f}"
        table[name]["memory beyond the model, GiB"] = f"{max(row['memory_bytes'] for row in parts) / 2**30:.2f}"
    return grid(table, "nDCG@10")


def all_ranges(parts: list[dict]) -> str:
    """The mean over the documents of all ranges, and its standard error, from those of each range."""
    count = sum(row["documents"] for row in parts)
    mean = sum(row["documents"] * row["ndcg"] for row in parts) / count
    squares = 0.0
    for row in parts:
        n = row["documents"]
        squares += n * (row["ndcg"] - mean) ** 2 + (n * (n - 1) * row["ndcg_error"] ** 2 if n > 1 else 0)
    return f"{mean:.3f} ± {math.sqrt(squares / (count - 1) / count):.3f}"
