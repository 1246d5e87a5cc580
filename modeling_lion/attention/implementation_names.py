# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The values of `attn_implementation`, and the errors for other names.

One name serves all layers of a model. If it is a form of the mixer (`Mixer.forms`), softmax layers use transformers'
default. If it is a name of transformers, the other layers use "auto". "eager" applies to both.
"""

from transformers import PreTrainedConfig

from configuration_lion.registry import find_mixer


FORMS = ("auto", "parallel", "chunk", "rnn")
USES = {
    "auto": "the default",
    "parallel": "short inputs",
    "chunk": "long inputs",
    "rnn": "token by token",
    "eager": "the reference; returns attention weights if there are any",
}


def attention_names(config: PreTrainedConfig) -> tuple[str, ...]:
    """The values of `attn_implementation` that always work, besides "eager"."""
    mixer = find_mixer(config.mixer_type)
    if not config.uses_mixer_type or mixer.is_softmax:
        return ("sdpa",)
    return tuple(dict.fromkeys(["auto", *(name for name in mixer.forms if name != "eager")]))


def softmax_name(implementation: str) -> str:
    """The attention function of softmax layers for a model's `attn_implementation`."""
    return "sdpa" if implementation in FORMS else implementation


def name_of_form(requested: str | None, config: PreTrainedConfig) -> str:
    """The checked name for layers without softmax; "auto" for `None`. Raises a ValueError for other names."""
    if requested is None:
        return "auto"
    if requested not in (possible := (*attention_names(config), "eager")):
        names = ", ".join(f'"{name}"{f" ({USES[name]})" if name in USES else ""}' for name in possible)
        raise ValueError(
            f"`attn_implementation={requested!r}` is not a form of the mixer {config.mixer_type!r}, and kernels of "
            f"softmax apply to softmax layers only. Use {names}."
        )
    return requested


def name_of_softmax_attention(requested: str | None, config: PreTrainedConfig) -> str | None:
    """The checked name for softmax attention; `None` for transformers' default. Raises a ValueError for kernels."""
    if requested in FORMS and requested != "auto":
        why = f"`layer_types` {config.layer_types}" if config.layer_types else f"`mixer_type` {config.mixer_type!r}"
        raise ValueError(
            f"`attn_implementation={requested!r}` is a kernel of linear attention, and all layers of this model "
            f"({why}) compute softmax attention. Use transformers' names: "
            '"sdpa" (or "auto", the default), "eager" (returns attention weights), "flash_attention_2", ...'
        )
    return None if requested == "auto" else requested


class SupportsSoftmax:
    """The value of `_supports_sdpa` and the like: whether transformers' functions compute any layer of the model."""

    def __get__(self, model, model_class) -> bool:
        return model is not None and model.config.has_softmax_layers
