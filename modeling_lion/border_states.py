# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Attention of a sequence that is never whole in memory (SPEC §3 "chunk", one level up).

Cut into segments, a sequence needs of each of them only what a block of the chunk kernel passes on: per direction and
head one state Σ_t exp(decay from t to the border) k_t ⊗ [v_t | 1], and how much of another state survives the way
through. With the states that reach its two borders, a segment is attended to as if the whole sequence were there.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from .decay_mask import block_sums, per_token, step_decays
from .lion_kernel import accumulation_dtype, divide


@dataclass
class BorderStates:
    """
    One state per direction, `(batch, heads, head_dim, value_dim + 1)`: keys times values, and a column of keys.

    As what a segment gives: `right` to the segments right of it, `left` to those left of it, and `keep_right`,
    `keep_left` in [0, 1], `(1 or batch, 1 or heads, 1, 1)`, what a state keeps of itself on its way through. As what a
    segment gets: `right` has come from the left, `left` from the right, each decayed up to the segment's border.
    """

    right: Tensor
    left: Tensor
    keep_right: Tensor | None = None
    keep_left: Tensor | None = None


def segment_states(key: Tensor, value: Tensor, log_decay: Tensor | None) -> BorderStates:
    """What a segment gives to the others. Arguments as in `lion_kernel`; computed in the accumulation dtype."""
    dtype = accumulation_dtype(key.dtype)
    with torch.autocast(key.device.type, enabled=False):
        key, value = key.to(dtype), pad(value.to(dtype), (0, 1), value=1.0)
        right, left = step_decays(log_decay, key)
        _, to_end, _, to_start = (per_token(x.exp()) for x in block_sums(right, left))
        return BorderStates(
            right=(key * to_end).transpose(-1, -2) @ value,
            left=(key * to_start).transpose(-1, -2) @ value,
            keep_right=to_end[:, :, :1].transpose(-1, -2),
            keep_left=to_start[:, :, -1:].transpose(-1, -2),
        )


def pass_borders(given: list[BorderStates]) -> list[BorderStates]:
    """What each segment gets, from what all of them give, in the order of the sequence."""
    zero = torch.zeros_like(given[0].right)
    right, left = [zero], [zero]
    for states in given[:-1]:
        right.append(torch.addcmul(states.right, right[-1], states.keep_right))
    for states in given[:0:-1]:
        left.append(torch.addcmul(states.left, left[-1], states.keep_left))
    return [BorderStates(*states) for states in zip(right, left[::-1], strict=True)]


def segment_attention(
    kernel: Callable,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor | None,
    *,
    border_states: BorderStates,
    normalization: str,
    **kwargs,
) -> tuple[Tensor, None]:
    """
    One segment's output: any kernel of `lion_kernel` inside, the border states for all the rest.

    Args:
        border_states: what the segment gets, from `pass_borders`. The others as in `lion_kernel`.
    """
    dtype = accumulation_dtype(query.dtype)
    with torch.autocast(query.device.type, enabled=False):
        # Denominators from inside and outside have to add before anything is divided: a column of ones carries them.
        output, _ = kernel(
            query, key, pad(value.to(dtype), (0, 1), value=1.0), log_decay, normalization="none", **kwargs
        )
        query = query.to(dtype)
        from_start, _, from_end, _ = (per_token(x.exp()) for x in block_sums(*step_decays(log_decay, query)))
        outside = (query * from_start) @ border_states.right + (query * from_end) @ border_states.left
        output = output + outside * query.shape[-1] ** -0.5
        output, total = output[..., :-1], output[..., -1:]
        return (divide(output, total) if normalization == "sum" else output).to(value.dtype), None
