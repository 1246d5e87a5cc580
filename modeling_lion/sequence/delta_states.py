# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Border states (sequence/border_states.py) of the delta rule (SPEC §14). A state that passes through a segment is
multiplied by a matrix, since the update of a state depends on its content.

Kernels start with a state of 0, so additional tokens write the received state and read the one to send.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..attention.decay_mask import LogDecay, finite_log_decay, over_tokens
from ..attention.delta import delta_attention
from ..attention.numerics import accumulation_dtype, without_autocast
from .border_states import BorderStates


def delta_segment_states(
    key: Tensor, value: Tensor, log_decay: LogDecay, beta: Tensor, head_directions: str
) -> BorderStates:
    """
    The states that a segment sends, for `delta_attention`. The segment receives [0 | I] as its first state; queries
    behind it read [the state | the factor].
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
    sequence, which write the rows of a given first state of even and of odd heads under orthogonal keys.
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
    attention: Callable,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: LogDecay,
    beta: Tensor,
    *,
    border_states: BorderStates,
    **kwargs,
) -> tuple[Tensor, None]:
    """`segment_attention` for `delta_attention`."""
    with without_autocast(query):
        inputs = with_states(query, key, value, log_decay, beta, border_states.forward, border_states.backward)
        output, _ = attention(*inputs, **kwargs)
        size = key.shape[-1]
        return output[:, :, size:-size].to(value.dtype), None
