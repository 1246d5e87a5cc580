"""LION for transformers. Importing this package makes the Auto classes know LION."""

import transformers
from tokenization_lion import IMAGE_PROCESSORS, LionTokenizer, lion_image_processor
from transformers import AutoConfig, AutoTokenizer

# transformers 5.17 without torchvision exports a placeholder under the short name; the class itself needs none.
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from . import modeling_lion
from .attention_report import AttentionReport
from .configuration_lion import AUTO_MODELS, LionConfig
from .modeling_lion import *  # noqa: F403 (the names in its `__all__`)
from .segments import encode_passages


AutoConfig.register("lion", LionConfig, exist_ok=True)
AutoTokenizer.register(LionConfig, tokenizer_class=LionTokenizer, exist_ok=True)
if IMAGE_PROCESSORS:
    AutoImageProcessor.register(LionConfig, image_processor_classes=IMAGE_PROCESSORS, exist_ok=True)
# A class registered "for an Auto class" is saved with its code, which makes save_pretrained() and push_to_hub() of a
# model enough for others to load it.
LionConfig.register_for_auto_class()
LionTokenizer.register_for_auto_class()
for models in AUTO_MODELS.values():
    for auto_class, model_name in models.items():
        model_class = getattr(modeling_lion, model_name)
        getattr(transformers, auto_class).register(LionConfig, model_class, exist_ok=True)
        model_class.register_for_auto_class(auto_class)


def __getattr__(name: str):
    if name == "lion_preset":  # imported when first asked for: configuration_lion imports this package
        from configuration_lion import lion_preset

        return lion_preset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    *modeling_lion.__all__,
    "AttentionReport",
    "LionConfig",
    "LionTokenizer",
    "encode_passages",
    "lion_image_processor",
    "lion_preset",  # noqa: F405 (see `__getattr__`)
]
