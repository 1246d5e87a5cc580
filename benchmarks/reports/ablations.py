# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of the variants of `bench_quality.py --set`: scores by training time, and each model at its best."""

import json
import math
import re

import pandas as pd
from measure import TRAINING_FIELDS

from reports.cells import about_cells, footnote, in_order, markdown_table, score_cell, score_name
from reports.names import COLORS
from reports.quality import IN_ONE_BACKBONE, LEVEL_TASKS, step_seconds
from reports.registry import Read, picture, table


DEFAULT = "default"
TRAINING_VARIANT = rf"\b(?:{'|'.join(TRAINING_FIELDS)})="
SHOWN = ("softmax", "softmax (rotary)", "LION", "Hydra", "Vim")  # in the picture
# On the page: what changes from the paper's LION-S to the recommended preset, and the peers.
SHOWN_VARIANTS = (
    r"\| (softmax \(rotary\) \| default|LION \| (default|use_gated_mlp=false)"
    r"|LION-S \| (default|mixer_initializer_range=0.02|head_directions=alternate \(half-lives not in pairs\)"
    r"|conv_kernel=3 head_directions=alternate)) \|"
)
LINEAR = {"mlm": "LLL"}  # the layers of a model without a variant, where they are not two (bench_quality.py, "cpu")


def load_scores(rows: list[dict]) -> pd.DataFrame:
    """
    Trainings of `quality.csv`, the first of each case, since one was repeated on other docstrings: `variant` is
    "default" where the cell is empty, `score` and `validation` are masked-LM loss in nats, else accuracy in per cent,
    of the test and the validation split.
    """
    rows = pd.DataFrame([row for row in rows if row["initial_decays"] == DEFAULT])
    if rows.empty:
        return rows.reindex(columns=["task", "model", "variant", "seed", "validation", "score", "steps"])
    rows = rows.assign(variant=rows["variant"].fillna(DEFAULT))
    rows = rows.drop_duplicates(["task", "model", "variant", "seed"], keep="first")
    is_mlm = rows["task"] == "mlm"
    return rows.assign(
        steps=rows["settings"].str.extract(r"\bsteps=(\d+)", expand=False).astype(float),
        validation=rows["validation_loss"].where(is_mlm, 100 * rows["validation_accuracy"].astype(float)),
        score=rows["validation_loss"].where(is_mlm, 100 * rows["test_accuracy"].astype(float)),
    )


def without_one_backbone(scores: pd.DataFrame) -> pd.DataFrame:
    """Without the rows of the table of mixers in one backbone, but for LION-S, from which the recipe starts."""
    return scores[~scores["variant"].isin(IN_ONE_BACKBONE) | scores["model"].eq("LION-S")]


def at_their_best(scores: pd.DataFrame) -> pd.DataFrame:
    """
    For each task and model, the variant with the best mean of `validation`, and its means over the seeds: the test
    split chooses nothing. Variants of the training itself, which not all models were given, are left out.
    """
    scores = scores[~scores["variant"].astype(str).str.contains(TRAINING_VARIANT)]
    groups = scores.groupby(["task", "model", "variant"])
    means = groups[["validation", "score", "steps"]].mean()
    means = means.assign(std=groups["score"].std().fillna(0)).reset_index()
    rank = means["validation"].where(means["task"] == "mlm", -means["validation"])
    return means.loc[rank.groupby([means["task"], means["model"]]).idxmin()]


@picture("scores_by_training_time")
def draw_learning(read: Read, plt):
    """
    One panel for each task: the score by the seconds of training, of LION as recommended and of each peer's best
    variant; `None` without. Trainings are not timed, since they run side by side: a training step is.
    """
    scores, seconds = load_scores(read("quality")), step_seconds(read)
    is_peer = scores["model"].isin(SHOWN) & scores["model"].ne("LION")
    is_preset = scores["model"].eq("LION") & scores["variant"].eq(DEFAULT)
    best = at_their_best(scores[is_peer | is_preset])
    times = [seconds.get(key, math.nan) for key in zip(best["task"], best["model"], strict=True)]
    best = best.assign(train_seconds=best["steps"] * times).dropna(subset="train_seconds")
    best = best[~best["task"].isin(LEVEL_TASKS)]
    if best.empty:
        return None
    tasks = list(dict.fromkeys(best["task"]))
    columns = next(n for n in (3, 2, 1) if len(tasks) % n == 0 and len(tasks) >= n)  # no empty panel
    lines = math.ceil(len(tasks) / columns)
    figure, axes = plt.subplots(lines, columns, figsize=(3.4 * columns + 1.8, 3.1 * lines + 0.6), squeeze=False)
    handles = {}
    for axis, task in zip(axes.flat, tasks, strict=False):
        points = best[best["task"] == task].set_index("model")
        for name in in_order(points.index):
            x, y, spread = points.loc[name, ["train_seconds", "score", "std"]]
            ours = {"marker": "o", "markersize": 9, "markeredgecolor": "black"} if name == "LION" else {"marker": "s"}
            handles[name] = axis.errorbar(x, y, spread, color=COLORS[name], linestyle="", elinewidth=1, **ours)
        is_mlm = task == "mlm"
        unit = "masked-LM loss, nats (axis reversed)" if is_mlm else "test accuracy, %"
        axis.set(title=task, xlabel="seconds of training", ylabel=unit, xscale="log")
        low, high = axis.get_xlim()
        ticks = [n * 10**power for power in range(6) for n in (1, 2, 3, 5, 7) if low < n * 10**power < high]
        axis.set_xticks(ticks, [f"{n:,}" for n in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.25)
        if is_mlm:
            axis.invert_yaxis()
    handles = {name: handles[name] for name in in_order(handles)}
    figure.legend(handles.values(), handles, loc="outside right center")
    figure.suptitle("LION as recommended, and the best variant of each peer: up is better, left is faster")
    shown = scores.merge(best[["task", "model", "variant"]]).groupby(["task", "model"])["score"]
    text = about_cells((task, list(cell)) for (task, _), cell in shown)
    footnote(figure, read("quality_speed"), f"medians of a step. {text}")
    return figure


@table("ablations", csv="quality", shown=SHOWN_VARIANTS, left_out="neighbour|digits")
def ablations(read: Read) -> str:
    """A Markdown table: a row for each model and variant, the unchanged model first, and a column for each task."""
    scores = without_one_backbone(load_scores(read("quality")))
    if scores.empty:
        return ""
    tasks = list(dict.fromkeys(scores["task"]))
    groups = scores.groupby(["model", "variant", "task"])["score"]
    rows = []
    for model in in_order(scores["model"]):
        variants = sorted(
            set(scores.loc[scores["model"] == model, "variant"]), key=lambda name: (name != DEFAULT, name)
        )
        for variant in variants:
            cells = [
                score_cell(key[-1], groups.get_group(key)) if key in groups.groups else ""
                for key in ((model, variant, task) for task in tasks)
            ]
            rows.append([model, in_words(variant), *cells])
    return f"{markdown_table(['model', 'variant', *map(score_name, tasks)], rows)}\n\n{count_seeds(scores)}"


HYBRIDS_SHOWN = r"\| (LL[LFS]|L[LF]|LS) "


@table("hybrids", csv="hybrids", shown=HYBRIDS_SHOWN, left_out="neighbour|digits")
def layer_patterns(read: Read) -> str:
    """
    A Markdown table of trainings of LION that differ in their types of layers, by letters as `in_words` has them: a
    row for each pattern, and a column for each task.
    """
    scores = load_scores(read("hybrids"))
    scores = scores[scores["model"] == "LION"]
    if scores.empty:
        return ""
    cells, tasks = {}, {task: score_name(task) for task in dict.fromkeys(scores["task"])}
    for (task, variant), rows in scores.groupby(["task", "variant"]):
        name = LINEAR.get(task, "LL") if variant == DEFAULT else in_words(variant).removeprefix("layers ")
        # These fields mean nothing for models without linear layers.
        name = " ".join(name.replace("conv_kernel=0 head_directions=both", "").split())
        cells.setdefault(name, {})[tasks[task]] = score_cell(task, rows["score"])
    order = sorted(cells, key=lambda name: (-len(name.split()[0]), name))
    lines = [[name, *(cells[name].get(column, "") for column in tasks.values())] for name in order]
    return f"{markdown_table(['layers', *tasks.values()], lines)}\n\n{count_seeds(scores)}"


def count_seeds(scores: pd.DataFrame) -> str:
    groups = scores.groupby(["model", "task", "variant"])["score"]
    return f"{about_cells((task, list(cell)) for (_, task, _), cell in groups)}."


def in_words(variant: str) -> str:
    """
    The fields of a variant, with types of layers as letters: "layers SLF" are a sliding, a linear and a full one.
    Rotary positions are left out: all of softmax have the same, and linear layers none unless it is said.
    """
    if (types := re.search(r"layer_types=\[(.*?)\]", variant)) is None:
        return variant
    letters = "".join(word.strip(' "')[0].upper() for word in types[1].split(","))
    rest = variant.replace(types[0], "")
    if rope := re.search(r"rope_parameters=(\{.*\})", rest):
        by_type = json.loads(rope[1])
        note = "" if by_type.get("linear_attention", True) is None or "L" not in letters else "rotary in all layers"
        rest = rest.replace(rope[0], note)
    return " ".join([f"layers {letters}", *rest.split()])
