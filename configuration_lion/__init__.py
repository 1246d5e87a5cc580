# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The configuration (defined in modeling_lion, since it is published with the code of the model) and the presets."""

from modeling_lion.configuration_lion import AUTO_MODELS, LionConfig, published_fields

from .presets import PRESETS, lion_preset


__all__ = ["AUTO_MODELS", "PRESETS", "LionConfig", "lion_preset", "published_fields"]
