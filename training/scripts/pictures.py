# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Draw the losses of trainings, in the style of all pictures of the scripts."""

from pathlib import Path

import matplotlib.pyplot as plt


BLUE, ORANGE, GREY = "#101c70", "#e07b28", "#8a8f98"  # blue is LION's in the pictures of the benchmarks, too
plt.switch_backend("agg")  # needs no screen
plt.rcParams.update(
    {
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "pdf.fonttype": 42,  # text of a PDF is text
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


def draw_log(path: Path, log: list[dict]) -> str:
    """Draw loss and learning rate of a training by step, from `trainer.state.log_history`."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
    lines = (
        (axes[0], "loss", "training", BLUE, "-"),
        (axes[0], "eval_loss", "held out", ORANGE, "o-"),
        (axes[1], "learning_rate", None, BLUE, "-"),
    )
    for axis, name, label, color, style in lines:
        points = [(entry["step"], entry[name]) for entry in log if name in entry]
        if points:
            style = style if len(points) > 1 else "o"  # a line needs two
            axis.plot(*zip(*points, strict=True), style, color=color, label=label, markersize=4, linewidth=1.8)
    for axis, name in zip(axes, ("loss", "learning rate"), strict=True):
        axis.set_xlabel("training step")
        axis.set_ylabel(name)
        axis.grid(alpha=0.25)
    if axes[0].lines:
        axes[0].legend()
    return save(figure, path)
