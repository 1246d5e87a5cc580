# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The picture of docs/concepts/layer-types.md: who reads whom in layers of each type.

    python benchmarks/draw_layer_types.py
"""

from pathlib import Path

import matplotlib


matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModel  # noqa: E402

from modeling_lion import LionConfig  # noqa: E402


IMAGE = Path(__file__).parents[1] / "docs" / "images" / "layer_types.png"


@torch.no_grad()
def draw() -> plt.Figure:
    """Attention weights of a new model, a panel for each type of layers."""
    torch.manual_seed(0)
    panels = {
        "linear_attention, forward head": (0, 0),
        "linear_attention, backward head": (0, 1),
        "sliding_attention, 6 tokens on each side": (1, 0),
        "full_attention": (2, 0),
    }
    config = LionConfig(
        layer_types=["linear_attention", "sliding_attention", "full_attention"],
        sliding_window=6,
        **{"num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 64},
        **{"vocab_size": 50, "max_position_embeddings": 48},
    )
    model = AutoModel.from_config(config, attn_implementation="eager").eval()
    weights = model(torch.arange(1, 49).unsqueeze(0), output_attentions=True).attentions
    figure, axes = plt.subplots(1, len(panels), figsize=(14, 4.6), layout="constrained")
    for axis, (title, (layer, head)) in zip(axes, panels.items(), strict=True):
        rows = weights[layer][0, head]
        image = axis.imshow((rows / rows.amax(-1, keepdim=True)).numpy(), cmap="Blues", vmin=0, vmax=1)
        axis.set(title=title.replace(", ", ",\n"), xlabel="token that is read")
    axes[0].set_ylabel("token that reads")
    figure.colorbar(image, ax=axes, pad=0.01).set_label("attention weight ÷ largest of the row")
    figure.suptitle("Linear layers read everything on their side, sliding layers a window, full layers all pairs")
    return figure


if __name__ == "__main__":
    draw().savefig(IMAGE, dpi=100, bbox_inches="tight")
    print(IMAGE)
