# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
`LionConfig`, its presets, and what it asks of mixers. It needs no other package of LION; as with transformers' own
configurations, models and the Auto classes come with `import modeling_lion`.
"""

from .configuration_lion import LionConfig, published_fields
from .presets import PRESETS, lion_preset
from .saving import AUTO_MODELS


# Without models there is no code to save beside a configuration, and no `auto_map`: modeling_lion brings both.
LionConfig.write_code = staticmethod(lambda folder, parts, auto_map: {})

__all__ = ["AUTO_MODELS", "PRESETS", "LionConfig", "lion_preset", "published_fields"]
