# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The full form (SPEC §3 "parallel"), a hand-written kernel for the CPU: one length x length matrix per head. O(L²) time,
best for short L.

    W = (q kᵀ) ∘ M        den_i = Σ_j W_ij        y_i = (W v)_i / den_i

The gradients, from those of numerators and denominators, n_i and d_i (here n_i = dy_i / den_i and d_i = -n_i · y_i):

    G_ij = (n_i · v_j + d_i) M_ij       dq = G k       dk = Gᵀ q       dv = Wᵀ n

and for the log decays R = G ∘ (q kᵀ) (cpu/decay_mask.py).

Some rows of W for a slice of (batch, head) pairs are computed at a time, so that they stay in cache; W is never saved.

Dimensions: bh = (batch, head) pairs, l = length, r = rows of W in a tile, d = head_dim, e = value_dim.
"""

import torch
from torch import Tensor

from ..attention.decay import LONGEST_CHUNK, LogDecay, cut_evenly
from ..attention.kernels import register_kernels
from ..attention.plain import parallel_body
from .common import (
    Scratch,
    allocate_outputs,
    cpu_operator,
    finish,
    output_gradients,
    pairs_per_slice,
    rounded,
    side_by_side,
    slices_of_all,
)
from .decay_mask import make_mask


# Elements of W at a time: some megabytes, with the mask. With fewer, calls would cost more than the cache saves.
MATRIX_TILE_ELEMENTS = 400_000


class Tiles:
    """How W is cut: into tiles of some rows for a slice of (batch, head) pairs; and the rows of the mask."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, log_decay: LogDecay, head_directions: str):
        batch, heads, length, _ = query.shape
        chunks = num_chunks, chunk = cut_evenly(length, LONGEST_CHUNK)
        rows = min(length, chunk * max(1, MATRIX_TILE_ELEMENTS // max(1, chunk * length)))
        starts = range(0, length, max(1, rows))  # with more than one of them, a slice is one head
        self.rows = [(start, min(start + rows, length)) for start in starts]
        self.pairs = pairs_per_slice(MATRIX_TILE_ELEMENTS // max(1, rows * length), query, key, value)
        self.mask = None
        if log_decay.forward is not None:
            self.mask = make_mask(log_decay, batch, heads, length, chunks, rows, self.pairs, head_directions)

    def slices(self, *tensors: Tensor):
        """Slices of tensors `(b, h, ...)`, numbered."""
        return enumerate(slices_of_all(self.pairs, *tensors))

    def mask_rows(self, s: int, start: int, stop: int, scratch: Scratch) -> Tensor | None:
        return None if self.mask is None else self.mask.rows(s, start, stop, scratch)


def multiply_(x: Tensor, mask: Tensor | None) -> Tensor:
    """Multiply `(bh, r, l)` in place with a mask for all pairs, or for the heads of one sequence."""
    if mask is not None:
        x.view(-1, *mask.shape).mul_(mask)
    return x


def compute_full_form(query, key, value, forward, backward, chunk_size, division, head_directions):
    given, (query, key, value) = value, side_by_side(forward, query, key, value)
    scratch, output, denominator = allocate_outputs(query, value, division)
    tiles = Tiles(query, key, value, LogDecay(forward, backward), head_directions)
    length = query.shape[2]
    for s, (q, k, v, out, den) in tiles.slices(query, key, value, output, denominator):
        q, k, v = scratch.operands(q, k, v)
        for start, stop in tiles.rows:
            weights = scratch("weights", len(q), stop - start, length)
            scratch.product(q[:, start:stop], k.transpose(1, 2), weights)
            multiply_(weights, tiles.mask_rows(s, start, stop, scratch))
            if division != "none":
                torch.sum(weights, -1, out=den[:, start:stop])
            numerator = scratch("numerator", *weights.shape[:2], v.shape[-1])
            scratch.product(weights, v, numerator)
            finish(out[:, start:stop], numerator, den[:, start:stop], division, query.shape[-1])
    return rounded(output, denominator, given, division)


def compute_gradients_of_full_form(
    grad, grad_denominator, query, key, value, forward, backward, output, denominator, saved, chunk_size, division,
    head_directions, needs_decay,
):  # fmt: skip
    scratch = Scratch(query)
    gradients = [torch.empty_like(x) for x in (query, key, value)]
    tiles = Tiles(query, key, value, LogDecay(forward, backward), head_directions)
    length = query.shape[2]
    grad_denominator = denominator if grad_denominator is None else grad_denominator  # in slices, but not read
    tensors = (query, key, value, grad, grad_denominator, output, denominator, *gradients)
    for s, (q, k, v, dy, d_denominator, y, den, *outs) in tiles.slices(*tensors):
        q, k, v = scratch.operands(q, k, v)
        all_n, all_d = output_gradients(dy, d_denominator, y, den, division, (1, length), scratch)
        all_n = scratch.operand("n", all_n)
        dq = scratch.target("dq", outs[0])
        dk, dv = (
            scratch.target(name, out, is_sum=len(tiles.rows) > 1)
            for name, out in zip(("dk", "dv"), outs[1:], strict=True)
        )
        for start, stop in tiles.rows:
            n, q_rows = all_n[:, start:stop], q[:, start:stop]
            shape = (len(q), stop - start, length)
            scores = scratch.product(q_rows, k.transpose(1, 2), scratch("scores", *shape))
            g = scratch.product(n, v.transpose(1, 2), scratch("g", *shape))
            if all_d is not None:
                g.add_(all_d[:, start:stop])
            mask = tiles.mask_rows(s, start, stop, scratch)
            multiply_(g, mask)
            g_operand = scratch.operand("g", g)
            scratch.product(g_operand, k, dq[:, start:stop])
            scratch.product(g_operand.transpose(1, 2), q_rows, dk, adds=start > 0)
            if needs_decay:
                tiles.mask.add_gradient(g.mul_(scores), s, start, stop, scratch)
            scratch.product(multiply_(scores, mask).transpose(1, 2), n, dv, adds=start > 0)
        scratch.deliver([dq, dk, dv], outs)
    decays = tiles.mask.gradient(forward, backward) if needs_decay else (grad.new_empty(0), grad.new_empty(0))
    return *gradients, *decays


cpu_parallel = cpu_operator("parallel", compute_full_form, compute_gradients_of_full_form, parallel_body)
register_kernels("cpu", parallel=cpu_parallel)
