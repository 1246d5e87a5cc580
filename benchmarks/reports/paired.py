# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Differences of models over the seeds that both have: of seed s, both see the same batches in the same order. Intervals
are over seeds only, since the tables have no results of single examples.
"""

import json
import statistics
from collections import defaultdict

from reports.cells import about_means, mean_std


# The score of each seed, by model.
Scores = dict[str, dict[int, float]]
CONFIDENCE = 0.95
ABOUT = (
    "Behind the semicolon: the difference from {}, paired by seeds, and its 95 % interval (Student's t over seeds; "
    "the error of the test set, which all models share, is not in it)."
)
ABOUT_MISSING = "No difference or interval is told where {} has no trainings, from which it would be told: {}."
ABOUT_COUNTS = "n: seeds of a model, where others have another number of them."
ABOUT_DIVERGED = "A training without a score (NaN) is in no mean."
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


def usual_count(scores: Scores) -> int:
    """The number of seeds that most models have."""
    return statistics.mode(map(len, scores.values()))


def diverged(scores: dict[int, float]) -> int:
    """The number of trainings without a score."""
    return sum(x != x for x in scores.values())


def cell(name: str, scores: Scores, reference: str, mark: str = "") -> str:
    """Mean ± deviation of a model and a mark, then the difference from the reference, of which none has its own."""
    count = len(scores[name])
    text = mean_std(scores[name].values(), 1)
    text += f" (n = {count})" * (count != usual_count(scores))
    text += f" ({diverged(scores[name])} of {count} NaN)" * bool(diverged(scores[name])) + mark
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


def reference_of(columns: list[Scores], usual: str) -> str:
    """The model from which differences are told: the usual one, or where no column has it, the first one."""
    names = dict.fromkeys(name for scores in columns for name in scores)
    return usual if usual in names or not names else next(iter(names))


def about_trials(rows: list[dict], titles: dict[str, str]) -> str:
    """Say how many trials each model had, by task, where they had not as many; "" if they had everywhere."""
    counts, found = defaultdict(lambda: defaultdict(set)), []
    for row in rows:
        if row["stage"] in ("trial", "equal steps"):
            counts[row["task"]][row["contestant"]].add(row["trial"])
    for task, title in titles.items():
        of_count = defaultdict(list)
        for name, trials in counts[task].items():
            of_count[len(trials)].append(name)
        if len(of_count) > 1:
            told = "; ".join(f"{', '.join(names)} {count}" for count, names in sorted(of_count.items()))
            found.append(f"{title.split(', ')[0]}: {told}")
    return f"Trials to choose from were not as many for all: {'. '.join(found)}." if found else ""


def note(columns: dict[str, Scores], reference: str, has_edges: bool) -> str:
    """Explain the cells, and which have no difference for want of the reference."""
    has_differences = any(
        difference(of_seed, scores.get(reference, {}))
        for scores in columns.values()
        for name, of_seed in scores.items()
        if name != reference
    )
    alone = without_reference(columns, reference)
    cells = [of_seed for scores in columns.values() for of_seed in scores.values()]
    usual = {title: usual_count(scores) for title, scores in columns.items() if scores}
    has_counts = any(len(x) != count for title, count in usual.items() for x in columns[title].values())
    about = [f"{about_means(x.values() for x in cells)}."] + [ABOUT.format(reference)] * has_differences
    about += [alone] * bool(alone) + [ABOUT_COUNTS] * has_counts
    about += [ABOUT_DIVERGED] * any(map(diverged, cells)) + [ABOUT_EDGES] * has_edges
    return " ".join(about)


def without_reference(columns: dict[str, Scores], reference: str) -> str:
    """Say in which columns nothing is compared, since the reference is not there; "" if it is everywhere."""
    missing = [title for title, scores in columns.items() if scores and not scores.get(reference)]
    return ABOUT_MISSING.format(reference, "; ".join(missing)) if missing else ""
