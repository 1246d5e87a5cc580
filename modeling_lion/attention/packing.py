# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Borders of packed sequences, `cu_seqlens`: the index at which each sequence begins, and the total length; and padding
between the real tokens of a sequence (SPEC §4).
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from .tracing import is_readable


def sequence_of_each_token(cu_seqlens: Tensor, length: int) -> Tensor:
    """The number of the packed sequence that each token belongs to, `(length,)`, int64."""
    position = torch.arange(length, device=cu_seqlens.device)
    return torch.searchsorted(cu_seqlens, position, right=True) - 1


def check_borders(cu_seqlens: Tensor, length: int) -> None:
    """
    Raise a ValueError unless the borders rise from 0 to the length. Kernels check this on the CPU only: on an
    accelerator every read stalls, so the model checks once for all layers.
    """
    if not is_readable(cu_seqlens):
        return
    borders = cu_seqlens.tolist()
    if borders[0] != 0 or borders[-1] != length or borders != sorted(set(borders)):
        raise ValueError(f"cu_seqlens must rise from 0 to the length {length}; got {borders}.")


def may_have_inner_padding(is_real: Tensor, cu_seqlens: Tensor | None) -> bool:
    """
    Whether there is padding between real tokens of the same sequence; also True if the mask cannot be read
    (`is_readable`).

    Args:
        is_real: False for padding, `(batch, length)`, bool.
        cu_seqlens: borders of packed sequences, `(num_sequences + 1,)`; `None` for one sequence a row.
    """
    if not is_readable(is_real):
        return True
    follows = is_real[:, :-1]  # a token whose neighbour in the same sequence is real
    if cu_seqlens is not None:
        follows = follows.index_fill(1, cu_seqlens[1:-1].long() - 1, False)
    begins = is_real & ~pad(follows, (1, 0))
    if cu_seqlens is None:
        return bool((begins.sum(1) > 1).any())
    before = pad(begins.cumsum(1), (1, 0))[:, cu_seqlens.long()]
    return bool((before.diff(dim=1) > 1).any())


def unpadded_positions(is_real: Tensor, cu_seqlens: Tensor | None) -> Tensor:
    """
    The index that each token moves to, `(batch, length)`, int64, so that the real tokens of every sequence are
    contiguous and padding between them follows them. In this order, windows and convolutions, which see a few
    neighbours, treat a padded token as absent. Without inner padding all tokens stay, so that a graph, which cannot
    read the mask, gives padded tokens the same outputs. Arguments as in `may_have_inner_padding`.
    """
    length = is_real.shape[1]
    token = torch.arange(length, device=is_real.device)
    first, end = torch.zeros_like(token), torch.full_like(token, length)
    if cu_seqlens is not None:
        sequence = sequence_of_each_token(cu_seqlens, length)
        first, end = cu_seqlens[sequence].long(), cu_seqlens[sequence + 1].long()
    before = lambda x: pad(x.long().cumsum(1), (1, 0))  # how many come before each token, and before the end
    real_before = before(is_real)
    own, total = real_before[:, :-1] - real_before[:, first], real_before[:, end] - real_before[:, first]
    leads = ~is_real & (own == 0)  # padding before the first real token
    leading = before(leads)
    leading = leading[:, end] - leading[:, first]
    after = torch.where(leads, token, token - own + total)
    return torch.where(is_real, first + leading + own, after)
