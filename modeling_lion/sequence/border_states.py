# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Border states: the sums that linear attention needs from the other segments of a sequence.

Like a chunk (SPEC §3), a segment sends, for each direction and head, a state Σ_t exp(log decay from t to the border)
k_t ⊗ [v_t | 1] and the factor by which it decays a state that passes through. With the states that reach its two
borders, attention in a segment equals attention in the whole sequence. Segments exchange D x (D + 1) numbers and one
factor per direction, head and sequence, whatever their length.

In the delta rule (SPEC §14), a state that passes through a segment is multiplied by a matrix, since the update of a
state depends on its content. Kernels start with a state of 0, so additional tokens write the received state and read
the one to send.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..attention.decay_mask import ChunkSums, LogDecay, chunk_sums, finite_log_decay, over_tokens
from ..attention.delta import delta_attention
from ..attention.numerics import accumulation_dtype, normalize, without_autocast
from ..attention.plain import split_ones, with_ones


class Joins(NamedTuple):
    """Functions, like `segment_states` and `segment_attention`, that extend an attention operator beyond a segment."""

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
    attention: Callable, *inputs, border_states: BorderStates, normalization: str, head_directions: str, **kwargs
) -> tuple[Tensor, None]:
    """The output of one segment: `attention` inside of it, plus the sums over tokens outside, from `border_states`."""
    query, _, value, log_decay = inputs
    (numerator, denominator), _ = attention(*inputs, head_directions=head_directions, returns_sums=True, **kwargs)
    with without_autocast(query):
        query = query.to(accumulation_dtype(query.dtype))
        factors = segment_factors(log_decay, query, head_directions)
        outside = (query * factors.from_start) @ border_states.forward + (
            query * factors.from_end
        ) @ border_states.backward
        outside_numerator, outside_denominator = split_ones(outside)
        numerator, denominator = numerator + outside_numerator, denominator + outside_denominator
        return normalize(numerator, denominator, normalization, query.shape[-1]).to(value.dtype), None


def delta_segment_states(
    key: Tensor, value: Tensor, log_decay: LogDecay, beta: Tensor, head_directions: str
) -> BorderStates:
    """
    The states that a segment sends, for `delta_attention`. If the first state of a segment is [0 | I], its last state
    is [the state to send | its factor]. Additional queries at its end read both.
    """
    dtype, size, value_dim = accumulation_dtype(key.dtype), key.shape[-1], value.shape[-1]
    with without_autocast(key):
        key, value = key.to(dtype), value.to(dtype)
        identity = torch.eye(size, dtype=dtype, device=key.device).expand(*key.shape[:2], -1, -1)
        start = pad(identity, (value_dim, 0))
        query, *inputs = with_states(
            torch.zeros_like(key), key, pad(value, (0, size)), log_decay, beta, start[:, ::2], start[:, 1::2]
        )
        query[:, ::2, -size:], query[:, 1::2, :size] = identity[:, ::2], identity[:, 1::2]
        y, _ = delta_attention(query, *inputs, head_directions=head_directions, returns_sums=True)
        forward, forward_factor = y[:, ::2, -size:].split((value_dim, size), dim=-1)
        backward, backward_factor = y[:, 1::2, :size].split((value_dim, size), dim=-1)
        return BorderStates(forward, backward, forward_factor, backward_factor)


def with_states(
    query: Tensor, key: Tensor, value: Tensor, log_decay: LogDecay, beta: Tensor, forward: Tensor, backward: Tensor
) -> list:
    """
    The inputs of `delta_attention` in the accumulation dtype, with `head_dim` additional tokens before and behind the
    sequence. Those before it write the first state of the even heads, `forward`, and those behind it that of the odd
    heads, `backward`: one row each, under orthogonal keys.
    """
    size, dtype = key.shape[-1], accumulation_dtype(key.dtype)
    query, key, value = (pad(x.to(dtype), (0, 0, size, size)) for x in (query, key, value))
    identity = torch.eye(size, dtype=dtype, device=key.device)
    key[:, ::2, :size], key[:, 1::2, -size:] = identity, identity
    value[:, ::2, :size], value[:, 1::2, -size:] = forward, backward
    steps = finite_log_decay(log_decay, query[:, :, size:-size], head_directions="alternate", masks_directions=False)
    steps = over_tokens(steps, query[:, :, size:-size])
    return [query, key, value, LogDecay(*(pad(x, (size, size)) for x in steps)), pad(beta, (size, size), value=1.0)]


def delta_segment_attention(
    attention: Callable, *inputs, border_states: BorderStates, **kwargs
) -> tuple[Tensor, None]:
    """`segment_attention` for `delta_attention`."""
    size, value = inputs[1].shape[-1], inputs[2]
    with without_autocast(value):
        output, _ = attention(*with_states(*inputs, border_states.forward, border_states.backward), **kwargs)
        return output[:, :, size:-size].to(value.dtype), None
