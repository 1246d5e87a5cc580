# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Attention whose decays differ between the channels of the keys (SPEC §2 with a vector λ; HGRN, GLA, RWKV, both ways):

    A_ij = Σ_c q_ic k_jc M_ijc          M_c from the decays of channel c

M no longer factors out of q_i·k_j, and exp(P_i) exp(-P_j) would be a power of a positive sum. So a block is halved,
and its halves, and theirs. Between two halves every path crosses the middle, and what it loses on either side of it is
an exponential of a negative sum, one factor for the query and one for the key:

    [0..s) to [s..2s)  q_i exp(Σ right from the middle to i) · k_j exp(Σ right from j to the middle)     i behind j
    [s..2s) to [0..s)  q_i exp(Σ left from i to the middle)  · k_j exp(Σ left from the middle to j)      i before j

log2(C) levels of matrix products, and a token with itself. Between blocks pass states, one decay per row of them.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from .border_states import BorderStates, pass_borders
from .decay_mask import block_sums


# Tokens of some heads that are computed at once; in training they are computed again in the backward, which would
# otherwise keep the scaled queries and keys of every level.
SLICE_TOKENS = 8192


def diagonal_chunk(
    query: Tensor, key: Tensor, value: Tensor, right: Tensor, left: Tensor, chunk_size: int
) -> tuple[Tensor, Tensor]:
    """
    A body of `lion_kernel`, in blocks of the largest power of two up to `chunk_size`, or in one block.

    Args:
        query, key: `(batch, heads, length, head_dim)`; value: `(batch, heads, length, value_dim)`.
        right, left: of `step_decays`, `(batch, heads, head_dim, length)`.
    """
    shape, length = value.shape, value.shape[2]
    block = 1 << min(chunk_size.bit_length() - 1, max(0, length - 1).bit_length())
    inputs = (query, key, pad(value, (0, 1), value=1.0), right.transpose(2, 3), left.transpose(2, 3))
    inputs = [x.expand(*shape[:3], -1).flatten(0, 1) for x in inputs]
    needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    needs_grad = needs_grad and not torch._C._are_functorch_transforms_active()  # which a checkpoint can't pass
    rows = max(1, SLICE_TOKENS // max(1, length))
    outputs = []
    for rows_of_inputs in zip(*(x.split(rows) for x in inputs), strict=True):
        if needs_grad:
            outputs.append(checkpoint(blockwise, *rows_of_inputs, block, use_reentrant=False))
        else:
            outputs.append(blockwise(*rows_of_inputs, block))
    output = torch.cat(outputs).unflatten(0, shape[:2])
    return output[..., :-1], output[..., -1:]


def diagonal_parallel(query, key, value, right, left, chunk_size):
    """`diagonal_chunk` with the whole sequence in one block: the full matrix, in quadratic time."""
    return diagonal_chunk(query, key, value, right, left, 1 << max(0, value.shape[2] - 1).bit_length())


def blockwise(query: Tensor, key: Tensor, value: Tensor, right: Tensor, left: Tensor, block: int) -> Tensor:
    """
    Args:
        query, key, right, left: `(rows, length, head_dim)`; value: `(rows, length, value_dim)`.
        block: tokens of a block, a power of two.

    Returns:
        Σ_j A_ij v_j, `(rows, length, value_dim)`.
    """
    length = query.shape[1]
    padding = -length % block
    if padding:
        query, key, value, right, left = (pad(x, (0, 0, 0, padding)) for x in (query, key, value, right, left))
    query, key, value, right, left = (x.unflatten(1, (-1, block)) for x in (query, key, value, right, left))
    output = inside_blocks(query, key, value, right, left)
    if query.shape[1] > 1:
        from_start, to_end, from_end, to_start = (x.exp() for x in sums_over_tokens(right, left))
        to_right, to_left = ((key * x).transpose(-1, -2) @ value for x in (to_end, to_start))
        keep_right, keep_left = to_end[:, :, :1].transpose(-1, -2), to_start[:, :, -1:].transpose(-1, -2)
        given = zip(*(x.unbind(1) for x in (to_right, to_left, keep_right, keep_left)), strict=True)
        got = pass_borders([BorderStates(*states) for states in given])
        output = output + (query * from_start) @ torch.stack([states.right for states in got], dim=1)
        output = output + (query * from_end) @ torch.stack([states.left for states in got], dim=1)
    return output.flatten(1, 2)[:, :length]


def inside_blocks(query: Tensor, key: Tensor, value: Tensor, right: Tensor, left: Tensor) -> Tensor:
    """Attention inside blocks, `(rows, blocks, block, dim)`, by halves of halves."""
    output = (query * key).sum(-1, keepdim=True) * value
    half = 1
    while half < query.shape[2]:
        q, k, v, *decays = (x.unflatten(2, (-1, 2, half)) for x in (query, key, value, right, left))
        from_start, to_end, from_end, to_start = sums_over_tokens(*decays)
        # Index 0 is the first half, 1 the second; queries of one meet keys of the other.
        q = q * torch.stack((from_end[..., 0, :, :], from_start[..., 1, :, :]), dim=-3).exp()
        k = k * torch.stack((to_end[..., 0, :, :], to_start[..., 1, :, :]), dim=-3).exp()
        output = output + ((q @ k.flip(-3).transpose(-1, -2)) @ v.flip(-3)).flatten(2, 4)
        half *= 2
    return output


def sums_over_tokens(right: Tensor, left: Tensor) -> list[Tensor]:
    """`block_sums` of `(..., tokens, channels)`."""
    return [x.transpose(-1, -2) for x in block_sums(right.transpose(-1, -2), left.transpose(-1, -2))]
