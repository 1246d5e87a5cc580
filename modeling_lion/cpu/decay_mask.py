# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The decay mask M in hand-written kernels for the CPU, and the gradients of the log decays.

    W = (q kᵀ) ∘ M        R = dW ∘ W, the gradient of log M

The gradient of a step is the sum of R over the pairs of query and key on both sides of it:

    d forward_t = Σ_{i>t≥j} R_ij          d backward_t = Σ_{i<t≤j} R_ij

M_ij = 2^(x_i - x_j), where x is the sum of the steps before each token, in base 2 (exp2 is faster than exp on a CPU).
For each pair, the exponent of the right direction is at most 0 and the other one at least 0, so the minimum selects
the right one, without a mask of indices. A cut, a step with λ = 0, would take the digits of all later sums. With cuts,
every exponent is therefore a sum of its own.

A difference of two sums loses their common digits. So sums are float64. For differences in float32, a sum has
two float32 parts: its rounded value and the rounding error (`in_parts`).

Dimensions: b, h = batch and heads, bh = (batch, head) pairs, n = chunks, c = tokens of a chunk, l = length, r = rows
of a tile of M, w = the directions that a head reads: forward and backward, or one.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..attention.decay_mask import LOG2_E, decay_mask_rows, log_decay_floor, mask_directions, reads_forward
from .scratch import first_head, slices_of_all


def one_directional_rows(first_head: int) -> tuple[slice, slice]:
    """The heads of a slice that read forward, and those that read backward, if directions alternate."""
    return slice(first_head % 2, None, 2), slice(1 - first_head % 2, None, 2)


def has_cuts(forward: Tensor, backward: Tensor) -> bool:
    least = forward if backward is forward else torch.minimum(forward, backward)
    return least.amin().item() <= log_decay_floor(forward.dtype)


def in_parts(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """Split float64 sums, `(..., c)`, into rounded values and errors, `(..., parts, c)`; one part for float64."""
    first = sums.to(dtype)
    return first.unsqueeze(-2) if dtype == sums.dtype else torch.stack((first, (sums - first).to(dtype)), dim=-2)


def write_differences(queries: Tensor, keys: Tensor, out: Tensor) -> Tensor:
    """Subtract keys, `(..., parts, 1, keys)`, from queries, `(..., parts, queries, 1)`, both of `in_parts`."""
    torch.sub(queries.select(-3, 0), keys.select(-3, 0), out=out)
    if queries.shape[-3] == 2:
        out.add_(queries.select(-3, 1)).sub_(keys.select(-3, 1))
    return out


def finish_mask(out: Tensor, above: Tensor | None, first_head: int, first_query: int = 0) -> None:
    """
    Turn exponents, `(bh, ..., queries, keys)`, into M: those of the forward direction in `out` with those of the
    backward direction in `above`; without `above`, those of the one direction of each head, from `first_head` on.
    `first_query` is the index of the first query among the keys.
    """
    if above is not None:
        torch.minimum(out, above, out=out)
    out.exp2_()
    if above is None:
        forward, backward = one_directional_rows(first_head)
        out[forward].tril_(first_query)
        out[backward].triu_(first_query)


class ToeplitzMask:
    """M for log decays `(heads,)`, λ^|i-j|: one matrix per head, of which every tile is a part."""

    def __init__(self, tiles, forward: Tensor, backward: Tensor, head_directions: str):
        rows = tiles.rows[0][1]
        self.length, self.last = tiles.length, (tiles.length - 1) // rows * rows
        if tiles.steps is None:
            # Steps forward and backward from key to query, one of which is 0, and their sum, (3, rows, wide).
            key = torch.arange(self.last + tiles.length, dtype=forward.dtype, device="cpu") - self.last
            distance = torch.arange(rows, dtype=forward.dtype, device="cpu")[:, None] - key
            tiles.steps = torch.stack((distance.clamp(min=0), (-distance).clamp(min=0), distance.abs()))
        self.steps = tiles.steps
        forward, backward = mask_directions(forward, backward, len(forward), head_directions)
        exponent = (forward * LOG2_E).view(-1, 1, 1) * self.steps[2 if backward is forward else 0]
        if backward is not forward:
            exponent.addcmul_((backward * LOG2_E).view(-1, 1, 1), self.steps[1])
        self.tables = exponent.exp2_().split(tiles.pairs)
        self.d_log_decay: Tensor | None = None

    def part(self, x: Tensor, start: int, stop: int) -> Tensor:
        """The part of a table `(..., rows, wide)` for the queries from `start` to `stop`."""
        first = self.last - start
        return x[..., : stop - start, first : first + self.length]

    def rows(self, s: int, start: int, stop: int) -> Tensor:
        """M of slice s, `(h, r, l)`."""
        return self.part(self.tables[s % len(self.tables)], start, stop)

    def add_gradient(self, r: Tensor, s: int, start: int, stop: int) -> None:
        """
        Add R of slice s, `(bh, r, l)`: the gradient of a log decay is Σ_ij R_ij times the steps in its direction. It
        is summed row by row, since a single sum would lose digits: the largest terms, from far away, mostly cancel.
        """
        if self.d_log_decay is None:
            heads = sum(map(len, self.tables))
            self.d_log_decay = r.new_zeros(heads, 2, dtype=torch.float64)
        gradient = self.d_log_decay.split(len(self.tables[0]))[s % len(self.tables)]
        by_row = torch.bmm(r.transpose(0, 1), self.part(self.steps[:2], start, stop).permute(1, 2, 0))
        gradient += by_row.view(len(by_row), -1, *gradient.shape).sum((0, 1), dtype=gradient.dtype)

    def gradient(self, forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
        d_forward, d_backward = self.d_log_decay.to(forward.dtype).T.contiguous()
        return d_forward, d_backward.clone()


class TokenMask:
    """M for log decays `(b, h, l)`."""

    def __init__(self, tiles, forward: Tensor, backward: Tensor, head_directions: str):
        self.tiles, self.is_one_directional = tiles, head_directions == "alternate"
        self.d_log_decay: list[Tensor] | None = None
        shape = tiles.batch, tiles.heads, tiles.length
        is_one = backward is forward
        if forward.shape != shape:
            forward, backward = forward.expand(shape), backward.expand(shape)
        self.has_cuts = has_cuts(forward, forward if is_one else backward)
        if self.has_cuts:
            closed = mask_directions(forward, backward, tiles.heads, head_directions)
            self.by_slice = slices_of_all(tiles.pairs, *closed)
            return
        steps = forward * LOG2_E
        through = steps.cumsum(-1, dtype=torch.float64)
        before = through - steps
        through = through if is_one else (backward * LOG2_E).cumsum(-1, dtype=torch.float64)
        if self.is_one_directional:
            x = before.where(reads_forward(tiles.heads, before.device).unsqueeze(-1), -through).unsqueeze(2)
        else:
            x = torch.stack((before, -through), dim=2)
        num_chunks, chunk = tiles.chunks
        if num_chunks == 1:
            queries, keys = x.unsqueeze(-2), x.unsqueeze(-2)
        else:  # relative to the first token of each chunk, for its queries and for all keys
            first = x[..., ::chunk].unsqueeze(-1)
            queries = pad(x, (0, num_chunks * chunk - tiles.length)).unflatten(-1, (num_chunks, chunk)) - first
            keys = x.unsqueeze(-2) - first
        queries = in_parts(queries, tiles.scratch.dtype)
        keys = queries if num_chunks == 1 else in_parts(keys, tiles.scratch.dtype)
        self.by_slice = slices_of_all(tiles.pairs, queries, keys)

    def rows(self, s: int, start: int, stop: int) -> Tensor:
        """M of slice s, `(bh, r, l)`."""
        if self.has_cuts:
            return decay_mask_rows(*self.by_slice[s], torch.arange(start, stop, device="cpu"))
        queries, keys = self.by_slice[s]
        tiles, chunk = self.tiles, self.tiles.chunks[1]
        if len(tiles.rows) > 1:
            queries, keys = (x[:, :, start // chunk : -(-stop // chunk)] for x in (queries, keys))
        shape = len(keys), queries.shape[2] * chunk, tiles.length
        by_chunk = len(keys), queries.shape[2], chunk, tiles.length
        queries, keys = queries.unsqueeze(-1), keys.unsqueeze(-2)
        out, above = tiles.scratch("mask", *shape), None
        write_differences(queries[:, 0], keys[:, 0], out.view(by_chunk))
        if not self.is_one_directional:
            above = tiles.scratch("mask above", *shape)
            write_differences(queries[:, 1], keys[:, 1], above.view(by_chunk))
        finish_mask(out, above, self.first_head(s), start)
        return out if shape[1] == stop - start else out[:, : stop - start]

    def first_head(self, s: int) -> int:
        return first_head(s, self.tiles.pairs, self.tiles.heads)

    def add_gradient(self, r: Tensor, s: int, start: int, stop: int) -> None:
        """Add R of slice s, `(bh, r, l)`."""
        if self.d_log_decay is None:
            shape = self.tiles.batch, self.tiles.heads, self.tiles.length
            self.d_log_decay = [r.new_zeros(shape) for _ in range(2)]
            self.d_by_slice = slices_of_all(self.tiles.pairs, *self.d_log_decay)
        d_forward, d_backward = self.d_by_slice[s]
        heads = one_directional_rows(self.first_head(s)) if self.is_one_directional else (slice(None), slice(None))
        query = torch.arange(start, stop, device="cpu").unsqueeze(-1)
        step = torch.arange(self.tiles.length, device="cpu")
        # The pairs that a step separates: queries behind it with keys up to it, and the reverse.
        crossing = r[heads[0]].cumsum(-1).where(step < query, 0)
        d_forward[heads[0]] += crossing.sum(1)
        crossing = r[heads[1]].flip(-1).cumsum(-1).flip(-1).where(step > query, 0)
        d_backward[heads[1]] += crossing.sum(1)

    def gradient(self, forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the log decays, in the shapes of `forward` and `backward`."""
        return tuple(d.sum_to_size(x.shape) for d, x in zip(self.d_log_decay, (forward, backward), strict=True))
