# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""A table for each task of `bench_length.py`, and a picture of accuracy by length."""

from collections import defaultdict

from measure import latest

from reports.cells import markdown_table, mean_std, panel
from reports.names import COLORS
from reports.registry import Read, picture, table


# In this order; colours of models that only this picture has.
VARIANTS = {
    "LION-Delta, two heads": "#b48ad1",
    "LION, one key head": "#d0588f",
    "LION, last layer full": "#0f8b8d",
    "LION, last layer full, no positions": "#6cc5b0",
}
LINES = {
    "LION": COLORS["LION"],
    "LION-Delta": COLORS["LION-Delta"],
    **VARIANTS,
    "softmax (rotary)": COLORS["softmax"],
    "LION-LIT (rotary)": COLORS["LION-LIT"],
    **{name: COLORS[name] for name in ("LION-D", "LION-S", "local mean", "GLA", "Hydra", "two Mamba-2", "Vim")},
}
LINES |= {"windows alone": "#b5977a"}
# Those that the picture leaves out: three that guess, and a hybrid that is level with the one without positions.
NOT_DRAWN = ("two Mamba-2", "windows alone", "LION, last layer full, YaRN")


def accuracies(rows: list[dict]) -> dict[str, dict[tuple[str, int, str], dict[int, list[float]]]]:
    """Accuracies of the seeds in per cent, by task, by model, times of the steps and scaling, and by length."""
    columns = ("task", "model", "times", "scaling", "length", "seed")
    found: dict = {}
    for (task, model, times, scaling, length, _), row in latest(rows, *columns).items():
        of_task = found.setdefault(task, {}).setdefault((model, times, scaling), defaultdict(list))
        of_task[length].append(100 * row["accuracy"])
    order = lambda key: (list(LINES).index(key[0]), key[1:])
    return {task: {key: dict(cells[key]) for key in sorted(cells, key=order)} for task, cells in found.items()}


def cell(scores: list[float], questions: int) -> str:
    """Mean and standard deviation of the seeds, or how many answers were right if all were."""
    if scores and min(scores) == 100:
        return f"100.0 (all {len(scores) * questions:,})"
    return mean_std(scores, 1)


def label(model: str, times: int, scaling: str) -> str:
    return model + f", {times} × the steps" * (times > 1) + ", YaRN" * (scaling == "yarn")


@table(
    "length",
    csv="length",
    shown=r"^\| (?!questions|windows alone|two Mamba-2|(LION(-Delta|, one key head)?|softmax \(rotary\)(, YaRN)?) \|)",
    left_out="1,024|4,096|8,192",
)
def by_length(read: Read) -> str:
    """A Markdown table for each task: accuracies of the seeds by length, a row for each model and scaling."""
    rows, tables = read("length"), []
    for task, models in accuracies(rows).items():
        questions = {row["length"]: row["labels"] for row in rows if row["task"] == task}
        lengths = sorted(questions)
        lines = [["questions", "", *(f"{questions[n]:,}" for n in lengths)]]
        for key, cells in models.items():
            seeds = len(next(iter(cells.values())))
            lines.append([label(*key), str(seeds), *(cell(cells.get(n, []), questions[n]) for n in lengths)])
        tables.append(markdown_table([f"{task}, test %", "seeds", *(f"{n:,} tokens" for n in lengths)], lines))
        chance = next(row["chance"] for row in rows if row["task"] == task)
        tables.append(f"The most frequent answer alone: {100 * chance:.1f} %.")
    return "\n\n".join(tables)


@picture("accuracy_by_length")
def draw_length(read: Read, plt):
    """Accuracy by length on `definitions`, of each model the longest training; `None` without rows."""
    rows, most = read("length", task="definitions"), {}
    for row in rows:
        most[row["model"]] = max(most.get(row["model"], 0), row["times"])
    models = accuracies([row for row in rows if row["times"] == most[row["model"]]]).get("definitions")
    if not models:
        return None
    figure, axis = plt.subplots(figsize=(7, 4.6))
    for (model, times, scaling), cells in models.items():
        if {model, label(model, 1, scaling)} & {*NOT_DRAWN}:
            continue
        lengths = sorted(cells)
        means = [sum(cells[n]) / len(cells[n]) for n in lengths]
        style = "o-" if model.startswith("LION") else "s--"
        style = style if scaling == "none" else "^:"
        axis.semilogx(lengths, means, style, color=LINES[model], label=label(model, times, scaling))
    questions = {row["length"]: row["labels"] for row in rows}
    ticks = sorted(questions)
    seeds = [len(scores) for cells in models.values() for scores in cells.values()]
    counts = f"{questions[ticks[0]]:,} to {questions[ticks[-1]]:,} questions, {min(seeds)} to {max(seeds)} seeds"
    title = f"Trained on {ticks[0]:,} tokens: definitions found in longer texts"
    panel(axis, title, f"tokens of a test ({counts})", "", ticks)
    axis.set(ylabel="definitions found, %", ylim=(0, 103))
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return figure
