# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_linearize.py`: encoders with linear layers."""

from collections import defaultdict

from measure import latest

from reports.cells import duration, footnote, grid, panel
from reports.names import COLORS
from reports.registry import Read, picture, table


SHOWN = r"\| (MiniLM, inference: (source|every|linear(ized)? ÷)|ModernBERT-base, inference: (source|linearized ÷))"


@table("linearize", csv="linearize", shown=SHOWN, left_out=" 32 tokens")
def linearized(read: Read) -> str:
    """LION inside of an encoder ÷ the encoder, and ÷ its pieces, by length."""
    found = latest(read("linearize"), "keeps_memory", "encoder", "mode", "length", "way")
    rows = defaultdict(dict)
    for (keeps_memory, encoder, mode, length, way), row in found.items():
        name = f"{encoder}, {'training step' if mode == 'train' else 'inference'}"
        name += ", freed memory kept" if keeps_memory else ""
        source, lion = (found.get((keeps_memory, encoder, mode, length, x)) for x in ("source", "lion"))
        if source is None or lion is None:  # the run has not come so far
            continue
        column = f"{length:,} tokens"
        if way == "source":
            rows[f"{name}: source"][column] = duration(row["median"])
        elif way == "pieces":
            rows[f"{name}: linear ÷ pieces"][column] = f"{lion['median'] / row['median']:.2f}"
        else:
            what = "every text linear" if way == "all linear" else "linearized"
            if way == "lion":
                rows[f"{name}: linearized"][column] = duration(row["median"])
            rows[f"{name}: {what} ÷ source"][column] = f"{row['median'] / source['median']:.2f}"
    return grid(rows)


@picture("linearized_by_length")
def draw_linearized(read: Read, plt):
    """Seconds of a text by length, of MiniLM as it is and as `linearize` leaves it; `None` without rows."""
    rows = read("linearize", encoder="MiniLM", mode="infer", keeps_memory=0)
    found = latest(rows, "way", "length")
    seconds = {way: {n: row["median"] for (x, n), row in found.items() if x == way} for way in ("source", "lion")}
    lengths = sorted(seconds["source"].keys() & seconds["lion"].keys())
    if not lengths:
        return None
    figure, axis = plt.subplots(figsize=(7, 3.8))
    labels = {"source": "its own attention (softmax, sdpa)", "lion": "after linearize(exact_length=512)"}
    for way, color, style in (("source", COLORS["BERT"], "s--"), ("lion", COLORS["LION"], "o-")):
        axis.loglog(lengths, [seconds[way][n] for n in lengths], style, color=color, label=labels[way])
        axis.annotate(f" {duration(seconds[way][lengths[-1]])}", (lengths[-1], seconds[way][lengths[-1]]), color=color)
    axis.axvline(512, color="#a0a4ab", linestyle=":")
    panel(axis, "The same up to 512 tokens, linear beyond", "tokens of a text", "seconds", lengths)
    axis.legend(loc="upper left", fontsize=9)
    axis.set_xlim(right=lengths[-1] * 2)
    axis.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    shown = [row for (way, n), row in found.items() if way in seconds and n in lengths]
    repeats = [row["repeats"] for row in shown]
    text = f"size of all-MiniLM-L6-v2, float32, medians of {min(repeats)} to {max(repeats)} runs"
    footnote(figure, shown, text)
    return figure
