# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""A table for each task of `bench_length.py`, and a picture of accuracy by length."""

from collections import defaultdict

from measure import latest

from reports.cells import markdown_table, mean_std
from reports.names import COLORS
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
# Those that the picture leaves out: three that guess, and a hybrid that is level with the one without positions.
NOT_DRAWN = ("Hydra", "windows alone", "LION, last layer full, YaRN")


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
    shown=r"^\| (?!questions|windows alone|Hydra|LION(, one key head)? \|)",
    left_out="1,024|4,096|8,192",
)
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
        tables.append(f"The most frequent answer alone: {100 * chance:.1f} %.")
    return "\n\n".join(tables)


@picture("accuracy_by_length")
def draw_length(read: Read, plt):
    """Accuracy by length, one panel for each task; of each model the longest training. `None` without rows."""
    rows, most = read("length"), {}
    for row in rows:
        key = row["task"], row["model"]
        most[key] = max(most.get(key, 0), row["times"])
    longest = [row for row in rows if row["times"] == most[row["task"], row["model"]] and row["task"] in SHOWN_TASKS]
    found = accuracies(longest)
    if not found:
        return None
    figure, axes = plt.subplots(1, len(found), figsize=(1.2 + 4.9 * len(found), 4.4), squeeze=False)
    for axis, (task, models) in zip(axes[0], found.items(), strict=True):
        ticks = sorted({n for cells in models.values() for n in cells})
        for (model, times, scaling), cells in models.items():
            if {model, label(model, 1, scaling)} & {*NOT_DRAWN}:
                continue
            lengths = sorted(cells)
            means = [sum(cells[n]) / len(cells[n]) for n in lengths]
            style = "o-" if model.startswith("LION") else "s--"
            style = style if scaling == "none" else "^:"
            axis.semilogx(lengths, means, style, color=LINES[model], label=label(model, times, scaling))
        axis.set(title=task, xlabel="tokens of a test (512 in training)", ylabel="test accuracy, %", ylim=(0, 103))
        axis.set_xticks(ticks, [f"{n:,}" for n in ticks], rotation=45)
        axis.minorticks_off()
        axis.grid(alpha=0.25)
    handles = {
        text: handle for axis in axes[0] for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=2, fontsize=8)
    return figure
