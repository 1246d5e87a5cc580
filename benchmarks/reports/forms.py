# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables and a picture of `bench_forms.py`: time and memory of the forms."""

from measure import latest

from reports.cells import duration, footnote, grid, panel
from reports.names import COLORS
from reports.registry import Read, picture, table


NAMES = {  # in the order of the rows
    "rnn": "recurrent",
    "chunk": "chunks of {:,} tokens",
    "pairs": "published loop over pairs of chunks of {:,}",
    "keys": "published loop over chunks of {:,} keys",
    "parallel": "parallel",
    "softmax": "softmax",
}


# The forms of the picture: size of chunks, style and colour.
DRAWN = {
    ("rnn", None): ("o-", COLORS["LION-D"]),
    ("chunk", 64): ("o-", COLORS["LION-S"]),
    ("pairs", 64): ("^:", COLORS["LION-LIT"]),
    ("parallel", None): ("v-.", COLORS["LION"]),
    ("softmax", None): ("s--", COLORS["softmax"]),
}


# Not the published loop over chunks of keys, or of 1,024 tokens.
@table(
    "forms",
    csv="forms",
    shown=r"^\| (recurrent|parallel|softmax|chunks of [\d,]+ tokens|.* pairs of chunks of \d+) \|",
)
def forms(read: Read) -> str:
    """Forward."""
    return in_mode(read, None)


@table("forms in training", csv="forms")
def forms_in_training(read: Read) -> str:
    """Forward and backward."""
    return in_mode(read, "training")


def in_mode(read: Read, mode: str | None) -> str:
    rows = [row for row in read("forms") if row.get("mode") == mode]
    found = latest(rows, "form", "chunk_size", "length")
    cases = sorted({key[:2] for key in found}, key=lambda case: ([*NAMES].index(case[0]), case[1] or 0))
    lengths = sorted({length for _, _, length in found})
    cells = {}
    for form, size in cases:
        times, memory = {}, {}
        for length in lengths:
            row = found.get((form, size, length))
            times[f"{length:,} tokens"] = duration(row["median"]) if row else ""
            memory[f"{length:,} tokens, MiB"] = f"{row['peak_memory_bytes'] / 2**20:,.0f}" if row else ""
        cells[NAMES[form].format(size)] = times | memory
    return grid(cells)


@picture("forms_by_length")
def draw_forms(read: Read, plt):
    """Time and memory of the forward pass by length."""
    rows = [row for row in read("forms") if row.get("mode") is None]
    found = latest(rows, "form", "chunk_size", "length")
    drawn = {key: row for key, row in found.items() if key[:2] in DRAWN}
    if not drawn:
        return None
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2))
    ticks = sorted({length for *_, length in drawn})
    panels = (("median", 1, "time, seconds"), ("peak_memory_bytes", 2**20, "peak memory above the inputs, MiB"))
    for axis, (column, unit, title) in zip(axes, panels, strict=True):
        for (form, size), (style, color) in DRAWN.items():
            points = {n: drawn[form, size, n][column] / unit for n in ticks if (form, size, n) in drawn}
            axis.loglog(points.keys(), points.values(), style, color=color, label=NAMES[form].format(size))
        panel(axis, title, "length in tokens", "", ticks)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    footnote(figure, [*drawn.values()], "LION-S, forward, 12 heads of 64, float32; medians")
    figure.suptitle(
        "Quadratic time: the parallel form, the published loop and softmax; quadratic memory: the parallel form"
    )
    return figure
