# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables and pictures of `bench_kernels.py`: attention alone."""

from collections import defaultdict
from itertools import product

from measure import latest

from reports.cells import duration, footnote, grid, panel, short
from reports.names import COLORS, LIONS, PASSES
from reports.registry import Read, picture, table


RATIOS = r"\| (softmax|\S+ ÷)"  # shown: times of softmax attention only


def kernel_rows(read: Read, threads: int = 1, source: str = "kernels", with_avx2_only: bool = False) -> list[dict]:
    """
    The rows of softmax attention and of the "auto" kernel.

    Args:
        with_avx2_only: whether to take the rows of CPUs with AVX2 only, or those of all others.
    """
    rows = [row for row in read(source, threads=threads) if row["kernel"] in ("sdpa", "auto")]
    return [row for row in rows if (row["capability"] == "AVX2") == with_avx2_only]


def kernel_times(rows: list[dict]) -> tuple[list[int], dict[tuple, float]]:
    """The lengths, and seconds a sequence by mixer, pass and length."""
    times = {key: row["median"] / row["batch"] for key, row in latest(rows, "mixer", "pass", "length").items()}
    return sorted({length for *_, length in times}), times


@table("kernels", csv="kernels", shown=RATIOS, left_out="197|1,024")
@table("kernels with AVX2", csv="kernels", shown=r"\| (softmax|LION ÷)", left_out="197|1,024", with_avx2_only=True)
@table(
    "kernels in bfloat16",
    csv="kernels_bfloat16",
    shown=r"\| (softmax|LION-S ÷)",
    left_out="197",
    source="kernels_bfloat16",
)
def kernels(read: Read, **of_rows) -> str:
    """Times and ratios by length, from the rows that `kernel_rows` takes."""
    lengths, times = kernel_times(kernel_rows(read, **of_rows))
    rows = defaultdict(dict)
    for mixer, n in product(("softmax", *LIONS), lengths):
        if not all((mixer, direction, n) in times for direction in PASSES):
            continue
        seconds = [times[mixer, direction, n] for direction in PASSES]
        ratios = [x / times["softmax", direction, n] for x, direction in zip(seconds, PASSES, strict=True)]
        if mixer in ("softmax", "LION", "LION-S"):
            rows[f"{mixer}, time per sequence"][f"{n:,} tokens"] = " / ".join(map(duration, seconds))
        if mixer != "softmax":
            rows[f"{mixer} ÷ softmax"][f"{n:,} tokens"] = " / ".join(map(short, ratios))
    return grid(rows)


@picture("kernels_by_length")
def draw_kernels(read: Read, plt):
    """On a CPU where LION as recommended was measured, if there is one."""
    found = [kernel_rows(read, with_avx2_only=x) for x in (False, True)]
    rows = max(found, key=lambda rows: ("LION" in {row["mixer"] for row in rows}, len(rows)))
    lengths, times = kernel_times(rows)
    if not lengths:
        return None
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    for axis, direction in zip(axes, PASSES, strict=True):
        for mixer in LIONS:
            here = [n for n in lengths if (mixer, direction, n) in times]
            gains = [times["softmax", direction, n] / times[mixer, direction, n] for n in here]
            if here:
                axis.loglog(here, gains, "o-", color=COLORS[mixer], label=mixer)
        axis.axhline(1, color=COLORS["softmax"], linestyle="--", label="softmax (sdpa)")
        panel(axis, direction.replace("+", " + "), "length in tokens", "times as fast as softmax attention", lengths)
        axis.set_yticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    axes[0].legend()
    ours = next(x for x in ("LION", "LION-S") if (x, "forward", lengths[-1]) in times)
    gain = times["softmax", "forward", lengths[-1]] / times[ours, "forward", lengths[-1]]
    figure.suptitle(f"{ours} attention is {gain:.0f} times as fast as softmax attention at {lengths[-1]:,} tokens")
    footnote(figure, rows, "12 heads of 64, float32, medians")
    return figure
