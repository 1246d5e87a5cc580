# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables and a picture of `bench_memory.py`: peak memory by length."""

from measure import latest

from reports.cells import footnote, grid, number, panel
from reports.names import COLORS
from reports.registry import Read, picture, table


def memory_points(read: Read) -> dict[tuple[str, str, int], dict[int, int]]:
    """Bytes by length, for each series, mode and layers; a length of 0 is the process that has made the model."""
    found = {}
    for row in sorted(read("memory"), key=lambda row: row["length"]):
        found.setdefault((row["series"], row["mode"], row["layers"]), {})[row["length"]] = row["peak_memory_bytes"]
    return found


@table("memory", csv="memory", shown=r"^\| (?!LION rnn, training)", left_out="peak|neighbouring|one more layer")
def memory(read: Read) -> str:
    found, rows = memory_points(read), {}
    for (series, mode, layers), points in found.items():
        lengths = [n for n in points if n]
        if layers != 2 or len(lengths) < 2:
            continue
        last, one_layer = lengths[-1], found.get((series, mode, 1), {})
        both = max(points.keys() & one_layer.keys(), default=None)  # the longest input of both depths
        slopes = [(points[b] - points[a]) / (b - a) for a, b in zip(lengths, lengths[1:], strict=False)]
        further = (points[both] - one_layer[both]) / both if both else None
        rows[f"{series}, {mode}"] = {
            "longest input, tokens": f"{last:,}",
            "peak, MiB": f"{points[last] / 2**20:,.0f}",
            "above the loaded model, MiB": number((points[last] - points[0]) / 2**20 if 0 in points else None, ",.0f"),
            "bytes per token": f"{(points[last] - points[lengths[0]]) / (last - lengths[0]):,.0f}",
            "bytes per token between neighbouring lengths": f"{min(slopes):,.0f} to {max(slopes):,.0f}",
            "bytes per token for one more layer": number(further, ",.0f"),
        }
    return grid(rows)


@picture("memory_by_length")
def draw_memory(read: Read, plt):
    above = {
        case[:2]: {n: (x - points[0]) / 2**30 for n, x in points.items() if n}
        for case, points in memory_points(read).items()
        if case[2] == 2 and 0 in points
    }
    styles = {"LION chunk": "o-", "LION segments": "v-.", "BERT sdpa": "s--"}
    if not any(series in styles and points for (series, _), points in above.items()):
        return None
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2))
    for axis, mode in zip(axes, ("inference", "training"), strict=True):
        here = {series: above[series, mode] for series in styles if above.get((series, mode))}
        for series, points in here.items():
            label = series.replace("LION segments", "LION, encode_long")
            axis.loglog(points.keys(), points.values(), styles[series], color=COLORS[series.split()[0]], label=label)
        title = "inference" if mode == "inference" else "training step with gradient checkpointing"
        ticks = sorted({n for points in here.values() for n in points})
        panel(axis, title, "length in tokens", "peak memory above the loaded model, GiB", ticks, "upper left")
        axis.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
    footnote(figure, read("memory"), "2 layers of 768, float32; one process for each point")
    figure.suptitle("LION needs about as much memory as BERT with sdpa; both grow with the length")
    return figure


@table("million", csv="million")
def million(read: Read) -> str:
    names = {"forward": "one forward pass of the chunk kernel", "segments": "`encode_long`"}
    rows = {
        f"{model}, {layers} layers, {names[how]}": {
            "tokens": f"{row['tokens']:,}",
            "peak memory, GiB": f"{row['peak_memory_bytes'] / 2**30:.1f}",
            "CPU time, minutes": f"{row['cpu_seconds'] / 60:.0f}",
            "largest difference from the other run": number(row["max_difference"], ".1e"),
        }
        for (model, layers, how), row in latest(read("million"), "model", "layers", "how").items()
    }
    return grid(rows)
