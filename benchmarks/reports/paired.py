# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Differences of models over the seeds that both have: of seed s, both see the same batches in the same order. Intervals
are over seeds, and over test examples where the tables of at least two seeds have them (jackknife.py): d_se, by which
example e changes the difference of seed s, is δ + a_s + b_e + c_se with independent parts. The variance of the mean
over S seeds and E examples is Var(a) / S + Var(b) / E + Var(c) / SE. The variance between the differences of seeds
estimates the first and the last part, the covariance of the examples of two seeds the second one. An interval adds the
squares of both half-widths, of Student's t for the seeds and of the normal distribution for the many examples: it
holds the true difference in 95 to 99 of 100 repetitions, with two seeds or more (tests/benchmarks/test_jackknife.py).
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np

from reports.cells import about_means, mean_std


class Score(float):
    """
    A score in percent.

    Attributes:
        of_examples: `jackknife_values` in percent, where a table has them.
    """

    of_examples: np.ndarray | None = None


# The score of each seed, by model.
Scores = dict[str, dict[int, float]]
CONFIDENCE = 0.95
ABOUT = (
    "Behind the semicolon: the difference from {}, paired by seeds, and its 95 % interval (Student's t over seeds{} "
    "the error of the test examples{})."
)
WITH_EXAMPLES, WITHOUT_EXAMPLES = (", and", ""), ("; without", ", which all models share")
ABOUT_SEEDS = "Without the error of the test examples are the intervals of {}."
ABOUT_MISSING = "No difference or interval is told where {} has no trainings, from which it would be told: {}."
ABOUT_COUNTS = "n: seeds of a model, where others have another number of them."
ABOUT_DIVERGED = "A training without a score (NaN) is in no mean."
ABOUT_EDGES = "↑ and ↓: the chosen learning rate is the highest or the lowest that was tried."


def difference(scores: dict[int, float], reference: dict[int, float]) -> tuple[float, float, float] | None:
    """The mean difference over common seeds and the ends of its interval; `None` with fewer than two such seeds."""
    from scipy.special import ndtri, stdtrit  # a GPU's machine has no scipy, and no such table

    found = [first - second for first, second in pairs(scores, reference)]
    if len(found) < 2:
        return None
    mean, end = statistics.mean(found), (1 + CONFIDENCE) / 2
    squared = float(stdtrit(len(found) - 1, end)) ** 2 * statistics.variance(found) / len(found)
    if (of_examples := examples(scores, reference)) is not None:
        squared += float(ndtri(end)) ** 2 * error_of_examples(of_examples)
    half = squared**0.5
    return mean, mean - half, mean + half


def pairs(scores: dict[int, float], reference: dict[int, float]) -> list[tuple[float, float]]:
    """Both scores of the seeds that both have, without trainings that diverged."""
    found = [(scores[seed], reference[seed]) for seed in sorted(scores.keys() & reference.keys())]
    return [(first, second) for first, second in found if first == first and second == second]


def examples(scores: dict[int, float], reference: dict[int, float]) -> np.ndarray | None:
    """
    The differences of each example, `(seeds, examples)`, of the common seeds that have them; `None` with fewer than
    two such seeds.
    """
    values = [[getattr(x, "of_examples", None) for x in pair] for pair in pairs(scores, reference)]
    found = [first - second for first, second in values if first is not None and second is not None]
    return np.stack(found) if len(found) > 1 else None


def error_of_examples(found: np.ndarray) -> float:
    """The variance, for the choice of the examples, of a mean over them: that of what all seeds have in common."""
    covariances = np.cov(found)
    common = covariances[~np.eye(len(found), dtype=bool)].mean()
    return max(float(common), 0.0) / found.shape[1]


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
    trials, chosen = defaultdict(dict), {}
    for row in rows:
        case = row["task"], row["contestant"]
        if row["stage"] == "trial":
            trials[case][row["trial"]] = json.loads(row.get("setting") or "{}")
        else:
            chosen[case] = row["trial"]
    found = {}
    for case, number in chosen.items():
        if number in trials[case]:
            low, rate, high = rate_among(trials[case].values(), trials[case][number])
            if low < high:
                found[case] = " ↑" if rate == high else " ↓" if rate == low else ""
    return found


def rate_among(trials: Iterable[dict], chosen: dict) -> tuple[float, float, float]:
    """The lowest rate, that of the chosen trial, and the highest, of trials that have all else in common with it."""
    others = lambda trial: {name: value for name, value in trial.items() if name != "rate"}
    rates = [trial.get("rate", 1.0) for trial in trials if others(trial) == others(chosen)]
    return min(rates), chosen.get("rate", 1.0), max(rates)


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
    compared = [
        (of_seed, scores.get(reference, {}))
        for scores in columns.values()
        for name, of_seed in scores.items()
        if name != reference
    ]
    has_differences = any(difference(*x) for x in compared)
    some_know = any(examples(*x) is not None for x in compared)
    alone, by_seeds = without_reference(columns, reference), over_seeds_alone(columns, lambda name: reference)
    cells = [of_seed for scores in columns.values() for of_seed in scores.values()]
    usual = {title: usual_count(scores) for title, scores in columns.items() if scores}
    has_counts = any(len(x) != count for title, count in usual.items() for x in columns[title].values())
    kind = WITH_EXAMPLES if some_know else WITHOUT_EXAMPLES
    about = [f"{about_means(x.values() for x in cells)}."] + [ABOUT.format(reference, *kind)] * has_differences
    about += [by_seeds] * bool(some_know and by_seeds) + [alone] * bool(alone) + [ABOUT_COUNTS] * has_counts
    about += [ABOUT_DIVERGED] * any(map(diverged, cells)) + [ABOUT_EDGES] * has_edges
    return " ".join(about)


def over_seeds_alone(columns: dict[str, Scores], base: Callable[[str], str]) -> str:
    """
    Say which intervals are without the error of the examples: whole columns, or models of one; "" if none is. `base`
    has the model from which a model differs.
    """
    found = []
    for title, scores in columns.items():
        of_base = {name: scores.get(base(name), {}) for name in scores if base(name) != name}
        told = [name for name, reference in of_base.items() if difference(scores[name], reference)]
        alone = [name for name in told if examples(scores[name], of_base[name]) is None]
        if alone:
            title = title.split(", ")[0]
            found.append(title if alone == told else f"{', '.join(alone)} in {title}")
    return ABOUT_SEEDS.format("; ".join(found)) if found else ""


def without_reference(columns: dict[str, Scores], reference: str) -> str:
    """Say in which columns nothing is compared, since the reference is not there; "" if it is everywhere."""
    missing = [title for title, scores in columns.items() if scores and not scores.get(reference)]
    return ABOUT_MISSING.format(reference, "; ".join(missing)) if missing else ""
