# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Encoding a text that is too long for one forward pass: layer by layer, each layer in two passes over segments."""

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging

from .border_states import pass_borders
from .padding import packed_borders, padding_mask


def encode_in_segments(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    position_ids: Tensor | None,
    segment_length: int,
    show_progress: bool,
) -> tuple[Tensor, Tensor | None]:
    """
    The encoder of a `LionModel` without its pooler; see `LionModel.encode_long` for the arguments.

    The first pass of a layer collects the states at segment borders, the second computes the outputs and writes them
    over the inputs. Besides one tensor of hidden states, memory holds one segment and those states.

    Returns:
        The hidden states `(batch, length, hidden_size)` and the mask of `padding_mask`.
    """
    if not model.is_text:
        raise ValueError('This LionModel has `modality="image"`: `encode_long` reads text.')
    if model.config.uses_softmax:
        raise ValueError(
            f"`encode_long` needs linear attention, and `mixer_type` is {model.config.mixer_type!r}: call the model."
        )
    if model.training:
        raise ValueError("`encode_long` is for inference: call model.eval() first.")
    model.check_inputs(input_ids, None, None)
    for name, ids in (("token_type_ids", token_type_ids), ("position_ids", position_ids)):
        if ids is not None and ids.shape != input_ids.shape:
            raise ValueError(f"`{name}` must be {tuple(input_ids.shape)}, as `input_ids`; got {tuple(ids.shape)}.")
    if segment_length < 1:
        raise ValueError(f"`segment_length` is {segment_length}; give at least 1.")
    attention_mask = padding_mask(attention_mask, input_ids)
    if packed_borders(position_ids, attention_mask) is not None:
        raise ValueError("`position_ids` start again: `encode_long` takes one long text a row, not packed ones.")

    def split(x: Tensor | None) -> tuple[Tensor | None, ...]:
        num_segments = -(-input_ids.shape[1] // segment_length)
        return (None,) * num_segments if x is None else x.split(segment_length, dim=1)

    if model.config.position_embedding_type == "absolute":
        # Short enough to embed at once, since there is a position for every token.
        hidden_states = model.embeddings(input_ids, token_type_ids, position_ids, None, attention_mask)
    else:
        shape = (*input_ids.shape, model.config.hidden_size)
        hidden_states = torch.empty(shape, dtype=model.dtype, device=input_ids.device)
        for segment, ids, types in zip(split(hidden_states), split(input_ids), split(token_type_ids), strict=True):
            segment.copy_(model.embeddings(ids, types))

    segments, masks = split(hidden_states), split(attention_mask)
    steps = 2 * len(model.layers) * len(segments)
    with logging.tqdm(total=steps, desc="Encoding", unit="segment", disable=not show_progress) as progress:

        def each_segment():
            for segment, mask in zip(segments, masks, strict=True):
                yield segment, mask
                progress.update()

        for layer in model.layers:
            given = [layer.segment_states(segment, mask) for segment, mask in each_segment()]
            for (segment, mask), border_states in zip(each_segment(), pass_borders(given), strict=True):
                segment.copy_(layer(segment, mask, border_states=border_states)[0])
    if model.norm is not None:
        for segment in segments:
            segment.copy_(model.norm(segment))
    return hidden_states, attention_mask
