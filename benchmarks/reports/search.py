# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_search.py`: the scores of three seeds of each chosen trial."""

from collections import defaultdict

from peers.trials import CONTESTANTS, TRIALS

from reports.cells import about_cells, markdown_table, of_last_choice, score_cell
from reports.registry import Read, table


def best_trial(rows: list[dict]) -> dict:
    """The row with the best accuracy of the validation split, then with the lowest loss."""
    return min(rows, key=lambda row: (-row["validation_accuracy"], row["validation_loss"]))


@table("search", csv=("search", "search_speed"))
def search(read: Read) -> str:
    """Scores with equal steps and, where there are such trainings, with equal time."""
    counts, notes = defaultdict(int), {}
    by_case = defaultdict(list)
    for row in of_last_choice(read("search")):
        by_case[row["stage"], row["task"], row["contestant"]].append(row)
    for (stage, task, contestant), found in by_case.items():
        if stage == "trial":
            counts[task, contestant] = len({row["trial"] for row in found})
    tables = []
    for stage, title in (("equal steps", "Equal steps"), ("equal time", "Equal time: as many steps as take LION's")):
        cases = {key[1:]: found for key, found in by_case.items() if key[0] == stage}
        if cases:
            tables += [f"{title} (in brackets: steps).", score_table(cases, counts)]
            notes[about(cases)] = None
    tables += notes
    if begun := [f"{name} on {task} ({count})" for (task, name), count in counts.items() if count < TRIALS]:
        tables.append(f"Trials finished so far (of {TRIALS}) in unfinished searches: {', '.join(begun)}.")
    return "\n\n".join(tables)


def scores_of(rows: list[dict]) -> list[float]:
    return [100 * row["test_accuracy"] for row in rows]


def score_table(cases: dict[tuple[str, str], list[dict]], counts: dict[tuple[str, str], int]) -> str:
    """Scores of the seeds, with the steps and, where not all are done, the number of trials behind them."""
    cells = {}
    for (task, name), rows in cases.items():
        trials = "" if counts[task, name] == TRIALS else f"{counts[task, name]} trials; "
        cells[task, name] = f"{score_cell(scores_of(rows))} ({trials}{rows[0]['steps']:,})"
    tasks = list(dict.fromkeys(task for task, _ in cells))
    names = [name for name in CONTESTANTS if any((task, name) in cells for task in tasks)]
    lines = [[name, *(cells.get((task, name), "") for task in tasks)] for name in names]
    return markdown_table(["", *(f"{task}, test %" for task in tasks)], lines)


def about(cases: dict[tuple[str, str], list[dict]]) -> str:
    """How many seeds there are and, of tasks with several contestants, how far their parameters differ."""
    parameters = defaultdict(dict)
    for (task, name), rows in cases.items():
        parameters[task][name] = rows[0]["parameters"]
    counts = [list(of_task.values()) for of_task in parameters.values() if len(of_task) > 1]
    text = about_cells(map(scores_of, cases.values()))
    if not counts:
        return f"{text}."
    spread = max(max(x) / min(x) - 1 for x in counts)
    return f"{text}; parameters of a task differ by at most {100 * spread:.1f} %."
