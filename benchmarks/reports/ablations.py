# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of the variants of `bench_quality.py --set`."""

import json
import re

import pandas as pd

from reports.cells import about_cells, in_order, markdown_table, score_cell, score_name
from reports.quality import IN_ONE_BACKBONE
from reports.registry import Read, table


DEFAULT = "default"
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
    "default" where the cell is empty, `score` is masked-LM loss in nats, else accuracy in per cent of the test split.
    """
    rows = pd.DataFrame([row for row in rows if row["initial_decays"] == DEFAULT])
    if rows.empty:
        return rows.reindex(columns=["task", "model", "variant", "seed", "score"])
    rows = rows.assign(variant=rows["variant"].fillna(DEFAULT))
    rows = rows.drop_duplicates(["task", "model", "variant", "seed"], keep="first")
    accuracy = 100 * rows["test_accuracy"].astype(float)
    return rows.assign(score=rows["validation_loss"].where(rows["task"] == "mlm", accuracy))


def without_one_backbone(scores: pd.DataFrame) -> pd.DataFrame:
    """Without the rows of the table of mixers in one backbone, but for LION-S, from which the recipe starts."""
    return scores[~scores["variant"].isin(IN_ONE_BACKBONE) | scores["model"].eq("LION-S")]


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
