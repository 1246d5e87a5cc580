# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The table of `bench_search.py`: the scores of three seeds of each chosen trial."""

from collections import defaultdict

from peers.trials import CONTESTANTS, TRIALS

from reports.cells import about_cells, markdown_table, of_last_choice, score_cell
from reports.registry import Read, table


STAGES = ("equal steps", "equal time")


def best_trial(rows: list[dict]) -> dict:
    """The row with the best accuracy of the validation split, then with the lowest loss."""
    return min(rows, key=lambda row: (-row["validation_accuracy"], row["validation_loss"]))


@table("search", csv=("search", "search_speed"))
def search(read: Read) -> str:
    """Scores with equal steps and with equal time, and the steps; less than all trials are told."""
    cases, trials = defaultdict(list), defaultdict(set)
    for row in of_last_choice(read("search")):
        cases[row["contestant"], row["stage"]].append(row)
        trials[row["contestant"]].add(row["trial"])
    lines = []
    for name in filter(trials.get, CONTESTANTS):
        cells = [score_and_steps(cases[name, stage]) if (name, stage) in cases else "" for stage in STAGES]
        begun = len(trials[name])
        if any(cells) or begun < TRIALS:
            lines.append([name if begun == TRIALS else f"{name}, {begun} of {TRIALS} trials", *cells])
    found = {case: rows for case, rows in cases.items() if case[1] in STAGES}
    note = about_cells(map(scores_of, found.values()))
    counts = {rows[0]["parameters"] for rows in found.values()}
    if len(counts) > 1:
        note += f"; parameters differ by at most {100 * (max(counts) / min(counts) - 1):.1f} %"
    header = ["recall, test % (steps)", *STAGES]
    return f"{markdown_table(header, lines)}\n\n{note}." if lines else ""


def scores_of(rows: list[dict]) -> list[float]:
    return [100 * row["test_accuracy"] for row in rows]


def score_and_steps(rows: list[dict]) -> str:
    return f"{score_cell(scores_of(rows))} ({rows[0]['steps']:,})"
