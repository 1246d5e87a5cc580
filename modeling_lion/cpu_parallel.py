# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The full form (SPEC §3 "parallel") by hand, for the CPU: one length x length matrix per head. O(L²) time, best for
short L.

    W = (q kᵀ) ∘ M        den_i = Σ_j W_ij        y_i = (W v)_i / den_i

Gradients, with those of numerator and denominator n_i and d_i (for the line above n_i = dy_i / den_i, d_i = -n_i ·
y_i):

    G_ij = (n_i · v_j + d_i) M_ij       dq = G k       dk = Gᵀ q       dv = Wᵀ n

and for the log decays R = G ∘ (q kᵀ) (cpu_decay.py).

Some rows of W of a slice of (batch, head) pairs are computed at a time, so that they stay in cache; W is never saved.

Dimensions: bh = (batch, head) pairs, l = length, r = rows of W in a tile, d = head_dim, e = value_dim.
"""

import torch
from torch import Tensor

from .attention_plain import parallel_body
from .cpu_decay import make_mask
from .cpu_scratch import (
    Scratch,
    allocate_outputs,
    cpu_operator,
    finish,
    output_gradients,
    pairs_per_slice,
    slices_of_all,
)
from .decay import LONGEST_CHUNK, LogDecay, cut_evenly


# Elements of W at a time: with its mask, some megabytes. Fewer would cost more in calls than they save in cache.
TILE_ELEMENTS = 400_000


class Tiles:
    """How W is cut: tiles of some rows for a slice of (batch, head) pairs; and the mask, by rows."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, log_decay: LogDecay, head_directions: str):
        batch, heads, length, _ = query.shape
        chunks = num_chunks, chunk = cut_evenly(length, LONGEST_CHUNK)
        rows = min(length, chunk * max(1, TILE_ELEMENTS // max(1, chunk * length)))
        starts = range(0, length, max(1, rows))  # with more than one of them, a slice is one head
        self.rows = [(start, min(start + rows, length)) for start in starts]
        self.pairs = pairs_per_slice(TILE_ELEMENTS // max(1, rows * length), query, key, value)
        self.mask = None
        if log_decay.forward is not None:
            self.mask = make_mask(log_decay, batch, heads, length, chunks, rows, self.pairs, head_directions)

    def slices(self, *tensors: Tensor):
        """Slices of tensors `(b, h, ...)`, numbered."""
        return enumerate(slices_of_all(self.pairs, *tensors))

    def mask_rows(self, s: int, start: int, stop: int, scratch: Scratch) -> Tensor | None:
        return None if self.mask is None else self.mask.rows(s, start, stop, scratch)


def multiply_(x: Tensor, mask: Tensor | None) -> Tensor:
    """Multiply `(bh, r, l)` with a mask of as many pairs or of one sequence's heads, in place."""
    if mask is not None:
        x.view(-1, *mask.shape).mul_(mask)
    return x


def compute(query, key, value, forward, backward, chunk_size, normalization, head_directions):
    scratch, output, factor = allocate_outputs(query, value)
    tiles = Tiles(query, key, value, LogDecay(forward, backward), head_directions)
    length = query.shape[2]
    for s, (q, k, v, out, factors) in tiles.slices(query, key, value, output, factor):
        q, k, v = scratch.cast(q, k, v)
        for start, stop in tiles.rows:
            weights = torch.bmm(
                q[:, start:stop], k.transpose(1, 2), out=scratch("weights", len(q), stop - start, length)
            )
            multiply_(weights, tiles.mask_rows(s, start, stop, scratch))
            if normalization != "none":
                torch.sum(weights, -1, out=factors[:, start:stop])
            numerator = torch.bmm(weights, v, out=scratch("numerator", *weights.shape[:2], v.shape[-1]))
            finish(out[:, start:stop], numerator, factors[:, start:stop], normalization)
    return output, factor


def compute_gradients(
    grad, grad_denominator, query, key, value, forward, backward, output, factor, saved, chunk_size, normalization,
    head_directions, needs_decay,
):  # fmt: skip
    scratch = Scratch(query, factor.dtype)
    gradients = [torch.empty_like(x) for x in (query, key, value)]
    tiles = Tiles(query, key, value, LogDecay(forward, backward), head_directions)
    length = query.shape[2]
    grad_denominator = factor if grad_denominator is None else grad_denominator
    tensors = (query, key, value, grad, grad_denominator, output, factor, *gradients)
    for s, (q, k, v, dy, d_denominator, y, factors, *outs) in tiles.slices(*tensors):
        q, k, v = scratch.cast(q, k, v)
        all_n, all_d = output_gradients(dy, d_denominator, y, factors, normalization, (1, length), scratch)
        dq, dk, dv = found = [scratch.target(name, out) for name, out in zip(("dq", "dk", "dv"), outs, strict=True)]
        for start, stop in tiles.rows:
            n, q_rows = all_n[:, start:stop], q[:, start:stop]
            shape = (len(q), stop - start, length)
            scores = torch.bmm(q_rows, k.transpose(1, 2), out=scratch("scores", *shape))
            g = torch.bmm(n, v.transpose(1, 2), out=scratch("g", *shape))
            if all_d is not None:
                g.add_(all_d[:, start:stop])
            mask = tiles.mask_rows(s, start, stop, scratch)
            multiply_(g, mask)
            torch.bmm(g, k, out=dq[:, start:stop])
            add_product(dk, g, q_rows, is_first=start == 0)
            if needs_decay:
                tiles.mask.add_gradient(g.mul_(scores), s, start, stop, scratch)
            add_product(dv, multiply_(scores, mask), n, is_first=start == 0)
        scratch.deliver(found, outs)
    decays = tiles.mask.gradient(forward, backward) if needs_decay else (grad.new_empty(0), grad.new_empty(0))
    return *gradients, *decays


def add_product(out: Tensor, first: Tensor, second: Tensor, is_first: bool) -> None:
    """Add firstᵀ second to `out`, which holds nothing yet if this is the first."""
    if is_first:
        torch.bmm(first.transpose(1, 2), second, out=out)
    else:
        out.baddbmm_(first.transpose(1, 2), second)


cpu_parallel = cpu_operator("parallel", compute, compute_gradients, parallel_body)
