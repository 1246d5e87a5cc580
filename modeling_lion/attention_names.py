# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What `attn_implementation` may be, and what is said of other names."""

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
