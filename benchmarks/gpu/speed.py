# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Tables of what was measured on a GPU: attention beside the fastest softmax attention and beside what was asked, its
share of what the GPU can do, whole models beside their peers, and the trainings of fashion.py.
"""

import math
from pathlib import Path

from measure import RESULTS, latest, read_rows
from reports.cells import markdown_table, mean_std
from reports.gpu import Kernels, same_sources
from reports.names import LIONS, PASSES


# Time ours ÷ the fastest softmax attention that we ask for: by length, forward and with gradients.
ASKED = {
    "LION-LIT": {512: (0.7, 0.6), 1024: (0.4, 0.35), 4096: (0.08, 0.08), 16384: (0.025, 0.025), 65536: (0.006, 0.006)},
    "LION-S": {512: (1.2, 1.2), 1024: (0.8, 0.8), 4096: (0.16, 0.18), 16384: (0.05, 0.05), 65536: (0.012, 0.012)},
}
ASKED["LION-D"] = ASKED["LION-S"]
# Time of a training step ÷ that of the peer: what the paper's authors measured, images and text.
PUBLISHED_STEPS = {"LION-LIT": (0.73, 0.95), "LION-D": (1.39, 1.10), "LION-S": (1.46, 1.32)}


def number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}" if value >= 0.1 else f"{value:.3f}"


def pair(values: list[float | None]) -> str:
    return " \\| ".join(map(number, values)) if any(values) else ""


def eight_numbers(table: Path, lengths: tuple[int, ...]) -> str:
    """Time ÷ that of the fastest softmax attention, for each LION at two lengths."""
    found = Kernels(read_rows(table))
    rows = [
        [mixer, *(pair([found.ratio(length, x, mixer) for x in PASSES]) for length in lengths)]
        for mixer in ("LION-LIT", "LION-D", "LION-S", "LION")
    ]
    softmax = [f"{1e3 * (found.seconds(length, PASSES[0], 'softmax') or math.nan):.3f} ms" for length in lengths]
    rows.append(["softmax, forward", *softmax])
    head = ["time ÷ the fastest softmax: forward \\| with gradients", *(f"{length} tokens" for length in lengths)]
    return "\n".join([markdown_table(head, rows), *found.faults()])


def figures_table(table: Path) -> str:
    """Ratios beside those that were asked, then what of the GPU's limits was reached."""
    found = Kernels(read_rows(table))
    lengths = found.lengths()
    rows = []
    for mixer in LIONS:
        rows.append([mixer, *(pair([found.ratio(n, x, mixer) for x in PASSES]) for n in lengths)])
        if ASKED.get(mixer, {}).keys() & set(lengths):
            rows.append(["… asked", *(pair(list(ASKED[mixer].get(n, (None, None)))) for n in lengths)])
    for kernel in ("two passes", "compiled plain"):
        for mixer in LIONS:
            ours = "without division" if kernel == "two passes" else "auto"
            cells = []
            for length in lengths:
                times = [[found.seconds(length, x, mixer, name) for name in (ours, kernel)] for x in PASSES]
                cells.append(pair([own / other if own and other else None for own, other in times]))
            if any(cells):
                rows.append([f"{mixer} ÷ {kernel}", *cells])
    parts = [f"{found.gpu}; time ÷ the fastest softmax attention: forward \\| with gradients\n"]
    parts.append(markdown_table(["tokens", *map(str, lengths)], rows))
    rows = []
    for mixer in ("softmax", *LIONS):
        for direction in PASSES:
            rates = [found.rates(n, direction, mixer) for n in lengths]
            cells = ["" if x is None else f"{x[0] / 1e12:.0f}, {x[1] / 1e9:.0f}, {100 * x[2]:.0f} %" for x in rates]
            rows.append([f"{mixer}, {direction}", *cells])
    parts.append("\nTFLOP/s, GB/s, and the least time that this takes ÷ the time:\n")
    parts.append(markdown_table(["tokens", *map(str, lengths)], rows))
    return "\n".join([*parts, *found.faults()])


def models_table(table: Path) -> str:
    """Training steps of whole models, beside what the paper's authors measured."""
    rows = latest(same_sources(read_rows(table)), "modality", "size", "model").items()
    lines = []
    for (modality, size, model), row in rows:
        is_text = {"image": 0, "text": 1}.get(modality)
        published = "" if is_text is None else PUBLISHED_STEPS.get(model, ("", ""))[is_text]
        each = [f"{1e3 * row['median']:.1f} ms", number(row["ratio"]), str(published)]
        lines.append([f"{modality}, {size}", model, *each])
    head = ["input", "model", "training step", "÷ the softmax model", "published"]
    return markdown_table(head, lines)


def paper_table(table: Path) -> str:
    """Accuracy and time of each model on Fashion-MNIST, beside those of the paper's on ImageNet."""
    rows = latest(same_sources(read_rows(table)), "model", "seed").values()
    published = {row["model"]: row for row in read_rows(RESULTS / "published.csv")}
    by_model = {}
    for row in rows:
        by_model.setdefault(row["model"], []).append(row)
    steps = {model: min(row["step_seconds"] for row in some) for model, some in by_model.items()}
    lines = []
    for model, some in by_model.items():
        theirs = published.get(model, {})
        accuracies = [row["accuracy"] for row in some if row["accuracy"] is not None]
        ratio = steps[model] / steps["softmax"] if "softmax" in steps else None
        notes = "; ".join(row["note"] for row in some if row["note"])
        cells = [mean_std([100 * x for x in accuracies], 2), str(len(accuracies)), number(ratio), notes]
        of_theirs = [theirs.get(x) for x in ("ImageNet top-1, base size, %", "training time ÷ softmax, images")]
        lines.append([model, *cells, *("" if x is None else str(x) for x in of_theirs)])
    head = ["model", "Fashion-MNIST, test %", "seeds", "step ÷ softmax", "", "published: ImageNet %", "and time"]
    return markdown_table(head, lines)
