# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The tables of docs/benchmarks/ and docs/research/ablations.md, and their pictures, from the benchmarks' CSV files.

    python benchmarks/report.py                                # from benchmarks/results
    python benchmarks/report.py --results_dir outputs/bench    # your own: pages of its tables, and images/, there

Every benchmark does this when it ends. The text of these pages is written by hand; what stands between
`<!-- begin: NAME -->` and `<!-- end -->` is made here, by the function of that name in `BLOCKS`. Your own pages have
the tables and pictures of your folder under the same headings, without the text, which is about ours.
"""

import argparse
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from deploy_report import documents, draw_documents, exact_windows, losses
from learning_report import ablations, draw_learning, in_order, layer_patterns, load_scores, task_settings
from length_report import by_length, draw_length
from measure import (
    BASE,
    BASE_LAYERS,
    COLORS,
    ENCODERS,
    LIONS,
    PASSES,
    RESULTS,
    WINDOWS,
    about_cells,
    duration,
    latest,
    markdown_table,
    mean_std,
    read_rows,
    score_cell,
    score_name,
)
from search_report import best_trial, finished, search, trials


ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    DOCS / "benchmarks" / f"{name}.md" for name in ("index", "speed", "memory", "runtimes", "retrieval", "quality")
]
PAGES += [DOCS / "research" / f"{name}.md" for name in ("ablations", "distillation")]
# Variants of the trainings that compare mixers in one backbone: initial weights as in BERT, on images of scale 0.1.
IN_ONE_BACKBONE = (None, "mixer_initializer_range=0.02", "mixer_initializer_range=0.1")
ROTARY = "softmax (rotary)"
NOT_COMPARED = ("LION", ROTARY)
# Tables of what was measured somewhere, in the order of the page.
MEASURED = (
    "kernels",
    "kernels_bfloat16",
    "models",
    "models_bfloat16",
    "deploy",
    "precision",
    "memory",
    "million",
    "packing",
    "windows",
    "pieces",
    "linearize",
    "global_layers",
    "serve",
    "serve_load",
    "retrieval",
    "passages",
    "transfer",
    "quality",
    "quality_speed",
    "hybrids",
    "search",
    "search_speed",
    "length",
)
OF_SCALE = ("quality", "quality_speed", "hybrids", "half_lives", "transfer", "precision")
OF_SCALE += ("search", "search_speed", "length")
BEFORE = ", before"  # the further training
# What gives the rows of a table, by its name and by values of its columns.
Read = Callable[..., list[dict]]


def grid(rows: dict[str, dict[str, str]], corner: str = "") -> str:
    """A Markdown table of cells by row and column, in the order in which these first come."""
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    lines = [[name, *(cells.get(column, "") for column in columns)] for name, cells in rows.items()]
    return markdown_table([corner, *columns], lines) if rows else ""


def number(x: float | None, form: str = ".2f") -> str:
    return "–" if x is None else format(x, form)


def short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.0995 else f"{ratio:.3f}"


def panel(axis, title: str, xlabel: str, ylabel: str, ticks: list[int], legend: str = "") -> None:
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axis.set_xticks(ticks, [f"{n:,}" for n in ticks], rotation=45 if len(ticks) > 5 else 0)
    axis.minorticks_off()
    axis.grid(alpha=0.25)
    if legend and axis.lines:
        axis.legend(loc=legend, fontsize=8)


# Speed and memory


def kernel_times(
    read: Read, threads: int = 1, table: str = "kernels", with_avx2_only: bool = False
) -> tuple[list[int], dict[tuple, float]]:
    """
    The lengths, and seconds a sequence by mixer, pass and length, of softmax attention and the "auto" kernel.

    Args:
        with_avx2_only: whether to take the rows of CPUs with AVX2 only, or those of all others.
    """
    rows = [row for row in read(table, threads=threads) if row["kernel"] in ("sdpa", "auto")]
    rows = [row for row in rows if (row["capability"] == "AVX2") == with_avx2_only]
    times = {key: row["median"] / row["batch"] for key, row in latest(rows, "mixer", "pass", "length").items()}
    return sorted({length for *_, length in times}), times


def kernels(read: Read, **of_rows) -> str:
    """The rows that `kernel_times` takes."""
    lengths, times = kernel_times(read, **of_rows)
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


def draw_kernels(read: Read, plt):
    """On a CPU where LION as recommended was measured, if there is one."""
    found = [kernel_times(read, with_avx2_only=x) for x in (False, True)]
    lengths, times = max(found, key=lambda x: ("LION" in {mixer for mixer, *_ in x[1]}, len(x[1])))
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
    return figure


def model_rows(read: Read, table: str = "models") -> dict[tuple, dict]:
    """
    By modality, size, mode and model a row with a `label` and a `ratio`: its time ÷ that of BERT or ViT on the same
    day. Days are not equally fast: `median` is this ratio times BERT's time on the day on which most models ran.
    """
    days, found = defaultdict(dict), {}
    for row in read(table):
        is_other = row["modality"] in ("document", "encoder")
        if is_other or row["model"] in BASE and row["layers"] != BASE_LAYERS:
            continue
        days[row["modality"], row["size"], row["mode"], row["day"]][row["model"]] = row
    order = lambda item: (item[0][0] == "image", *item[0][1:3], len(item[1]))
    for (modality, size, mode, _), rows in sorted(days.items(), key=order):
        peer = rows.get("BERT" if modality == "text" else "ViT")
        for model, row in rows.items():
            ratio = row["median"] / peer["median"] if peer else None
            found[modality, size, mode, model] = row | {"ratio": ratio}
    for (modality, size, mode, model), row in found.items():
        peer = found.get((modality, size, mode, "BERT" if modality == "text" else "ViT"))
        row["median"] = row["ratio"] * peer["median"] if peer and row["ratio"] else row["median"]
        first = next(x for (*_, name), x in found.items() if name == model)  # tables of positions grow with the length
        row["label"] = f"{model}, {row['layers']} layers, {first['parameters'] / 1e6:.0f}M"
    return found


def models(read: Read, table: str = "models", modes: tuple[str, ...] = ("train", "infer")) -> str:
    """Seconds of BERT and ViT, for others the time ÷ theirs, of a training step and of inference."""
    found, cells = model_rows(read, table), defaultdict(dict)
    for model, (modality, size, _, name) in product(COLORS, found):
        rows = [found.get((modality, size, mode, model)) for mode in modes]
        if model == name:
            is_peer = model in ("BERT", "ViT")
            texts = [duration(x["median"]) if x and is_peer else number(x and x["ratio"]) for x in rows]
            column = f"{modality}, {f'{size}²' if modality == 'image' else f'{size:,}'}"
            cells[next(x for x in rows if x)["label"]][column] = " / ".join(texts)
    dtype, columns = table.removeprefix("models").strip("_") or "float32", {x for row in cells.values() for x in row}
    for (group, of, size, model), ratio in ratios_to_pieces(read).items():
        if model in LIONS and of == dtype and f"text, {size:,}" in columns:
            cells[f"{model} ÷ BERT on pieces, {group}"][f"text, {size:,}"] = " / ".join(
                ["–"] * (len(modes) - 1) + [ratio]
            )
    return grid(cells)


def hybrid(read: Read) -> str:
    """ModernBERT-base with linear layers for those that see all tokens, beside itself, by length and layers."""
    found = latest(read("models", modality="document"), "layers", "size", "mode", "model")
    table = defaultdict(dict)
    for layers, size, mode, _ in sorted(found):
        peer, windows, lion = (found.get((layers, size, mode, model)) for model in (BASE[0], WINDOWS, BASE[1]))
        if peer and lion and peer["day"] == lion["day"]:
            name = {"train": "training step", "infer": "inference"}[mode]
            gibibytes = [f"{row['peak_memory_bytes'] / 2**30:.1f}" for row in (peer, lion)]
            cells = table[f"{size:,} tokens, {layers} layers"]
            cells |= {
                f"{name}: ModernBERT": duration(peer["median"]),
                f"{name}: linear ÷ ModernBERT": short(lion["median"] / peer["median"]),
            }
            if windows and windows["day"] == lion["day"]:
                cells[f"{name}: linear ÷ lion_local"] = short(lion["median"] / windows["median"])
            cells[f"{name}: GiB, ModernBERT / linear"] = " / ".join(gibibytes)
    return grid(table)


def encoder(read: Read) -> str:
    """The encoder in checkpoints/ beside a BERT of its teacher's size, by length."""
    found, table = latest(read("models", modality="encoder"), "size", "model"), defaultdict(dict)
    of_pieces = ratios_to_pieces(read)
    for size in sorted({size for size, _ in found}):
        peer, lion = (found[size, model] for model in ENCODERS)
        table[f"{size:,} tokens"] = {
            "BERT": duration(peer["median"]),
            ENCODERS[1]: duration(lion["median"]),
            f"{ENCODERS[1]} ÷ BERT": short(lion["median"] / peer["median"]),
            "÷ BERT on pieces": of_pieces.get(("checkpoint", "float32", size, ENCODERS[1]), ""),
            "peak memory of the process, GiB": " / ".join(
                f"{row['peak_memory_bytes'] / 2**30:.2f}" for row in (peer, lion)
            ),
        }
    return grid(table)


def draw_models(read: Read, plt):
    """Tokens per second of the texts' models of 12 layers, LION and two with softmax attention."""
    found = {key[1:]: row for key, row in model_rows(read).items() if key[0] == "text"}
    lions = [[size for size, _, model in found if model == lion] for lion in ("LION", "LION-S")]
    ours = "LION" if lions[0] and max(lions[0]) == max(lions[1], default=0) else "LION-S"
    found = {key: row for key, row in found.items() if key[-1] in ("BERT", "ModernBERT", ours)}
    if not found:
        return None
    lengths = sorted({size for size, *_ in found})
    speed = {key: row["tokens"] / row["median"] for key, row in found.items()}
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4))
    for axis, (mode, title) in zip(axes, {"infer": "inference", "train": "training step"}.items(), strict=True):
        for model in in_order(name for *_, name in found):
            here = [n for n in lengths if (n, mode, model) in found]
            style = "o-" if model in LIONS else "s--"
            values = [speed[n, mode, model] for n in here]
            if here:
                axis.semilogx(here, values, style, color=COLORS[model], label=found[here[0], mode, model]["label"])
        panel(axis, title, "length in tokens", "tokens per second (one CPU thread)", lengths, "lower left")
        axis.set_ylim(bottom=0)
    times = [[speed.get((lengths[-1], mode, x)) for x in (ours, "BERT")] for mode in ("infer", "train")]
    if all(map(all, times)):
        gains = [f"{lion / bert:.1f}" for lion, bert in times]
        figure.suptitle(
            f"At {lengths[-1]:,} tokens, {ours} is {gains[0]} times as fast as BERT in inference and {gains[1]} times "
            "in training"
        )
    return figure


def memory_points(read: Read) -> dict[tuple[str, str, int], dict[int, int]]:
    """By series, mode and layers, the bytes by length; a length of 0 is the process that has made the model."""
    found = {}
    for row in sorted(read("memory"), key=lambda row: row["length"]):
        found.setdefault((row["series"], row["mode"], row["layers"]), {})[row["length"]] = row["peak_memory_bytes"]
    return found


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
    figure.suptitle("LION needs about as much memory as BERT with sdpa; both grow with the length (2 layers of 768)")
    return figure


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


def packing(read: Read) -> str:
    found = latest(read("packing"), "mixer", "batches")
    rows = {
        f"{mixer}, {batches}": {
            "padding": f"{100 * row['share_of_padding']:.0f} %",
            "real tokens per second": f"{row['tokens'] / row['median']:,.0f}",
            "times as fast as padded": f"{found[mixer, 'padded']['median'] / row['median']:.2f}",
        }
        for (mixer, batches), row in found.items()
    }
    return grid(rows)


def windows(read: Read) -> str:
    """`lion_local` beside sdpa: time, and memory of a call beyond the model."""
    found = latest(read("windows"), "model", "layers", "dtype", "mode", "length", "implementation")
    rows = defaultdict(dict)
    for (model, layers, dtype, mode, length, implementation), row in found.items():
        if implementation == "sdpa":
            continue
        sdpa = found[model, layers, dtype, mode, length, "sdpa"]
        what = {"infer": "inference", "train": "training step"}[mode]
        cell = f"{row['median'] / sdpa['median']:.2f}"
        if row["memory"] and sdpa["memory"]:
            cell += f" ({sdpa['memory'] / 2**30:.2f} → {row['memory'] / 2**30:.2f} GiB)"
        rows[f"ModernBERT-{model}, {layers} layers, {dtype}, {what}"][f"{length:,} tokens"] = cell
    return grid(rows)


def serve(read: Read) -> str:
    """Requests per second of the server, and of the same server with padded batches, by length."""
    rows = defaultdict(dict)
    for (tokens,), row in latest(read("serve"), "tokens").items():
        column = f"{tokens:,} tokens" if isinstance(tokens, int) else f"{tokens} tokens"
        for name, side in (("this server", "lion"), ("padded", "padded")):
            rate = row[f"{side}_per_second"]
            rows[name][column] = f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"
    return grid(rows)


def serve_load(read: Read) -> str:
    """Requests per second, times and memory of servers, by length."""
    rows = []
    for (tokens, server), row in latest(read("serve_load"), "tokens", "server").items():
        times = (
            f"{row['per_second']:.3g}",
            f"{row['p50']:.3g} s",
            f"{row['p95']:.3g} s",
            f"{row['memory_mb']:.0f} MB",
        )
        rows.append([f"{tokens}, {server}", *times])
    head = ["tokens, server", "requests per second", "p50", "p95", "peak memory"]
    return markdown_table(head, rows) if rows else ""


def piece_rows(read: Read) -> dict[tuple, tuple[dict, dict]]:
    """By group, dtype, length and model a row of bench_pieces.py, and that of the BERT that reads pieces."""
    found = latest(read("pieces"), "group", "dtype", "length", "model")
    readers = {"checkpoint": ENCODERS[0]}
    pairs = {key: (row, found[(*key[:3], readers.get(key[0], "BERT"))]) for key, row in found.items()}
    return {key: (row, peer) for key, (row, peer) in pairs.items() if row is not peer}


def ratios_to_pieces(read: Read) -> dict[tuple, str]:
    return {key: f"{row['median'] / peer['median']:.2f}" for key, (row, peer) in piece_rows(read).items()}


def pieces(read: Read) -> str:
    """A whole text ÷ a BERT that reads it in pieces, by length."""
    ratios, rows = ratios_to_pieces(read), defaultdict(dict)
    for (group, dtype, length, model), (row, peer) in piece_rows(read).items():
        name = f"{model} ÷ {peer['model']}" + ("" if group == "checkpoint" else f", {group}")
        cell = f"{ratios[group, dtype, length, model]} ({duration(row['median'])})"
        rows[f"{name}, {dtype}"][f"{length:,} tokens"] = cell
    return grid(rows)


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
            rows[f"{name}: {what} ÷ source"][column] = f"{row['median'] / source['median']:.2f}"
    return grid(rows)


def global_layers(read: Read) -> str:
    """What a small ModernBERT keeps with linear global layers: masked-LM loss, and marks that are far away."""
    found, rows = latest(read("global_layers"), "model", "length"), defaultdict(dict)
    for (model, length), row in found.items():
        rows[model][f"masked-LM loss, {length:,} tokens"] = f"{row['loss']:.3f}"
    for (model, length), row in found.items():
        rows[model][f"far marks right, {length:,}"] = f"{100 * row['right']:.0f} %"
    return grid(rows)


def branches(read: Read) -> str:
    """How near a distilled encoder is to its teacher with both branches and with each alone, on texts of a length."""
    names = {"both": "both branches", "window": "the window alone", "linear": "the linear sum alone"}
    columns = {"neighbour_overlap": "neighbours kept", "cosine": "cosine", "names_found": "names found"}
    found, table = latest(read("branches"), "encoder", "length", "branches"), defaultdict(dict)
    for (_, length, name), row in sorted(found.items(), key=lambda item: (item[0][1], list(names).index(item[0][2]))):
        cells = {title: f"{row[what]:.3f}" for what, title in columns.items()}
        table[f"{length:,} tokens, {names[name]}"] = cells | {"texts": str(row["texts"])}
    return grid(table)


def passage_rows(read: Read) -> dict[str, tuple[dict, list[dict]]]:
    """
    The rows of bench_passages.py by encoder and way to read, of trainings one for each seed: that of all queries, and
    those of ranges of places.
    """
    found = latest(read("passages"), "encoder", "reading", "steps", "seed", "training_dtype", "min_place", "max_place")
    by_name = defaultdict(list)
    for (encoder, reading, steps, seed, dtype, *_), row in found.items():
        trained = "" if steps is None else f", {steps} steps, seed {seed}"
        trained += ", float32" if dtype == "float32" else ""
        by_name[f"{encoder}, {reading}{trained}"].append(row)
    split = {}
    for name, rows in by_name.items():
        limits = min(row["min_place"] for row in rows), max(row["max_place"] for row in rows)
        (of_all,) = (row for row in rows if (row["min_place"], row["max_place"]) == limits)
        split[name] = of_all, [row for row in rows if row is not of_all]
    return split


def score_of_queries(row: dict, name: str) -> str:
    return f"{row[name]:.3f} ± {row[f'{name}_error']:.3f}"


def passages(read: Read) -> str:
    columns = {
        "with_names": "queries with the name",
        "without_names": "without the name",
        "documents_best_passage": "documents, best passage",
        "documents_one_vector": "documents, one vector",
    }
    table = {}
    for name, (row, _) in passage_rows(read).items():
        table[name] = {title: score_of_queries(row, column) for column, title in columns.items()}
        table[name]["time ÷ pieces"] = number(row["time_of_pieces"])
    return grid(table)


def passages_by_place(read: Read) -> str:
    table = defaultdict(dict)
    for name, (_, rows) in passage_rows(read).items():
        for row in sorted(rows, key=lambda row: row["min_place"]):
            column = f"{row['min_place']:,} to {row['max_place']:,} characters ({row['queries']})"
            table[name][column] = score_of_queries(row, "with_names")
    return grid(table)


def retrieval(read: Read) -> str:
    """Encoders as they come, on the most documents that were measured."""
    rows = [row for row in read("retrieval") if "trained" not in row["encoder"]]
    return retrieval_table([row for row in rows if row["candidates"] == max(x["candidates"] for x in rows)])


def retrieval_trained(read: Read) -> str:
    """Encoders that were trained on long documents, and the best of what they began with, on the same documents."""
    rows = read("retrieval")
    counts = [row["candidates"] for row in rows if "trained" in row["encoder"]]
    best = (("teacher", "256, best"), ("LION", "whole"))
    chosen = [row for row in rows if "trained" in row["encoder"] or (row["encoder"], row["method"]) in best]
    return retrieval_table([row for row in chosen if row["candidates"] in counts[-1:]])


def retrieval_table(rows: list[dict]) -> str:
    found = latest(rows, "encoder", "method", "min_tokens", "max_tokens")
    by_method = defaultdict(list)
    for (encoder, method, *_), row in found.items():
        by_method[f"{encoder}, {method}"].append(row)
    table = defaultdict(dict)
    for name, parts in by_method.items():
        for row in parts:
            column = f"nDCG@10, {row['min_tokens']:,}–{row['max_tokens']:,} tokens ({row['documents']})"
            table[name][column] = f"{row['ndcg']:.2f} ± {row['ndcg_error']:.2f}"
        count, seconds = (sum(row[column] for row in parts) for column in ("documents", "seconds"))
        table[name]["all"] = all_ranges(parts)
        table[name]["documents per second"] = f"{count / seconds:.2f}"
        table[name]["memory beyond the model, GiB"] = f"{max(row['memory_bytes'] for row in parts) / 2**30:.2f}"
    return grid(table)


def all_ranges(parts: list[dict]) -> str:
    """The mean over the documents of all ranges, and its standard error, from those of each range."""
    count = sum(row["documents"] for row in parts)
    mean = sum(row["documents"] * row["ndcg"] for row in parts) / count
    squares = 0.0
    for row in parts:
        n = row["documents"]
        squares += n * (row["ndcg"] - mean) ** 2 + (n * (n - 1) * row["ndcg_error"] ** 2 if n > 1 else 0)
    return f"{mean:.3f} ± {math.sqrt(squares / (count - 1) / count):.3f}"


# Trained further


def pack_bits(right: np.ndarray) -> str:
    """Yes or no for every test example, as one cell of a table, which is never read as a number."""
    return f"x{np.packbits(right).tobytes().hex()}"


def unpack_bits(cell: str, count: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(bytes.fromhex(cell[1:]), np.uint8), count=count)


def best_rate(rows: list[dict]) -> float:
    """The learning rate with which a model was best on the validation split, of the trainings of the first seed."""
    first = min(row["seed"] for row in rows)
    return best_trial([row for row in rows if row["seed"] == first])["learning_rate"]


def transfer_rows(read: Read) -> dict[str, dict[str, dict[int, dict]]]:
    """By task, and model with the stage that it is in, a row for each seed, with the best learning rate."""
    groups, rows = defaultdict(list), read("transfer")
    newest = latest(rows, "task", "model")
    rows = [row for row in rows if row["weights"] == newest[row["task"], row["model"]]["weights"]]
    for row in latest(rows, "task", "model", "learning_rate", "seed").values():
        groups[row["task"], row["model"], row["learning_rate"] > 0].append(row)
    found = defaultdict(dict)
    for (task, model, is_trained), rows in sorted(groups.items(), key=lambda item: item[0][2]):
        rate = best_rate(rows)
        of_seed = {row["seed"]: row for row in rows if row["learning_rate"] == rate}
        found[task][model if is_trained else f"{model}{BEFORE}"] = of_seed
    return found


def transfer(read: Read) -> str:
    tables = []
    for task, models in transfer_rows(read).items():
        rows = {}
        for model, of_seed in models.items():
            accuracies = [100 * row["test_accuracy"] for row in of_seed.values()]
            losses = [row["test_loss"] for row in of_seed.values()]
            rate = next(iter(of_seed.values()))["learning_rate"]
            rows[model] = {
                "test accuracy, %": mean_std(accuracies, 1),
                "standard error of one seed": f"{100 * of_seed[min(of_seed)]['accuracy_error']:.1f}",
                "points from the teacher": "",
                "test loss": mean_std(losses, 3),
                "÷ the teacher's": "",
                "learning rate": f"{rate:g}" if rate else "",
            }
            teacher = models.get(f"teacher{BEFORE}" if model.endswith(BEFORE) else "teacher", {})
            if not model.startswith("teacher") and of_seed.keys() <= teacher.keys():
                gain, error = difference(of_seed, teacher)
                rows[model]["points from the teacher"] = f"{gain:+.1f}" + (f" ± {error:.1f}" if error else "")
                ratios = [row["test_loss"] / teacher[seed]["test_loss"] for seed, row in of_seed.items()]
                rows[model]["÷ the teacher's"] = f"{statistics.mean(ratios):.3f}"
        tables.append(grid(rows, task))
    return "\n\n".join(tables)


def difference(ours: dict[int, dict], theirs: dict[int, dict]) -> tuple[float, float | None]:
    """
    Points of accuracy by which one model is ahead in the seeds of the first one, and the standard error of that over
    the test examples, of each of which the mean over the seeds is taken; `None` if single examples are not known.
    """
    points = [100 * (row["test_accuracy"] - theirs[seed]["test_accuracy"]) for seed, row in ours.items()]
    if any(row["right"] is None for row in ours.values()):
        return statistics.mean(points), None
    bits = lambda row: unpack_bits(row["right"], row["test_examples"]).astype(float)
    by_example = np.mean([bits(row) - bits(theirs[seed]) for seed, row in ours.items()], axis=0)
    return statistics.mean(points), 100 * float(by_example.std()) / math.sqrt(len(by_example))


# What mixers learn


def scores_of(
    read: Read, split: str, decays: str = "default", leave_out=NOT_COMPARED
) -> dict[str, dict[str, dict[int, float]]]:
    """
    By task, model and seed: masked-LM loss in nats, or accuracy in per cent. The first training of a case counts,
    since one was repeated on the docstrings of another day.
    """
    found = {}
    rows = read("quality", initial_decays=decays)
    rows = [row for row in rows if row["variant"] in IN_ONE_BACKBONE and row["model"] not in leave_out]
    for row in sorted(rows, key=lambda row: row["variant"] is None):
        task = row["task"]
        score = row["validation_loss"] if task == "mlm" else 100 * row[f"{split}_accuracy"]
        found.setdefault(task, {}).setdefault(row["model"], {}).setdefault(row["seed"], score)
    return found


def only_ablations(scores: pd.DataFrame) -> pd.DataFrame:
    """Without the rows of the table of mixers in one backbone, but for LION-S, from which the recipe starts."""
    return scores[~scores["variant"].isin(IN_ONE_BACKBONE) | scores["model"].eq("LION-S")]


def common_seeds(models: dict[str, dict[int, float]]) -> dict[str, list[float]]:
    """Scores of the seeds that all models have: some have more."""
    seeds = sorted(set.intersection(*map(set, models.values())))
    return {model: [of_seed[seed] for seed in seeds] for model, of_seed in models.items()}


def scores_beside_softmax(read: Read) -> dict[str, dict[str, list[float]]]:
    """By task and model, of the tasks that softmax attention has."""
    return {task: common_seeds(models) for task, models in scores_of(read, "test").items() if "softmax" in models}


def scores(read: Read) -> str:
    rows, cells = defaultdict(dict), []
    found = scores_beside_softmax(read)
    for model, (task, models) in product(COLORS, found.items()):
        if model in models:
            rows[model][score_name(task)] = score_cell(task, models[model])
            cells.append((task, models[model]))
        elif model == ROTARY and (rotary := scores_of(read, "test", leave_out=()).get(task, {}).get(ROTARY)):
            rows[model][score_name(task)] = score_cell(task, rotary.values())
            cells.append((task, rotary.values()))
    for row in (row for row in read("quality") if row["task"] in found):
        chance = "" if row["chance"] is None else f"{100 * row['chance']:.1f}"
        rows["most frequent class"][score_name(row["task"])] = chance
    return f"{grid(rows)}\n\n{about_cells(cells)}." if rows else ""


def step_seconds(read: Read) -> dict[tuple[str, str], float]:
    """Of a training step, by task and model."""
    return {key: row["train_median"] for key, row in latest(read("quality_speed"), "task", "model").items()}


def step_times(read: Read) -> str:
    found, rows, peaks = latest(read("quality_speed"), "task", "model"), defaultdict(dict), defaultdict(list)
    for model, (task, name) in product(COLORS, found):
        if model == name and (task, "softmax") in found:
            row, softmax = found[task, model], found[task, "softmax"]
            ratios = [row[f"{mode}_median"] / softmax[f"{mode}_median"] for mode in ("train", "infer")]
            rows[model][task] = " / ".join(f"{x:.2f}" for x in ratios)
    for row in read("quality_speed"):
        if row["peak_memory_bytes"] is not None:  # where only the time was measured again
            peaks[row["task"]].append(row["peak_memory_bytes"])
    spread = max((max(x) / min(x) for x in peaks.values()), default=1) - 1
    note = (
        f"Peak memory of the process at four times the length differs by at most {100 * spread:.0f} % within a task."
    )
    table = grid(rows, "training step / inference at 4 × length, time ÷ softmax")
    return table and f"{table}\n\n{note}"


def snake(read: Read) -> str:
    digits, rows = scores_of(read, "test").get("digits", {}), {}
    steps = {row["model"]: row["train_median"] for row in read("quality_speed", task="digits")}
    for name, curve in (("LION-D", "LION-D♮"), ("LION-S", "LION-S♮")):
        pair = common_seeds({x: digits.get(x, {}) for x in (name, curve)})
        if len(pair[name]) > 1 and {name, curve} <= steps.keys():
            gains = [b - a for a, b in zip(pair[name], pair[curve], strict=True)]
            error = statistics.stdev(gains) / math.sqrt(len(gains))
            rows[name] = {
                "raster order, test %": f"{statistics.mean(pair[name]):.1f}",
                "snake, test %": f"{statistics.mean(pair[curve]):.1f}",
                "difference ± standard error": f"{statistics.mean(gains):.1f} ± {error:.1f}",
                "seeds": str(len(gains)),
                "time of a step ÷ raster": f"{steps[curve] / steps[name]:.2f}",
            }
    return grid(rows)


def initial_decays(read: Read) -> str:
    names = dict.fromkeys(row["initial_decays"] for row in read("quality"))
    found, rows = {name: scores_of(read, "validation", name) for name in names}, defaultdict(dict)
    trained = found[list(found)[-1]] if len(found) > 1 else {}
    for task, model in ((task, model) for task, models in trained.items() for model in models):
        of_name = common_seeds({name: of_task.get(task, {}).get(model, {}) for name, of_task in found.items()})
        for name, values in of_name.items():
            row = "half a token to the context (the default)" if name == "default" else name
            if values:
                column = f"{score_name(task, 'validation')}: {model}"
                rows[row][column] = score_cell(task, values)
    return grid(rows, "half-lives")


def lives_of(read: Read) -> dict[str, dict[str, list[dict]]]:
    """By task and "before" or "after", a row for each head of one LION-S."""
    rows = latest(read("half_lives"), "task", "when", "layer", "head", "seed").values()
    seeds = {task: min(row["seed"] for row in rows if row["task"] == task) for task in {row["task"] for row in rows}}
    found = {}
    for row in rows:
        if row["seed"] == seeds[row["task"]]:
            found.setdefault(row["task"], {}).setdefault(row["when"], []).append(row)
    return found


def octaves(heads: list[dict]) -> float:
    return statistics.median(math.log2(head["q95"] / head["q05"]) for head in heads)


def half_lives(read: Read) -> str:
    rows = defaultdict(dict)
    for task, of_when in lives_of(read).items():
        for when, heads in of_when.items():
            low, high = min(head["q05"] for head in heads), max(head["q95"] for head in heads)
            middle = statistics.median(head["q50"] for head in heads)
            rows[task][f"{when} training: median (5 % to 95 %)"] = f"{middle:.1f} ({low:.1f} to {high:.0f})"
        pairs = zip(of_when["before"], of_when["after"], strict=True)
        moved = statistics.mean(abs(math.log2(after["q50"] / before["q50"])) for before, after in pairs)
        rows[task]["octaves between tokens of a head"] = " → ".join(f"{octaves(x):.2f}" for x in of_when.values())
        rows[task]["octaves by which the median of a head moved"] = f"{moved:.2f}"
    return grid(rows, "half-life in tokens")


def draw_scores(read: Read, plt):
    times = step_seconds(read)
    found = {task: models for task, models in scores_beside_softmax(read).items() if (task, "softmax") in times}
    if not found:
        return None
    figure, axes = plt.subplots(1, len(found), figsize=(3.1 * len(found), 3.9), squeeze=False)
    handles, outcomes = {}, {"ahead": [], "level": [], "behind": []}
    for axis, (task, models) in zip(axes[0], found.items(), strict=True):
        means = {name: statistics.mean(values) for name, values in models.items() if values}
        for name in in_order(name for name in means if (task, name) in times):
            spread = statistics.stdev(models[name]) if len(models[name]) > 1 else 0
            time = times[task, name] / times[task, "softmax"]
            handles[name] = axis.errorbar(time, means[name], spread, fmt="o", color=COLORS[name], elinewidth=1)
        unit = "masked-LM loss, nats (axis reversed)" if task == "mlm" else "test accuracy, %"
        axis.set_xscale("log")
        panel(axis, task, "time of a training step ÷ softmax", unit, [1, 2, 4, 8])
        if task == "mlm":
            axis.invert_yaxis()
        if len(ours := models.get("LION-S", [])) > 1:
            gain = (means["LION-S"] - means["softmax"]) * (-1 if task == "mlm" else 1)
            error = math.sqrt(sum(statistics.variance(x) for x in (ours, models["softmax"])) / len(ours))
            word = "ahead" if gain > 2 * error else "behind" if gain < -2 * error else "level"
            outcomes[word].append(task)
    handles = {name: handles[name] for name in in_order(handles)}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles))
    told = "; ".join(f"{word} on {', '.join(tasks)}" for word, tasks in outcomes.items() if tasks)
    figure.suptitle(f"LION-S against softmax attention: {told}. Up is better, left is faster")
    return figure


def published(read: Read) -> str:
    rows = read("published")
    return grid({row.pop("model"): {name: "" if x is None else str(x) for name, x in row.items()} for row in rows})


def machines(read: Read) -> str:
    found = {}
    for name in MEASURED:
        for row in read(name):
            about = f"{row['cpu']} ({row['capability']}), Python {row['python']}, torch {row['torch']}"
            found.setdefault(f"{about}, transformers {row['transformers']}, {row['day']}", {})[name] = None
    return "\n".join(f"- {about}: {', '.join(names)}" for about, names in found.items())


BLOCKS: dict[str, Callable[[Read], str]] = {
    "machines": machines,
    "kernels": kernels,
    "kernels with two threads": lambda read: kernels(read, threads=2),
    "kernels with AVX2": lambda read: kernels(read, with_avx2_only=True),
    "kernels in bfloat16": lambda read: kernels(read, table="kernels_bfloat16"),
    "models": models,
    "models in bfloat16": lambda read: models(read, "models_bfloat16", ("infer",)),
    "hybrid": hybrid,
    "encoder": encoder,
    "documents": lambda read: documents(read("deploy")),
    "exact windows": lambda read: exact_windows(read("deploy")),
    "precision": lambda read: losses(read("precision")),
    "memory": memory,
    "million": million,
    "packing": packing,
    "windows": windows,
    "serve": serve,
    "serve load": serve_load,
    "pieces": pieces,
    "linearize": linearized,
    "global layers": global_layers,
    "branches": branches,
    "retrieval": retrieval,
    "retrieval, trained": retrieval_trained,
    "passages": passages,
    "passages by place": passages_by_place,
    "transfer": transfer,
    "trials": lambda read: trials(),
    "searches finished": lambda read: finished(read("search")),
    "search": lambda read: search(read("search"), read("search_speed")),
    "length": lambda read: by_length(read("length")),
    "tasks": lambda read: task_settings(read("quality", model="softmax") + read("quality")),
    "scores": scores,
    "hybrids": lambda read: layer_patterns(load_scores(read("hybrids"))),
    "ablations": lambda read: ablations(only_ablations(load_scores(read("quality")))),
    "step times": step_times,
    "snake": snake,
    "half-lives": half_lives,
    "initial decays": initial_decays,
    "published": published,
}
UNMEASURED = ("trials", "published")  # blocks that need no run
PICTURES = {
    "kernels_by_length": draw_kernels,
    "models_by_length": draw_models,
    "documents_by_length": lambda read, plt: draw_documents(read("deploy"), plt),
    "memory_by_length": draw_memory,
    "accuracy_by_length": lambda read, plt: draw_length(read("length"), plt),
    "scores_by_time": draw_scores,
    "scores_by_training_time": lambda read, plt: draw_learning(load_scores(read("quality")), step_seconds(read), plt),
}


def fill(page: str, texts: dict[str, str]) -> str:
    """
    The page with other texts between its markers.

    Raises:
        ValueError: if a marker has no end, no text, or a name that another one has.
    """
    parts = re.split(r"(<!-- begin: (?:.*?) -->\n)(.*?)(<!-- end -->)", page, flags=re.DOTALL)
    names = marker_names(page)
    if len(parts) != 4 * len(names) + 1 or not texts.keys() >= set(names) or len(set(names)) < len(names):
        raise ValueError(f"The page has markers for {names}; possible are, once each and with an end, {list(texts)}.")
    parts[2::4] = [f"\n{texts[name].strip() or 'Not measured.'}\n\n" for name in names]
    return "".join(parts)


def only_measured(page: str, texts: dict[str, str], drawn: set[str]) -> str:
    """The tables and pictures of a page that were made, under its headings, without its text; "" if none was."""
    page = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    title, *sections = re.split(r"^(?=#)", page, flags=re.MULTILINE)[1:]
    kept = []
    for section in (title, *sections):
        heading, _, body = section.partition("\n")
        found = re.findall(r"<!-- begin: (.*?) -->|^(!\[.*\]\(\.\./images/(.*?)\.png\))$", body, flags=re.MULTILINE)
        made = [texts.get(name, "").strip() or picture * (file in drawn) for name, picture, file in found]
        if made := [text.replace("../images/", "images/") for text in made if text]:
            kept += [heading] * (section is not title) + made
    return "\n\n".join([title.partition("\n")[0], *kept]) + "\n" if kept else ""


def marker_names(page: str) -> list[str]:
    return re.findall(r"<!-- begin: (.*?) -->", page)


def reader(results_dir: Path, scale: str = "cpu") -> Read:
    """What reads the tables of a folder; those that were published are always the repository's."""

    def read(name: str, **values) -> list[dict]:
        folder = RESULTS if name == "published" else results_dir
        of_scale = {"scale": scale} if name in OF_SCALE else {}
        return read_rows(folder / f"{name}.csv", **of_scale, **values)

    return read


def write_pages(results_dir: Path, scale: str = "cpu") -> list[Path]:
    """
    Write the pages and their pictures: in docs/ from the repository's own tables, else beside the tables, and then
    only what these have measured.
    """
    is_ours, read = results_dir.resolve() == RESULTS.resolve(), reader(results_dir, scale)
    sys.path.insert(0, str(ROOT / "examples"))
    from pictures import plt, save

    images = (DOCS if is_ours else results_dir) / "images"
    images.mkdir(parents=True, exist_ok=True)
    figures = {name: figure for name, draw in PICTURES.items() if (figure := draw(read, plt))}
    for name, figure in figures.items():
        save(figure, images / f"{name}.png")
    texts = {name: block(read) for name, block in BLOCKS.items() if is_ours or name not in UNMEASURED}
    written = []
    for source in PAGES:
        page, path = source.read_text(encoding="utf-8"), source if is_ours else results_dir / source.name
        if page := fill(page, texts) if is_ours else only_measured(page, texts, set(figures)):
            path.write_text(page, encoding="utf-8")
            written.append(path)
    print(f"Tables and pictures: {', '.join(map(str, written)) or 'none yet'}")
    return written


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results_dir", type=Path, default=RESULTS)
    parser.add_argument("--scale", default="cpu", help="scale of the trainings: cpu or gpu")
    args = parser.parse_args(args)
    write_pages(args.results_dir, args.scale)


if __name__ == "__main__":
    main()
