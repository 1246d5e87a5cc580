# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The block form (SPEC §3 "chunk"): full attention inside blocks of C tokens, one state per direction between them.
O(L·C·D + L·D²) time, O(L·C) memory, any length.

Block n keeps  X_n = Σ_t exp(to_end_t) k_t ⊗ [v_t | 1]  for the blocks right of it, and the mirror image for those left
of it. The state that reaches a block is  S_n = X_{n-1} + exp(A_{n-1}) S_{n-1},  A the total log decay of a block. This
is the state-passing algorithm of Mamba-2 (SSD), run in both directions around one shared diagonal block.

Dimensions: b = batch, h = heads, n = blocks, c = tokens of a block, d = head_dim, e = value_dim.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from .decay_mask import block_sums, decay_mask
from .lion_kernel import lion_kernel


@lion_kernel
def chunk_attention(
    query: Tensor, key: Tensor, value: Tensor, right: Tensor | None, left: Tensor | None, chunk_size: int
) -> tuple[Tensor, Tensor]:
    value = pad(value, (0, 1), value=1.0)  # a column of ones: its output is the denominator
    if right is None:
        # LIT: nothing decays, so one state of all tokens serves every query.
        output = query @ (key.transpose(-1, -2) @ value)
        return output[..., :-1], output[..., -1:]

    length = query.shape[2]
    num_blocks = -(-length // chunk_size)
    block = -(-length // num_blocks)  # even blocks: the least padding
    padding = num_blocks * block - length
    if padding:  # a branch for torch.compile, which takes an empty pad for one that makes its input contiguous
        query, key, value = (pad(x, (0, 0, 0, padding)) for x in (query, key, value))
    query, key, value = (x.unflatten(2, (num_blocks, block)) for x in (query, key, value))
    right, left = (pad(a, (0, padding)).unflatten(2, (num_blocks, block)) for a in (right, left))

    scores = query @ key.transpose(-1, -2) * decay_mask(right, left)
    output = scores @ value
    if num_blocks > 1:
        from_start, to_end, from_end, to_start = (x.exp().unsqueeze(-1) for x in block_sums(right, left))
        state_right = pass_states((key * to_end).transpose(-1, -2) @ value, to_end[..., :1, :])
        state_left = pass_states((key * to_start).transpose(-1, -2) @ value, to_start[..., -1:, :], reverse=True)
        output = output + (query * from_start) @ state_right + (query * from_end) @ state_left
    output = output.flatten(2, 3)[:, :, :length]  # cut the padding before anything is divided
    return output[..., :-1], output[..., -1:]


def pass_states(sums: Tensor, decay: Tensor, reverse: bool = False) -> Tensor:
    """
    The state that reaches each block from the blocks before it (after it, if `reverse`).

    Args:
        sums: what each block adds, `(b, h, n, d, e)`.
        decay: what a state keeps of itself on its way through each block, `(1 or b, h, n, 1, 1)`, in [0, 1].
    """
    order = range(sums.shape[2])
    order = order[::-1] if reverse else order
    states = [torch.zeros_like(sums[:, :, 0])]
    for n in order[:-1]:
        states.append(torch.addcmul(sums[:, :, n], states[-1], decay[:, :, n]))
    return torch.stack(states[::-1] if reverse else states, dim=2)
