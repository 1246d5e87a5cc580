# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Draw a model for demo.py and lion.ipynb: its losses by length, decay masks, attention of a masked token."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import LogNorm
from training_lion.scripts.pictures import BLUE, GREY, ORANGE, save
from transformers import AutoModel, AutoTokenizer


def draw_losses(path: Path, log: list[dict], unigram_loss: float, losses_by_length: dict[int, float]) -> str:
    """
    Draw, on the left, the losses of a masked language model by step, from `trainer.state.log_history`; on the right
    its loss on the same tokens in windows of several lengths, of which the first is the length of the training.
    """
    figure, (by_step, by_length) = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True)
    for name, label, style, alpha in (("loss", "training", "-", 0.4), ("eval_loss", "held out", "o-", 1)):
        points = [(entry["step"], entry[name]) for entry in log if name in entry]
        by_step.plot(*zip(*points, strict=True), style, color=BLUE, alpha=alpha, label=f"LION, {label}")
    lengths, losses = list(losses_by_length), list(losses_by_length.values())
    by_length.semilogx(lengths, losses, "o-", color=BLUE, label="LION, held out")
    by_length.axvline(lengths[0], color=GREY, linestyle=":", label="length in training")
    by_length.set_xticks(lengths, [f"{n:,}" for n in lengths])
    by_length.minorticks_off()
    held_out = [entry["eval_loss"] for entry in log if "eval_loss" in entry][-1]
    by_step.set(
        title=f"Held-out loss {held_out:.2f}; word frequencies alone give {unigram_loss:.2f}",
        xlabel="training step",
        ylabel="masked tokens, cross-entropy (nats)",
    )
    by_length.set(
        title=f"{lengths[-1] // lengths[0]} × longer than in training: loss {losses[-1] - losses[0]:+.2f}".replace(
            "-", "−"
        ),
        xlabel="tokens read at once",
    )
    for axis in (by_step, by_length):
        axis.axhline(unigram_loss, color=GREY, linestyle="--", label="word frequencies (unigram)")
        axis.grid(alpha=0.25)
        axis.legend()
    return save(figure, path)


def read(model_dir: str, text: str) -> tuple[list[str], torch.Tensor, torch.Tensor]:
    """Return a text's tokens, decay masks M and attention weights, both `(layers, heads, length, length)`."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    inputs = tokenizer(text, return_tensors="pt")
    tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    model = AutoModel.from_pretrained(model_dir, add_pooling_layer=False).eval()
    reports = model.attention_report(list(range(len(tokens))), **inputs)
    return tokens, *(torch.cat([getattr(report, name) for report in reports]) for name in ("mask", "attention"))


def draw_decay_masks(path: Path, model_dir: str, text: str) -> str:
    """Draw the masks M of a sentence in the first and the last layer, one per head."""
    tokens, masks, _ = read(model_dir, text)
    reach = masks.sum(-1).median(-1).values  # (layers, heads)
    layers = (0, len(masks) - 1)
    heads = masks.shape[1]
    figure, axes = plt.subplots(
        len(layers), heads, figsize=(2.35 * heads + 1.2, 2.62 * len(layers) + 0.9), squeeze=False
    )
    for row, layer in zip(axes, layers, strict=True):
        for head, axis in enumerate(row):
            image = axis.imshow(masks[layer, head].clamp(min=1e-3), norm=LogNorm(1e-3, 1), cmap="Blues")
            axis.set_title(f"layer {layer + 1}, head {head + 1}: {reach[layer, head]:.1f} tokens")
            axis.set_xticks(range(len(tokens)), tokens if layer == layers[-1] else [], rotation=90, fontsize=8)
            axis.set_yticks(range(len(tokens)), tokens if head == 0 else [], fontsize=8)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
        row[0].set_ylabel("token that reads")
    for axis in axes[-1]:
        axis.set_xlabel("token that is read")
    shown = reach[list(layers)]
    figure.suptitle(
        f"Heads of LION share the work: the shortest reads {shown.min():.1f} tokens, the longest {shown.max():.1f} "
        f"of {len(tokens)} (medians)",
        fontsize=12,
    )
    bar = figure.colorbar(image, ax=axes, extend="min", pad=0.01, aspect=30, format="%g")
    bar.set_label("decay mask M: what is left of a token (logarithmic)")
    return save(figure, path)


def draw_attention_rows(path: Path, model_dir: str, text: str) -> str:
    """Draw where a masked token looks, by layer (the mean over its heads)."""
    tokens, _, weights = read(model_dir, text)
    masked = tokens.index("[MASK]")
    rows = weights[:, :, masked].mean(1)
    near = rows[:, max(0, masked - 2) : masked + 3].sum(1).mean()
    figure, axis = plt.subplots(figsize=(10, 2.9))
    image = axis.imshow(rows, cmap="Blues", vmin=0, aspect="auto")
    axis.add_patch(plt.Rectangle((masked - 0.5, -0.5), 1, len(rows), fill=False, edgecolor=ORANGE, linewidth=2))
    axis.set_yticks(range(len(rows)), [f"layer {i + 1}" for i in range(len(rows))])
    axis.set_xticks(range(len(tokens)), tokens, rotation=60, ha="right", rotation_mode="anchor")
    axis.set_xlabel("token that is read")
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_title(f"[MASK] gives {near:.0%} of its attention to itself and the two tokens on each side")
    figure.colorbar(image, ax=axis, pad=0.01).set_label("attention weight")
    return save(figure, path)
