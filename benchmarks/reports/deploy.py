# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of `bench_deploy.py`: the cost of a document, by runtime and dtype."""

from measure import latest

from reports.cells import duration, footnote, markdown_table, medians, panel
from reports.names import BASE, BASE_LAYERS, COLORS, NOTE
from reports.registry import Read, picture, table
from reports.windows import flex_ratios


# A BERT that reads pieces of a document, and ModernBERT's own layers computed by LION, with windows in linear time.
PIECES, EXACT = "BERT in pieces", "ModernBERT-base exact"
# Layers of the whole models; those that are measured have fewer.
LAYERS = dict.fromkeys(("BERT", PIECES, "LION-LIT", "LION-S", "LION"), 12)
LAYERS |= dict.fromkeys((BASE[0], EXACT, BASE[1]), BASE_LAYERS)
MEASURED_LAYERS = {name: 3 if layers == BASE_LAYERS else 2 for name, layers in LAYERS.items()}
RUNTIME_NAMES = {"torch": "torch", "onnx": "ONNX Runtime", "openvino": "OpenVINO"}
CORE_HOUR = 0.04  # dollars: an assumption
PIECE = 512  # tokens of a piece in the picture


def whole_seconds(row: dict) -> float | None:
    """Seconds of a document in all layers of a model; `None` where it did not fit into memory."""
    return row["median"] and row["median"] * LAYERS[row["model"]] / row["layers"]


def in_words(runtime: str, dtype: str) -> str:
    return f"{RUNTIME_NAMES[runtime]} {dtype}"


# On the page: times in float32, the fastest runtimes at two lengths, memory in float32, without the paper's mixers.
RUNTIMES_SHOWN = "(torch|ONNX Runtime|OpenVINO) float32"
DOCUMENTS_SHOWN = rf"^\| ((2,048|8,192) \| {RUNTIMES_SHOWN} |(8,192|32,768) \| [^|]*:|{RUNTIMES_SHOWN} )"


@table("documents", csv="deploy", shown=DOCUMENTS_SHOWN, left_out="LION-LIT|LION-S|exact")
def documents(read: Read) -> str:
    """Three tables: times, the fastest runtime of each model, peak memory."""
    rows = read("deploy")
    found = comparable(rows)
    if not found:
        return ""
    models = [name for name in LAYERS if any(name in key for key in found)]
    lengths, runtimes = (list(dict.fromkeys(x)) for x in zip(*((k[0], k[1:3]) for k in found), strict=True))
    lengths.sort()
    tables = ["Time for a document, and its ratio to BERT in the same runtime:"]
    ratios = ratios_to_bert(rows)
    lines = []
    for length in lengths:
        for runtime in runtimes:
            keys = [(length, *runtime, name) for name in models]
            lines.append(
                [f"{length:,}", in_words(*runtime), *(time_cell(found.get(key), ratios.get(key)) for key in keys)]
            )
    tables.append(markdown_table(["tokens", "", *models], lines))

    tables.append(
        "The fastest runtime of each model, with the time for a document and the price of a million tokens, at "
        f"${CORE_HOUR} for an hour of a core:"
    )
    of_length = lambda length, name: [found.get((length, *runtime, name)) for runtime in runtimes]
    lines = [[f"{n:,}", *(fastest_cell(of_length(n, name)) for name in models)] for n in lengths]
    tables.append(markdown_table(["tokens", *models], lines))

    in_gibibytes = " / ".join(f"{n:,}" for n in lengths[-2:])
    tables.append(f"Peak memory in GiB of a process with the measured layers, at {in_gibibytes} tokens:")
    memory = lambda row: f"{row['peak_memory_bytes'] / 2**30:.1f}" if row and row["peak_memory_bytes"] else "–"
    lines = [
        [in_words(*runtime)]
        + [" / ".join(memory(found.get((n, *runtime, name))) for n in lengths[-2:]) for name in models]
        for runtime in runtimes
    ]
    tables.append(markdown_table(["", *models], lines))

    return "\n\n".join(tables)


def with_default_layers(rows: list[dict]) -> list[dict]:
    """The rows of one thread with as many layers as by default."""
    return [row for row in rows if row["layers"] == MEASURED_LAYERS[row["model"]] and row["threads"] == 1]


def comparable(rows: list[dict]) -> dict[tuple, dict]:
    """A row by length, runtime, dtype and model: the latest of a day on which BERT was measured, if there is one."""
    rows = with_default_layers(rows)
    days = {row["day"] for row in rows if row["model"] == "BERT"}
    return latest(sorted(rows, key=lambda row: row["day"] in days), "length", "runtime", "dtype", "model")


def ratios_to_bert(rows: list[dict]) -> dict[tuple, float]:
    """Time ÷ BERT's by length, runtime, dtype and model, on the last day that has both: days differ."""
    found = latest(with_default_layers(rows), "day", "length", "runtime", "dtype", "model")
    ratios = {}
    for (day, *where, name), row in sorted(found.items(), key=lambda item: item[0][0]):
        bert = found.get((day, *where, "BERT"))
        if bert and name != "BERT" and row["median"] and bert["median"]:
            ratios[(*where, name)] = whole_seconds(row) / whole_seconds(bert)
    return ratios


def exact_rows(read: Read) -> tuple[dict[int, dict], dict[tuple, dict]]:
    """The last day with exact windows: ModernBERT in torch float32 by length; all rows as `comparable` has them."""
    rows = with_default_layers(read("deploy"))
    day = max((row["day"] for row in rows if row["model"] == EXACT), default=None)
    found = latest([row for row in rows if row["day"] == day], "length", "runtime", "dtype", "model")
    lengths = sorted({length for length, *_, name in found if name == EXACT})
    keys = {n: (n, "torch", "float32", BASE[0]) for n in lengths}
    return {n: found[key] for n, key in keys.items() if key in found}, found


@table("exact windows", csv="deploy", shown="float32,")
def exact_windows(read: Read) -> str:
    """
    ModernBERT with all pairs and with windows, by runtime, of the last day: time ÷ that in torch float32, and the peak
    memory of a process at the longest length.
    """
    usual, found = exact_rows(read)
    lines = []
    for runtime in dict.fromkeys(key[1:3] for key in found if key[3] == EXACT):
        for name in (BASE[0], EXACT):
            cells = []
            for n, peer in usual.items():
                row = found.get((n, *runtime, name))
                cells.append(f"{row['median'] / peer['median']:.2f} ({duration(whole_seconds(row))})" if row else "")
            largest = found.get((max(usual), *runtime, name)) if usual else None
            cells.append(f"{largest['peak_memory_bytes'] / 2**30:.1f}" if largest else "")
            lines.append([f"{in_words(*runtime)}, {'windows' if name == EXACT else 'all pairs'}", *cells])
    titles = ["", *(f"{n:,} tokens" for n in usual), f"memory at {max(usual, default=0):,} tokens, GiB"]
    return markdown_table(titles, lines) if lines else ""


@picture("documents_by_length")
def draw_documents(read: Read, plt):
    """
    Seconds for a document by length, ModernBERT with the same results in four ways and in pieces, whose time is that
    of one, times their number; `None` without rows. Those of flex_attention are its ratio to sdpa in another run,
    times sdpa's here.
    """
    usual, found = exact_rows(read)
    lengths = sorted(usual)
    if not lengths:
        return None
    figure, axis = plt.subplots(figsize=(7, 4))
    shown, longest = [], lengths[-1]
    ways = {
        "torch, sdpa": (("torch", "float32", BASE[0]), COLORS[BASE[0]], "s--"),
        "torch, lion_local": (("torch", "float32", EXACT), COLORS["LION"], "o-"),
        "OpenVINO, lion export": (("openvino", "float32", EXACT), COLORS["LION-S"], "^-"),
    }
    lines = {}
    for label, (key, color, style) in ways.items():
        rows = {n: found[(n, *key)] for n in lengths if (n, *key) in found}
        shown += rows.values()
        lines[label] = {n: whole_seconds(row) for n, row in rows.items()}, color, style
    flex = {n: ratio * whole_seconds(usual[n]) for n, ratio in flex_ratios(read).items() if n in usual}
    lines["torch, flex_attention (compiled)"] = flex, COLORS["LION-LIT"], "v:"
    if piece := usual.get(PIECE):
        pieces = {n: n / PIECE * whole_seconds(piece) for n in lengths if n > PIECE}
        lines[f"torch, sdpa, pieces of {PIECE} tokens: other results"] = pieces, NOTE, "x:"
    for label, (seconds, color, style) in lines.items():
        if seconds:
            axis.loglog(seconds.keys(), seconds.values(), style, color=color, label=label)
            place = max(seconds), seconds[max(seconds)]
            axis.annotate(
                f"  {duration(place[1])}", place, color=color, va="top" if color == COLORS["LION-S"] else "bottom"
            )
    axis.set_xlim(right=2 * longest)
    panel(
        axis,
        f"ModernBERT-base: the same results in less time at {longest:,} tokens",
        "tokens of a document",
        "seconds",
        lengths,
        "upper left",
    )
    axis.set_yticks([1, 10, 100], ["1", "10", "100"])
    layers = MEASURED_LAYERS[EXACT]
    text = f"float32, {medians(shown)};\n{layers} layers measured, times {BASE_LAYERS} / {layers}"
    text += "; flex_attention by its ratio to sdpa" * bool(flex) + "; pieces by one's time" * bool(piece)
    footnote(figure, shown, text)
    return figure


def time_cell(row: dict | None, ratio: float | None) -> str:
    if row is None:
        return ""
    seconds = whole_seconds(row)
    if seconds is None:
        return "no memory"
    return duration(seconds) + (f", {ratio:.2f}" if ratio else "")


def fastest_cell(rows: list[dict | None]) -> str:
    rows = [row for row in rows if row and row["median"]]
    if not rows:
        return ""
    row = min(rows, key=lambda row: row["median"])
    seconds = whole_seconds(row)
    dollars = seconds / row["length"] * 1e6 / 3600 * CORE_HOUR
    return f"{in_words(row['runtime'], row['dtype'])}: {duration(seconds)}, ${dollars:.3f}"
