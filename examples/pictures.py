# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The pictures of the demo: loss curves, digits, decay masks, attention."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import LogNorm
from PIL import Image
from transformers import AutoModelForMaskedLM, AutoTokenizer

from modeling_lion.decay_mask import decay_mask, step_decays


BLUE, ORANGE, GREY, GREEN, RED = "#2563a8", "#e07b28", "#8a8f98", "#2f8f4e", "#c43c3c"
plt.switch_backend("agg")  # needs no screen
plt.rcParams.update(
    {
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.dpi": 110,
        "figure.constrained_layout.use": True,
        "savefig.bbox": "tight",
        "legend.frameon": False,
    }
)


def save(figure, path: Path) -> str:
    figure.savefig(path)
    plt.close(figure)
    return str(path)


def draw_loss_curves(path: Path, mlm_log: list[dict], unigram_loss: float, digits_log: list[dict]) -> str:
    """Losses of both trainings by step, from `trainer.state.log_history`."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8))
    for axis, log in zip(axes, (mlm_log, digits_log), strict=True):
        for name, label, color, style in (("loss", "training", BLUE, "-"), ("eval_loss", "held out", ORANGE, "o-")):
            points = [(entry["step"], entry[name]) for entry in log if name in entry]
            axis.plot(*zip(*points, strict=True), style, color=color, label=label, markersize=4, linewidth=1.8)
        axis.set_xlabel("training step")
        axis.set_ylabel("cross-entropy (nats)")
        axis.grid(alpha=0.25)
    axes[0].axhline(unigram_loss, color=GREY, linestyle="--", linewidth=1.5, label="unigram baseline")
    axes[0].set_title("Masked language modeling on Python docstrings")
    axes[1].set_title("Handwritten digits")
    axes[1].set_ylim(bottom=0)
    for axis in axes:
        axis.legend()
    return save(figure, path)


def draw_losses_by_length(path: Path, losses: dict[int, float]) -> str:
    """Loss on the same tokens in windows of several lengths; the first is that of the training."""
    figure, axis = plt.subplots(figsize=(5.5, 3.4))
    lengths = list(losses)
    axis.semilogx(lengths, list(losses.values()), "o-", color=BLUE)
    axis.axvline(lengths[0], color=GREY, linestyle="--", label="length in training")
    axis.set_xticks(lengths, [f"{n:,}" for n in lengths])
    axis.minorticks_off()
    axis.set_ylim(min(losses.values()) - 0.3, max(losses.values()) + 0.3)
    axis.set(xlabel="tokens read at once", ylabel="cross-entropy (nats)", title="Masked language modeling, held out")
    axis.grid(alpha=0.25)
    axis.legend()
    return save(figure, path)


def draw_log(path: Path, log: list[dict]) -> str:
    """Loss and learning rate of a training by step, from `trainer.state.log_history`."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
    lines = (
        (axes[0], "loss", "training", BLUE, "-"),
        (axes[0], "eval_loss", "held out", ORANGE, "o-"),
        (axes[1], "learning_rate", None, BLUE, "-"),
    )
    for axis, name, label, color, style in lines:
        points = [(entry["step"], entry[name]) for entry in log if name in entry]
        if points:
            axis.plot(*zip(*points, strict=True), style, color=color, label=label, markersize=4, linewidth=1.8)
    for axis, name in zip(axes, ("loss", "learning rate"), strict=True):
        axis.set_xlabel("training step")
        axis.set_ylabel(name)
        axis.grid(alpha=0.25)
    if axes[0].lines:
        axes[0].legend()
    return save(figure, path)


def draw_digits(path: Path, predictions: list[dict], accuracy: float) -> str:
    """Held-out digits with the answer of the pipeline, green where it is right: `file`, `truth`, `answer`, `score`."""
    columns = 8
    rows = -(-len(predictions) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(1.25 * columns, 1.55 * rows))
    for axis in axes.flat:
        axis.axis("off")
    for axis, row in zip(axes.flat, predictions, strict=False):
        is_right = row["answer"] == row["truth"]
        axis.imshow(Image.open(row["file"]), cmap="gray_r", vmin=0, vmax=255)
        title = f"{row['answer']}  {row['score']:.0%}" + ("" if is_right else f", is {row['truth']}")
        axis.set_title(title, color=GREEN if is_right else RED, fontsize=9)
    figure.suptitle(f"Held-out digits: answer and confidence (accuracy on all {accuracy:.1%})", fontsize=12)
    return save(figure, path)


def words(tokenizer, input_ids: torch.Tensor) -> list[str]:
    return tokenizer.convert_ids_to_tokens(input_ids.tolist())


@torch.no_grad()
def sentence_masks(model_dir: str, text: str) -> tuple[list[str], torch.Tensor, torch.Tensor]:
    """Tokens, decays λ `(layers, heads, length)` and masks M `(layers, heads, length, length)` of a text."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForMaskedLM.from_pretrained(model_dir).eval()
    log_decays = []
    hooks = [
        layer.attention.mixer.register_forward_hook(lambda module, args, output: log_decays.append(output[3]))
        for layer in model.lion.layers
    ]
    inputs = tokenizer(text, return_tensors="pt")
    model(**inputs)
    for hook in hooks:
        hook.remove()
    log_decay = torch.cat(log_decays)
    like = log_decay.new_empty(*log_decay.shape, 1)
    return words(tokenizer, inputs["input_ids"][0]), log_decay.exp(), decay_mask(*step_decays(log_decay, like))


def draw_decay_masks(path: Path, model_dir: str, text: str) -> str:
    """The masks M of a sentence in the first and the last layer, one per head."""
    tokens, decay, masks = sentence_masks(model_dir, text)
    layers = (0, len(masks) - 1)
    heads = masks.shape[1]
    figure, axes = plt.subplots(len(layers), heads, figsize=(2.35 * heads + 1.2, 3.45 * len(layers)), squeeze=False)
    for row, layer in zip(axes, layers, strict=True):
        for head, axis in enumerate(row):
            image = axis.imshow(masks[layer, head].clamp(min=1e-3), norm=LogNorm(1e-3, 1), cmap="magma")
            axis.set_title(f"layer {layer + 1}, head {head + 1}\nmedian λ = {decay[layer, head].median():.2f}")
            axis.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=7)
            axis.set_yticks(range(len(tokens)), tokens if head == 0 else [], fontsize=7)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
        row[0].set_ylabel("query (reads)")
    for axis in axes[-1]:
        axis.set_xlabel("key (is read)")
    figure.suptitle("Learnt decay masks of LION-S: how much of each token reaches each other", fontsize=12)
    bar = figure.colorbar(image, ax=axes, extend="min", pad=0.01, aspect=30)
    bar.set_label("M (logarithmic)")
    return save(figure, path)


@torch.no_grad()
def draw_attention_rows(path: Path, model_dir: str, text: str, num_rows: int = 3) -> str:
    """Attention weights of some tokens of a masked sentence over the whole of it, by layer, heads averaged."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForMaskedLM.from_pretrained(model_dir, attn_implementation="eager").eval()
    inputs = tokenizer(text, return_tensors="pt")
    weights = torch.cat(model(**inputs, output_attentions=True).attentions).mean(dim=1)  # (layers, length, length)
    tokens = words(tokenizer, inputs["input_ids"][0])
    length = len(tokens)
    masked = tokens.index(tokenizer.mask_token)
    chosen = sorted({masked, *(round(length * i / num_rows) for i in range(1, num_rows))})[:num_rows]
    figure, axes = plt.subplots(len(chosen), 1, figsize=(10, 1.75 * len(chosen) + 1), sharex=True)
    for axis, query in zip(axes, chosen, strict=True):
        rows = weights[:, query]
        image = axis.imshow(rows, cmap="Blues", vmin=0, vmax=float(weights[:, chosen].max()), aspect="auto")
        axis.add_patch(plt.Rectangle((query - 0.5, -0.5), 1, len(rows), fill=False, edgecolor=ORANGE, linewidth=2))
        axis.set_yticks(range(len(rows)), [f"layer {i + 1}" for i in range(len(rows))], fontsize=8)
        axis.set_title(f"“{tokens[query]}” reads", loc="left", color=ORANGE)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
    axes[-1].set_xticks(range(length), tokens, rotation=60, ha="right", rotation_mode="anchor", fontsize=9)
    axes[-1].set_xlabel("token that is read")
    figure.suptitle("Attention rows of LION-S (normalised weights, mean over heads)", fontsize=12)
    figure.colorbar(image, ax=axes, pad=0.01, aspect=30).set_label("weight")
    return save(figure, path)
