# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The parallel form (SPEC §3), a hand-written kernel for the CPU: one length x length matrix per head, O(L²) time.

    W = (q kᵀ) ∘ M        den_i = Σ_j W_ij        y_i = (W v)_i / den_i

With the gradients of numerators and denominators, n_i = dy_i / den_i and d_i = -n_i · y_i, the gradients are

    G_ij = (n_i · v_j + d_i) M_ij       dq = G k       dk = Gᵀ q       dv = Wᵀ n

and for the log decays R = G ∘ (q kᵀ) (cpu/decay_mask.py).

A tile, some rows of W for a slice of (batch, head) pairs, stays in cache; W is never saved.

Dimensions: bh = (batch, head) pairs, l = length, r = rows of W in a tile, d = head_dim, e = value_dim.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..attention.decay_mask import LONGEST_CHUNK, cut_evenly, is_per_head
from ..attention.kernels import register_kernels
from ..attention.plain import parallel_body
from ..attention.plan import planned
from .decay_mask import ToeplitzMask, TokenMask
from .scratch import (
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


# Elements of W in a tile: some megabytes, with the mask. In smaller tiles, calls cost more than the cache saves.
MATRIX_TILE_ELEMENTS = 400_000


class Tiles:
    """
    The tiles of W, the same for all layers of a call.

    Attributes:
        chunks: the number and the size of the chunks in which sums of log decays restart.
        rows: the first query of each tile and the one after the last; tiles have whole chunks.
        pairs: the number of (batch, head) pairs in a slice; 1 if a slice has several tiles.
        steps: the distances for `ToeplitzMask`.
    """

    def __init__(self, query: Tensor, key: Tensor, value: Tensor):
        self.batch, self.heads, self.length, _ = query.shape
        self.chunks = _, chunk = cut_evenly(self.length, LONGEST_CHUNK)
        most = MATRIX_TILE_ELEMENTS // max(1, chunk * self.length)
        rows = min(self.length, chunk * max(1, most))
        self.rows = [(start, min(start + rows, self.length)) for start in range(0, self.length, max(1, rows))]
        self.pairs = pairs_per_slice(MATRIX_TILE_ELEMENTS // max(1, rows * self.length), query, key, value)
        self.scratch, self.steps = Scratch(query), None

    def mask(self, forward: Tensor | None, backward: Tensor | None, head_directions: str):
        """The mask M of a layer; `None` without decays."""
        if forward is None:
            return None
        backward = forward if backward is forward or backward.is_set_to(forward) else backward
        kind = ToeplitzMask if is_per_head(forward) else TokenMask
        return kind(self, forward, backward, head_directions)

    def part(self, rows: tuple[int, int], *tensors: Tensor | None) -> Sequence[Tensor | None]:
        """The rows of a tile of tensors `(bh, l, ...)`."""
        if len(self.rows) == 1:
            return tensors
        return [x if x is None else x[:, slice(*rows)] for x in tensors]


def multiply_(x: Tensor, mask: Tensor | None) -> Tensor:
    """Multiply `(bh, r, l)` in place by a mask for all pairs, or for the heads of one sequence."""
    if mask is not None:
        (x if len(x) == len(mask) else x.view(-1, *mask.shape)).mul_(mask)
    return x


def compute_full_form(query, key, value, forward, backward, chunk_size, division, head_directions, plan=None):
    given, (query, key, value) = value, side_by_side(forward, query, key, value)
    tiles = planned(plan, Tiles, query, key, value)
    scratch = tiles.scratch
    output, denominator = allocate_outputs(scratch, query, value, division)
    mask = tiles.mask(forward, backward, head_directions)
    slices = slices_of_all(tiles.pairs, query, key, value, output, denominator)
    for s, (q, k, v, out, den) in enumerate(slices):
        q, k, v = scratch.operands(q, k, v)
        for rows in tiles.rows:
            q_rows, out_rows, den_rows = tiles.part(rows, q, out, den)
            weights = scratch("weights", *q_rows.shape[:2], tiles.length)
            scratch.product(q_rows, k.transpose(1, 2), weights)
            if mask is not None:
                multiply_(weights, mask.rows(s, *rows))
            if division != "none":
                torch.sum(weights, -1, out=den_rows)
            numerator = scratch.product(weights, v, scratch("numerator", *out_rows.shape))
            finish(out_rows, numerator, den_rows, division, query.shape[-1])
    scratch.release()
    return rounded(output, denominator, given, division)


def compute_gradients_of_full_form(
    grad, grad_denominator, query, key, value, forward, backward, output, denominator, saved, chunk_size, division,
    head_directions, needs_decay, plan=None,
):  # fmt: skip
    tiles = planned(plan, Tiles, query, key, value)
    scratch = tiles.scratch
    gradients = [torch.empty_like(x) for x in (query, key, value)]
    mask = tiles.mask(forward, backward, head_directions)
    grad_denominator = denominator if grad_denominator is None else grad_denominator  # sliced, but not read
    tensors = (query, key, value, grad, grad_denominator, output, denominator, *gradients)
    for s, (q, k, v, dy, d_denominator, y, den, *outs) in enumerate(slices_of_all(tiles.pairs, *tensors)):
        q, k, v = scratch.operands(q, k, v)
        all_n, all_d = output_gradients(dy, d_denominator, y, den, division, (1, tiles.length), scratch)
        all_n = scratch.operand("n", all_n)
        dq = scratch.target("dq", outs[0])
        dk, dv = (
            scratch.target(name, out, is_sum=len(tiles.rows) > 1)
            for name, out in zip(("dk", "dv"), outs[1:], strict=True)
        )
        for rows in tiles.rows:
            n, d, q_rows, dq_rows = tiles.part(rows, all_n, all_d, q, dq)
            adds, shape = rows[0] > 0, (*q_rows.shape[:2], tiles.length)
            scores, g = scratch("scores", *shape), scratch("g", *shape)
            scratch.product(q_rows, k.transpose(1, 2), scores)
            scratch.product(n, v.transpose(1, 2), g)
            if d is not None:
                g.add_(d)
            mask_rows = None if mask is None else mask.rows(s, *rows)
            multiply_(g, mask_rows)
            g_operand = scratch.operand("g", g)
            scratch.product(g_operand, k, dq_rows)
            scratch.product(g_operand.transpose(1, 2), q_rows, dk, adds)
            if needs_decay:
                mask.add_gradient(g.mul_(scores), s, *rows)
            scratch.product(multiply_(scores, mask_rows).transpose(1, 2), n, dv, adds)
        scratch.deliver([dq, dk, dv], outs)
    scratch.release()
    decays = mask.gradient(forward, backward) if needs_decay else (grad.new_empty(0), grad.new_empty(0))
    return *gradients, *decays


cpu_parallel = cpu_operator("parallel", compute_full_form, compute_gradients_of_full_form, parallel_body)
register_kernels("cpu", parallel=cpu_parallel)
