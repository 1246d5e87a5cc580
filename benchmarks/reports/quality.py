# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_quality.py`: scores of mixers in one backbone, and of initial decays."""

from collections import defaultdict
from itertools import product

from reports.cells import about_cells, grid, score_cell, score_name
from reports.names import COLORS
from reports.registry import Read, table


# Variants of the trainings that compare mixers in one backbone: initial weights as in BERT, on images of scale 0.1.
IN_ONE_BACKBONE = (None, "mixer_initializer_range=0.02", "mixer_initializer_range=0.1")


ROTARY = "softmax (rotary)"


NOT_COMPARED = ("LION", ROTARY)


def scores_of(
    read: Read, split: str, decays: str = "default", leave_out=NOT_COMPARED
) -> dict[str, dict[str, dict[int, float]]]:
    """
    Scores by task, model and seed: masked-LM loss in nats, or accuracy in per cent. The first training of a case
    counts, since one was repeated on the docstrings of another day.
    """
    found = {}
    rows = read("quality", initial_decays=decays)
    rows = [row for row in rows if row["variant"] in IN_ONE_BACKBONE and row["model"] not in leave_out]
    for row in sorted(rows, key=lambda row: row["variant"] is None):
        task = row["task"]
        score = row["validation_loss"] if task == "mlm" else 100 * row[f"{split}_accuracy"]
        found.setdefault(task, {}).setdefault(row["model"], {}).setdefault(row["seed"], score)
    return found


def common_seeds(models: dict[str, dict[int, float]]) -> dict[str, list[float]]:
    """Scores of the seeds that all models have: some have more."""
    seeds = sorted(set.intersection(*map(set, models.values())))
    return {model: [of_seed[seed] for seed in seeds] for model, of_seed in models.items()}


def scores_beside_softmax(read: Read) -> dict[str, dict[str, list[float]]]:
    """Scores by task and model, for tasks that softmax attention was trained on."""
    return {task: common_seeds(models) for task, models in scores_of(read, "test").items() if "softmax" in models}


@table("scores", csv=("quality", "quality_speed"), shown=r"^\| (?!most frequent|.*♮)", left_out="digits")
def scores(read: Read) -> str:
    rows, cells = defaultdict(dict), []
    found = scores_beside_softmax(read)
    for model, (task, models) in product(COLORS, found.items()):
        if model in models:
            rows[model][score_name(task)] = score_cell(task, models[model])
            cells.append((task, models[model]))
        elif model == ROTARY and (rotary := scores_of(read, "test", leave_out=()).get(task, {}).get(ROTARY)):
            rows[model][score_name(task)] = score_cell(task, rotary.values())
            cells.append((task, rotary.values()))
    for row in (row for row in read("quality") if row["task"] in found):
        chance = "" if row["chance"] is None else f"{100 * row['chance']:.1f}"
        rows["most frequent class"][score_name(row["task"])] = chance
    return f"{grid(rows)}\n\n{about_cells(cells)}." if rows else ""


@table(
    "initial decays",
    csv="quality",
    shown=r"\| (half a token|4 tokens to the context|16 tokens|normal)",
    left_out="LION-D|digits",
)
def initial_decays(read: Read) -> str:
    names = dict.fromkeys(row["initial_decays"] for row in read("quality"))
    found, rows = {name: scores_of(read, "validation", name) for name in names}, defaultdict(dict)
    trained = found[list(found)[-1]] if len(found) > 1 else {}
    for task, model in ((task, model) for task, models in trained.items() for model in models):
        of_name = common_seeds({name: of_task.get(task, {}).get(model, {}) for name, of_task in found.items()})
        for name, values in of_name.items():
            row = "half a token to the context (the default)" if name == "default" else name
            if values:
                column = f"{score_name(task, 'validation')}: {model}"
                rows[row][column] = score_cell(task, values)
    return grid(rows, "half-lives")
