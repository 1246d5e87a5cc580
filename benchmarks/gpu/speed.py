# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Tables and the picture of what was measured on a GPU: attention beside the fastest softmax attention, its share of what
the GPU can do, whole models beside their peers, and the trainings of fashion.py.
"""

import math
from pathlib import Path

import matplotlib
from measure import RESULTS, latest, read_rows
from reports.cells import markdown_table, mean_std
from reports.names import COLORS, LIONS, PASSES


matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


HEADS, DIM, CHUNK = 12, 64, 64  # of bench_kernels.py, and the tokens of a chunk that need the fewest operations
# Time ours ÷ the fastest softmax attention that we ask for: by length, forward and with gradients.
ASKED = {
    "LION-LIT": {128: (1.0, 0.9), 512: (0.6, 0.6), 1024: (0.3, 0.3), 4096: (0.08, 0.08), 16384: (0.02, 0.02)},
    "LION-S": {128: (1.2, 1.1), 512: (1.2, 1.1), 1024: (0.65, 0.6), 4096: (0.16, 0.15), 16384: (0.04, 0.04)},
}
ASKED["LION-LIT"][65536], ASKED["LION-S"][65536] = (0.005, 0.005), (0.01, 0.01)
ASKED["LION-D"] = ASKED["LION-S"]
# Time of a training step ÷ that of the peer: what the paper's authors measured, images and text.
PUBLISHED_STEPS = {"LION-LIT": (0.73, 0.95), "LION-D": (1.39, 1.10), "LION-S": (1.46, 1.32)}


def work(mixer: str, length: int, batch: int, direction: str) -> tuple[float, float]:
    """
    The operations that attention in bfloat16 has to do, and the bytes that it has to move, each input and output once.

    Softmax and the full form have two products of `length` x `length` forward, the gradients five and seven more;
    chunks have those of a chunk, and states: two products of `DIM` x `DIM` for each direction forward, and four more.
    """
    has_gradients = direction != PASSES[0]
    pairs = {"softmax": 7}.get(mixer, 9) if has_gradients else 2
    states = {"softmax": math.inf, "LION-LIT": 1, "LION": 1}.get(mixer, 2) * (6 if has_gradients else 2) * DIM
    chunk = 0 if mixer == "LION-LIT" else min(length, CHUNK)
    products = pairs * length if mixer == "softmax" else min(pairs * length, pairs * chunk + states)
    decays = {"LION-S": 8, "LION": 8}.get(mixer, 0) * (3 if has_gradients else 1)
    size = 2 * DIM * (12 if has_gradients else 4) + decays
    tokens = batch * HEADS * length
    return 2.0 * DIM * products * tokens, float(size * tokens)


class Kernels:
    """The last row of each case of the table of bench_kernels.py, on the GPU of its last row."""

    def __init__(self, table: Path):
        rows = read_rows(table)
        self.gpu = rows[-1]["gpu"] if rows else None
        self.rows = latest([row for row in rows if row["gpu"] == self.gpu], "length", "pass", "mixer", "kernel")
        self.limits = {
            key[3]: key[0] / row["median"] for key, row in self.rows.items() if key[2] == "limit" and row["median"]
        }

    def lengths(self) -> list[int]:
        return sorted({key[0] for key in self.rows if key[2] != "limit"})

    def seconds(self, length: int, direction: str, mixer: str, kernel: str | None = None) -> float | None:
        """Seconds of one kernel, or of the fastest one."""
        times = [
            row["median"]
            for (*case, name), row in self.rows.items()
            if case == [length, direction, mixer] and kernel in (None, name) and row["median"] is not None
        ]
        return min(times, default=None)

    def ratio(self, length: int, direction: str, mixer: str, kernel: str = "auto") -> float | None:
        own, softmax = self.seconds(length, direction, mixer, kernel), self.seconds(length, direction, "softmax")
        return own / softmax if own and softmax else None

    def rates(self, length: int, direction: str, mixer: str) -> tuple[float, float, float] | None:
        """Operations and bytes a second, and the time that the GPU needs at least ÷ the time that it took."""
        row = self.rows.get((length, direction, mixer, "auto"))
        if mixer == "softmax":
            row = {"median": self.seconds(length, direction, mixer), "batch": self.batch(length, direction)}
        if not row or not row["median"]:
            return None
        operations, size = work(mixer, length, row["batch"], direction)
        side = next(key[0] for key in self.rows if key[3] == "matrix product")
        fastest = 2 * side**2 * self.limits["matrix product"], 2 * self.limits["copy"]
        least = max(operations / fastest[0], size / fastest[1])
        return operations / row["median"], size / row["median"], least / row["median"]

    def batch(self, length: int, direction: str) -> int:
        return next((row["batch"] for key, row in self.rows.items() if key[:3] == (length, direction, "softmax")), 1)

    def faults(self) -> list[str]:
        return [", ".join(map(str, key)) + f": {row['note']}" for key, row in self.rows.items() if row["note"]]


def number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}" if value >= 0.1 else f"{value:.3f}"


def pair(values: list[float | None]) -> str:
    return " \\| ".join(map(number, values)) if any(values) else ""


def eight_numbers(table: Path, lengths: tuple[int, ...]) -> str:
    """Time ÷ that of the fastest softmax attention, for each LION at two lengths."""
    found = Kernels(table)
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
    found = Kernels(table)
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


def draw(table: Path, file: Path) -> None:
    """Time by length, forward and with gradients."""
    found = Kernels(table)
    lengths = found.lengths()
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for axis, direction in zip(axes, PASSES, strict=True):
        for mixer in ("softmax", *LIONS):
            kernel = None if mixer == "softmax" else "auto"
            times = [(n, found.seconds(n, direction, mixer, kernel)) for n in lengths]
            times = [(n, 1e3 * x) for n, x in times if x]
            if times:
                axis.plot(*zip(*times, strict=True), marker="o", color=COLORS[mixer], label=mixer)
        axis.set(xscale="log", yscale="log", xlabel="tokens", title=f"{direction}, {found.gpu}")
    axes[0].set_ylabel("milliseconds")
    axes[0].legend()
    figure.savefig(file, dpi=120)
    plt.close(figure)


def models_table(table: Path) -> str:
    """Training steps of whole models, beside what the paper's authors measured."""
    rows = latest(read_rows(table), "modality", "size", "model").items()
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
    rows = read_rows(table)
    rows = latest([row for row in rows if row["gpu"] == rows[-1]["gpu"]], "model", "seed").values() if rows else []
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
        of_theirs = [theirs.get(x) for x in ("ImageNet top-1 at 86M, %", "training time ÷ softmax, images")]
        lines.append([model, *cells, *("" if x is None else str(x) for x in of_theirs)])
    head = ["model", "Fashion-MNIST, test %", "seeds", "step ÷ softmax", "", "published: ImageNet %", "and time"]
    return markdown_table(head, lines)
