# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The published model sizes (arXiv 2502.16249), by name."""

from modeling_lion.configuration_lion import LionConfig


SIZES = {
    "image-tiny": {"modality": "image", "hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768},
    "image-small": {"modality": "image", "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536},
    "image-base": {"modality": "image"},
    "text-base": {"modality": "text"},
    "text-large": {
        "modality": "text",
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
}
MIXERS = {"lit": "lit", "d": "decay", "s": "selective"}
PRESETS = tuple(f"lion-{mixer}-{size}" for size in SIZES for mixer in MIXERS)


def lion_preset(name: str, **overrides) -> LionConfig:
    """
    The configuration of a published size: `lion-{lit|d|s}-{image-tiny|image-small|image-base|text-base|text-large}`.

    Args:
        name: one of `PRESETS`, for example `"lion-s-text-base"`.
        overrides: fields of `LionConfig` that replace the preset's, for example `num_labels=10`. The feature map is
            that of the mixer, whether the preset names it or an override.

    Raises:
        ValueError: if there is no preset of this name, or no such field.
    """
    if name not in PRESETS:
        raise ValueError(f"There is no preset {name!r}; choose one of {', '.join(PRESETS)}.")
    LionConfig.check_names(overrides, only_near=False)
    _, mixer, size = name.split("-", 2)
    fields = SIZES[size] | {"mixer_type": MIXERS[mixer]} | overrides
    if fields["mixer_type"] == "lit" and fields["modality"] == "image":
        fields.setdefault("feature_map", "elu")  # SPEC §1: the map of the published LION-LIT for images
    return LionConfig(**fields)
