# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Named configurations: the recommended and the published ones (arXiv 2502.16249)."""

from typing import Any

from .configuration_lion import LionConfig, published_fields


# The published sizes. The recommended MLPs are gated and have three matrices instead of two: with two thirds of the
# intermediate size they have as many parameters.
SIZES: dict[str, dict[str, Any]] = {
    "image-tiny": {"modality": "image", "hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768},
    "image-small": {"modality": "image", "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536},
    "image-base": {"modality": "image", "intermediate_size": 3072},
    "text-small": {"modality": "text", "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536},
    "text-base": {"modality": "text", "intermediate_size": 3072},
    "text-large": {
        "modality": "text",
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
}
GATED_SIZES = {1536: 1024, 3072: 2048, 4096: 2752}
RECOMMENDED_SIZES = ("text-small", "text-base", "text-large", "image-small", "image-base")
# The standard deviation of initial weights in BERT and ViT.
PUBLISHED = {"mixer_initializer_range": 0.02}
PUBLISHED_SIZES = ("image-tiny", "image-small", "image-base", "text-base", "text-large")
MIXERS = {"lit": "lit", "d": "decay", "s": "selective"}
# All other fields keep the defaults of LionConfig; docs/research/ablations.md changes one at a time.
PRESETS: dict[str, dict[str, Any]] = {
    f"lion-{size}": SIZES[size] | {"intermediate_size": GATED_SIZES[SIZES[size]["intermediate_size"]]}
    for size in RECOMMENDED_SIZES
}
PRESETS |= {
    f"lion-{short}-{size}": published_fields(SIZES[size]["modality"]) | SIZES[size] | PUBLISHED | {"mixer_type": mixer}
    for size in PUBLISHED_SIZES
    for short, mixer in MIXERS.items()
}


def lion_preset(name: str, **overrides) -> LionConfig:
    """
    Make a named configuration: a recommended one, `lion-text-{small|base|large}` or `lion-image-{small|base}`, or a
    published one, `lion-{lit|d|s}-{image-tiny|image-small|image-base|text-base|text-large}`.
    docs/research/reproduce.md lists how the published ones differ from the sources, above all in the initial decays.

    Args:
        name: one of `PRESETS`, for example `"lion-text-base"`.
        overrides: fields of `LionConfig` that replace those of the preset, for example `num_labels=10`. Two fields
            follow them: `mixer_type` sets the published feature map, and `use_gated_mlp` sets an `intermediate_size`
            with as many parameters.

    Returns:
        A new `LionConfig`, from which any LION class can be made.

    Raises:
        ValueError: if no preset has this name, or `overrides` names an unknown field.

    Example:

    ```python
    >>> from configuration_lion import lion_preset

    >>> config = lion_preset("lion-text-base", num_labels=10)
    >>> config.hidden_size, config.mixer_type, config.head_directions
    (768, 'selective', 'alternate')

    ```
    """
    if name not in PRESETS:
        raise ValueError(f"There is no preset {name!r}; choose one of {', '.join(PRESETS)}.")
    LionConfig.check_names(overrides, only_near=False)
    preset, defaults = PRESETS[name], LionConfig
    fields = preset | overrides
    was_gated, is_gated = (x.get("use_gated_mlp", defaults.use_gated_mlp) for x in (preset, fields))
    if was_gated != is_gated and "intermediate_size" not in overrides:
        width = fields["intermediate_size"]
        fields["intermediate_size"] = width * 2 // 3 if is_gated else width * 3 // 2
    is_lit_image = (fields["modality"], fields.get("mixer_type")) == ("image", "lit")
    if "feature_map" in preset and "feature_map" not in overrides and is_lit_image:
        fields["feature_map"] = "elu"  # SPEC §1: the map of the published LION-LIT for images
    return LionConfig(**fields)
