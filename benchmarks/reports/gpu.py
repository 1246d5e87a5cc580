# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables and the picture of what `bench_kernels.py` measured on a GPU."""

import math

from measure import latest

from reports.cells import NOTE, duration, grid, panel, short
from reports.names import COLORS, LIONS, PASSES
from reports.registry import Read, picture, table


HEADS, DIM, CHUNK = 12, 64, 64  # of bench_kernels.py, and the tokens of a chunk that need the fewest operations


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


def same_sources(rows: list[dict]) -> list[dict]:
    """The rows that were measured on the GPU and with the sources of the last one."""
    about = [(row["gpu"], row.get("sources")) for row in rows]
    return [row for row, of_row in zip(rows, about, strict=True) if of_row == about[-1]]


class Kernels:
    """The last row of each case of the table of bench_kernels.py, on the GPU and of the sources of its last row."""

    def __init__(self, rows: list[dict]):
        self.gpu = rows[-1]["gpu"] if rows else None
        self.rows = latest(same_sources(rows), "length", "pass", "mixer", "kernel")
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

    def faster_from(self, mixer: str) -> int | None:
        """The shortest of the measured lengths from which on a mixer takes less time than softmax, in both passes."""
        first = None
        for n in reversed(self.lengths()):
            ratios = [self.ratio(n, direction, mixer) for direction in PASSES]
            if not all(ratios) or max(ratios) >= 1:
                break
            first = n
        return first

    def batch(self, length: int, direction: str) -> int:
        return next((row["batch"] for key, row in self.rows.items() if key[:3] == (length, direction, "softmax")), 1)

    def faults(self) -> list[str]:
        return [", ".join(map(str, key)) + f": {row['note']}" for key, row in self.rows.items() if row["note"]]


@table("kernels on a GPU", csv="kernels_gpu")
def kernels_on_a_gpu(read: Read) -> str:
    """Times of softmax attention, ratios to it, and the share of the GPU's limits, forward / with gradients."""
    found = Kernels(read("kernels_gpu"))
    rows = {}
    for n in found.lengths():
        column = f"{n:,} tokens"
        times = [found.seconds(n, x, "softmax") for x in PASSES]
        cells = {"softmax, time of a batch": " / ".join(map(duration, times)) if all(times) else ""}
        for mixer in LIONS:
            ratios = [found.ratio(n, x, mixer) for x in PASSES]
            cells[f"{mixer} ÷ softmax"] = " / ".join(map(short, ratios)) if all(ratios) else ""
        for mixer in ("softmax", *LIONS):
            rates = [found.rates(n, x, mixer) for x in PASSES]
            shares = [f"{100 * x[2]:.0f} %" for x in rates if x]
            cells[f"{mixer}, of the GPU's limit"] = " / ".join(shares) if len(shares) == len(rates) else ""
        for name, cell in cells.items():
            rows.setdefault(name, {})[column] = cell
    return grid(rows)


@picture("kernels_on_a_gpu")
def draw_kernels_on_a_gpu(read: Read, plt):
    """Time by length, forward and with gradients."""
    found = Kernels(read("kernels_gpu"))
    if not (lengths := found.lengths()):
        return None
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    for axis, direction in zip(axes, PASSES, strict=True):
        for mixer in ("softmax", *LIONS):
            kernel = None if mixer == "softmax" else "auto"
            times = [(n, found.seconds(n, direction, mixer, kernel)) for n in lengths]
            if times := [(n, 1e3 * x) for n, x in times if x]:
                axis.loglog(*zip(*times, strict=True), "o-", color=COLORS[mixer], label=mixer)
        panel(axis, direction.replace("+", " + "), "length in tokens", "milliseconds", lengths)
    axes[0].legend()
    for axis in axes:
        axis.set_yticks([0.01, 0.1, 1, 10, 100, 1000], ["0.01", "0.1", "1", "10", "100", "1,000"])
    starts = {mixer: found.faster_from(mixer) for mixer in LIONS}
    names = {n: ", ".join(x for x in starts if starts[x] == n) for n in sorted({*starts.values()} - {None})}
    faster = "; ".join(f"{names[n]} from {n:,} tokens on" for n in names)
    figure.suptitle(f"Attention on an {found.gpu}" + (f", faster than softmax: {faster}" if faster else ""))
    text = f"batch of {found.batch(lengths[0], PASSES[0])}, {HEADS} heads of {DIM}, bfloat16, medians"
    figure.supxlabel(text, x=0.995, ha="right", fontsize=8, color=NOTE)
    return figure
