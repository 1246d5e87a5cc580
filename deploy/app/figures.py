# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Draw the figures of the page (page.py), without pyplot, which is not thread-safe."""

from collections.abc import Sequence

import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from torch import Tensor

from .panels import Head, Reading, Time


BLUE, DARK, ORANGE = "#2563a8", "#30343b", "#e07b28"
MOST_LABELS = 32  # tokens whose words fit beside a mask
LEAST = 1e-3  # the smallest value of a mask that is drawn; smaller ones look like 0


def new_figure(width: float, height: float) -> Figure:
    return Figure((width, height), dpi=110, layout="constrained")


def bare(axis) -> None:
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)


def similarity_figure(texts: Sequence[str], cosines: Tensor) -> Figure:
    """Draw cosines `(texts, texts)` as a heat map with numbers."""
    names = [f"{n}  {text[:40]}{'…' if len(text) > 40 else ''}" for n, text in enumerate(texts, 1)]
    figure = new_figure(8, 1.2 + 0.42 * len(texts))
    axis = figure.subplots()
    image = axis.imshow(cosines.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for row, values in enumerate(cosines.tolist()):
        for column, value in enumerate(values):
            color = "white" if value > 0.6 else DARK
            axis.text(
                column, row, f"{value:.2f}".replace("-0.00", "0.00"), ha="center", va="center", color=color, fontsize=9
            )
    axis.set_yticks(range(len(texts)), names)
    axis.set_xticks(range(len(texts)), range(1, len(texts) + 1))
    axis.xaxis.tick_top()
    bare(axis)
    figure.colorbar(image, ax=axis, pad=0.01).set_label("cosine")
    return figure


def reach_figure(heads: Sequence[Head]) -> Figure:
    """Draw how many tokens reach a token, by layer and head."""
    layers = list(dict.fromkeys(head.layer for head in heads))
    reach = torch.tensor([head.tokens for head in heads]).view(len(layers), -1)
    directions = [head.reads for head in heads if head.layer == layers[0]]
    figure = new_figure(9, 1.5 + 0.36 * len(layers))
    axis = figure.subplots()
    norm = LogNorm(1, max(2, float(reach.max())))
    axis.imshow(reach.clamp(min=1).numpy(), norm=norm, cmap="Blues", aspect="auto")
    for row, values in enumerate(reach.tolist()):
        for column, value in enumerate(values):
            color = "white" if norm(value) > 0.6 else DARK
            number = f"{value:.1f}" if value < 100 else f"{value:,.0f}"
            axis.text(column, row, number, ha="center", va="center", color=color, fontsize=9)
    axis.set_yticks(range(len(layers)), [f"layer {layer}" for layer in layers])
    arrows = {"what precedes": "←", "what follows": "→", "both directions": "↔"}
    axis.set_xticks(range(len(directions)), [f"{n} {arrows[reads]}" for n, reads in enumerate(directions, 1)])
    axis.set_xlabel("head")
    axis.set_title("Tokens that reach a token (median over the tokens)")
    bare(axis)
    return figure


def mask_figure(reading: Reading, layer: int) -> Figure:
    """Draw the decay masks or the attention weights of a layer's heads."""
    heads = [head for head in reading.heads if head.layer == layer]
    columns = min(4, len(heads))
    lines = -(-len(heads) // columns)
    figure = new_figure(2.6 * columns + 1.2, 2.7 * lines + 0.6)
    axes = figure.subplots(lines, columns, squeeze=False)
    words, readers = reading.words, reading.readers
    are_words = words is not None and len(words) <= MOST_LABELS
    for axis in axes.flat[len(heads) :]:
        axis.set_visible(False)
    for n, (head, rows, axis) in enumerate(zip(heads, reading.rows, axes.flat, strict=False)):
        image = axis.imshow(rows.clamp(min=LEAST).numpy(), norm=LogNorm(LEAST, 1), cmap="Blues", aspect="auto")
        axis.set_title(f"head {head.head}, {head.reads}", fontsize=10)
        bare(axis)
        is_left, is_last = n % columns == 0, n + columns >= len(heads)
        if words is None:
            axis.plot(readers[1] - 1, readers[0] - 1, "o", color=ORANGE, markersize=5)
            axis.set_xticks([])
            axis.set_yticks([])
            continue
        if are_words:
            axis.set_yticks(range(len(words)), words if is_left else [], fontsize=7)
            axis.set_xticks(range(len(words)), words if is_last else [], rotation=90, fontsize=7)
        else:
            shown = range(0, len(readers), max(1, len(readers) // 5))
            axis.set_yticks(shown, [readers[i] for i in shown] if is_left else [], fontsize=8)
        axis.set_ylabel("token that reads" if is_left else "")
        axis.set_xlabel("token that is read" if is_last else "")
    title = f"Layer {layer}: {reading.shown} of each token"
    if words is None:
        title = f"Layer {layer}: {reading.shown} of each patch, for the one in row {readers[0]}, column {readers[1]}"
    figure.suptitle(title)
    bar = figure.colorbar(image, ax=axes, extend="min", pad=0.01, aspect=30, format="%g")
    bar.set_label(f"{reading.shown} (logarithmic)")
    return figure


def time_figure(times: Sequence[Time], name: str, peer: str) -> Figure:
    """Draw seconds by length, with logarithmic axes."""
    figure = new_figure(7.5, 3.8)
    axis = figure.subplots()
    lengths = [time.length for time in times]
    for label, values, color in ((name, [t.lion for t in times], BLUE), (peer, [t.softmax for t in times], DARK)):
        axis.loglog(lengths, values, "o-", color=color, label=label)
    axis.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()
    axis.set_xlabel("tokens in the text")
    axis.set_ylabel("seconds to read it")
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    return figure
