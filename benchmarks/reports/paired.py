# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Differences of models over the seeds that both have: of seed s, both see the same batches in the same order. Intervals
are over seeds only, since the tables have no results of single examples.
"""

import json
import statistics
from collections import defaultdict

from reports.cells import mean_std


# The score of each seed, by model.
Scores = dict[str, dict[int, float]]
CONFIDENCE = 0.95
ABOUT = (
    "Behind the semicolon: the difference from {}, paired by seeds, and its 95 % interval (Student's t over seeds; "
    "the error of the test set, which all models share, is not in it)."
)
ABOUT_MISSING = "No difference or interval is told where {} has no trainings, from which it would be told: {}."
ABOUT_COUNTS = "n: seeds of a model, where {} has another number of them."
ABOUT_EDGES = "↑ and ↓: the chosen learning rate is the highest or the lowest that was tried."


def difference(scores: dict[int, float], reference: dict[int, float]) -> tuple[float, float, float] | None:
    """The mean difference over common seeds and the ends of its interval; `None` with fewer than two such seeds."""
    from scipy.special import stdtrit  # a GPU's machine has no scipy, and no such table

    found = [scores[seed] - reference[seed] for seed in scores.keys() & reference.keys()]
    found = [x for x in found if x == x]  # a training may have diverged
    if len(found) < 2:
        return None
    mean, error = statistics.mean(found), statistics.stdev(found) / len(found) ** 0.5
    half = float(stdtrit(len(found) - 1, (1 + CONFIDENCE) / 2)) * error
    return mean, mean - half, mean + half


def differ(scores: dict[int, float], reference: dict[int, float]) -> bool:
    """Whether the interval of the difference is without 0."""
    found = difference(scores, reference)
    return found is not None and found[1] * found[2] > 0


def has_own_count(name: str, scores: Scores, reference: str) -> bool:
    """Whether a model has another number of seeds than the reference."""
    return len(scores[name]) != len(scores.get(reference, scores[name]))


def cell(name: str, scores: Scores, reference: str, mark: str = "") -> str:
    """Mean ± deviation of a model and a mark, then the difference from the reference, of which none has its own."""
    text = mean_std(scores[name].values(), 1)
    text += f" (n = {len(scores[name])})" * has_own_count(name, scores, reference) + mark
    found = difference(scores[name], scores.get(reference, {})) if name != reference else None
    if found is None:
        return text
    mean, low, high = (f"{x:+.1f}".replace("-", "−") for x in found)  # −0.0 says on which side of 0 an end is
    return f"{text}; {mean} [{low}, {high}]"


def edges(rows: list[dict]) -> dict[tuple[str, str], str]:
    """Mark, by task and contestant, chosen trials with the highest (" ↑") or lowest (" ↓") rate of their grid."""
    rates, chosen = defaultdict(dict), {}
    for row in rows:
        case = row["task"], row["contestant"]
        if row["stage"] == "trial":
            rates[case][row["trial"]] = json.loads(row.get("setting") or "{}").get("rate", 1.0)
        else:
            chosen[case] = row["trial"]
    found = {}
    for case, trial in chosen.items():
        grid = rates[case].values()
        if trial in rates[case] and min(grid) < max(grid):
            rate = rates[case][trial]
            found[case] = " ↑" if rate == max(grid) else " ↓" if rate == min(grid) else ""
    return found


def note(columns: dict[str, Scores], reference: str, has_edges: bool) -> str:
    """Explain the cells, and which have no difference for want of the reference; "" if none needs it."""
    has_differences = any(
        difference(of_seed, scores.get(reference, {}))
        for scores in columns.values()
        for name, of_seed in scores.items()
        if name != reference
    )
    alone = without_reference(columns, reference)
    has_counts = any(has_own_count(name, scores, reference) for scores in columns.values() for name in scores)
    about = [ABOUT.format(reference)] * has_differences + [alone] * bool(alone)
    about += [ABOUT_COUNTS.format(reference)] * has_counts + [ABOUT_EDGES] * has_edges
    return " ".join(about)


def without_reference(columns: dict[str, Scores], reference: str) -> str:
    """Say in which columns nothing is compared, since the reference is not there; "" if it is everywhere."""
    missing = [title for title, scores in columns.items() if scores and not scores.get(reference)]
    return ABOUT_MISSING.format(reference, "; ".join(missing)) if missing else ""
