# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""A table for each task of `bench_length.py`, and a picture of accuracy by length."""

from collections import defaultdict

from measure import latest

from reports.cells import markdown_table, mean_std
from reports.names import COLORS, NOTE
from reports.registry import Read, picture, table


SHOWN_TASKS = ("definitions",)  # "modules" tells no encoders apart
# In this order; colours of models that only this picture has.
VARIANTS = {
    "LION, one key head": "#8a4fbf",
    "LION, last layer full": "#0f8b8d",
    "LION, last layer full, no positions": "#6cc5b0",
}
LINES = {"LION": COLORS["LION"], **VARIANTS, "softmax (rotary)": COLORS["softmax"], "Hydra": COLORS["Hydra"]}
LINES |= {"windows alone": "#b5977a"}
DRAWN = ("LION, last layer full, no positions", "softmax (rotary)", "LION", "Hydra")


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


@table("length", csv="length", shown=r"\| (?!questions|windows alone|LION \|)")
def by_length(read: Read) -> str:
    """A Markdown table for each task: accuracies of the seeds by length, a row for each model and scaling."""
    rows, tables = read("length"), []
    for task, models in accuracies(rows).items():
        if task not in SHOWN_TASKS:
            continue
        questions = {row["length"]: row["labels"] for row in rows if row["task"] == task}
        lengths = sorted(questions)
        lines = [["questions", "", *(f"{questions[n]:,}" for n in lengths)]]
        for key, cells in models.items():
            seeds = len(next(iter(cells.values())))
            lines.append([label(*key), str(seeds), *(cell(cells.get(n, []), questions[n]) for n in lengths)])
        tables.append(markdown_table([f"{task}, test %", "seeds", *(f"{n:,} tokens" for n in lengths)], lines))
        chance = next(row["chance"] for row in rows if row["task"] == task)
        tables.append(f"Always the most frequent answer: {100 * chance:.1f} %.")
    return "\n\n".join(tables)


@picture("accuracy_by_length")
def draw_length(read: Read, plt):
    """Accuracy of `DRAWN` by length, a panel for each task; of each model the longest training. `None`: no rows."""
    rows = [row for row in read("length") if row["task"] in SHOWN_TASKS and row["model"] in DRAWN]
    most: dict = {}
    for row in rows:
        key = row["task"], row["model"]
        most[key] = max(most.get(key, 0), row["times"])
    rows = [row for row in rows if row["times"] == most[row["task"], row["model"]]]
    found = accuracies(rows)
    if not found:
        return None
    figure, axes = plt.subplots(1, len(found), figsize=(4.3 + 4.9 * len(found), 4), squeeze=False)
    for axis, (task, models) in zip(axes[0], found.items(), strict=True):
        ticks = sorted({n for cells in models.values() for n in cells})
        for (model, times, scaling), cells in models.items():
            lengths = sorted(cells)
            means = [sum(cells[n]) / len(cells[n]) for n in lengths]
            style = "o-" if model.startswith("LION") else "s--"
            style = style if scaling == "none" else "^:"
            axis.semilogx(lengths, means, style, color=LINES[model], label=label(model, times, scaling))
        last = {model: cells[max(cells)] for (model, _, scaling), cells in models.items() if scaling == "none"}
        best = max(last, key=lambda model: sum(last[model]) / len(last[model]))
        told = f"{best}: {sum(last[best]) / len(last[best]):.0f} % of the {task} in {ticks[-1]:,} tokens"
        axis.set(title=told, xlabel="tokens of a test (512 in training)", ylabel="test accuracy, %", ylim=(0, 103))
        axis.set_xticks(ticks, [f"{n:,}" for n in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.25)
    handles = {
        text: handle for axis in axes[0] for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles, loc="outside right center", fontsize=9)
    seeds = sorted(
        {len(scores) for models in found.values() for cells in models.values() for scores in cells.values()}
    )
    figure.supxlabel(f"means of {seeds[0]} to {seeds[-1]} seeds", x=0.995, ha="right", fontsize=8, color=NOTE)
    return figure
