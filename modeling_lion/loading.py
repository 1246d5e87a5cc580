# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What is checked when a model is made or loaded: its configuration, its weights, and the name of its attention."""

from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pickle import UnpicklingError

from safetensors import SafetensorError
from transformers import PreTrainedConfig


FORMS = ("auto", "parallel", "chunk", "rnn")


def attention_names(config: PreTrainedConfig) -> tuple[str, ...]:
    """What `attn_implementation` may be besides "eager", which is the reference, where nothing else is installed."""
    return ("sdpa",) if config.uses_softmax else FORMS


def name_of_linear_attention(requested: str | None) -> str:
    """The name of an `attn_implementation` for linear attention, "auto" by default."""
    if requested is None:
        return "auto"
    if requested not in (*FORMS, "eager"):
        raise ValueError(
            f"`attn_implementation={requested!r}` is not a LION kernel. LION computes linear attention, "
            'so softmax kernels do not apply (but to `mixer_type="softmax"`). Use "parallel" (short inputs), '
            '"chunk" (long inputs), "rnn" (token by token), "auto" (chooses by length, the default) or "eager" '
            "(returns attention weights)."
        )
    return requested


def name_of_softmax_attention(requested: str | None, config: PreTrainedConfig) -> str | None:
    """The name of an `attn_implementation` for softmax attention, `None` for the library's default."""
    if requested in FORMS and requested != "auto":
        raise ValueError(
            f"`attn_implementation={requested!r}` is a kernel of linear attention, and `mixer_type` "
            f"{config.mixer_type!r} computes softmax attention. Use the library's names: "
            '"sdpa" (or "auto", the default), "eager" (returns attention weights), "flash_attention_2", ...'
        )
    return None if requested == "auto" else requested


def check_softmax_attention(chosen: str, config: PreTrainedConfig, possible: tuple[str, ...] | None) -> None:
    """Raise a ValueError if the mixer cannot be computed by what was chosen; `possible` is `None` for all names."""
    if possible is not None and chosen not in possible:
        raise ValueError(
            f"`attn_implementation={chosen!r}` cannot compute `mixer_type` {config.mixer_type!r}: use one of "
            f"{', '.join(possible)}."
        )


class SupportsSoftmax:
    """
    `_supports_sdpa` and the like: whether the library's attention functions apply. True for a model with softmax
    layers; False for any other model, and for a class, of which nothing is known yet.
    """

    def __get__(self, model, model_class) -> bool:
        return model is not None and model.config.uses_softmax


def check_config(model_class: type, config: PreTrainedConfig, config_class: type) -> None:
    """Raise a ValueError for a configuration that `model_class` cannot be made of."""
    if isinstance(config, PreTrainedConfig) and type(config).model_type != config_class.model_type:
        raise ValueError(
            f"{model_class.__name__} takes a LionConfig, and this is a {type(config).__name__}. `lion convert "
            "--from-pretrained` makes a LION of a trained BERT or ViT."
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
    """Errors of weights that cannot be read say so, and what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise OSError(f"The weights in {name} are incomplete ({error}): download or save them again.") from error
    except (SafetensorError, JSONDecodeError, UnicodeDecodeError) as error:  # a file of weights, or their index
        raise OSError(
            f"The weights in {name} are damaged or cut short ({error}): download or save them again."
        ) from error
    except UnpicklingError as error:  # torch reads tensors alone; its message advises to run what else is in there
        raise OSError(
            f"The weights in {name} are a pickle that holds more than tensors, or no weights at all. Nothing of it "
            "was run, and nothing should be: get them as safetensors, which save_pretrained writes."
        ) from error


def check_mixer_weights(name: str, config: PreTrainedConfig, unexpected: list[str], missing: list[str]) -> None:
    """Raise a ValueError where weights are of another mixer, some of whose would start anew without a word."""
    others = []
    for weights in (unexpected, missing):
        for weight_name in weights:
            layer, is_mixers, weight = weight_name.partition(".mixer.")
            is_bias = weight in ("q_proj.bias", "k_proj.bias", "v_proj.bias")  # of another `qkv_bias`
            # A layer that is left over or absent as a whole is no other mixer.
            if is_mixers and not is_bias and f"{layer}.mixer.q_proj.weight" not in weights:
                others.append(weight_name)
    if others:
        raise ValueError(
            f"The weights in {name} are of another mixer than `mixer_type` {config.mixer_type!r}, or of another "
            f"`feature_map` than {config.feature_map!r}: they differ in "
            f"{', '.join(sorted(others)[:3])}{', …' if len(others) > 3 else ''}. Load them with the configuration "
            "they were saved with. To start these anew on purpose, make the model from the configuration and call "
            "load_state_dict(state_dict, strict=False)."
        )
