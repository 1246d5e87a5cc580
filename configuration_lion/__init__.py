# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
`LionConfig` and its presets. This package imports no other package of LION: `import modeling_lion` adds the models and
registers the Auto classes.
"""

from .configuration_lion import LionConfig, published_fields
from .presets import PRESETS, lion_preset
from .saving import AUTO_MODELS


# `modeling_lion` replaces this function. Until then a configuration is saved without code and without an `auto_map`.
LionConfig.write_code = staticmethod(lambda folder, parts, auto_map: {})

__all__ = ["AUTO_MODELS", "PRESETS", "LionConfig", "lion_preset", "published_fields"]
