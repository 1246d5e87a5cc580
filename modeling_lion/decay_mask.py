# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The decay mask of bidirectional linear attention: the one place where it is defined (SPEC §2).

Going from key j to query i, the decay of the **source** j and of every token between counts, that of i does not:

    M_ij = Π_{k=j}^{i-1} λ_k  (i > j)      M_ii = 1      M_ij = Π_{k=i+1}^{j} λ_k  (i < j)

With a_k = log λ_k ≤ 0, P_i = Σ_{k<i} a_k and Q_i = Σ_{k≤i} a_k this is M_ij = exp(P_i - P_j) below the diagonal and
exp(Q_j - Q_i) above it. P sums what tokens lose on the way right and Q on the way left, so the two may differ: at a
border between packed sequences the last token loses everything to the right and the first one everything to the left.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor


# Longest run over which sums of log decays are subtracted from each other: what is left of a difference of two sums
# loses the digits that the sums share, so sums start anew at every block border.
BLOCK_SIZE = 66
# exp2 is three times as fast as exp on a CPU: bodies written by hand keep log decays in base 2.
LOG2_E = math.log2(math.e)


def log_zero(dtype: torch.dtype) -> float:
    """A log decay whose exp is exactly 0 in `dtype` and of which many can be added and subtracted, unlike -inf."""
    return -750.0 if dtype == torch.float64 else -110.0


def wide_dtype(device: torch.device) -> torch.dtype:
    """The dtype for sums over a whole sequence: float64 where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def cut_evenly(length: int | torch.SymInt, size: int) -> tuple[int | torch.SymInt, int]:
    """
    Number (1 or more) and size of the blocks of at most `size` tokens that hold `length` tokens with the least
    padding. While the length is unknown (`torch.export`), whole blocks and one more than needed: never a single one,
    for which the graph would be another.
    """
    if isinstance(length, torch.SymInt):
        return (length + 2 * size - 1) // size, size
    num_blocks = max(1, -(-length // size))
    return num_blocks, -(-length // num_blocks)


def step_decays(log_decay: Tensor | None, like: Tensor, cu_seqlens: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """
    What each token loses on a step to the right and on a step to the left (SPEC §2, "edge view").

    Args:
        log_decay: `None` (λ = 1), `(heads,)`, `(batch, heads, length)` or `(batch, heads, length, channels)`, ≤ 0,
            -inf allowed.
        like: tensor `(batch, heads, length, ...)` that gives the length, the device and the dtype of the result.
        cu_seqlens: borders of packed sequences along the length, `(num_sequences + 1,)`, from 0 to `length`. The
            same borders hold for every row of the batch.

    Returns:
        `(right, left)`, each `(1 or batch, 1 or heads, length)` or `(batch, heads, channels, length)`, finite, in
        `like.dtype`.
    """
    length = like.shape[2]
    if log_decay is None:
        log_decay = like.new_zeros(1, 1, length)
    elif log_decay.dim() == 1:
        log_decay = log_decay.view(1, -1, 1).expand(-1, -1, length)
    elif log_decay.dim() == 4:
        log_decay = log_decay.transpose(2, 3)
    decay = log_decay.to(like.dtype).clamp(min=log_zero(like.dtype))
    if cu_seqlens is None:
        return decay, decay
    borders = cu_seqlens[1:-1].to(device=like.device, dtype=torch.long)
    last, first = torch.zeros(2, length, dtype=torch.bool, device=like.device)
    last, first = last.index_fill(0, borders - 1, True), first.index_fill(0, borders, True)
    return decay.masked_fill(last, log_zero(like.dtype)), decay.masked_fill(first, log_zero(like.dtype))


def block_sums(right: Tensor, left: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """
    Sums of log decays from each token to the borders of its block, none of them a difference of other sums.

    Args:
        right, left: `(..., block)`, from `step_decays`.

    Returns:
        Four tensors `(..., block)`. For a token t of the block, `from_start` is Σ_{k<t} right_k, `to_end` is
        Σ_{k≥t} right_k, `from_end` is Σ_{k>t} left_k and `to_start` is Σ_{k≤t} left_k.
    """
    to_end = right.flip(-1).cumsum(-1).flip(-1)
    to_start = left.cumsum(-1)
    zero = torch.zeros_like(right[..., :1])
    from_start = torch.cat((zero, right[..., :-1].cumsum(-1)), dim=-1)
    from_end = torch.cat((left[..., 1:].flip(-1).cumsum(-1).flip(-1), torch.zeros_like(left[..., :1])), dim=-1)
    return from_start, to_end, from_end, to_start


def per_token(decay: Tensor) -> Tensor:
    """`(b, h, length)` or `(b, h, channels, length)` to `(b, h, length, 1 or channels)`."""
    return decay.unsqueeze(-1) if decay.dim() == 3 else decay.transpose(-1, -2)


def split_cuts(right: Tensor, left: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """
    Steps that nothing survives, counted apart from what the others lose: in sums, they would take the digits of all
    that follow, as where many short sequences are packed.

    Args:
        right, left: of `step_decays`.

    Returns:
        Four tensors of the same shape and dtype: `right` and `left` with 0 at the cuts, and 1 at the cuts of either.
    """
    is_cut = [a <= log_zero(a.dtype) for a in (right, left)]
    return *(a.masked_fill(x, 0) for a, x in zip((right, left), is_cut, strict=True)), *(x.to(right) for x in is_cut)


def mask_of(differences: Callable, right: Tensor, left: Tensor, is_below: Tensor) -> Tensor:
    """M of `differences(right, left)`, the sums of steps toward queries behind the key, and toward those before it."""
    *decays, cuts_right, cuts_left = split_cuts(right, left)
    exponent = torch.where(is_below, *differences(*decays))
    num_cuts = torch.where(is_below, *differences(cuts_right, cuts_left))
    return exponent.masked_fill(num_cuts != 0, -torch.inf).exp()


def block_mask(right: Tensor, left: Tensor) -> Tensor:
    """The mask inside blocks of at most `BLOCK_SIZE` tokens or so: `(..., block)` twice to `(..., block, block)`."""
    position = torch.arange(right.shape[-1], device=right.device)
    return mask_of(differences_in_block, right, left, position[:, None] >= position)


def differences_in_block(right: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    from_start, _, _, to_start = block_sums(right, left)
    below = from_start.unsqueeze(-1) - from_start.unsqueeze(-2)
    return below, to_start.unsqueeze(-2) - to_start.unsqueeze(-1)


def differences_between_blocks(right: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Of `(..., n, block)`: `(..., n, block, n * block)` each."""
    from_start, _, _, to_start = block_sums(right, left)
    # Sums up to each block, seen from the start of block n: large only where the mask is 0 anyway.
    wide = wide_dtype(right.device)
    before_right, before_left = ((a.to(wide).sum(-1)).cumsum(-1) - a.to(wide).sum(-1) for a in (right, left))
    offset_right, offset_left = (
        (a.unsqueeze(-2) - a.unsqueeze(-1)).to(right.dtype).unsqueeze(-1) for a in (before_right, before_left)
    )
    keys_right = (from_start.unsqueeze(-3) + offset_right).flatten(-2).unsqueeze(-2)  # (..., n, 1, length)
    keys_left = (to_start.unsqueeze(-3) + offset_left).flatten(-2).unsqueeze(-2)
    return from_start.unsqueeze(-1) - keys_right, keys_left - to_start.unsqueeze(-1)


def write_block_mask(
    out: Tensor, from_start: Tensor, to_start: Tensor, *cuts: Tensor, memory: Iterable[Tensor]
) -> None:
    """
    `block_mask` into memory that is there already, from sums in base 2; for bodies that differentiate by hand.

    Of the two exponents, the one that doesn't apply is never below 0 and the one that does never above: the minimum
    chooses, with no mask of indices. (Its derivative, which is halved where both are 0, is never asked for.) Of two
    numbers of cuts it is the maximum.

    Args:
        out: `(..., block, block)`, of any strides.
        from_start, to_start: `(..., block)`, of `sums_for_mask`, and the same of the cuts, if there are any.
        memory: two tensors like `out`, to compute in. The first may be `out` itself if there are no cuts.
    """
    first, second = memory
    torch.sub(from_start.unsqueeze(-1), from_start.unsqueeze(-2), out=first)
    torch.sub(to_start.unsqueeze(-2), to_start.unsqueeze(-1), out=second)
    torch.exp2(torch.minimum(first, second, out=first), out=out)
    if cuts:
        from_start, to_start = cuts
        torch.sub(from_start.unsqueeze(-1), from_start.unsqueeze(-2), out=first)
        torch.sub(to_start.unsqueeze(-2), to_start.unsqueeze(-1), out=second)
        out.masked_fill_(torch.maximum(first, second, out=first) > 0, 0)


def sums_for_mask(right: Tensor, left: Tensor, from_start: Tensor, to_start: Tensor) -> tuple[Tensor, ...]:
    """What `write_block_mask` takes: the given sums of `block_sums` in base 2, or, if there are cuts, both kinds."""
    if not any((a <= log_zero(a.dtype)).any() for a in (right, left)):
        return from_start, to_start
    right, left, *cuts = split_cuts(right, left)
    from_start, _, _, to_start = block_sums(right * LOG2_E, left * LOG2_E)
    cuts_from_start, _, _, cuts_to_start = block_sums(*cuts)
    return from_start, to_start, cuts_from_start, cuts_to_start


def decay_mask(right: Tensor, left: Tensor) -> Tensor:
    """
    The whole mask M.

    Args:
        right, left: `(..., length)`, from `step_decays`.

    Returns:
        `(..., length, length)`, row i for the query i, column j for the key j.
    """
    length = right.shape[-1]
    if isinstance(length, torch.SymInt):
        # A graph for every length (`torch.export`) has no blocks: float64 sums have digits enough without.
        to_start, through = (a.to(wide_dtype(a.device)).cumsum(-1) for a in (left, right))
        from_start = through - right
        below = from_start.unsqueeze(-1) - from_start.unsqueeze(-2)
        above = to_start.unsqueeze(-2) - to_start.unsqueeze(-1)
        position = torch.arange(length, device=right.device)
        return torch.where(position[:, None] >= position, below, above).to(right.dtype).exp()
    if length <= BLOCK_SIZE:
        return block_mask(right, left)
    num_blocks, block = cut_evenly(length, BLOCK_SIZE)
    right, left = (
        torch.nn.functional.pad(a, (0, num_blocks * block - length)).unflatten(-1, (num_blocks, block))
        for a in (right, left)
    )
    position = torch.arange(num_blocks * block, device=right.device)
    is_below = position.view(num_blocks, block, 1) >= position
    mask = mask_of(differences_between_blocks, right, left, is_below)
    return mask.flatten(-3, -2)[..., :length, :length]


def decay_mask_rows(right: Tensor, left: Tensor, tokens: Tensor) -> Tensor:
    """
    Some rows of the mask M, without the others.

    Args:
        right, left: `(..., length)`, from `step_decays`.
        tokens: the queries, `(rows,)`, int64.

    Returns:
        `(..., rows, length)`.
    """
    position = torch.arange(right.shape[-1], device=right.device)
    query = tokens.unsqueeze(-1)
    # Both sums start at the query, so that none is a difference.
    below = right.unsqueeze(-2).where(position < query, 0).flip(-1).cumsum(-1).flip(-1)
    above = left.unsqueeze(-2).where(position > query, 0).cumsum(-1)
    return (below + above).exp()
