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

from .decay_mask import BLOCK_SIZE, block_sums, decay_mask, write_block_mask
from .fused_kernel import (
    LOG2_E,
    DecayGradient,
    Scratch,
    blocks_to_write,
    fused_operator,
    inverse_totals,
    read_blocks,
    row_slices,
    scaled_gradient,
    write_blocks,
)
from .lion_kernel import accumulation_dtype, lion_kernel


# Elements of W at a time: with its mask, some megabytes.
TILE_ELEMENTS = 400_000


def plain_parallel(query, key, value, right, left, chunk_size):
    scores = query @ key.transpose(-1, -2)
    if right is not None:
        scores = scores * decay_mask(right, left)
    return scores @ value, scores.sum(-1, keepdim=True)


class ToeplitzMask:
    """M of decays that are the same at every token, λ^|i-j|: one matrix per head, wide enough for all tiles."""

    def __init__(self, decay: Tensor, length: int, tile: int):
        self.length, self.last = length, (length - 1) // tile * tile
        row = torch.arange(tile, dtype=decay.dtype, device=decay.device)
        column = torch.arange(self.last + length, dtype=decay.dtype, device=decay.device) - self.last
        self.table = (decay.unsqueeze(-1) * LOG2_E * (row[:, None] - column).abs_()).exp2_()

    def rows(self, b: slice, h: slice, start: int, stop: int, scratch: Scratch) -> Tensor:
        """`(1, h, r, l)`"""
        first = self.last - start
        return self.table[:, h, : stop - start, first : first + self.length]


class BlockMask:
    """M of any decays, by blocks: exponents on the diagonal, products of what rows and columns lose beside it."""

    def __init__(self, right: Tensor, left: Tensor, num_blocks: int, block: int):
        self.length = right.shape[-1]
        padding = num_blocks * block - self.length
        right, left = (pad(a * LOG2_E, (0, padding)).unflatten(-1, (num_blocks, block)) for a in (right, left))
        self.from_start, to_end, from_end, self.to_start = block_sums(right, left)
        self.row_right, self.row_left = (x.exp2().unsqueeze(-1) for x in (self.from_start, from_end))
        # What keys lose on their way to the border of block n, through the blocks between: (..., n, blocks, block).
        up_to_right, up_to_left = (a.double().sum(-1).cumsum(-1) for a in (right, left))
        through_right = pad(up_to_right, (1, 0))[..., :-1].unsqueeze(-1) - up_to_right.unsqueeze(-2)
        through_left = pad(up_to_left, (1, 0))[..., :-1].unsqueeze(-2) - up_to_left.unsqueeze(-1)
        is_before = torch.ones(num_blocks, num_blocks, dtype=torch.bool, device=right.device).tril(-1)
        through = torch.where(is_before, through_right, through_left).clamp_(max=0).to(right.dtype)
        lost = torch.where(is_before.unsqueeze(-1), to_end.unsqueeze(-3), self.to_start.unsqueeze(-3))
        self.keys = lost.add_(through.unsqueeze(-1)).exp2_().flatten(-2)

    def rows(self, b: slice, h: slice, start: int, stop: int, scratch: Scratch) -> Tensor:
        """`(b, h, r, l)`"""
        num_blocks, size = self.from_start.shape[-2:]
        blocks = slice(start // size, -(-stop // size))
        shape = (*self.keys[b, h].shape[:2], blocks.stop - blocks.start, size)
        mask = scratch("mask", *shape, num_blocks * size)
        diagonal = mask.unflatten(-1, (num_blocks, size)).diagonal(blocks.start, 2, 4).movedim(-1, 2)
        sums = (x[b, h, blocks] for x in (self.from_start, self.to_start))
        write_block_mask(diagonal, *sums, scratch("first", *shape, size), scratch("second", *shape, size))
        for i, n in enumerate(range(blocks.start, blocks.stop)):
            before, behind = slice(0, n * size), slice((n + 1) * size, None)
            keys, out = self.keys[b, h, n, None], mask[:, :, i]
            if n > 0:
                torch.mul(self.row_right[b, h, n], keys[..., before], out=out[..., before])
            if n < num_blocks - 1:
                torch.mul(self.row_left[b, h, n], keys[..., behind], out=out[..., behind])
        return mask.flatten(2, 3)[:, :, : stop - start, : self.length]


class Tiles:
    """How W is cut: blocks of tokens, some rows of them at a time, for some heads at a time; and the mask, by rows."""

    def __init__(self, query: Tensor, right: Tensor | None, left: Tensor | None):
        batch, heads, length, _ = query.shape
        self.num_blocks = max(1, -(-length // BLOCK_SIZE))
        self.block = -(-length // self.num_blocks)
        self.step = min(length, self.block * max(1, TILE_ELEMENTS // max(1, self.block * length)))
        self.starts = range(0, length, max(1, self.step))  # with more than one start, a slice is one head
        self.slices = row_slices(batch, heads, TILE_ELEMENTS // max(1, self.step * length))
        self.mask = None
        if right is not None and right.shape[-1] == 1:
            self.mask = ToeplitzMask(right, length, self.step)
        elif right is not None:
            right, left = (x.expand(batch, heads, length) for x in (right, right if left is None else left))
            self.mask = BlockMask(right, left, self.num_blocks, self.block)


def forward(query, key, value, right, left, chunk_size, normalize):
    batch, heads, length, head_dim = query.shape
    scratch = Scratch(query, accumulation_dtype(query.dtype))
    output = torch.empty_like(value, dtype=scratch.dtype)
    inverse = torch.full((batch, heads, length), head_dim**-0.5, dtype=scratch.dtype, device=query.device)
    tiles = Tiles(query, right, left)
    for b, h in tiles.slices:
        q, k, v = (
            read_blocks(x[b, h], 1, length, scratch, name) for x, name in ((query, "q"), (key, "k"), (value, "v"))
        )
        summed = blocks_to_write(output[b, h], 1, length, scratch, "summed")
        for start in tiles.starts:
            stop = min(start + tiles.step, length)
            shape = (*query[b, h].shape[:2], stop - start, length)
            weights = torch.bmm(q[:, start:stop], k.transpose(1, 2), out=scratch("weights", len(q), *shape[2:]))
            weights_by_head = weights.view(shape)
            if tiles.mask is not None:
                weights_by_head.mul_(tiles.mask.rows(b, h, start, stop, scratch))
            if normalize:
                inverse[b, h, start:stop] = inverse_totals(weights_by_head.sum(-1))
            torch.bmm(weights, v, out=summed[:, start:stop])
        write_blocks(output[b, h], summed)
        output[b, h].mul_(inverse[b, h].unsqueeze(-1))
    return output, inverse


def add_product(out: Tensor, left_side: Tensor, right_side: Tensor, is_first: bool) -> None:
    """Add left_sideᵀ right_side to `out`, which holds nothing yet if this is the first."""
    if is_first:
        torch.bmm(left_side.transpose(1, 2), right_side, out=out)
    else:
        out.baddbmm_(left_side.transpose(1, 2), right_side)


def backward(
    grad, query, key, value, right, left, output, inverse, chunk_size, normalize, needs_decay
):  # fmt: skip
    batch, heads, length, head_dim = query.shape
    scratch = Scratch(query, inverse.dtype)
    d_query, d_key, d_value = (torch.empty_like(x) for x in (query, key, value))
    tiles = Tiles(query, right, left)
    num_blocks, block = tiles.num_blocks, tiles.block
    if needs_decay:
        by_row = inverse.new_empty(batch, heads, num_blocks, block, num_blocks)
        by_column = inverse.new_empty(batch, heads, num_blocks, num_blocks, block)
        decays = DecayGradient(inverse, batch, heads, num_blocks, block)
    for b, h in tiles.slices:
        q, k, v = (
            read_blocks(x[b, h], 1, length, scratch, name) for x, name in ((query, "q"), (key, "k"), (value, "v"))
        )
        outs = (d_query[b, h], d_key[b, h], d_value[b, h])
        dq, dk, dv = (
            blocks_to_write(x, 1, length, scratch, name) for x, name in zip(outs, ("dq", "dk", "dv"), strict=True)
        )
        given = output[b, h] if normalize else None
        all_n, all_d = scaled_gradient(grad[b, h], inverse[b, h], given, (1, length), scratch)
        for start in tiles.starts:
            rows = slice(start, min(start + tiles.step, length))
            n = all_n[:, rows]
            shape = (len(q), n.shape[1], length)
            scores = torch.bmm(q[:, rows], k.transpose(1, 2), out=scratch("scores", *shape))
            g = torch.bmm(n, v.transpose(1, 2), out=scratch("g", *shape))
            if normalize:
                g.add_(all_d[:, rows])
            by_head = (*query[b, h].shape[:2], *shape[1:])
            if tiles.mask is not None:
                mask = tiles.mask.rows(b, h, rows.start, rows.stop, scratch)
                g.view(by_head).mul_(mask)
            torch.bmm(g, k, out=dq[:, rows])
            add_product(dk, g, q[:, rows], is_first=start == 0)
            if needs_decay:
                blocks = slice(start // block, -(-rows.stop // block))
                r = g.mul_(scores).view(by_head)
                padding = num_blocks * block - length, (blocks.stop - blocks.start) * block - shape[1]
                r = pad(r, (0, padding[0], 0, padding[1])) if any(padding) else r
                r = r.view(*by_head[:2], -1, block, num_blocks, block)
                torch.sum(r, -1, out=by_row[b, h, blocks])
                torch.sum(r, 3, out=by_column[b, h, blocks])
                diagonal = r.diagonal(blocks.start, 2, 4).movedim(-1, 2)
                decays.add_diagonal(diagonal, b, h, blocks, scratch("below", *diagonal.shape))
            weights = scores if tiles.mask is None else scores.view(by_head).mul_(mask).view(shape)
            add_product(dv, weights, n, is_first=start == 0)
        for out, blocks in zip(outs, (dq, dk, dv), strict=True):
            write_blocks(out, blocks)
    if not needs_decay:
        return d_query, d_key, d_value, grad.new_empty(0), grad.new_empty(0)
    before = inverse.new_ones(num_blocks, num_blocks).tril_(-1)  # [n, m]: m comes before n
    behind = before.T
    pairs = by_column.sum(-1)
    decays.query_right += (by_row * before.unsqueeze(1)).sum(-1)
    decays.query_left += (by_row * behind.unsqueeze(1)).sum(-1)
    decays.key_right += (by_column * before.unsqueeze(-1)).sum(2)
    decays.key_left += (by_column * behind.unsqueeze(-1)).sum(2)
    decays.through_right += ((behind @ pairs) * before).sum(-1)
    decays.through_left += ((before @ pairs) * behind).sum(-1)
    return d_query, d_key, d_value, *decays.result(length, right, left)


fused_parallel = fused_operator("parallel", forward, backward, plain_parallel)


@lion_kernel(fused_parallel)
def parallel_attention(query, key, value, right, left, chunk_size):
    return plain_parallel(query, key, value, right, left, chunk_size)
