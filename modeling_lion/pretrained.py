# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What LION changes in the methods of `PreTrainedModel` that load and save models: errors that explain a wrong
configuration or wrong weights, and steps that would fail without the change.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from transformers import PreTrainedConfig
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, cached_file


if TYPE_CHECKING:
    from transformers import PreTrainedModel as ModelPart
else:
    ModelPart = object  # LionPreTrainedModel also inherits from PreTrainedModel
QUIET = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}


def check_config(model_class: Any, config: Any, config_class: Any) -> None:
    """Raise a ValueError for a configuration that `model_class` does not support."""
    if isinstance(config, PreTrainedConfig) and type(config).model_type != config_class.model_type:
        raise ValueError(
            f"{model_class.__name__} takes a LionConfig, and this is a {type(config).__name__}: "
            "`modeling_lion.linearize` gives a trained encoder of transformers linear attention."
        )
    if isinstance(config, config_class):
        config.validate()  # fields may have been set one by one
        if config.modality not in model_class._modalities:
            raise ValueError(
                f"{model_class.__name__} takes `modality` {model_class._modalities[0]!r}, and it is "
                f"{config.modality!r}: use a class for {config.modality} (LionModel takes both), or another config."
            )


@contextmanager
def explain_damaged_weights(name: str) -> Iterator[None]:
    """Replace the errors of damaged or incomplete weights with an OSError that says what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise OSError(f"The weights in {name} are incomplete ({error}): download or save them again.") from error
    except OSError as error:
        # transformers would say that there are no weights. The class is one of httpx, compared by name in any version.
        if not any(base.__name__ == "TransportError" for base in type(error.__cause__).__mro__):
            raise
        raise OSError(
            f"The connection broke while {name} was downloaded ({error.__cause__}): call this again; it goes on with "
            "the files that have not arrived."
        ) from error
    except (SafetensorError, JSONDecodeError, UnicodeDecodeError) as error:  # in a file of weights, or in their index
        raise OSError(
            f"The weights in {name} are damaged or cut short ({error}): download or save them again."
        ) from error
    except (AttributeError, KeyError, TypeError) as error:
        index = cached_file(name, SAFE_WEIGHTS_INDEX_NAME, local_files_only=True, **QUIET) if name else None
        if index is None or is_index(json.loads(Path(index).read_text(encoding="utf-8"))):
            raise
        raise OSError(
            f"{index} is no index of weights: it needs two objects, `metadata` and `weight_map`, which gives the file "
            "of each weight. Download or save the weights again."
        ) from error
    except UnpicklingError as error:  # torch refuses all but tensors, and suggests to run the rest
        raise OSError(
            f"The weights in {name} are a pickle that holds more than tensors, or no weights at all. Nothing of it "
            "was run, and nothing should be: get them as safetensors, which save_pretrained writes."
        ) from error


def is_index(content: Any) -> bool:
    weight_map, metadata = (
        content.get(key) if isinstance(content, dict) else None for key in ("weight_map", "metadata")
    )
    has_both = isinstance(weight_map, dict) and isinstance(metadata, dict)
    return has_both and all(isinstance(file, str) for file in content["weight_map"].values())


def check_mixer_weights(name: str, config: PreTrainedConfig, unexpected: list[str], missing: list[str]) -> None:
    """Raise a ValueError if weights belong to another mixer: the model would silently start with random weights."""
    others = []
    for weights in (unexpected, missing):
        for weight_name in weights:
            layer, is_mixers, weight = weight_name.partition(".mixer.")
            is_bias = weight in ("q_proj.bias", "k_proj.bias", "v_proj.bias")  # a different `qkv_bias`
            # If a whole layer is unexpected or missing, its mixer is not a different one.
            if is_mixers and not is_bias and f"{layer}.o_proj.weight" not in weights:
                others.append(weight_name)
    if others:
        raise ValueError(
            f"The weights in {name} are of another mixer than `mixer_type` {config.mixer_type!r}, or of another "
            f"`feature_map` than {config.feature_map!r}, `conv_kernel` than {config.conv_kernel} or `layer_types` "
            f"than {config.layer_types}: they differ in {', '.join(sorted(others)[:3])}"
            f"{', …' if len(others) > 3 else ''}. Load them with the configuration they were saved with. To "
            "initialise these on purpose, make the model from the configuration and call "
            "load_state_dict(state_dict, strict=False)."
        )


class CheckedLoading(ModelPart):
    """Loading with clear errors for damaged weights and weights of another configuration."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, output_loading_info: bool = False, **kwargs):
        """`PreTrainedModel.from_pretrained`, with errors that name what is wrong with weights."""
        name = pretrained_model_name_or_path
        with explain_damaged_weights(name):
            model, info = super().from_pretrained(name, *args, output_loading_info=True, **kwargs)
        model.check_loaded_weights(name, info["unexpected_keys"], info["missing_keys"])
        return (model, info) if output_loading_info else model

    def check_loaded_weights(self, name: str, unexpected: list[str], missing: list[str]) -> None:
        """Raise a ValueError if weights of `name` that are new or were not loaded are of another configuration."""
        raise NotImplementedError


class PretrainedOverrides(CheckedLoading):
    """The methods of `PreTrainedModel` that LION overrides to load and save models."""

    pooler: Any

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        # FSDP2 gives a sharded model a new class that a file of torch defines; transformers would save that file as
        # the code of the model, and the name of that class as the one to load.
        first, *others = cls.__bases__
        if others and first.__module__.startswith("torch.distributed"):
            cls.__name__, cls.__module__ = others[0].__name__, others[0].__module__

    def check_loaded_weights(self, name: str, unexpected: list[str], missing: list[str]) -> None:
        check_mixer_weights(name, self.config, unexpected, missing)

    def _adjust_missing_and_unexpected_keys(self, loading_info) -> None:
        """Drop the pooler of an encoder that was saved without one: a new pooler would give random vectors."""
        super()._adjust_missing_and_unexpected_keys(loading_info)
        if getattr(self, "pooler", None) is None:
            return
        of_pooler = {name for name in self.state_dict() if name.startswith("pooler.")}
        was_encoder = {"LionModel", "LionBackbone"} & {*(self.config.architectures or ())}
        if was_encoder and of_pooler and of_pooler <= loading_info.missing_keys:
            loading_info.missing_keys -= of_pooler
            self.pooler = None

    def keep_decays_in_float32(self) -> None:
        """
        Keep decays in float32 in a new model in half precision (SPEC §5), and tell transformers which modules these
        are when it loads one.
        """
        parts = {part for name, _ in self.named_parameters() for part in name.split(".")}
        self._keep_in_fp32_modules_strict = {part for part in parts if part.startswith("decay")}
        for name, parameter in self.named_parameters():
            if parameter.dtype.itemsize < 4 and not self._keep_in_fp32_modules_strict.isdisjoint(name.split(".")):
                parameter.data = parameter.data.float()
        # Modules that quantizers skip. Some match these patterns with names of modules, some with names of parameters.
        self._keep_in_fp32_modules = {f".*{part}" for part in self._keep_in_fp32_modules_strict}
