# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""A table of `bench_windows.py`: attention in windows."""

from collections import defaultdict

from measure import latest

from reports.cells import duration, grid
from reports.names import BASE_LAYERS
from reports.registry import Read, table


USUAL_CPU = "AVX512"  # its rows do not name it


@table("windows", csv="windows", shown="(22|28) layers|bfloat16|training")
def windows(read: Read) -> str:
    """`lion_local` and flex_attention beside sdpa: times of a text, and memory of a call beyond the model."""
    by = ("model", "layers", "dtype", "mode", "threads", "capability", "length", "implementation")
    found, rows = latest(read("windows"), *by), defaultdict(dict)
    for (*case, length, implementation), row in found.items():
        model, layers, dtype, mode, threads, capability = case
        sdpa = found.get((*case, length, "sdpa"))
        if implementation == "sdpa" or sdpa is None:
            continue
        what = {"infer": "inference", "train": "training step"}[mode]
        both = " → ".join(duration(x["median"] / x["batch"]) for x in (sdpa, row))
        if row["memory"] and sdpa["memory"]:
            both += f", {sdpa['memory'] / 2**30:.2f} → {row['memory'] / 2**30:.2f} GiB"
        cell = f"{row['median'] / sdpa['median']:.2f} ({both})"
        name = "" if implementation == "lion_local" else f", {implementation}"
        name += "" if threads == 1 else f", {threads} threads"
        name += "" if capability == USUAL_CPU else f", {capability}"
        rows[f"ModernBERT-{model}, {layers} layers, {dtype}, {what}{name}"][f"{length:,} tokens"] = cell
    return grid(rows)


def flex_ratios(read: Read) -> dict[int, float]:
    """Time of flex_attention ÷ that of sdpa by length, in inference of ModernBERT-base in float32."""
    where = {"model": "base", "layers": BASE_LAYERS, "dtype": "float32", "mode": "infer", "threads": 1}
    where["capability"] = USUAL_CPU
    found = latest([row for row in read("windows") if where.items() <= row.items()], "length", "implementation")
    flex, sdpa = (
        {n: row["median"] for (n, x), row in found.items() if x == name} for name in ("flex_attention", "sdpa")
    )
    return {n: flex[n] / sdpa[n] for n in flex if n in sdpa}
