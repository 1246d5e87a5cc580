# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_precision.py`: the loss of quality of each task, by runtime and dtype."""

from measure import latest

from reports.cells import markdown_table
from reports.deploy import in_words
from reports.registry import Read, table


# What a score is, and its decimals.
UNITS = {"mlm": ("masked-LM loss", 3), "retrieval": ("retrieval, nDCG@10", 3)}


@table(
    "precision",
    csv="precision",
    shown=r"\| (masked.*\| LION(-S)? |retrieval.*LION)",
    left_out="^ (ONNX Runtime|OpenVINO) float32",
)
def losses(read: Read) -> str:
    """Score in torch in float32 by task and model; of others the difference, and the share of answers kept."""
    rows = read("precision")
    found = latest(rows, "task", "model", "runtime", "dtype")
    runtimes = list(dict.fromkeys(key[2:] for key in found))
    lines = []
    for task, model in dict.fromkeys(key[:2] for key in found):
        truth, answers = (found[(task, model, *runtimes[0])][name] for name in ("score", "answers"))
        unit, digits = UNITS[task]
        cells = [f"{truth:.{digits}f}"]
        for runtime in runtimes[1:]:
            row = found.get((task, model, *runtime))
            cells.append(f"{row['score'] - truth:+.{digits}f}, {100 * row['kept']:.1f} %" if row else "")
        lines.append([f"{unit}, of {answers:,} answers", model, *cells])
    header = [in_words(*runtime) for runtime in runtimes]
    return markdown_table(["", "", *header], lines) if rows else ""
