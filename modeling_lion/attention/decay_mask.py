# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The only definition of the decay mask of bidirectional linear attention (SPEC §2).

On the way from key j to query i, the decays of the **source** j and of all tokens between count; that of i does not:

    M_ij = Π_{k=j}^{i-1} λ_k  (i > j)      M_ii = 1      M_ij = Π_{k=i+1}^{j} λ_k  (i < j)

Every step from a token to its neighbour has a log decay: `forward` for the step from t to t + 1, `backward` for the
step from t to t - 1 (SPEC §2, edge view). With P_i = Σ_{k<i} forward_k and Q_i = Σ_{k≤i} backward_k the mask is
M_ij = exp(P_i - P_j) below the diagonal and exp(Q_j - Q_i) above it. In SPEC §2 both log decays are log λ. They differ
at a border between packed sequences, where the forward log decay of the last token and the backward one of the first
token are -inf, and in heads of one direction (SPEC §11), where all log decays of the other direction are -inf.

Four words name parts of a sequence or of a computation:

    chunk     consecutive tokens; sums of log decays restart at its borders, and states pass from chunk to chunk
    tile      the part of a matrix (queries x keys, or a state) that is computed in one step
    slice     some of the (batch, head) pairs, some chunks of a sequence, or some columns of a tile
    segment   the part of a sequence that is in memory, or in one process, at a time
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .numerics import accumulation_dtype
from .tracing import is_symbolic


# The most tokens over which sums of log decays are subtracted from each other. A difference of two sums loses their
# common digits, so sums restart at every chunk border.
LONGEST_CHUNK = 66
# exp2 is three times as fast as exp on a CPU.
LOG2_E = math.log2(math.e)


class LogDecay(NamedTuple):
    """
    The log decay of every step, ≤ 0, float32 (float64 for float64 inputs).

    Attributes:
        forward: the steps from token t to t + 1: `None` (λ = 1), `(heads,)` or `(batch, heads, length)`; may be -inf.
        backward: the steps from token t to t - 1, in the same shapes; the same tensor if both directions agree.
    """

    forward: Tensor | None = None
    backward: Tensor | None = None


NO_DECAY = LogDecay()


def is_per_head(log_decay: Tensor | None) -> bool:
    """Whether log decays are the same at every token, `(heads,)`."""
    return log_decay is not None and log_decay.dim() == 1


def check_decay_shape(name: str, log_decay: Tensor, batch: int, heads: int, length: int) -> None:
    """Raise a ValueError, which calls the tensor `name`, if the shape is not one of `LogDecay`."""
    # By number of dimensions: a comparison with every shape would make torch.export specialize on the batch size.
    if log_decay.shape != {1: (heads,), 3: (batch, heads, length)}.get(log_decay.dim()):
        raise ValueError(
            f"{name} must be None, (heads,) = {(heads,)} or (batch, heads, length) = {(batch, heads, length)}; got "
            f"{tuple(log_decay.shape)}."
        )


def log_decay_floor(dtype: torch.dtype) -> float:
    """Replaces -inf: its exp is exactly 0 in `dtype`, and sums and differences of many such numbers are finite."""
    return -750.0 if dtype == torch.float64 else -110.0


def wide_dtype(device: torch.device) -> torch.dtype:
    """The dtype of sums over a whole sequence: float64 if the device supports it."""
    return torch.float32 if device.type == "mps" else torch.float64


def cut_evenly(length: int, size: int) -> tuple[int, int]:
    """The number (1 or more) and the size (at most `size`) of equal chunks that hold `length` tokens."""
    num_chunks = max(1, -(-length // size))
    return num_chunks, -(-length // num_chunks)


def reads_forward(heads: int, device: torch.device) -> Tensor:
    """Which heads read forward if directions alternate, `(heads,)`, bool: the even ones (SPEC §11)."""
    return torch.arange(heads, device=device) % 2 == 0


def mask_directions(forward: Tensor | None, backward: Tensor | None, heads: int, head_directions: str) -> LogDecay:
    """Set the result of `finite_log_decay` to the floor in the directions that heads do not read."""
    if head_directions == "both" or forward is None:
        return LogDecay(forward, backward)
    floor = log_decay_floor(forward.dtype)
    is_forward = reads_forward(heads, forward.device).view(-1, *[1] * (max(2, forward.dim()) - 2))
    return LogDecay(forward.where(is_forward, floor), backward.where(~is_forward, floor))


def finite_log_decay(
    log_decay: LogDecay,
    query: Tensor,
    cu_seqlens: Tensor | None = None,
    head_directions: str = "both",
    masks_directions: bool = True,
) -> LogDecay:
    """
    The log decays in the form that kernels take: both directions have one shape and are at least `log_decay_floor`,
    which is also the value at borders of packed sequences and in directions that heads do not read.

    Args:
        query: `(batch, heads, length, ...)`; the result is on its device, in its accumulation dtype.
        cu_seqlens, head_directions: as in `lion_attention`.
        masks_directions: whether to apply `mask_directions`, which kernels with one direction per head do not need.

    Returns:
        Both `None`, both `(heads,)`, or both `(1 or batch, 1 or heads, length)`.
    """
    length, dtype = query.shape[2], accumulation_dtype(query.dtype)
    either = log_decay.backward if log_decay.forward is None else log_decay.forward
    if either is None and head_directions == "alternate":
        either = query.new_zeros(query.shape[1])
    elif either is None:
        if cu_seqlens is None:
            return log_decay
        either = query.new_zeros(1, 1, length)
    floor = log_decay_floor(dtype)
    if log_decay.forward is log_decay.backward and cu_seqlens is None and not masks_directions:
        forward = either.to(dtype).clamp(min=floor)
        return LogDecay(forward, forward)

    def finite(x):  # no annotation: torch.compile of torch 2.9 cannot make unions of types on Python 3.10
        return (torch.zeros_like(either) if x is None else x).to(dtype).clamp(min=floor)

    forward = finite(log_decay.forward)
    backward = forward if log_decay.backward is log_decay.forward else finite(log_decay.backward)
    is_one = backward is forward
    if cu_seqlens is not None or not is_one and is_per_head(forward) != is_per_head(backward):
        forward, backward = over_tokens(LogDecay(forward, backward), query)
    if backward.shape != forward.shape:
        forward, backward = torch.broadcast_tensors(forward, backward)
    if masks_directions:
        forward, backward = mask_directions(forward, backward, query.shape[1], head_directions)
    if cu_seqlens is None:
        return LogDecay(forward, backward)
    borders = cu_seqlens[1:-1].to(device=query.device, dtype=torch.long)
    last, first = torch.zeros(2, length, dtype=torch.bool, device=query.device)
    last, first = last.index_fill(0, borders - 1, True), first.index_fill(0, borders, True)
    return LogDecay(forward.masked_fill(last, floor), backward.masked_fill(first, floor))


def over_tokens(log_decay: LogDecay, query: Tensor) -> LogDecay:
    """Log decays over the length of `query`: `(heads,)` expanded to `(1, heads, length)`, `None` as zeros."""
    length = query.shape[2]
    log_decays = [query.new_zeros(1, 1, length) if x is None else x for x in log_decay]
    return LogDecay(*[x.view(1, -1, 1).expand(-1, -1, length) if is_per_head(x) else x for x in log_decays])


class ChunkSums(NamedTuple):
    """
    Sums of log decays from each token t to the borders of its chunk, `(..., chunk)`. None is a difference of sums.

    Attributes:
        from_start: Σ_{k<t} forward_k. to_end: Σ_{k≥t} forward_k.
        from_end: Σ_{k>t} backward_k. to_start: Σ_{k≤t} backward_k.
    """

    from_start: Tensor
    to_end: Tensor
    from_end: Tensor
    to_start: Tensor


def chunk_sums(forward: Tensor, backward: Tensor) -> ChunkSums:
    return ChunkSums(
        from_start=torch.cat((torch.zeros_like(forward[..., :1]), forward[..., :-1].cumsum(-1)), dim=-1),
        to_end=forward.flip(-1).cumsum(-1).flip(-1),
        from_end=torch.cat(
            (backward[..., 1:].flip(-1).cumsum(-1).flip(-1), torch.zeros_like(backward[..., :1])), dim=-1
        ),
        to_start=backward.cumsum(-1),
    )


def split_cuts(forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """
    Separate cuts, the steps with λ = 0, from all other steps: `forward` and `backward` with 0 at the cuts, then, for
    each, 1 at the cuts and 0 elsewhere. In a sum, a cut would take the digits of later terms.
    """
    is_cut = [x <= log_decay_floor(x.dtype) for x in (forward, backward)]
    others = (x.masked_fill(cut, 0) for x, cut in zip((forward, backward), is_cut, strict=True))
    return *others, *(cut.to(forward.dtype) for cut in is_cut)


def mask_of(differences: Callable, forward: Tensor, backward: Tensor, is_below: Tensor) -> Tensor:
    """M from `differences(forward, backward)`, the sums of steps to queries after and before each key."""
    *others, forward_cuts, backward_cuts = split_cuts(forward, backward)
    exponent = torch.where(is_below, *differences(*others))
    num_cuts = torch.where(is_below, *differences(forward_cuts, backward_cuts))
    return exponent.masked_fill(num_cuts != 0, -torch.inf).exp()


def differences_in_chunk(forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
    """Differences of the sums in each chunk, forward and backward: `(..., chunk)` becomes `(..., chunk, chunk)`."""
    wide = wide_dtype(forward.device)  # differences of two sums lose the digits that they share
    sums = chunk_sums(forward.to(wide), backward.to(wide))
    below = sums.from_start.unsqueeze(-1) - sums.from_start.unsqueeze(-2)
    above = sums.to_start.unsqueeze(-2) - sums.to_start.unsqueeze(-1)
    return below.to(forward.dtype), above.to(forward.dtype)


def differences_between_chunks(forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
    """Differences of the sums between chunks: `(..., n, chunk)` becomes `(..., n, chunk, n * chunk)`."""
    wide = wide_dtype(forward.device)
    sums = chunk_sums(forward.to(wide), backward.to(wide))
    # Sums up to each chunk, counted from the start of chunk n. They are large only where the mask is 0.
    before = [x.to(wide).sum(-1).cumsum(-1) - x.to(wide).sum(-1) for x in (forward, backward)]
    offsets = [(x.unsqueeze(-2) - x.unsqueeze(-1)).unsqueeze(-1) for x in before]
    keys_forward = (sums.from_start.unsqueeze(-3) + offsets[0]).flatten(-2).unsqueeze(-2)  # (..., n, 1, length)
    keys_backward = (sums.to_start.unsqueeze(-3) + offsets[1]).flatten(-2).unsqueeze(-2)
    below = (sums.from_start.unsqueeze(-1) - keys_forward).to(forward.dtype)
    return below, (keys_backward - sums.to_start.unsqueeze(-1)).to(forward.dtype)


def decay_mask(forward: Tensor, backward: Tensor) -> Tensor:
    """The mask M, `(..., length, length)`, from the results of `finite_log_decay`, `(..., length)`."""
    length = forward.shape[-1]
    position = torch.arange(length, device=forward.device)
    if is_symbolic(length):
        # A graph for every length (`torch.export`) has no chunks; sums in float64 have enough digits.
        through, to_start = (x.to(wide_dtype(x.device)).cumsum(-1) for x in (forward, backward))
        from_start = through - forward
        below = from_start.unsqueeze(-1) - from_start.unsqueeze(-2)
        above = to_start.unsqueeze(-2) - to_start.unsqueeze(-1)
        return torch.where(position[:, None] >= position, below, above).to(forward.dtype).exp()
    if length <= LONGEST_CHUNK:
        return mask_of(differences_in_chunk, forward, backward, position[:, None] >= position)
    num_chunks, chunk = cut_evenly(length, LONGEST_CHUNK)
    forward, backward = (
        torch.nn.functional.pad(x, (0, num_chunks * chunk - length)).unflatten(-1, (num_chunks, chunk))
        for x in (forward, backward)
    )
    position = torch.arange(num_chunks * chunk, device=forward.device)
    is_below = position.view(num_chunks, chunk, 1) >= position
    mask = mask_of(differences_between_chunks, forward, backward, is_below)
    return mask.flatten(-3, -2)[..., :length, :length]


def decay_mask_rows(forward: Tensor, backward: Tensor, tokens: Tensor) -> Tensor:
    """Rows of the mask M, without the others, `(..., rows, length)`, for the queries `tokens`, `(rows,)`, int64."""
    position = torch.arange(forward.shape[-1], device=forward.device)
    query = tokens.unsqueeze(-1)
    # Both sums start at the query, so neither is a difference of sums.
    below = forward.unsqueeze(-2).where(position < query, 0).flip(-1).cumsum(-1).flip(-1)
    above = backward.unsqueeze(-2).where(position > query, 0).cumsum(-1)
    return (below + above).exp()
