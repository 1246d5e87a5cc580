# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables and a picture of `bench_models.py`: training steps and inference of whole models."""

from collections import defaultdict
from itertools import product

from reports.cells import duration, footnote, grid, in_order, medians, number, panel
from reports.names import BASE, BASE_LAYERS, COLORS, LIONS
from reports.registry import Read, picture, table


def model_rows(read: Read, source: str = "models") -> dict[tuple, dict]:
    """
    A row for each modality, size, mode and model, with a `label` and a `ratio`: its time ÷ that of BERT or ViT on the
    same day. Days are not equally fast: `median` is this ratio times BERT's time on the day on which most models ran.
    """
    days, found = defaultdict(dict), {}
    for row in read(source):
        is_other = row["modality"] == "document"
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


@table("models", csv="models", shown=r"^\| (?!LION-(LIT|D),)")
@table(
    "models in bfloat16", csv="models_bfloat16", source="models_bfloat16", modes=("infer",), shown=r"\| (BERT|LION),"
)
def models(read: Read, source: str = "models", modes: tuple[str, ...] = ("train", "infer")) -> str:
    """Seconds of BERT and ViT, for others the time ÷ theirs, of a training step and of inference."""
    found, cells = model_rows(read, source), defaultdict(dict)
    for model, (modality, size, _, name) in product(COLORS, found):
        rows = [found.get((modality, size, mode, model)) for mode in modes]
        if model == name:
            is_peer = model in ("BERT", "ViT")
            texts = [duration(x["median"]) if x and is_peer else number(x and x["ratio"]) for x in rows]
            column = f"{modality}, {f'{size}²' if modality == 'image' else f'{size:,}'}"
            cells[next(x for x in rows if x)["label"]][column] = " / ".join(texts)
    return grid(cells)


@picture("models_by_length")
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
        panel(axis, title, "length in tokens", "tokens per second", lengths, "lower left")
        axis.set_ylim(bottom=0)
    times = [[speed.get((lengths[-1], mode, x)) for x in (ours, "BERT")] for mode in ("infer", "train")]
    if all(map(all, times)):
        gains = [f"{lion / bert:.1f}" for lion, bert in times]
        figure.suptitle(
            f"At {lengths[-1]:,} tokens, {ours} is {gains[0]} times as fast as BERT in inference and {gains[1]} times "
            "in training"
        )
    rows = list(found.values())
    text = f"float32, {medians(rows, 'size')}; all but BERT: its time × their ratio in one run"
    footnote(figure, rows, text)
    return figure
