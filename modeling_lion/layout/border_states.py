# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What linear attention needs of the other segments of a sequence (SPEC §3 "chunk", one level up).

It needs what a chunk passes on: per direction and head one state Σ_t exp(log decay from t to the border) k_t ⊗ [v_t |
1], and how much of another state is left behind the segment. With the states that reach its two borders, a segment is
attended to as if the whole sequence were there. So what a segment gives, D x (D + 1) numbers per direction, head and
sequence and two decays, does not grow with the length.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..attention.decay import ChunkSums, LogDecay, chunk_sums, finite_log_decay, is_per_channel, over_tokens
from ..attention.numerics import accumulation_dtype, normalize, without_autocast
from ..attention.plain import split_ones, with_ones


@dataclass
class BorderStates:
    """
    One state per direction, `(batch, heads, head_dim, value_dim + 1)`: keys times values, and a column of keys.

    As what a segment gives: `forward` to the segments behind it, `backward` to those before it, and `forward_keep`,
    `backward_keep` in [0, 1], `(1 or batch, 1 or heads, 1 or head_dim, 1)`, what is left of another state behind it.
    As what a segment gets: `forward` has come from before it, `backward` from behind it, decayed up to its borders.
    """

    forward: Tensor
    backward: Tensor
    forward_keep: Tensor | None = None
    backward_keep: Tensor | None = None


def segment_factors(log_decay: LogDecay, query: Tensor, head_directions: str) -> ChunkSums:
    """What is left between each token and the borders of a segment, `(1 or b, 1 or h, length, 1 or head_dim)`."""
    log_decays = over_tokens(finite_log_decay(log_decay, query, head_directions=head_directions), query)
    sums = chunk_sums(*(x if is_per_channel(x) else x.unsqueeze(-1) for x in log_decays), dim=-2)
    return ChunkSums(*(x.exp() for x in sums))


def segment_states(key: Tensor, value: Tensor, log_decay: LogDecay, head_directions: str) -> BorderStates:
    """What a segment gives to the others. Arguments as in `lion_attention`; computed in the accumulation dtype."""
    dtype = accumulation_dtype(key.dtype)
    with without_autocast(key):
        key, value = key.to(dtype), with_ones(value.to(dtype))
        factors = segment_factors(log_decay, key, head_directions)
        return BorderStates(
            forward=(key * factors.to_end).transpose(-1, -2) @ value,
            backward=(key * factors.to_start).transpose(-1, -2) @ value,
            forward_keep=factors.to_end[:, :, :1].transpose(-1, -2),
            backward_keep=factors.to_start[:, :, -1:].transpose(-1, -2),
        )


def pass_borders(given: list[BorderStates]) -> list[BorderStates]:
    """What each segment gets, from what all of them give, in the order of the sequence."""
    zero = torch.zeros_like(given[0].forward)
    forward, backward = [zero], [zero]
    for states in given[:-1]:
        forward.append(torch.addcmul(states.forward, forward[-1], states.forward_keep))
    for states in given[:0:-1]:
        backward.append(torch.addcmul(states.backward, backward[-1], states.backward_keep))
    return [BorderStates(*states) for states in zip(forward, backward[::-1], strict=True)]


def segment_attention(
    attention: Callable,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: LogDecay,
    *,
    border_states: BorderStates,
    normalization: str,
    head_directions: str = "both",
    returns_sums: bool = False,
    **kwargs,
) -> tuple[Tensor | tuple[Tensor, Tensor], None]:
    """
    The output of one segment: `attention` inside it, and the border states for everything outside.

    Args:
        attention: `lion_attention` in any form.
        border_states: what the segment gets, from `pass_borders`.
        query, key, value, log_decay, normalization, head_directions, returns_sums: as in `lion_attention`.
    """
    (numerator, denominator), _ = attention(
        query, key, value, log_decay, head_directions=head_directions, returns_sums=True, **kwargs
    )
    with without_autocast(query):
        query = query.to(accumulation_dtype(query.dtype))
        factors = segment_factors(log_decay, query, head_directions)
        outside = (query * factors.from_start) @ border_states.forward + (
            query * factors.from_end
        ) @ border_states.backward
        outside_numerator, outside_denominator = split_ones(outside)
        numerator, denominator = numerator + outside_numerator, denominator + outside_denominator
        if returns_sums:
            return (numerator, denominator), None
        return normalize(numerator, denominator, normalization, query.shape[-1]).to(value.dtype), None
