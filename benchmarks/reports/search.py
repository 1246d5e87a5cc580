# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_search.py`: the trials, the choices, and the scores of three seeds of each choice."""

import json
from collections import defaultdict
from collections.abc import Callable

from peers.trials import CONTESTANTS, OWN, SEEDS, TRIALS, trials_of

from reports.cells import about_cells, markdown_table, score_cell, score_name
from reports.registry import Read, table


MEANS = {"text": "texts", "image": "images"}
KINDS = (("text", True), ("text", False), ("image", True))  # modality, and whether the tokens are pooled


def best_trial(rows: list[dict]) -> dict:
    """The row with the best validation split: the loss of masked LM, the accuracy of other tasks, then their loss."""
    is_mlm = rows[0]["task"] == "mlm"
    return min(rows, key=lambda row: (0 if is_mlm else -row["validation_accuracy"], row["validation_loss"]))


def in_words(trial: dict) -> str:
    """The setting of a trial in a cell of a table."""
    texts = []
    for name, value in trial.items():
        if name == "rate":
            texts.append(f"rate × {value:g}")
        elif name == "fan_in":
            texts.append("initial weights by fan-in")
        else:
            texts.append(f"`{name}={value if isinstance(value, str) else json.dumps(value)}`")
    return ", ".join(texts) or "as it is"


@table("trials", is_measured=False)
def trials(read: Read) -> str:
    """The first six trials of all contestants, and the two of each contestant's own."""
    common = {}
    for modality, is_pooled in KINDS:
        name = MEANS[modality] + ("" if is_pooled else ", a label for each token")
        common[name] = map(in_words, trials_of(CONTESTANTS[0], modality, is_pooled)[: TRIALS - 2])
    header = ["trials 1 to 6 of all contestants", *map(str, range(1, TRIALS - 1))]
    tables = [markdown_table(header, [[name, *cells] for name, cells in common.items()])]
    rows = [
        [f"{name}, {MEANS[modality]}", *map(in_words, settings)]
        for name in CONTESTANTS
        for modality, settings in OWN[name].items()
    ]
    tables.append(markdown_table(["trials of its own", str(TRIALS - 1), str(TRIALS)], rows))
    return "\n\n".join(tables)


@table("search", csv=("search", "search_speed"))
def search(read: Read) -> str:
    """Scores with equal steps and, where there are such trainings, with equal time."""
    counts, choices = defaultdict(int), {}
    by_case = defaultdict(list)
    for row in read("search"):
        by_case[row["stage"], row["task"], row["contestant"]].append(row)
    for (stage, task, contestant), found in by_case.items():
        if stage == "trial":
            counts[task, contestant] = len({row["trial"] for row in found})
        if stage == "trial" and counts[task, contestant] == TRIALS:
            choices[task, contestant] = in_words(json.loads(best_trial(found)["setting"]))
    tables = []
    for stage, title in (("equal steps", "Equal steps"), ("equal time", "Equal time: as many steps as take LION's")):
        cases = {key[1:]: found for key, found in by_case.items() if key[0] == stage}
        if cases:
            tables += [f"{title} (in brackets: trials; steps).", score_table(cases, counts), about(cases)]
    if choices:
        tables += ["The trial with the best validation split:", by_contestant(choices)]
    if speed := read("search_speed"):
        times = {(row["task"], row["contestant"]): f"{row['ratio']:.2f}" for row in speed}
        tables += ["Time of a training step ÷ LION's:", by_contestant(times)]
    if begun := [f"{name} on {task} ({count})" for (task, name), count in counts.items() if count < TRIALS]:
        tables.append(f"Trials finished so far (of {TRIALS}) in unfinished searches: {', '.join(begun)}.")
    return "\n\n".join(tables)


@table("searches finished", csv="search")
def finished(read: Read) -> str:
    """Which searches are finished with equal steps, and in which tasks contestants can be compared."""
    seeds: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in read("search"):
        seeds[row["task"]][row["contestant"]] += row["stage"] == "equal steps"
    done = {task: [name for name in CONTESTANTS if of_task[name] >= len(SEEDS)] for task, of_task in seeds.items()}
    done = {task: names for task, names in done.items() if names}
    if not done:
        return ""
    quoted = lambda name: f'"{name}"' if "," in name else name
    if whole := [task for task, names in done.items() if len(names) == len(CONTESTANTS)]:
        told = [f"All contestants have finished with equal steps on {', '.join(whole)}."]
    else:
        told = ["**In no task have all contestants finished, so nothing follows about LION and its peers yet.**"]
    told += [f"On {task}: {', '.join(map(quoted, names))}." for task, names in done.items() if task not in whole]
    return " ".join(told)


def by_contestant(cells: dict[tuple[str, str], str], title: Callable[[str], str] = str) -> str:
    """A Markdown table of cells by task and contestant."""
    tasks = list(dict.fromkeys(task for task, _ in cells))
    names = [name for name in CONTESTANTS if any((task, name) in cells for task in tasks)]
    lines = [[name, *(cells.get((task, name), "") for task in tasks)] for name in names]
    return markdown_table(["", *map(title, tasks)], lines)


def scores_of(task: str, rows: list[dict]) -> list[float]:
    return [row["validation_loss"] if task == "mlm" else 100 * row["test_accuracy"] for row in rows]


def score_table(cases: dict[tuple[str, str], list[dict]], counts: dict[tuple[str, str], int]) -> str:
    """Scores of the seeds, with the number of trials behind them and the steps."""
    cells = {}
    for (task, name), rows in cases.items():
        cells[task, name] = f"{score_cell(task, scores_of(task, rows))} ({counts[task, name]}; {rows[0]['steps']:,})"
    return by_contestant(cells, score_name)


def about(cases: dict[tuple[str, str], list[dict]]) -> str:
    """How many seeds there are and, of tasks with several contestants, how far their parameters differ."""
    parameters = defaultdict(dict)
    for (task, name), rows in cases.items():
        parameters[task][name] = rows[0]["parameters"]
    counts = [list(of_task.values()) for of_task in parameters.values() if len(of_task) > 1]
    text = about_cells((task, scores_of(task, rows)) for (task, _), rows in cases.items())
    if not counts:
        return f"{text}."
    spread = max(max(x) / min(x) - 1 for x in counts)
    return f"{text}; parameters of a task differ by at most {100 * spread:.1f} %."
