# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The decay mask in hand-written kernels for the CPU: tiles of M in scratch memory, and the gradients of the log decays.

    W = (q kᵀ) ∘ M        R = dW ∘ W, the gradient of log M. The gradient of a step is the sum of what crosses it:

    d forward_t = Σ_{i>t≥j} R_ij          d backward_t = Σ_{i<t≤j} R_ij

Dimensions: bh = (batch, head) pairs, n = chunks, c = tokens of a chunk, l = length.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..attention.decay import (
    LOG2_E,
    ChunkSums,
    LogDecay,
    chunk_sums,
    close_directions,
    is_per_head,
    log_decay_floor,
    reads_forward,
    split_cuts,
)
from .common import Scratch, first_head, slices_of_all


class MaskSums(NamedTuple):
    """
    What `write_mask` reads, by direction: M_ij = 2^(x_i - x_j).

    Attributes:
        exponents: x, `(..., 2, chunk)`: sums of log decays in base 2, forward from the start of the chunk, and the
            negative of those backward to the start. `(..., 1, chunk)` if each head reads one way.
        cuts: the same sums of the cuts, 1 each, which `exponents` then leaves out; `None` where there are none.
    """

    exponents: Tensor
    cuts: Tensor | None = None

    def of_chunks(self, n: slice) -> "MaskSums":
        """Those of some chunks, from `(bh, n, ...)`."""
        return MaskSums(self.exponents[:, n], None if self.cuts is None else self.cuts[:, n])

    def tensors(self) -> tuple[Tensor, ...]:
        """Those that there are."""
        return self[:1] if self.cuts is None else self


def base2_chunk_sums(forward: Tensor, backward: Tensor) -> ChunkSums:
    return chunk_sums(forward * LOG2_E, backward * LOG2_E)


def base2_sums(forward: Tensor, backward: Tensor) -> tuple[ChunkSums, MaskSums]:
    """`ChunkSums` of `(..., chunk)` in base 2, since exp2 is faster than exp on a CPU, and the sums for masks."""
    sums = base2_chunk_sums(forward, backward)
    if not (torch.minimum(forward, backward) <= log_decay_floor(forward.dtype)).any():
        return sums, MaskSums(both_ways(sums))
    forward, backward, *cuts = split_cuts(forward, backward)
    return sums, MaskSums(both_ways(base2_chunk_sums(forward, backward)), both_ways(chunk_sums(*cuts)))


def both_ways(sums: ChunkSums) -> Tensor:
    """The exponents or cuts of `MaskSums` for chunks that are read both ways."""
    return torch.stack((sums.from_start, -sums.to_start), dim=-2)


def one_way_base2_sums(forward: Tensor, backward: Tensor) -> tuple[ChunkSums, MaskSums, Tensor]:
    """
    `base2_sums` of log decays `(batch, heads, ..., chunk)` for heads of alternating directions: both directions of a
    head get the log decays of the one it reads. And which heads read forward, `(heads, ..., 1)`.
    """
    is_forward = reads_forward(forward.shape[1]).view(-1, *[1] * (forward.dim() - 2))
    own = forward if forward is backward else forward.where(is_forward, backward)

    def own_way(sums: ChunkSums) -> Tensor:
        return sums.from_start.where(is_forward, -sums.to_start).unsqueeze(-2)

    sums = base2_chunk_sums(own, own)
    for_mask = MaskSums(own_way(sums))
    if (own <= log_decay_floor(own.dtype)).any():
        others, _, *cuts = split_cuts(own, own)
        for_mask = MaskSums(own_way(base2_chunk_sums(others, others)), own_way(chunk_sums(*cuts)))
    return sums, for_mask, is_forward


def write_mask(out: Tensor, sums: MaskSums, scratch: Callable[..., Tensor], first_head: int = 0) -> None:
    """
    Write the mask inside chunks.

    Of the exponents of both directions, the one that does not apply is never below 0 and the one that applies never
    above: the minimum chooses, without a mask of indices. (Its derivative, which is halved where both are 0, is never
    asked for.) Of the numbers of cuts, the maximum does.

    Args:
        out: `(..., chunk, chunk)`, of any strides.
        sums: `(..., ways, chunk)`.
        scratch: gives memory by name and shape.
        first_head: the head of `out[0]`, where heads read one way; `out[1]` is of the next one, and so on.
    """
    if sums.exponents.shape[-2] == 1:
        write_one_way_mask(out, sums, scratch, first_head)
        return
    has_cuts = sums.cuts is not None
    below = out if out.is_contiguous() and not has_cuts else scratch("mask below", *out.shape)
    above = scratch("mask above", *out.shape)
    write_differences(sums.exponents, below, above)
    torch.exp2(torch.minimum(below, above, out=below), out=out)
    if has_cuts:
        write_differences(sums.cuts, below, above)
        out.masked_fill_(torch.maximum(below, above, out=below) > 0, 0)


def write_differences(x: Tensor, *outs: Tensor) -> None:
    """x_i - x_j of each way, `(..., chunk, chunk)`, from `(..., ways, chunk)`."""
    for of_way, out in zip(x.unbind(-2), outs, strict=True):
        torch.sub(of_way.unsqueeze(-1), of_way.unsqueeze(-2), out=out)


def write_one_way_mask(out: Tensor, sums: MaskSums, scratch: Callable[..., Tensor], first_head: int) -> None:
    """`write_mask` for heads that read one way: one exponent, and 0 for tokens in the other direction."""
    write_differences(sums.exponents, out)
    closed = out.new_full(out.shape[-2:], -torch.inf).triu_(1)
    for heads, closed_above in zip(one_way_rows(first_head), (closed, closed.T), strict=True):
        out[heads] += closed_above
    torch.exp2(out, out=out)
    if sums.cuts is not None:
        cuts = scratch("mask above", *out.shape)
        write_differences(sums.cuts, cuts)
        out.masked_fill_(cuts > 0, 0)


def one_way_rows(first_head: int) -> tuple[slice, slice]:
    """Which heads of a slice read forward, and which backward, if directions alternate."""
    return slice(first_head % 2, None, 2), slice(1 - first_head % 2, None, 2)


class DecayShares(NamedTuple):
    """The sums of a `DecayGradient` for some (batch, head) pairs: `(bh, n, w, c)`, and `(bh, n, w)` for `through`."""

    query: Tensor
    key: Tensor
    through: Tensor

    def of_chunks(self, n: slice) -> "DecayShares":
        return DecayShares(*[x[:, n] for x in self])


class DecayGradient:
    """
    The gradients of the log decays, collected from what crosses each step inside a chunk (never from sums over the
    whole sequence, which would cancel). In both directions, or in the one that a head reads:

        d forward_t  = Σ_{i>t} query_i + Σ_{j≤t} key_j + through
        d backward_t = Σ_{i<t} query_i + Σ_{j≥t} key_j + through

    `query_i` is the gradient of the log of what query i gets from the chunks before its own (after it, if backward),
    `key_j` of what key j gives to the chunks after its own, `through` of what passes the whole chunk.
    """

    def __init__(self, like: Tensor, batch: int, heads: int, num_chunks: int, chunk: int, is_one_way: bool):
        self.is_one_way = is_one_way
        ways = 1 if self.is_one_way else 2
        queries_and_keys = [like.new_zeros(batch, heads, num_chunks, ways, chunk) for _ in range(2)]
        self.shares = DecayShares(*queries_and_keys, like.new_zeros(batch, heads, num_chunks, ways))
        self.below = like.new_ones(chunk, chunk).tril_(-1)

    def slices(self, pairs: int) -> list[DecayShares]:
        return [DecayShares(*shares) for shares in slices_of_all(pairs, *self.shares)]

    def add_inside_chunks(self, shares: DecayShares, r: Tensor, scratch: Scratch) -> None:
        """
        Add R of diagonal tiles, `(bh, n, c, c)`, which is overwritten. What crosses t is added in row i from i on, and
        subtracted in column j from j on. (The diagonal cancels.)
        """
        if self.is_one_way:
            shares.query[:, :, 0].add_(r.sum(-1).sub_(r.sum(-2)))
            return
        below = torch.mul(r, self.below, out=scratch("below", *r.shape))
        above = r.sub_(below)
        shares.query[:, :, 0].add_(below.sum(-1).sub_(below.sum(-2)))
        shares.key[:, :, 1].add_(above.sum(-2).sub_(above.sum(-1)))

    def result(self, length: int, forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients in the shapes of `forward` and `backward`."""
        query, key, through = self.shares
        batch, heads = query.shape[:2]
        gradients = [query.new_zeros(batch, heads, length) for _ in range(2)]
        directions = (
            [(rows, 0) for rows in one_way_rows(0)] if self.is_one_way else [(slice(None), 0), (slice(None), 1)]
        )
        for (rows, way), out, is_backward in zip(directions, gradients, (False, True), strict=True):
            from_queries, from_keys = query[:, rows, :, way], key[:, rows, :, way]
            if not is_backward:
                from_queries, from_keys = from_queries.flip(-1), from_keys.flip(-1)
            # Σ_{i<t} query_i + Σ_{j≥t} key_j, with the chunk reversed for the forward direction.
            d = from_queries.cumsum(-1) - from_queries + from_keys.flip(-1).cumsum(-1).flip(-1)
            d = (d if is_backward else d.flip(-1)) + through[:, rows, :, way, None]
            out[:, rows] = d.flatten(2)[..., :length]
        return tuple(
            d.sum((0, 2)) if is_per_head(x) else d.sum_to_size(x.shape)
            for d, x in zip(gradients, (forward, backward), strict=True)
        )


class ToeplitzMask:
    """M for log decays `(heads,)`, λ^|i-j|: one matrix per head, wide enough for the tiles of all queries."""

    def __init__(self, forward: Tensor, backward: Tensor, length: int, rows: int, pairs: int):
        """`rows`: queries in a tile."""
        self.length, self.last = length, (length - 1) // rows * rows
        row = torch.arange(rows, dtype=forward.dtype)
        column = torch.arange(self.last + length, dtype=forward.dtype) - self.last
        distance = row[:, None] - column
        # Steps forward and backward between key and query: one of them is 0.
        self.steps = torch.stack((distance.clamp(min=0), (-distance).clamp_(min=0)))
        exponent = forward[:, None, None] * LOG2_E * self.steps[0]
        self.tables = exponent.addcmul_(backward[:, None, None] * LOG2_E, self.steps[1]).exp2_().split(pairs)
        self.d_log_decay = forward.new_zeros(len(forward), 2, dtype=torch.float64)
        self.gradients = self.d_log_decay.split(pairs)

    def part(self, x: Tensor, start: int, stop: int) -> Tensor:
        """The part of a table `(..., rows, wide)` for the queries from `start` to `stop`."""
        first = self.last - start
        return x[..., : stop - start, first : first + self.length]

    def rows(self, s: int, start: int, stop: int, scratch: Scratch) -> Tensor:
        """M of slice s, `(h, r, l)`."""
        return self.part(self.tables[s % len(self.tables)], start, stop)

    def add_gradient(self, r: Tensor, s: int, start: int, stop: int, scratch: Scratch) -> None:
        """
        Add R of slice s, `(bh, r, l)`: the gradient of a log decay is Σ_ij R_ij times the steps in its direction,
        summed row by row, since a single sum would lose digits: the largest terms, from far away, mostly cancel.
        """
        gradient = self.gradients[s % len(self.gradients)]
        by_row = torch.bmm(r.transpose(0, 1), self.part(self.steps, start, stop).permute(1, 2, 0))
        gradient += by_row.view(len(by_row), -1, *gradient.shape).sum((0, 1), dtype=gradient.dtype)

    def gradient(self, forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
        d_forward, d_backward = self.d_log_decay.to(forward.dtype).T.contiguous()
        return d_forward, d_backward.clone()


class ChunkedMask:
    """M for any log decays: diagonal tiles from exponents, the others as products of factors of rows and columns."""

    def __init__(self, log_decay: LogDecay, num_chunks: int, chunk: int, pairs: int, head_directions: str):
        """`log_decay`: `(b, h, l)`."""
        self.length = log_decay.forward.shape[-1]
        padding = num_chunks * chunk - self.length
        forward, backward = (pad(x, (0, padding)).unflatten(-1, (num_chunks, chunk)) for x in log_decay)
        is_one_way = head_directions == "alternate"
        sums, for_mask, *_ = (one_way_base2_sums if is_one_way else base2_sums)(forward, backward)
        self.mask_sums = [MaskSums(*x) for x in slices_of_all(pairs, *for_mask.tensors())]
        # Factors of keys up to the border of chunk n, through the chunks between: (..., n, chunks, chunk).
        forward_up_to, backward_up_to = (x.double().sum(-1).cumsum(-1) * LOG2_E for x in (forward, backward))
        forward_through = pad(forward_up_to, (1, 0))[..., :-1].unsqueeze(-1) - forward_up_to.unsqueeze(-2)
        backward_through = pad(backward_up_to, (1, 0))[..., :-1].unsqueeze(-2) - backward_up_to.unsqueeze(-1)
        is_before = torch.ones(num_chunks, num_chunks, dtype=torch.bool).tril_(-1)
        through = torch.where(is_before, forward_through, backward_through).clamp_(max=0).to(forward.dtype)
        keys = torch.where(is_before.unsqueeze(-1), sums.to_end.unsqueeze(-3), sums.to_start.unsqueeze(-3))
        keys = keys.add_(through.unsqueeze(-1)).exp2_().flatten(-2).unsqueeze(-2)
        forward_rows, backward_rows = (x.exp2().unsqueeze(-1) for x in (sums.from_start, sums.from_end))
        if is_one_way and num_chunks > 1:
            for closed, heads in zip((backward_rows, forward_rows), one_way_rows(0), strict=True):
                closed[:, heads] = 0
        self.keys, self.forward_rows, self.backward_rows = (
            [x.unbind(1) for (x,) in slices_of_all(pairs, factors)] for factors in (keys, forward_rows, backward_rows)
        )
        self.shape, self.pairs, self.gradients = forward.shape, pairs, None

    def rows(self, s: int, start: int, stop: int, scratch: Scratch) -> Tensor:
        """M of slice s, `(bh, r, l)`."""
        num_chunks, size = self.shape[2:]
        first, last = start // size, -(-stop // size)
        sums = self.mask_sums[s].of_chunks(slice(first, last))
        mask = scratch("mask", len(sums.exponents), last - first, size, num_chunks * size)
        write_mask(self.diagonal(mask, first), sums, scratch, first_head(s, self.pairs, self.shape[1]))
        for n, out in zip(range(first, last), mask.unbind(1), strict=True):
            before, after = n * size, (n + 1) * size
            if n > 0:
                torch.mul(self.forward_rows[s][n], self.keys[s][n][..., :before], out=out[..., :before])
            if n < num_chunks - 1:
                torch.mul(self.backward_rows[s][n], self.keys[s][n][..., after:], out=out[..., after:])
        return mask.flatten(1, 2)[:, : stop - start, : self.length]

    def diagonal(self, x: Tensor, first: int) -> Tensor:
        """The tiles `(bh, n, c, c)` on the diagonal of `(bh, n, c, chunks * c)`, from chunk `first` on."""
        return x.unflatten(-1, self.shape[-2:]).diagonal(first, 1, 3).movedim(-1, 1)

    def add_gradient(self, r: Tensor, s: int, start: int, stop: int, scratch: Scratch) -> None:
        """Add R of slice s, `(bh, r, l)`, which is overwritten."""
        batch, heads, num_chunks, size = self.shape
        if self.gradients is None:
            self.inside = DecayGradient(r, *self.shape, is_one_way=False)
            self.by_row = r.new_empty(*self.shape, num_chunks)
            self.by_column = r.new_empty(batch, heads, num_chunks, num_chunks, size)
            by_slice = slices_of_all(self.pairs, self.by_row, self.by_column)
            self.gradients = list(zip(by_slice, self.inside.slices(self.pairs), strict=True))
        n = slice(start // size, -(-stop // size))
        (by_row, by_column), shares = self.gradients[s]
        padding = (0, num_chunks * size - self.length, 0, (n.stop - n.start) * size - r.shape[1])
        r = (pad(r, padding) if any(padding) else r).view(len(r), -1, size, num_chunks * size)
        torch.sum(r.unflatten(-1, (num_chunks, size)), -1, out=by_row[:, n])
        torch.sum(r.unflatten(-1, (num_chunks, size)), 2, out=by_column[:, n])
        self.inside.add_inside_chunks(shares.of_chunks(n), self.diagonal(r, n.start), scratch)

    def gradient(self, forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
        before = self.by_row.new_ones(self.shape[2], self.shape[2]).tril_(-1)  # [n, m]: m comes before n
        after = before.T
        pairs = self.by_column.sum(-1)
        shares = self.inside.shares
        for way, (ahead, back) in enumerate(((before, after), (after, before))):
            shares.query[:, :, :, way].add_((self.by_row * ahead.unsqueeze(1)).sum(-1))
            shares.key[:, :, :, way].add_((self.by_column * ahead.unsqueeze(-1)).sum(2))
            shares.through[:, :, :, way].add_(((back @ pairs) * ahead).sum(-1))
        return self.inside.result(self.length, forward, backward)


def make_mask(
    log_decay: LogDecay,
    batch: int,
    heads: int,
    length: int,
    chunks: tuple[int, int],
    rows: int,
    pairs: int,
    head_directions: str,
) -> ToeplitzMask | ChunkedMask:
    """
    The mask for log decays of `finite_log_decay`, in tiles of `rows` queries and slices of `pairs`; chunks: n and c.
    """
    if is_per_head(log_decay.forward):
        log_decay = close_directions(*log_decay, heads, head_directions)
        return ToeplitzMask(*log_decay, length, rows, pairs)
    log_decay = LogDecay(*(x.expand(batch, heads, length) for x in log_decay))
    return ChunkedMask(log_decay, *chunks, pairs, head_directions)
