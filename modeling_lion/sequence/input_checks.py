# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Checks the inputs of a model."""

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from ..attention.tracing import is_readable, is_tracing


def check_inputs(
    config: PreTrainedConfig,
    input_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    pixel_values: Tensor | None,
    position_ids: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    seq_idx: Tensor | None = None,
    bool_masked_pos: Tensor | None = None,
    past_key_values: object = None,
) -> None:
    """Raise a ValueError for inputs that do not fit the model: another modality or shape, too long, or a cache."""
    if past_key_values is not None:
        raise ValueError(
            f"LION has no cache of keys and values: leave out `past_key_values` ({type(past_key_values).__name__}). "
            "Prefix tuning writes into one; prompt tuning and LoRA do not."
        )
    is_text = config.modality == "text"
    if is_text and pixel_values is not None:
        raise ValueError('This LionModel has `modality="text"`: pass `input_ids`, not `pixel_values`.')
    if is_text and (input_ids is None) == (inputs_embeds is None):
        raise ValueError("Pass either `input_ids` or `inputs_embeds`.")
    for name, inputs, width in (
        ("input_ids", input_ids, ()),
        ("inputs_embeds", inputs_embeds, (config.hidden_size,)),
    ):
        if inputs is not None and (inputs.shape[2:] != width or inputs.dim() < 2 or inputs.shape[1] == 0):
            shape = ", ".join(("batch", "length", *map(str, width)))
            raise ValueError(f"`{name}` must be ({shape}), with a length above 0; got {tuple(inputs.shape)}.")
    if not is_text and (pixel_values is None or input_ids is not None or inputs_embeds is not None):
        raise ValueError('This LionModel has `modality="image"`: pass `pixel_values=...`, by name, and no text.')
    of_other = (
        {"bool_masked_pos": bool_masked_pos}
        if is_text
        else {"position_ids": position_ids, "cu_seq_lens_q": cu_seq_lens_q, "seq_idx": seq_idx}
    )
    for name, value in of_other.items():
        if value is not None:
            raise ValueError(f"This model has `modality={config.modality!r}`: leave out `{name}`.")
    if not is_text:
        return
    shape = (input_ids if inputs_embeds is None else inputs_embeds).shape[:2]
    if position_ids is not None:
        check_shape("position_ids", position_ids, shape)
    elif config.has_position_table and cu_seq_lens_q is seq_idx is None and shape[1] > config.context_length:
        raise ValueError(
            f"The input has {shape[1]} tokens, but `max_position_embeddings` is {config.context_length}: truncate the "
            "input (tokenizer(..., truncation=True)), or use a model with `position_embedding_type` "
            '"none" or "cyclic".'
        )


def check_one_row(config: PreTrainedConfig, options: dict) -> None:
    """Raise a ValueError if a call that concatenates its rows asks for attentions or all hidden states."""
    for name in ("output_attentions", "output_hidden_states"):
        if options.get(name, getattr(config, name)):
            raise ValueError(
                f"Packed sequences have different borders in different rows, so that `{name}` is not available: pack "
                "all of them into one row (as DataCollatorWithFlattening does)."
            )


def check_shape(name: str, ids: Tensor, shape: torch.Size) -> None:
    """Raise a ValueError unless `ids` are integers of `shape`, (batch, length), or of one row."""
    if is_tracing(ids):
        return
    if ids.shape not in (shape, (1, shape[1])):
        raise ValueError(f"`{name}` must be (batch, length) = {tuple(shape)}, or one row; got {tuple(ids.shape)}.")
    if ids.is_floating_point():
        raise ValueError(f"`{name}` must be integers; got {ids.dtype}.")


def check_ids(name: str, ids: Tensor, size: int, field: str, shape: torch.Size) -> None:
    """
    `check_shape`. On a CPU, where reading is cheap, also raise a ValueError for indices outside a table of `size`
    rows. Index 0 is allowed for an empty table, since tokenizers give every token a type.
    """
    check_shape(name, ids, shape)
    if ids.device.type != "cpu" or not is_readable(ids) or not ids.numel():
        return
    low, high = (x.item() for x in ids.aminmax())
    highest = max(size - 1, 0)
    if low < 0 or high > highest:
        raise ValueError(
            f"`{name}` holds {low if low < 0 else high}, outside 0 to {highest} (`{field}` is {size}): use the "
            "tokenizer this model was trained with, or make the table larger (resize_token_embeddings for words)."
        )
