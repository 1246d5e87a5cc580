# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_decays.py`: half-lives before and after training."""

import math
import statistics
from collections import defaultdict

from measure import latest

from reports.cells import grid
from reports.registry import Read, table


def lives_of(read: Read) -> dict[str, dict[str, list[dict]]]:
    """Rows of the heads of one LION-S, by task and "before" or "after"."""
    rows = latest(read("half_lives"), "task", "when", "layer", "head", "seed").values()
    seeds = {task: min(row["seed"] for row in rows if row["task"] == task) for task in {row["task"] for row in rows}}
    found = {}
    for row in rows:
        if row["seed"] == seeds[row["task"]]:
            found.setdefault(row["task"], {}).setdefault(row["when"], []).append(row)
    return found


def octaves(heads: list[dict]) -> float:
    return statistics.median(math.log2(head["q95"] / head["q05"]) for head in heads)


@table("half-lives", csv="half_lives")
def half_lives(read: Read) -> str:
    rows = defaultdict(dict)
    for task, of_when in lives_of(read).items():
        for when, heads in of_when.items():
            low, high = min(head["q05"] for head in heads), max(head["q95"] for head in heads)
            middle = statistics.median(head["q50"] for head in heads)
            rows[task][f"{when} training: median (5 % to 95 %)"] = f"{middle:.1f} ({low:.1f} to {high:.0f})"
        pairs = zip(of_when["before"], of_when["after"], strict=True)
        moved = statistics.mean(abs(math.log2(after["q50"] / before["q50"])) for before, after in pairs)
        rows[task]["octaves between tokens of a head"] = " → ".join(f"{octaves(x):.2f}" for x in of_when.values())
        rows[task]["octaves by which the median of a head moved"] = f"{moved:.2f}"
    return grid(rows, "half-life in tokens")
