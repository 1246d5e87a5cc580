# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What `attn_implementation` may be, and what is said of other names.

One name chooses for all layers of a model. The forms of linear attention leave softmax layers to transformers'
default, and the names of transformers leave linear layers to "auto"; "eager" is for both.
"""

from transformers import PreTrainedConfig


FORMS = ("auto", "parallel", "chunk", "rnn")


def attention_names(config: PreTrainedConfig) -> tuple[str, ...]:
    """What `attn_implementation` may be besides "eager", which is the reference, where nothing else is installed."""
    return FORMS if config.has_linear_layers else ("sdpa",)


def linear_form(implementation: str) -> str:
    """What a model's `attn_implementation` is for its linear layers."""
    return implementation if implementation in (*FORMS, "eager") else "auto"


def softmax_name(implementation: str) -> str:
    """What a model's `attn_implementation` is for its softmax layers."""
    return "sdpa" if implementation in FORMS else implementation


def name_of_linear_attention(requested: str | None) -> str:
    """The name of an `attn_implementation` for linear attention, "auto" by default."""
    if requested is None:
        return "auto"
    if requested not in (*FORMS, "eager"):
        raise ValueError(
            f"`attn_implementation={requested!r}` is not a LION kernel. LION computes linear attention, "
            'so softmax kernels do not apply, except to softmax layers. Use "parallel" (short inputs), '
            '"chunk" (long inputs), "rnn" (token by token), "auto" (chooses by length, the default) or "eager" '
            "(returns attention weights)."
        )
    return requested


def name_of_softmax_attention(requested: str | None, config: PreTrainedConfig) -> str | None:
    """The name of an `attn_implementation` for softmax attention, `None` for transformers' default."""
    if requested in FORMS and requested != "auto":
        why = f"`layer_types` {config.layer_types}" if config.layer_types else f"`mixer_type` {config.mixer_type!r}"
        raise ValueError(
            f"`attn_implementation={requested!r}` is a kernel of linear attention, and all layers of this model "
            f"({why}) compute softmax attention. Use transformers' names: "
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
    `_supports_sdpa` and the like: whether transformers' attention functions apply. True for a model with softmax
    layers; False for any other model, and for a class, of which nothing is known yet.
    """

    def __get__(self, model, model_class) -> bool:
        return model is not None and model.config.has_softmax_layers
