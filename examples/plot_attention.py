# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Draw what a saved LION looks at in a text of any length: how far each head sees, and attention rows of some tokens.

    pip install ".[train]"
    python examples/plot_attention.py --model my-lion --text_file article.txt --tokens 10 200 --output_dir pictures

Memory grows with the length, not with its square: no attention matrix is made.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import LogNorm
from training_lion.scripts.pictures import GREY, ORANGE, save
from transformers import AutoModel, AutoTokenizer

from modeling_lion import AttentionReport


LABELLED_TOKENS = 60  # more than these do not fit below a picture


def label_tokens(axis, names: list[str]) -> None:
    if len(names) <= LABELLED_TOKENS:
        axis.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
    else:
        axis.set_xlabel("position of the token")


def draw_heads(axis, rows: torch.Tensor, layers: list[int], norm: LogNorm):
    """Draw `rows`, `(layers * heads, length)`, as an image with the numbers of the layers beside it."""
    image = axis.imshow(
        rows.clamp(min=norm.vmin).numpy(), norm=norm, cmap="Blues", aspect="auto", interpolation="none"
    )
    heads = len(rows) // len(layers)
    axis.set_yticks([heads * (i + 0.5) - 0.5 for i in range(len(layers))], layers)
    for i in range(1, len(layers)):
        axis.axhline(heads * i - 0.5, color=GREY, linewidth=0.8)
    axis.set_ylabel("layer, its heads")
    return image


def draw_receptive_fields(path: Path, reports: dict[int, AttentionReport], names: list[str]) -> str:
    """Draw how many tokens reach each token, by layer and head. `reports`: linear layers by number, from 1 on."""
    fields = torch.cat([report.receptive_field[0] for report in reports.values()])
    figure, axis = plt.subplots(figsize=(10, 0.2 * len(fields) + 1.4))
    image = draw_heads(axis, fields, list(reports), LogNorm(1, len(names)))
    label_tokens(axis, names)
    medians = fields.median(-1).values
    axis.set_title(
        f"Heads see from {medians.min():.1f} to {medians.max():,.0f} of {len(names):,} tokens (medians over the text)"
    )
    figure.colorbar(image, ax=axis, pad=0.01, format="%g").set_label("tokens that reach it,\nweighted by decays")
    return save(figure, path)


def draw_rows(path: Path, reports: dict[int, AttentionReport], names: list[str], tokens: list[int]) -> str:
    """Draw the attention weights of the chosen tokens over the whole text, by layer and head."""
    figure, axes = plt.subplots(len(tokens), 1, figsize=(10, 2.3 * len(tokens) + 1), sharex=True, squeeze=False)
    for n, (axis, token) in enumerate(zip(axes[:, 0], tokens, strict=True)):
        rows = torch.cat([report.attention[0, :, n] for report in reports.values()]).abs()
        image = draw_heads(axis, rows, list(reports), LogNorm(1e-3 / len(names), 1))
        axis.axvline(token, color=ORANGE, linewidth=1, linestyle=":")
        axis.set_title(f"token {token}, “{names[token]}”, reads", loc="left", color=ORANGE)
    label_tokens(axes[-1, 0], names)
    figure.colorbar(image, ax=axes, extend="min", pad=0.01, aspect=30).set_label("attention weight (logarithmic)")
    return save(figure, path)


def main(args: list[str] | None = None) -> dict[int, AttentionReport]:
    """Run with these arguments, or those of the command line; returns the reports of linear layers, by number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or Hub name of a saved LION for text")
    parser.add_argument("--text_file", required=True, help="the text to read")
    parser.add_argument("--tokens", type=int, nargs="+", default=[0], help="positions of the tokens to draw rows of")
    parser.add_argument("--output_dir", required=True, help="folder for the pictures")
    options = parser.parse_args(args)

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModel.from_pretrained(options.model).eval()
    text = Path(options.text_file).read_text(encoding="utf-8")
    inputs = tokenizer(text, return_tensors="pt", verbose=False)
    reports = enumerate(model.attention_report(options.tokens, **inputs), 1)
    reports = {layer: report for layer, report in reports if report is not None}  # softmax has none
    names = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    folder = Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    print(draw_receptive_fields(folder / "receptive_fields.png", reports, names))
    print(draw_rows(folder / "attention_rows.png", reports, names, options.tokens))
    return reports


if __name__ == "__main__":
    main()
