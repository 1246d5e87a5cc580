# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Names of the models that benchmarks compare, and their colours."""

from collections.abc import Iterable
from itertools import cycle


PUBLISHED_LIONS = ("LION-LIT", "LION-D", "LION-S")


LIONS = ("LION", *PUBLISHED_LIONS)  # the first is LION as recommended


DELTA = "LION-Delta"  # the recommended model with `mixer_type="delta"`


# The published ModernBERT, and with linear layers for those that see all tokens; in 22 layers or a period of three.
BASE = ("ModernBERT-base", "ModernBERT-base, linear")


BASE_LAYERS = 22


# The published ModernBERT again, with its windows in linear time.
WINDOWS = "ModernBERT-base, lion_local"


PASSES = ("forward", "forward+backward")


# One colour per model in every picture. Models with softmax attention are grey or brown. On the dark site,
# lightness is turned round (docs/assets/site.css): colours of one picture differ there, too.
NOTE = "#6b7078"
COLORS = {
    "softmax": "#666b73",
    "softmax (rotary)": "#a39a8c",
    "BERT": "#666b73",
    "ViT": "#666b73",
    "ModernBERT": "#b5977a",
    "ModernBERT-base": "#b5977a",
    "ModernBERT-base exact": "#8c5a2b",
    WINDOWS: "#8c5a2b",
    "BERT in pieces": "#a0a4ab",
    BASE[1]: "#0f8b8d",
    "LION": "#101c70",
    "LION-LIT": "#e07b28",
    "LION-D": "#2f8f4e",
    "LION-S": "#2563a8",
    DELTA: "#7a3fa0",
    "LION-D♮": "#86c79a",
    "LION-S♮": "#7fb2e5",
    "Luna": "#c9a227",
    "local mean": "#8a9a2e",
    "GLA": "#2ab5c4",
    "Hydra": "#8f1d1d",
    "two Mamba-2": "#c43c3c",
    "Vim": "#d977a8",
}
# Of mixers of one's own, in turn: far from all others, and dark enough for a white page.
OWN_COLORS = ("#f000f0", "#00b000", "#0000f0", "#f00000", "#500030", "#0050f0")


def colors_of(models: Iterable[str]) -> dict[str, str]:
    """The colour of each model of a picture; those of one's own take turns."""
    own = cycle(OWN_COLORS)
    return {name: COLORS.get(name) or next(own) for name in models}
