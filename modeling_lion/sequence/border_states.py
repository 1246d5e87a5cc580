# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Border states: the sums that linear attention needs from the other segments of a sequence.

Like a chunk (SPEC §3), a segment sends, for each direction and head, a state Σ_t exp(log decay from t to the border)
k_t ⊗ [v_t | 1] and the factor by which it decays a state that passes through. With the states that reach its two
borders, attention in a segment equals attention in the whole sequence. Segments exchange D x (D + 1) numbers and one
factor per direction, head and sequence, whatever their length.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..attention.decay_mask import ChunkSums, LogDecay, chunk_sums, finite_log_decay, over_tokens
from ..attention.numerics import accumulation_dtype, normalize, without_autocast
from ..attention.plain import split_ones, with_ones


class Joins(NamedTuple):
    """
    Functions that extend an attention operator beyond one segment.

    Attributes:
        segment_states: computes the states that a segment sends, like `segment_states`.
        in_segment: computes a segment with the states that it receives, like `segment_attention`.
    """

    segment_states: Callable
    in_segment: Callable


@dataclass
class BorderStates:
    """
    One state per direction, `(batch, heads, head_dim, value_dim + 1)`: keys times values, and a column of keys.

    If a segment sends them, `forward` goes to the segments after it and `backward` to those before it.
    `forward_factor` and `backward_factor`, `(1 or batch, 1 or heads, 1 or head_dim, 1)`, in [0, 1], multiply a state
    that passes through. If a segment receives them, `forward` comes from before it and `backward` from after it,
    decayed up to its borders. In the delta rule (SPEC §14), heads have one direction: `forward` has the even heads and
    `backward` the odd ones, without the column of keys, and factors are matrices `(batch, heads, head_dim, head_dim)`.
    """

    forward: Tensor
    backward: Tensor
    forward_factor: Tensor | None = None
    backward_factor: Tensor | None = None


def segment_factors(log_decay: LogDecay, query: Tensor, head_directions: str) -> ChunkSums:
    """The decays between each token and the borders of a segment, `(1 or batch, 1 or heads, length, 1)`."""
    log_decays = over_tokens(finite_log_decay(log_decay, query, head_directions=head_directions), query)
    return ChunkSums(*(x.exp().unsqueeze(-1) for x in chunk_sums(*log_decays)))


def segment_states(key: Tensor, value: Tensor, log_decay: LogDecay, head_directions: str) -> BorderStates:
    """The states that a segment sends, in the accumulation dtype; arguments as in `lion_attention`."""
    dtype = accumulation_dtype(key.dtype)
    with without_autocast(key):
        key, value = key.to(dtype), with_ones(value.to(dtype))
        factors = segment_factors(log_decay, key, head_directions)
        return BorderStates(
            forward=(key * factors.to_end).transpose(-1, -2) @ value,
            backward=(key * factors.to_start).transpose(-1, -2) @ value,
            forward_factor=factors.to_end[:, :, :1].transpose(-1, -2),
            backward_factor=factors.to_start[:, :, -1:].transpose(-1, -2),
        )


def pass_borders(sent: list[BorderStates]) -> list[BorderStates]:
    """The states that each segment receives, from those that all segments send, in the order of the sequence."""
    zero = torch.zeros_like(sent[0].forward)
    forward, backward = [zero], [zero]
    for states in sent[:-1]:
        forward.append(pass_through(forward[-1], states.forward_factor, states.forward))
    for states in sent[:0:-1]:
        backward.append(pass_through(backward[-1], states.backward_factor, states.backward))
    return [BorderStates(*states) for states in zip(forward, backward[::-1], strict=True)]


def pass_through(state: Tensor, factor: Tensor, added: Tensor) -> Tensor:
    """The state after a segment, from the one before it; `factor` is a factor or a matrix."""
    return torch.addcmul(added, state, factor) if factor.shape[-1] == 1 else added + factor @ state


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
    **kwargs,
) -> tuple[Tensor, None]:
    """
    The output of one segment: a form of `lion_attention` inside of it, plus the sums over tokens outside, from the
    states that the segment receives (`pass_borders`).
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
        return normalize(numerator, denominator, normalization, query.shape[-1]).to(value.dtype), None
