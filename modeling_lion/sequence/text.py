# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The layout of texts: real tokens, borders of packed sequences, and positions (SPEC §4)."""

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from ..attention.packing import check_borders, sequence_of_each_token
from ..attention.tracing import is_readable
from .conv_borders import ConvBorders
from .input_checks import check_shape
from .layout import Layout, PackedLayout
from .unpadded import Unpadded


def text_layout(
    config: PreTrainedConfig,
    inputs: Tensor,
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    cu_seqlens: Tensor | None = None,
) -> Layout:
    """
    The layout of texts: real tokens (`real_tokens`), borders (`packed_borders`) and positions (`token_positions`),
    unless they are given.

    Args:
        inputs: `(batch, length, ...)`; the other arguments must match its shape.

    Returns:
        A `PackedLayout` if there are borders, otherwise a `Layout`.
    """
    if position_ids is not None:
        check_shape("position_ids", position_ids, inputs.shape[:2])
    is_real = real_tokens(attention_mask, inputs)
    if cu_seqlens is None:
        cu_seqlens = packed_borders(position_ids, is_real)
    else:
        check_borders(cu_seqlens, inputs.shape[1])
    if position_ids is None:
        position_ids = token_positions(inputs, is_real, cu_seqlens)
    options = {"unpadded": Unpadded.for_convolutions(config, is_real, cu_seqlens)}
    if config.scales_with_length:
        options["sequence_lengths"] = sequence_lengths(position_ids, is_real, cu_seqlens)
    if cu_seqlens is None:
        return Layout(is_real, position_ids, **options)
    options["conv_borders"] = ConvBorders.of(config, inputs, cu_seqlens)
    return PackedLayout(is_real, position_ids, cu_seqlens=cu_seqlens, **options)


def packed_borders(position_ids: Tensor | None, is_real: Tensor | None) -> Tensor | None:
    """
    The `cu_seqlens` of sequences packed into rows: a sequence starts where the position of a real token is 0 (SPEC
    §4).

    Args:
        position_ids: `(batch or 1, length)`.
        is_real: from `real_tokens`.

    Returns:
        `(num_sequences + 1,)`, or `None` if nothing is packed. Also `None` if positions cannot be read
        (`is_readable`), as in a graph, which needs `cu_seq_lens_q`.

    Raises:
        ValueError: if rows are packed differently.
    """
    if position_ids is None or not is_readable(position_ids):
        return None
    starts = position_ids == 0
    if is_real is not None:
        starts = starts & is_real
    restarts = starts & (starts.cumsum(dim=1) > 1)
    if not restarts.any():
        return None
    if (restarts != restarts[:1]).any():
        raise ValueError(
            "`position_ids` start again at different tokens in different rows: pack the sequences into one row (as "
            "DataCollatorWithFlattening does), or pad them."
        )
    inner = restarts[0].nonzero().flatten()
    return torch.cat((inner.new_zeros(1), inner, inner.new_full((1,), position_ids.shape[1])))


def token_positions(inputs: Tensor, is_real: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    """
    Positions that count real tokens only, so that padding shifts nothing, and restart in every packed sequence (SPEC
    §4); `(batch or 1, length)`, int64. A padded token has the position of the next real one.

    Args:
        inputs: `(batch, length, ...)`.
        is_real: from `real_tokens`.
        cu_seqlens: borders of packed sequences; `None` if nothing is packed.
    """
    token = torch.arange(inputs.shape[1], device=inputs.device)
    before = token.unsqueeze(0) if is_real is None else is_real.cumsum(dim=1) - is_real.long()
    if cu_seqlens is None:
        return before
    first = cu_seqlens[sequence_of_each_token(cu_seqlens, inputs.shape[1])]
    return before - before[:, first]


def sequence_lengths(position_ids: Tensor, is_real: Tensor | None, cu_seqlens: Tensor | None) -> Tensor:
    """
    For each token, one more than the last position of a real token in its sequence; `(batch or 1, 1)`, or `(batch or
    1, length)` for packed sequences. Arguments as in `token_positions`.
    """
    ends = position_ids + 1 if is_real is None else (position_ids + 1) * is_real
    if cu_seqlens is None:
        return ends.amax(dim=1, keepdim=True)
    sequence = sequence_of_each_token(cu_seqlens, position_ids.shape[1])
    longest = ends.new_zeros(len(ends), len(cu_seqlens) - 1)
    return longest.scatter_reduce(1, sequence.expand_as(ends), ends, "amax")[:, sequence]


def real_tokens(attention_mask: Tensor | None, inputs: Tensor) -> Tensor | None:
    """
    The mask of real tokens, `(batch, length)`, bool, False for padding; `None` if all are known to be real.

    Args:
        inputs: `(batch, length, ...)`; the mask must match its shape.
    """
    if attention_mask is None:
        return None
    if attention_mask.shape != inputs.shape[:2]:
        raise ValueError(
            f"`attention_mask` must be (batch, length) = {tuple(inputs.shape[:2])}, 1 for real tokens and 0 "
            f"for padding; got {tuple(attention_mask.shape)}."
        )
    if attention_mask.is_floating_point() and is_readable(attention_mask) and (attention_mask < 0).any():
        raise ValueError(
            "`attention_mask` has numbers below 0, as masks have that are added to scores; give 1 (or True) for real "
            "tokens and 0 (or False) for padding."
        )
    is_real = attention_mask.bool()
    # Only where reading is free: on an accelerator it would stall, and in a graph it would fail.
    if is_real.device.type == "cpu" and is_readable(is_real) and is_real.all():
        return None
    return is_real
