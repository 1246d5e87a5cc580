from .configuration_lion import AUTO_MODELS, LionConfig
from .presets import PRESETS, lion_preset


__all__ = ["AUTO_MODELS", "PRESETS", "LionConfig", "lion_preset"]
