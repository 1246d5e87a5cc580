# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The table of `bench_recall.py`."""

import json
import re
from collections import defaultdict

from reports.cells import about_cells, in_order, markdown_table, score_cell
from reports.registry import Read, table


DEFAULT = "default"
# On the page: what helps LION to recall, beside softmax attention, layers of other types and other mixers.
SHOWN = (
    r"\| ((softmax \(rotary\)|LION|local mean|GLA|Hydra) \| default|LION \| (num_attention_heads=2 steps=2000"
    r"|feature_map=identity normalization=none num_attention_heads=2 steps=2000|layers LF)"
    r"|LION-Delta \| learning_rate=0.008 num_(attention_heads=2|key_heads=1)) \|"
)


@table("recall", csv="recall", shown=SHOWN)
def recall(read: Read) -> str:
    """A row for each model and variant, the unchanged model first, and a column for each task."""
    scores = defaultdict(dict)
    for row in read("recall"):
        for column, value in ((row["task"], row["test_accuracy"]), (f"{row['task']}, longer", row["longer_accuracy"])):
            if value is not None:
                of_variant = scores[row["model"], in_words(row["variant"] or DEFAULT)]
                of_variant.setdefault(f"{column}, test %", []).append(100 * value)
    tasks = list(dict.fromkeys(task for cells in scores.values() for task in cells))
    names = in_order(model for model, _ in scores)
    cases = sorted(scores, key=lambda case: (names.index(case[0]), case[1] != DEFAULT, case[1]))
    lines = [[*case, *(score_cell(scores[case].get(task, [])) for task in tasks)] for case in cases]
    note = about_cells(cell for cells in scores.values() for cell in cells.values())
    return f"{markdown_table(['model', 'variant', *tasks], lines)}\n\n{note}." if lines else ""


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
