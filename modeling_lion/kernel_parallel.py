# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The full form (SPEC §3 "parallel"): one length x length matrix per head. O(L²) time, best for short L.

    W = (q kᵀ) ∘ M        den_i = Σ_j W_ij        y_i = (W v)_i / den_i

Backward, with n_i = dy_i / den_i and d_i = -n_i · y_i, the gradients of numerator and denominator:

    G_ij = (n_i · v_j + d_i) M_ij       dq = G k       dk = Gᵀ q       dv = Wᵀ n

and for the log decays R = G ∘ (q kᵀ), the gradient of log M, of which every step takes what crosses it:

    d right_t = Σ_{i>t≥j} R_ij          d left_t = Σ_{i<t≤j} R_ij

The fused body computes some rows of W for some heads at a time, so that they stay in cache, and never keeps W.

Dimensions: b = batch, h = heads, l = length, r = rows of W at a time, d = head_dim, e = value_dim.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from .decay_mask import BLOCK_SIZE, LOG2_E, block_sums, cut_evenly, decay_mask, sums_for_mask, write_block_mask
from .fused_kernel import (
    DecayGradient,
    Scratch,
    fused_operator,
    inverse_totals,
    row_slices,
    row_views,
    rows_at_a_time,
    scaled_gradient,
)
from .kernel_diagonal import diagonal_parallel
from .kernel_triton import triton_operator
from .lion_kernel import accumulation_dtype, lion_kernel


# Elements of W at a time: with its mask, some megabytes. Fewer would cost more in calls than they save in cache.
TILE_ELEMENTS = 400_000


def plain_parallel(query, key, value, right, left, chunk_size):
    scores = query @ key.transpose(-1, -2)
    if right is not None:
        scores = scores * decay_mask(right, left)
    return scores @ value, scores.sum(-1, keepdim=True)


class ToeplitzMask:
    """M of decays that are the same at every token, λ^|i-j|: one matrix per head, wide enough for all tiles."""

    def __init__(self, decay: Tensor, length: int, tile: int, rows: int):
        """`decay` is `(1, h, 1)`."""
        self.length, self.last = length, (length - 1) // tile * tile
        row = torch.arange(tile, dtype=decay.dtype, device=decay.device)
        column = torch.arange(self.last + length, dtype=decay.dtype, device=decay.device) - self.last
        self.distance = (row[:, None] - column).abs_()
        self.tables = (decay[0].unsqueeze(-1) * LOG2_E * self.distance).exp2_().split(rows)
        self.d_decay = torch.zeros_like(decay)
        self.gradients = self.d_decay[0, :, 0].split(rows)

    def part(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Of a table `(..., tile, wide)`, what belongs to the rows of W from `start` to `stop`."""
        first = self.last - start
        return x[..., : stop - start, first : first + self.length]

    def rows(self, s: int, start: int, stop: int, scratch: Scratch) -> Tensor:
        """M of slice s, `(h, r, l)`."""
        return self.part(self.tables[s % len(self.tables)], start, stop)

    def add_gradient(self, r: Tensor, s: int, start: int, stop: int, scratch: Scratch) -> None:
        """Take R of slice s, `(b * h, r, l)`: the gradient of a log λ is Σ_ij |i-j| R_ij."""
        gradient = self.gradients[s % len(self.gradients)]
        by_row = torch.mv(r.flatten(1), self.part(self.distance, start, stop).flatten())
        gradient += by_row.view(-1, len(gradient)).sum(0)

    def gradient(self, right: Tensor, left: Tensor | None) -> tuple[Tensor, Tensor]:
        # `left` is given with packed sequences, and here only if these are a single token, which loses nothing.
        return self.d_decay, self.d_decay.new_empty(0) if left is None else torch.zeros_like(left)


class BlockMask:
    """M of any decays, by blocks: exponents on the diagonal, products of what rows and columns lose beside it."""

    def __init__(self, right: Tensor, left: Tensor, num_blocks: int, block: int, rows: int):
        """`right` and `left` are `(b, h, l)`."""
        self.length = right.shape[-1]
        padding = num_blocks * block - self.length
        right, left = (pad(a, (0, padding)).unflatten(-1, (num_blocks, block)) for a in (right, left))
        natural = (right, left)
        right, left = right * LOG2_E, left * LOG2_E
        from_start, to_end, from_end, to_start = block_sums(right, left)
        self.sums = row_slices(rows, *sums_for_mask(*natural, from_start, to_start))
        # What keys lose on their way to the border of block n, through the blocks between: (..., n, blocks, block).
        up_to_right, up_to_left = (a.double().sum(-1).cumsum(-1) for a in (right, left))
        through_right = pad(up_to_right, (1, 0))[..., :-1].unsqueeze(-1) - up_to_right.unsqueeze(-2)
        through_left = pad(up_to_left, (1, 0))[..., :-1].unsqueeze(-2) - up_to_left.unsqueeze(-1)
        is_before = torch.ones(num_blocks, num_blocks, dtype=torch.bool, device=right.device).tril_(-1)
        through = torch.where(is_before, through_right, through_left).clamp_(max=0).to(right.dtype)
        lost = torch.where(is_before.unsqueeze(-1), to_end.unsqueeze(-3), to_start.unsqueeze(-3))
        keys = lost.add_(through.unsqueeze(-1)).exp2_().flatten(-2).unsqueeze(-2)
        self.keys, self.row_right, self.row_left = (
            [x.unbind(1) for x in row_views(factors, rows)]
            for factors in (keys, from_start.exp2().unsqueeze(-1), from_end.exp2().unsqueeze(-1))
        )
        self.sizes, self.num_rows, self.gradients = right.shape, rows, None

    def rows(self, s: int, start: int, stop: int, scratch: Scratch) -> Tensor:
        """M of slice s, `(b * h, r, l)`."""
        _, num_blocks, size = self.sums[s][0].shape
        first, last = start // size, -(-stop // size)
        sums = [x[:, first:last] for x in self.sums[s]]
        mask = scratch("mask", *sums[0].shape, num_blocks * size)
        memory = (scratch(name, *sums[0].shape, size) for name in ("first", "second"))
        write_block_mask(self.diagonal(mask, first), *sums, memory=memory)
        for n, out in zip(range(first, last), mask.unbind(1), strict=True):
            before, behind = n * size, (n + 1) * size
            if n > 0:
                torch.mul(self.row_right[s][n], self.keys[s][n][..., :before], out=out[..., :before])
            if n < num_blocks - 1:
                torch.mul(self.row_left[s][n], self.keys[s][n][..., behind:], out=out[..., behind:])
        return mask.flatten(1, 2)[:, : stop - start, : self.length]

    def diagonal(self, x: Tensor, first: int) -> Tensor:
        """The blocks `(b * h, n, c, c)` on the diagonal of `(b * h, n, c, blocks * c)`, from block `first` on."""
        return x.unflatten(-1, self.sizes[-2:]).diagonal(first, 1, 3).movedim(-1, 1)

    def add_gradient(self, r: Tensor, s: int, start: int, stop: int, scratch: Scratch) -> None:
        """Take R of slice s, the gradient of log M, `(b * h, r, l)`; it is lost."""
        batch, heads, num_blocks, size = self.sizes
        if self.gradients is None:
            self.inside = DecayGradient(r, *self.sizes)
            self.by_row = r.new_empty(*self.sizes, num_blocks)
            self.by_column = r.new_empty(batch, heads, num_blocks, num_blocks, size)
            found = (self.by_row, self.by_column, self.inside.query_right, self.inside.key_left)
            self.gradients = row_slices(self.num_rows, *found)
        first, last = start // size, -(-stop // size)
        by_row, by_column, query_right, key_left = (x[:, first:last] for x in self.gradients[s])
        padding = (0, num_blocks * size - self.length, 0, (last - first) * size - r.shape[1])
        r = (pad(r, padding) if any(padding) else r).view(len(r), -1, size, num_blocks * size)
        torch.sum(r.unflatten(-1, (num_blocks, size)), -1, out=by_row)
        torch.sum(r.unflatten(-1, (num_blocks, size)), 2, out=by_column)
        diagonal = self.diagonal(r, first)
        right, left = self.inside.inside_blocks(diagonal, scratch("below", *diagonal.shape))
        query_right += right
        key_left += left

    def gradient(self, right: Tensor, left: Tensor | None) -> tuple[Tensor, Tensor]:
        before = self.by_row.new_ones(self.sizes[2], self.sizes[2]).tril_(-1)  # [n, m]: m comes before n
        behind = before.T
        pairs = self.by_column.sum(-1)
        self.inside.query_right += (self.by_row * before.unsqueeze(1)).sum(-1)
        self.inside.query_left += (self.by_row * behind.unsqueeze(1)).sum(-1)
        self.inside.key_right += (self.by_column * before.unsqueeze(-1)).sum(2)
        self.inside.key_left += (self.by_column * behind.unsqueeze(-1)).sum(2)
        self.inside.through_right += ((behind @ pairs) * before).sum(-1)
        self.inside.through_left += ((before @ pairs) * behind).sum(-1)
        return self.inside.result(self.length, right, left)


class Tiles:
    """How W is cut: blocks of tokens, some rows of them at a time, for some heads at a time; and the mask, by rows."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, right: Tensor | None, left: Tensor | None):
        batch, heads, length, _ = query.shape
        num_blocks, block = cut_evenly(length, BLOCK_SIZE)
        step = min(length, block * max(1, TILE_ELEMENTS // max(1, block * length)))
        starts = range(0, length, max(1, step))  # with more than one of them, a slice is one head
        self.tiles = [(start, min(start + step, length)) for start in starts]
        self.num_rows = rows_at_a_time(TILE_ELEMENTS // max(1, step * length), query, key, value)
        self.mask = None
        if right is not None and right.shape[-1] == 1:
            decay = right.expand(-1, heads, -1)
            self.mask = ToeplitzMask(decay, length, step, self.num_rows)
        elif right is not None:
            right, left = (x.expand(batch, heads, length) for x in (right, right if left is None else left))
            self.mask = BlockMask(right, left, num_blocks, block, self.num_rows)

    def slices(self, *tensors: Tensor):
        """Slices of tensors `(b, h, ...)`, numbered."""
        return enumerate(row_slices(self.num_rows, *tensors))

    def mask_rows(self, s: int, start: int, stop: int, scratch: Scratch) -> Tensor | None:
        return None if self.mask is None else self.mask.rows(s, start, stop, scratch)


def multiply_(x: Tensor, mask: Tensor | None) -> Tensor:
    """Multiply `(b * h, r, l)` with a mask of as many heads or of one sequence's, in place."""
    if mask is not None:
        x.view(-1, *mask.shape).mul_(mask)
    return x


def forward(query, key, value, right, left, chunk_size, normalize):
    scratch = Scratch(query, accumulation_dtype(query.dtype))
    output = torch.empty_like(value, dtype=scratch.dtype)
    inverse = torch.full(query.shape[:3], query.shape[-1] ** -0.5, dtype=scratch.dtype, device=query.device)
    tiles = Tiles(query, key, value, right, left)
    length = query.shape[2]
    for s, (q, k, v, out, inverses) in tiles.slices(query, key, value, output, inverse):
        q, k, v = scratch.cast(q, k, v)
        for start, stop in tiles.tiles:
            weights = torch.bmm(
                q[:, start:stop], k.transpose(1, 2), out=scratch("weights", len(q), stop - start, length)
            )
            multiply_(weights, tiles.mask_rows(s, start, stop, scratch))
            factor = inverses[:, start:stop]
            if normalize:
                inverse_totals(torch.sum(weights, -1, out=factor))
            summed = torch.bmm(weights, v, out=scratch("summed", *weights.shape[:2], v.shape[-1]))
            torch.mul(summed, factor.unsqueeze(-1), out=out[:, start:stop])
    return output, inverse


def backward(
    grad, query, key, value, right, left, output, inverse, chunk_size, normalize, needs_decay
):  # fmt: skip
    scratch = Scratch(query, inverse.dtype)
    d_query, d_key, d_value = (torch.empty_like(x) for x in (query, key, value))
    tiles = Tiles(query, key, value, right, left)
    length = query.shape[2]
    for s, (q, k, v, dy, y, inverses, *outs) in tiles.slices(
        query, key, value, grad, output, inverse, d_query, d_key, d_value
    ):
        q, k, v = scratch.cast(q, k, v)
        all_n, all_d = scaled_gradient(dy, inverses, y if normalize else None, (1, length), scratch)
        dq, dk, dv = found = [scratch.target(name, out) for name, out in zip(("dq", "dk", "dv"), outs, strict=True)]
        for start, stop in tiles.tiles:
            n, q_rows = all_n[:, start:stop], q[:, start:stop]
            shape = (len(q), stop - start, length)
            scores = torch.bmm(q_rows, k.transpose(1, 2), out=scratch("scores", *shape))
            g = torch.bmm(n, v.transpose(1, 2), out=scratch("g", *shape))
            if normalize:
                g.add_(all_d[:, start:stop])
            mask = tiles.mask_rows(s, start, stop, scratch)
            multiply_(g, mask)
            torch.bmm(g, k, out=dq[:, start:stop])
            add_product(dk, g, q_rows, is_first=start == 0)
            if needs_decay:
                tiles.mask.add_gradient(g.mul_(scores), s, start, stop, scratch)
            add_product(dv, multiply_(scores, mask), n, is_first=start == 0)
        scratch.deliver(found, outs)
    decays = tiles.mask.gradient(right, left) if needs_decay else (grad.new_empty(0), grad.new_empty(0))
    return d_query, d_key, d_value, *decays


def add_product(out: Tensor, left_side: Tensor, right_side: Tensor, is_first: bool) -> None:
    """Add left_sideᵀ right_side to `out`, which holds nothing yet if this is the first."""
    if is_first:
        torch.bmm(left_side.transpose(1, 2), right_side, out=out)
    else:
        out.baddbmm_(left_side.transpose(1, 2), right_side)


fused_parallel = fused_operator("parallel", forward, backward, plain_parallel)
triton_parallel = triton_operator("parallel", plain_parallel)


@lion_kernel(fused_parallel, triton_parallel, diagonal=diagonal_parallel)
def parallel_attention(query, key, value, right, left, chunk_size):
    return plain_parallel(query, key, value, right, left, chunk_size)
