# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Attention whose decays differ between the channels of the keys (SPEC §2 with a vector λ; HGRN, GLA, RWKV, both ways):

    A_ij = Σ_c q_ic k_jc M_ijc          M_c from the decays of channel c

M no longer factors out of q_i·k_j, and in exp(P_i) exp(-P_j) one exponent would be positive and could overflow. So a
chunk is halved, and its halves again. Every path between two halves crosses the middle, and the decay on either side
is the exponential of a negative sum, one factor for the query and one for the key:

    [0..s) to [s..2s)  q_i exp(Σ forward from the middle to i)  · k_j exp(Σ forward from j to the middle)   i after j
    [s..2s) to [0..s)  q_i exp(Σ backward from i to the middle) · k_j exp(Σ backward from the middle to j)  i before j

That makes log2(C) levels of matrix products, and the product of each token with itself. States pass between chunks,
with a decay for each of their rows. cpu/diagonal.py is the hand-written kernel.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from .decay import chunk_sums
from .export_graph import chunks_of, cut_length, pass_states_at_once
from .plain import pass_states, split_ones, with_ones, without_saving
from .tracing import is_symbolic


# Tokens of some heads that are computed at once; in training they are computed again in the backward, which would
# otherwise save the scaled queries and keys of every level.
CHANNEL_TOKENS_AT_ONCE = 8192


def diagonal_chunk_body(query, key, value, forward, backward, chunk_size):
    """
    A body as in attention/plain.py, for log decays `(batch, heads, length, head_dim)`, in chunks of the largest power
    of two up to `chunk_size`.
    """
    shape, length = value.shape, value.shape[2]
    inputs = [x.expand(*shape[:3], -1).flatten(0, 1) for x in (query, key, with_ones(value), forward, backward)]
    if is_symbolic(length):
        output = in_chunks(*inputs, 1 << (chunk_size.bit_length() - 1))
    else:
        chunk = chunk_of(length, chunk_size)
        slices = zip(*(x.split(max(1, CHANNEL_TOKENS_AT_ONCE // max(1, length))) for x in inputs), strict=True)
        output = torch.cat([without_saving(in_chunks, *tensors)(*tensors, chunk) for tensors in slices])
    return split_ones(output.unflatten(0, shape[:2]))


def chunk_of(length: int, chunk_size: int) -> int:
    """The largest power of two up to `chunk_size` that is no larger than the sequence needs."""
    return 1 << min(chunk_size.bit_length() - 1, max(0, length - 1).bit_length())


def diagonal_parallel_body(query, key, value, forward, backward, chunk_size):
    """`diagonal_chunk_body` with the whole sequence in one chunk: the full matrix, in quadratic time."""
    length = value.shape[2]
    return diagonal_chunk_body(query, key, value, forward, backward, 1 << max(0, length - 1).bit_length())


def in_chunks(query: Tensor, key: Tensor, value: Tensor, forward: Tensor, backward: Tensor, chunk: int) -> Tensor:
    """
    Σ_j A_ij v_j, `(bh, length, value_dim)`.

    Args:
        query, key, forward, backward: `(bh, length, head_dim)`; value: `(bh, length, value_dim)`.
        chunk: tokens of a chunk, a power of two.
    """
    length = query.shape[1]
    num_chunks, padding = chunks_of(length, chunk)
    is_known = not is_symbolic(length)
    inputs = (query, key, value, forward, backward)
    inputs = (pad(x, (0, 0, 0, padding)) if not is_known or padding else x for x in inputs)
    query, key, value, forward, backward = (x.unflatten(1, (num_chunks, chunk)) for x in inputs)
    output = inside_chunks(query, key, value, forward, backward)
    if not is_known or num_chunks > 1:
        from_start, to_end, from_end, to_start = chunk_sums(forward, backward, dim=-2)
        for to_query, from_key, border, reverse in (
            (from_start, to_end, 0, False),
            (from_end, to_start, -1, True),
        ):
            sums = (key * from_key.exp()).transpose(-1, -2) @ value
            total = from_key[:, :, border]  # the log decay of a chunk, for each row of a state
            if is_known:  # without heads: `pass_states` takes (bh, 1, n, d, e)
                states = pass_states(sums.unsqueeze(1), total.exp()[:, None, :, :, None], reverse).squeeze(1)
            else:
                states = pass_states_at_once(sums.transpose(1, 2), total.transpose(1, 2), reverse).transpose(1, 2)
            output = output + (query * to_query.exp()) @ states
    output = output.flatten(1, 2)
    return output[:, :length] if is_known else cut_length(output, length, dim=1)


def inside_chunks(query: Tensor, key: Tensor, value: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    """Attention inside chunks, `(bh, chunks, chunk, dim)`, by halving them again and again."""
    output = (query * key).sum(-1, keepdim=True) * value
    half = 1
    while half < query.shape[2]:
        q, k, v, *log_decay = (x.unflatten(2, (-1, 2, half)) for x in (query, key, value, forward, backward))
        from_start, to_end, from_end, to_start = chunk_sums(*log_decay, dim=-2)
        # Index 0 is the first half, 1 the second; queries of one half read keys of the other.
        q = q * torch.stack((from_end[..., 0, :, :], from_start[..., 1, :, :]), dim=-3).exp()
        k = k * torch.stack((to_end[..., 0, :, :], to_start[..., 1, :, :]), dim=-3).exp()
        output = output + ((q @ k.flip(-3).transpose(-1, -2)) @ v.flip(-3)).flatten(2, 4)
        half *= 2
    return output
