"""
LION for transformers. Importing this package registers LION with the Auto classes, and
`attn_implementation="lion_local"` for transformers' own encoders with sliding windows.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import transformers
from tokenization_lion import IMAGE_PROCESSORS, LionTokenizer, lion_image_processor
from tokenization_lion.image_processing_grayscale import LionGrayscaleImageProcessorPil
from transformers import AutoConfig, AutoTokenizer

# Without torchvision, transformers 5.17 exports a placeholder under the short name; the class itself needs none.
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from configuration_lion import AUTO_MODELS, LionConfig, lion_preset

from . import modeling_lion
from .attention.report import AttentionReport
from .linearized import branch
from .linearized.branch import LinearBranch
from .linearized.classes import class_by_name, make_configs_lazily
from .linearized.config import LinearizedConfig
from .linearized.linearize import linearize
from .linearized.lion_local import register_lion_local
from .mixers import decay
from .mixers.feature_map import register_feature_map
from .mixers.mixer import register_mixer
from .mixers.selective import DecayGate, SelectiveMixer
from .modeling_lion import *  # noqa: F403 (the names in its `__all__`)
from .portable_code import write_portable_code


# Mixers register themselves on import.
for mixer in ("linear", "decay", "selective", "delta", "softmax", "luna"):
    import_module(f"{__name__}.mixers.{mixer}")
# Hand-written kernels do so, too. Without these folders, PyTorch operations compute attention.
for kernels in ("cpu", "triton"):
    if find_spec(f"{__name__}.{kernels}"):
        import_module(f"{__name__}.{kernels}")
# Pickles of whole models name modules and classes by their former names.
for old_name, new_name in (
    ("modeling_lion.configuration_lion", "configuration_lion.configuration_lion"),
    ("modeling_lion.in_transformers.in_place_classes", "modeling_lion.linearized.classes"),
    ("modeling_lion.in_transformers.in_place_head", "modeling_lion.linearized.branch"),
):
    sys.modules[old_name] = import_module(new_name)
for former_home, old_name, moved in (
    (decay, "DecayGate", DecayGate),
    (decay, "SelectiveMixer", SelectiveMixer),
    (branch, "InPlaceHead", LinearBranch),
):
    setattr(former_home, old_name, moved)
register_lion_local()
make_configs_lazily()
AutoConfig.register("lion", LionConfig, exist_ok=True)
AutoTokenizer.register(LionConfig, tokenizer_class=LionTokenizer, exist_ok=True)
if IMAGE_PROCESSORS:
    AutoImageProcessor.register(LionConfig, image_processor_classes=IMAGE_PROCESSORS, exist_ok=True)
# Saving also writes the code, so that others can load what save_pretrained() and push_to_hub() wrote.
for saved in (LionConfig, LinearizedConfig, LionTokenizer, LionGrayscaleImageProcessorPil):
    saved.write_code = staticmethod(write_portable_code)
for models in AUTO_MODELS.values():
    for auto_class, model_name in models.items():
        getattr(transformers, auto_class).register(LionConfig, getattr(modeling_lion, model_name), exist_ok=True)


if TYPE_CHECKING:
    from retrieval_lion.passages import EncodedPassages, encode_passages, split_passages


def __getattr__(name: str) -> Any:
    if name in ("EncodedPassages", "encode_passages", "split_passages"):  # lazily: retrieval_lion imports this package
        return getattr(import_module("retrieval_lion.passages"), name)
    if name.startswith("Lion"):  # a class of linearized models, such as LionBertModel
        return class_by_name(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    *modeling_lion.__all__,
    "AttentionReport",
    "EncodedPassages",
    "LionConfig",
    "LionTokenizer",
    "encode_passages",
    "linearize",
    "lion_image_processor",
    "lion_preset",
    "register_feature_map",
    "register_mixer",
    "split_passages",
]
