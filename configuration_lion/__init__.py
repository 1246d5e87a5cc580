from .configuration_lion import LionConfig
from .presets import PRESETS, lion_preset


__all__ = ["PRESETS", "LionConfig", "lion_preset"]
