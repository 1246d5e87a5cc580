# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The chunk form (SPEC §3 "chunk") by hand, for the CPU: full attention inside chunks of C tokens, one state per
direction between them. O(L·C·D + L·D²) time, O(L·C) memory, any length. This is the state-passing algorithm of Mamba-2
(SSD), run in both directions around one shared diagonal tile.

With the sums of log decays inside a chunk (`ChunkSums`), queries and keys are scaled for each direction, and every
chunk adds a sum X to a state S, S and X with a column for v = 1, which is the denominator:

    q_F = exp(from_start) q    k_F = exp(to_end) k      X_F = k_Fᵀ [v|1]    S_F[n+1] = X_F[n] + exp(A) S_F[n]
    q_B = exp(from_end) q      k_B = exp(to_start) k    X_B = k_Bᵀ [v|1]    S_B[n-1] = X_B[n] + exp(A') S_B[n]

    [num|den] = ((q kᵀ) ∘ M) [v|1] + q_F S_F + q_B S_B

Gradients, with those of numerator and denominator n and d (cpu/parallel.py), dS = q_Fᵀ [n|d], and the same recurrence
from the other end:

    dX_F[n-1] = dS_F[n] + exp(A[n]) dX_F[n]             dq_F = [n|d] S_Fᵀ        dk_F = [v|1] dX_Fᵀ
    G_ij = (n_i · v_j + d_i) M_ij                       dq = G k + exp(from_start) dq_F + exp(from_end) dq_B
    dv = ((q kᵀ) ∘ M)ᵀ n + k_F dX_F + k_B dX_B          dk = Gᵀ q + exp(to_end) dk_F + exp(to_start) dk_B

`DecayGradient` turns q_F · dq_F, k_F · dk_F, exp(A) dX_F · S_F and R = G ∘ (q kᵀ) into gradients of the decays. States
are computed again for the gradients: saving them would take twice the memory of the queries and save no time.

A head that reads one way (SPEC §11) has the terms of its direction only, F or B.

Dimensions: bh = (batch, head) pairs, n = chunks, c = tokens of a chunk, d = head_dim, e = value_dim, w = 2 directions,
or 1 where each head has its own.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..attention.decay import (
    LONGEST_CHUNK,
    MaskSums,
    base2_sums,
    cut_evenly,
    one_way_base2_sums,
    one_way_rows,
    write_mask,
)
from ..attention.kernels import register_kernels
from ..attention.plain import chunk_body
from .common import (
    Scratch,
    allocate_outputs,
    cpu_operator,
    finish,
    first_head,
    output_gradients,
    pairs_per_slice,
    rounded,
    side_by_side,
    slices_of,
    slices_of_all,
    slices_of_sums,
)
from .decay_mask import DecayGradient
from .lit import allocate_state, compute_gradients_without_decay, compute_without_decay


# Tokens at a time, of some heads together or of a part of one head's.
TOKENS_AT_ONCE = 3072


def read_chunks(x: Tensor, num_chunks: int, chunk: int, scratch: Scratch, name: str) -> Tensor:
    """`(bh, length, d)` to the operand `(bh * n, c, d)`, padded with zeros."""
    bh, length, dim = x.shape
    is_one_block = x.is_contiguous() or bh == 1 and not scratch.is_mixed
    if num_chunks * chunk == length and x.dtype == scratch.operand_dtype and is_one_block:
        return x.reshape(-1, chunk, dim)
    copy = scratch(name, bh, num_chunks * chunk, dim, dtype=scratch.operand_dtype)
    copy[:, :length] = x
    copy[:, length:] = 0
    return copy.view(-1, chunk, dim)


def chunks_to_write(out: Tensor, num_chunks: int, chunk: int, scratch: Scratch, name: str) -> Tensor:
    """Memory for what `written` will bring to `out`, `(bh, length, d)`: that of `out` itself if possible."""
    bh, length, dim = out.shape
    if out.is_contiguous() and num_chunks * chunk == length and out.dtype == scratch.dtype:
        return out.view(-1, chunk, dim)
    return scratch(name, bh * num_chunks, chunk, dim)


def without_padding(chunks: Tensor, bh: int, length: int) -> Tensor:
    """The way back from `read_chunks`: `(bh, length, d)`."""
    return chunks.view(bh, -1, chunks.shape[-1])[:, :length]


class ChunkDecays:
    """
    What is left of tokens and states inside and between chunks, all in [0, 1], and how the work is cut: into slices s
    of some (batch, head) pairs, and those of long sequences into slices n of their chunks.
    """

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        forward: Tensor,
        backward: Tensor,
        chunk_size: int,
        head_directions: str,
    ):
        batch, heads, length, _ = query.shape
        # Masks of longer chunks would be differences of long sums, with few digits left.
        chunks = cut_evenly(length, min(chunk_size, LONGEST_CHUNK))
        self.cut(query, key, value, chunks, head_directions == "alternate")
        self.is_fixed = forward.dim() == 1
        if self.is_fixed:  # the same sums in every chunk
            forward, backward = (x.view(1, -1, 1, 1).expand(-1, -1, -1, self.chunk) for x in (forward, backward))
        else:
            padding = chunks[0] * chunks[1] - length
            forward, backward = (pad(x, (0, padding)).unflatten(2, chunks) for x in (forward, backward))
        if self.is_one_way:
            sums, for_mask, is_forward = one_way_base2_sums(forward, backward)
            query_sums = [sums.from_start.where(is_forward, sums.from_end)]
            key_sums = [sums.to_end.where(is_forward, sums.to_start)]
        else:
            sums, for_mask = base2_sums(forward, backward)
            query_sums, key_sums = [sums.from_start, sums.from_end], [sums.to_end, sums.to_start]
        # By direction and slice: (bh, n, c, 1).
        self.query_factors, self.key_factors = (
            [slices_of(x.exp2().unsqueeze(-1).expand(batch, heads, *chunks, 1), self.pairs) for x in by_direction]
            for by_direction in (query_sums, key_sums)
        )
        if self.is_fixed:
            tables = forward.new_empty(heads, 1, self.chunk, self.chunk)
            write_mask(tables, MaskSums(*(x if x is None else x[0] for x in for_mask)), Scratch(query))
            self.tables = tables.split(self.pairs)
        else:
            self.mask_sums = slices_of_sums(for_mask.expand(batch, heads, *chunks), self.pairs)

    def cut(self, query: Tensor, key: Tensor, value: Tensor, chunks: tuple[int, int], is_one_way: bool) -> None:
        """Into chunks, n and c, and into slices."""
        self.batch, self.heads, length, self.head_dim = query.shape
        self.chunks = self.num_chunks, self.chunk = chunks
        self.is_one_way, self.ways = is_one_way, 1 if is_one_way else 2
        self.pairs = pairs_per_slice(TOKENS_AT_ONCE // max(1, length), query, key, value)
        step = self.num_chunks if length <= TOKENS_AT_ONCE else max(1, TOKENS_AT_ONCE // max(1, self.chunk))
        self.chunk_slices = [slice(n, min(n + step, self.num_chunks)) for n in range(0, self.num_chunks, step)]
        self.is_whole = len(self.chunk_slices) == 1
        self.views: dict[tuple, list[tuple[Tensor, ...]]] = {}
        self.kept_slice, self.kept = None, []
        self.gradient: DecayGradient | None = None

    def lanes(self, s: int) -> list[tuple[slice, int, bool]]:
        """Of slice s, what reads in one direction: (batch, head) pairs, number of the direction, is it backward."""
        if not self.is_one_way:
            return [(slice(None), 0, False), (slice(None), 1, True)]
        forward, backward = one_way_rows(first_head(s, self.pairs, self.heads))
        return [(forward, 0, False), (backward, 0, True)]

    def slices(self, *tensors: Tensor):
        """Slices of tensors `(b, h, ...)`, numbered."""
        return enumerate(slices_of_all(self.pairs, *tensors))

    def select(self, x: Tensor | None, n: slice) -> Tensor | None:
        """Of `(bh * n, ...)`, a slice of the chunks."""
        return x if self.is_whole or x is None else x[n]

    def mask(self, s: int, n: slice, scratch: Scratch) -> Tensor:
        """The diagonal tiles of M, `(h, 1, c, c)` or `(bh, n, c, c)`."""
        if self.is_fixed:
            return self.tables[s % len(self.tables)]
        sums = self.mask_sums[s].of_chunks(n)
        out = scratch("mask", *sums.from_start.shape, self.chunk)
        write_mask(out, sums, scratch, first_head(s, self.pairs, self.heads))
        return out

    def multiply_(self, x: Tensor, mask: Tensor, n: slice) -> Tensor:
        """Multiply the chunks n of a slice, `(bh * n, c, c)`, with their mask, in place."""
        x.view(-1, len(mask), n.stop - n.start, *mask.shape[2:]).mul_(mask)
        return x

    def weights(self, q: Tensor, k: Tensor, s: int, n: slice, scratch: Scratch) -> Tensor:
        """(q kᵀ) ∘ M inside chunks, `(bh * n, c, c)`."""
        scores = scratch.product(q, k.transpose(1, 2), scratch("scores", *q.shape[:2], self.chunk))
        return self.multiply_(scores, self.mask(s, n, scratch), n)

    def start_gradient(self, like: Tensor) -> None:
        """From now on, gradients of the log decays are wanted."""
        self.gradient = DecayGradient(like, self.batch, self.heads, *self.chunks, self.is_one_way)
        self.shares = self.gradient.slices(self.pairs)

    def inside_gradients(self, q, k, g, dq, dk, s: int, n: slice, scratch: Scratch) -> Tensor:
        """
        What comes from inside chunks: write dq and dk, `(bh * n, c, d)`, take the part of the decays, and return the
        weights. `g`, the gradient of the weights, is lost.
        """
        mask = self.mask(s, n, scratch)
        scores = scratch.product(q, k.transpose(1, 2), scratch("scores", *g.shape))
        self.multiply_(g, mask, n)
        g_operand = scratch.operand("g", g)
        scratch.product(g_operand, k, dq)
        scratch.product(g_operand.transpose(1, 2), q, dk)
        if self.gradient is not None:
            r = g.mul_(scores).view(-1, n.stop - n.start, *g.shape[1:])
            self.gradient.add_inside_chunks(self.shares[s].of_chunks(n), r, scratch)
        return self.multiply_(scores, mask, n)

    def add_between(self, queries, keys, through: Tensor, s: int, n: slice, scratch: Scratch) -> None:
        """
        Take the part of the decays in what comes through the states: `queries` and `keys` are the scaled ones and
        their gradients, `(bh * n, c, w d)`, `through` is the product of states and their gradients, `(bh * n, w d)`.
        """
        shares, shape = self.shares[s].of_chunks(n), (-1, n.stop - n.start, self.chunk, self.ways, self.head_dim)
        for (scaled, d_scaled), share in ((queries, shares.query), (keys, shares.key)):
            share.add_(d_scaled.mul_(scaled).view(shape).sum(-1).movedim(3, 2))
        through = through.view(-1, n.stop - n.start, self.ways, self.head_dim).sum(-1)
        for pairs, way, is_backward in self.lanes(s):
            keep = self.key_factors[way][s][pairs, n, -1 if is_backward else 0, 0]
            torch.mul(through[pairs, :, way], keep, out=shares.through[pairs, :, way])

    def gradients(self, length: int, forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
        """Of the log decays, in the shapes of `forward` and `backward`."""
        return self.gradient.result(length, forward, backward)

    def scale_queries(self, q: Tensor, s: int, n: slice, scratch: Scratch) -> Tensor:
        """[q_F | q_B], `(bh * n, c, w d)`, of `(bh * n, c, d)`."""
        return scale(scratch.wide("q", q), self.factors(True, s, n), scratch, "scaled q")

    def scale_keys(self, k: Tensor, s: int, n: slice, scratch: Scratch) -> Tensor:
        """[k_F | k_B], likewise."""
        return scale(scratch.wide("k", k), self.factors(False, s, n), scratch, "scaled k")

    def factors(self, of_queries: bool, s: int, n: slice) -> list[Tensor]:
        """What queries or keys are scaled with, for each direction, `(bh, n, c, 1)`."""
        return [x[s][:, n] for x in (self.query_factors if of_queries else self.key_factors)]

    def pass_sums(self, sums: Tensor, s: int, out: Tensor, transpose: bool = False) -> Tensor:
        """
        `pass_states` (attention/plain.py) for each direction [F | B] of `sums`, `(bh * n, w d, e)`, into `out`;
        `transpose` runs both directions from the other end, as their derivative does.
        """
        lanes = zip(self.lanes(s), self.keeps(s), self.by_chunk(sums, s), self.by_chunk(out, s), strict=True)
        for (_, _, is_backward), keep, adds, states in lanes:
            if is_backward != transpose:
                adds, states, keep = adds[::-1], states[::-1], keep[::-1]
            states[0].zero_()
            for add, state, factor, following in zip(adds, states, keep, states[1:], strict=False):
                torch.addcmul(add, state, factor, out=following)
        return out

    def keeps(self, s: int) -> list[tuple[Tensor, ...]]:
        """What is left of a state behind each chunk, `(bh, 1, 1)`, for each of the `lanes`."""
        if self.kept_slice != s:
            self.kept_slice, self.kept = (
                s,
                [
                    self.key_factors[way][s][pairs, :, -1 if is_backward else 0, None].unbind(1)
                    for pairs, way, is_backward in self.lanes(s)
                ],
            )
        return self.kept

    def by_chunk(self, x: Tensor, s: int) -> list[tuple[Tensor, ...]]:
        """The chunks `(bh, d, e)` of scratch memory `(bh * n, w d, e)`, for each of the `lanes`."""
        key = (x.data_ptr(), x.shape, first_head(s, self.pairs, self.heads) % 2)
        if key not in self.views:
            x = x.view(-1, self.num_chunks, self.ways, x.shape[1] // self.ways, x.shape[2])
            self.views[key] = [x[pairs, :, way].unbind(1) for pairs, way, _ in self.lanes(s)]
        return self.views[key]


def scale(x: Tensor, factors: list[Tensor], scratch: Scratch, name: str) -> Tensor:
    """`x`, `(bh * n, c, d)`, times each of the factors `(bh, n, c, 1)`, side by side."""
    shape, dim = factors[0].shape[:-1], x.shape[-1]
    out, x = scratch(name, *shape, len(factors) * dim), x.view(*shape, dim)
    for factor, part in zip(factors, out.split(dim, dim=-1), strict=True):
        torch.mul(x, factor, out=part)
    return out.view(-1, shape[-1], len(factors) * dim)


def add_up(scaled: Tensor, x: Tensor, of_ones: Tensor | None, sums: Tensor, totals: Tensor, scratch: Scratch) -> None:
    """X = scaledᵀ [x | of_ones] of each chunk, into `sums` and `totals`; `of_ones` is 1 if None."""
    scratch.product(scratch.operand("scaled", scaled).transpose(1, 2), x, sums)
    if of_ones is None:
        torch.sum(scaled, 1, out=totals.squeeze(-1))
    else:
        torch.bmm(of_ones.transpose(1, 2), scaled, out=totals.transpose(1, 2))


def compute_in_chunks(
    query, key, value, forward, backward, chunk_size, normalization, head_directions, *, make_decays=ChunkDecays
):
    given, (query, key, value) = value, side_by_side(forward, query, key, value)
    if forward is None:
        pairs = pairs_per_slice(TOKENS_AT_ONCE // max(1, query.shape[2]), query, key, value)
        return compute_without_decay(query, key, value, pairs, normalization, given)
    length = query.shape[2]
    scratch, output, factor = allocate_outputs(query, value, normalization)
    decays = make_decays(query, key, value, forward, backward, chunk_size, head_directions)
    chunks = decays.chunks
    for s, (q, k, v, out, factors) in decays.slices(query, key, value, output, factor):
        q, k, v = (read_chunks(x, *chunks, scratch, name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
        numerator = chunks_to_write(out, *chunks, scratch, "numerator")
        denominator = scratch("denominator", *numerator.shape[:2], 1)
        sums, of_ones = allocate_sums(decays, v, scratch, "sums")
        for n in decays.chunk_slices:
            q_n, k_n, v_n, sums_n, total_n = (decays.select(x, n) for x in (q, k, v, numerator, denominator))
            weights = decays.weights(q_n, k_n, s, n, scratch)
            scratch.product(scratch.operand("weights", weights), v_n, sums_n)
            torch.sum(weights, -1, keepdim=True, out=total_n)
            if sums is not None:
                scaled_k = decays.scale_keys(k_n, s, n, scratch)
                add_up(scaled_k, v_n, None, decays.select(sums, n), decays.select(of_ones, n), scratch)
        if sums is not None:
            states = scratch.operand("states", decays.pass_sums(sums, s, scratch("states", *sums.shape)))
            totals = decays.pass_sums(of_ones, s, scratch("totals", *of_ones.shape))
            for n in decays.chunk_slices:
                scaled_q = decays.scale_queries(decays.select(q, n), s, n, scratch)
                sums_n = decays.select(numerator, n)
                scratch.product(scratch.operand("scaled", scaled_q), decays.select(states, n), sums_n, adds=True)
                of_ones_n = decays.select(totals, n).transpose(1, 2)
                decays.select(denominator, n).transpose(1, 2).baddbmm_(of_ones_n, scaled_q.transpose(1, 2))
        if normalization != "none":
            factors.copy_(denominator.view(len(out), -1)[:, :length])
        finish(out, without_padding(numerator, len(out), length), factors, normalization)
    return rounded(output, factor, given, normalization, allocate_state(query, key, value, forward))


def allocate_sums(decays: ChunkDecays, v: Tensor, scratch: Scratch, name: str) -> tuple[Tensor, Tensor] | tuple:
    """Memory for a sum and its column for v = 1 of every chunk, `(bh * n, w d, e)`, `(bh * n, w d, 1)`, or None."""
    if decays.num_chunks == 1:
        return None, None
    shape = len(v), decays.ways * decays.head_dim
    return scratch(name, *shape, v.shape[-1]), scratch(f"{name} of ones", *shape, 1)


def compute_gradients_in_chunks(
    grad, grad_denominator, query, key, value, forward, backward, output, factor, saved, chunk_size, normalization,
    head_directions, needs_decay, *, make_decays=ChunkDecays,
):  # fmt: skip
    length = query.shape[2]
    scratch = Scratch(query)
    gradients = [torch.empty_like(x) for x in (query, key, value)]
    grad_denominator = factor if grad_denominator is None else grad_denominator
    tensors = (query, key, value, grad, grad_denominator, output, factor, *gradients)
    if forward is None:
        pairs = pairs_per_slice(TOKENS_AT_ONCE // max(1, length), query, key, value)
        compute_gradients_without_decay(slices_of_all(pairs, *tensors, *saved), normalization, scratch)
        return *gradients, grad.new_empty(0), grad.new_empty(0)
    decays = make_decays(query, key, value, forward, backward, chunk_size, head_directions)
    chunks = decays.chunks
    if needs_decay:
        decays.start_gradient(factor)
    for s, (q, k, v, dy, d_denominator, y, factors, *outs) in decays.slices(*tensors):
        q, k, v = (read_chunks(x, *chunks, scratch, name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
        n_all, d_all = output_gradients(dy, d_denominator, y, factors, normalization, chunks, scratch)
        n_all = scratch.operand("n", n_all)
        found = [chunks_to_write(x, *chunks, scratch, name) for x, name in zip(outs, ("dq", "dk", "dv"), strict=True)]
        inputs = (q, k, v, n_all, d_all, *found)
        sums, of_ones = allocate_sums(decays, v, scratch, "sums")
        d_states, d_totals = allocate_sums(decays, v, scratch, "d states")
        for some in decays.chunk_slices:
            q_n, k_n, v_n, n, d, dq, dk, dv = (decays.select(x, some) for x in inputs)
            g = scratch.product(n, v_n.transpose(1, 2), scratch("g", *n.shape[:2], chunks[1]))
            if d is not None:
                g.add_(d)
            weights = decays.inside_gradients(q_n, k_n, g, dq, dk, s, some, scratch)
            scratch.product(scratch.operand("scores", weights).transpose(1, 2), n, dv)
            if sums is not None:
                for scaled, x, ones, results in (
                    (decays.scale_keys(k_n, s, some, scratch), v_n, None, (sums, of_ones)),
                    (decays.scale_queries(q_n, s, some, scratch), n, d, (d_states, d_totals)),
                ):
                    add_up(scaled, x, ones, *(decays.select(x, some) for x in results), scratch)
        if sums is not None:
            states = decays.pass_sums(sums, s, scratch("states", *sums.shape))
            d_sums = decays.pass_sums(d_states, s, sums, transpose=True)
            totals = d_of_ones = None
            if d_all is not None:
                totals = decays.pass_sums(of_ones, s, scratch("totals", *of_ones.shape))
                d_of_ones = decays.pass_sums(d_totals, s, of_ones, transpose=True)
            for some in decays.chunk_slices:
                between = (states, d_sums, totals, d_of_ones)
                add_between_chunks(*(decays.select(x, some) for x in (*inputs, *between)), decays, s, some, scratch)
        for out, result in zip(outs, found, strict=True):
            if result.data_ptr() != out.data_ptr():
                out.copy_(without_padding(result, len(out), length))
    if not needs_decay:
        return *gradients, grad.new_empty(0), grad.new_empty(0)
    return *gradients, *decays.gradients(length, forward, backward)


def add_between_chunks(
    q, k, v, n, d, dq, dk, dv, states, d_sums, totals, d_of_ones, decays, s, some, scratch
):  # fmt: skip
    """Add to dq, dk, dv and to the gradients of the decays what comes through the states."""
    if decays.is_whole:  # those of the only slice are still there
        shape = (*dq.shape[:2], decays.ways * decays.head_dim)
        scaled_q, scaled_k = scratch("scaled q", *shape), scratch("scaled k", *shape)
    else:
        scaled_q, scaled_k = decays.scale_queries(q, s, some, scratch), decays.scale_keys(k, s, some, scratch)
    states_operand, d_sums_operand = scratch.operand("states", states), scratch.operand("d sums", d_sums)
    d_scaled_q = scratch.product(n, states_operand.transpose(1, 2), scratch("d scaled q", *scaled_q.shape))
    d_scaled_k = scratch.product(v, d_sums_operand.transpose(1, 2), scratch("d scaled k", *scaled_k.shape))
    scratch.product(scratch.operand("scaled", scaled_k), d_sums_operand, dv, adds=True)
    if d is not None:  # the column for v = 1
        d_scaled_q.addcmul_(d, totals.transpose(1, 2))
        d_scaled_k.add_(d_of_ones.transpose(1, 2))
    dim = dq.shape[-1]
    shape = (-1, some.stop - some.start, dq.shape[1])
    for out, d_scaled, of_queries in ((dq, d_scaled_q, True), (dk, d_scaled_k, False)):
        factors = decays.factors(of_queries, s, some)
        d_scaled, out = d_scaled.view(*shape, len(factors) * dim), out.view(*shape, dim)
        for part, factor in zip(d_scaled.split(dim, dim=-1), factors, strict=True):
            out.addcmul_(part, factor)
    if decays.gradient is None:
        return
    through = torch.mul(states, d_sums, out=scratch("product of states", *states.shape)).sum(-1)
    if d is not None:
        through += (totals * d_of_ones).squeeze(-1)
    decays.add_between((scaled_q, d_scaled_q), (scaled_k, d_scaled_k), through, s, some, scratch)


cpu_chunk = cpu_operator("chunk", compute_in_chunks, compute_gradients_in_chunks, chunk_body, allocate_state)
register_kernels("cpu", chunk=cpu_chunk)
