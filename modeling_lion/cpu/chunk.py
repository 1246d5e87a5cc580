# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The chunk form (SPEC §3 "chunk"), a hand-written kernel for the CPU: full attention inside chunks of C tokens, and one
state per direction between them. O(L·C·D + L·D²) time, O(L·C) memory, any length. This is the state-passing algorithm
of Mamba-2 (SSD) in both directions, around one shared diagonal tile.

For each direction, queries and keys are scaled by the decays inside a chunk (`ChunkSums`, attention/decay_mask.py),
and every chunk adds a sum X to a state S. X and S have a column for v = 1, which gives the denominators:

    q_F = exp(from_start) q    k_F = exp(to_end) k      X_F = k_Fᵀ [v|1]    S_F[n+1] = X_F[n] + exp(A) S_F[n]
    q_B = exp(from_end) q      k_B = exp(to_start) k    X_B = k_Bᵀ [v|1]    S_B[n-1] = X_B[n] + exp(A') S_B[n]

    [num|den] = ((q kᵀ) ∘ M) [v|1] + q_F S_F + q_B S_B

n and d are the gradients of numerators and denominators (cpu/parallel.py), and dS = q_Fᵀ [n|d]. The gradients follow
the same recurrence from the other end:

    dX_F[n-1] = dS_F[n] + exp(A[n]) dX_F[n]             dq_F = [n|d] S_Fᵀ        dk_F = [v|1] dX_Fᵀ
    G_ij = (n_i · v_j + d_i) M_ij                       dq = G k + exp(from_start) dq_F + exp(from_end) dq_B
    dv = ((q kᵀ) ∘ M)ᵀ n + k_F dX_F + k_B dX_B          dk = Gᵀ q + exp(to_end) dk_F + exp(to_start) dk_B

`Decays` computes the gradients of the decays from q_F · dq_F, k_F · dk_F, exp(A) dX_F · S_F and R = G ∘ (q kᵀ). The
backward recomputes the states: saving them would take twice the memory of the queries and save no time.

A head that reads one way (SPEC §11) has only the terms of its direction, F or B.

Without decays (LION-LIT), one state S = kᵀ [v|1] of all tokens serves every query, so there are no chunks. The state
is saved for the gradients. This takes 0.40 to 0.89 of the time of torch operations in float32 (1.16 to 1.35 for a
single text of 32 tokens).

    num = q S        dS = qᵀ n        dq = n Sᵀ + d zᵀ        dk = v dSᵀ + dz        dv = k dS

z and dz are the columns for v = 1.

Dimensions: bh = (batch, head) pairs, n = chunks, p = chunks of a part, c = tokens of a chunk, d = head_dim, e =
value_dim, w = 2 directions, or 1 if each head has one direction.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..attention.decay_mask import (
    LOG2_E,
    LONGEST_CHUNK,
    cut_evenly,
    decay_mask,
    is_per_head,
    mask_directions,
    reads_forward,
)
from ..attention.kernels import register_kernels
from ..attention.numerics import accumulation_dtype
from ..attention.plain import chunk_body
from ..attention.plan import planned
from .decay_mask import finish_mask, has_cuts, in_parts, one_directional_rows, write_differences
from .scratch import (
    Scratch,
    allocate_outputs,
    cpu_operator,
    finish,
    first_head,
    output_gradients,
    pairs_per_slice,
    rounded,
    side_by_side,
    slices_of_all,
)


# Tokens that are computed together: of several heads, or a part of one head.
TOKENS_AT_ONCE = 3072


class Cut:
    """
    The division of the work, the same for all layers of a call: n chunks of c tokens, and slices of `pairs` (batch,
    head) pairs. If sequences are long, a slice is a single pair, and is divided into parts of some chunks.

    Attributes:
        ways: the number of directions that each head reads, 2 or 1; states have them side by side.
        parts: the chunks of each part.
        summing: a matrix of zeros and log2(e), `(c, 4c)`, float64. Log decays `(..., c)` times it are the sums of
            `ChunkSums` (attention/decay_mask.py) in base 2; none is a difference of sums.
    """

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, chunk_size: int, head_directions: str):
        self.batch, self.heads, self.length, self.head_dim = query.shape
        self.value_dim = value.shape[-1]
        # In longer chunks, exponents would be differences of long sums, with few digits.
        self.num_chunks, self.chunk = cut_evenly(self.length, min(chunk_size, LONGEST_CHUNK))
        self.head_directions, self.ways = head_directions, 1 if head_directions == "alternate" else 2
        self.pairs = pairs_per_slice(TOKENS_AT_ONCE // max(1, self.length), query, key, value)
        step = self.num_chunks if self.length <= TOKENS_AT_ONCE else max(1, TOKENS_AT_ONCE // max(1, self.chunk))
        self.parts = [slice(n, min(n + step, self.num_chunks)) for n in range(0, self.num_chunks, step)]
        self.scratch = Scratch(query)
        token = torch.arange(self.chunk, device="cpu")
        step = token.unsqueeze(1)
        is_added = (step < token, step >= token, step > token, step <= token)
        self.summing = torch.cat(is_added, dim=1).double().mul_(LOG2_E)

    def by_part(self, *tensors: Tensor | None) -> list[tuple[slice, Sequence[Tensor | None]]]:
        """The parts, and their rows of tensors `(bh * n, ...)`."""
        if len(self.parts) == 1:
            return [(self.parts[0], tensors)]
        return [(chunks, [x if x is None else x[chunks] for x in tensors]) for chunks in self.parts]

    def read(self, *tensors: Tensor) -> list[Tensor]:
        """Query, key and value, `(bh, length, d)`, as operands `(bh * n, c, d)`, padded with zeros."""
        padded, scratch, operands = self.num_chunks * self.chunk, self.scratch, []
        for name, x in zip("qkv", tensors, strict=True):
            bh, length, dim = x.shape
            is_one_block = x.is_contiguous() or bh == 1 and not scratch.is_mixed
            if padded == length and x.dtype == scratch.operand_dtype and is_one_block:
                operands.append(x.reshape(-1, self.chunk, dim))
                continue
            copy = scratch(name, bh, padded, dim, dtype=scratch.operand_dtype)
            copy[:, :length] = x
            copy[:, length:] = 0
            operands.append(copy.view(-1, self.chunk, dim))
        return operands

    def target(self, out: Tensor, name: str) -> tuple[Tensor, Tensor]:
        """Memory `(bh * n, c, d)` for `out`, `(bh, length, d)`, its own if possible, and a view without padding."""
        dim, padded = out.shape[-1], self.num_chunks * self.chunk
        if padded == self.length and out.is_contiguous() and out.dtype == self.scratch.dtype:
            return out.view(-1, self.chunk, dim), out
        memory = self.scratch(name, len(out), padded, dim)
        return memory.view(-1, self.chunk, dim), memory[:, : self.length]

    def states(self, name: str, pairs: int, divides: bool) -> tuple[Tensor, Tensor | None]:
        """Memory for a state of every chunk, `(bh * n, w d, e)`, and for its column of v = 1, `(bh * n, w d, 1)`."""
        shape = pairs * self.num_chunks, self.ways * self.head_dim
        column = self.scratch(f"{name} of ones", *shape, 1) if divides else None
        return self.scratch(name, *shape, self.value_dim), column


class Decays:
    """The decays of a layer, inside its chunks and between them."""

    def __init__(self, cut: Cut, forward: Tensor, backward: Tensor, needs_gradient: bool = False):
        self.cut, self.is_fixed, self.is_one_directional = cut, is_per_head(forward), cut.ways == 1
        # An operator gets different objects for both, even if its caller passes one tensor.
        backward = forward if backward is forward or backward.is_set_to(forward) else backward
        has_cut = has_cuts(forward, backward)
        # Forward: from the start of the chunk, to its end. Backward: from the end, to the start. (..., 2, 2, c)
        if backward is forward:
            sums = self.in_chunks(forward).double() @ cut.summing
        else:
            pairs = zip((forward, backward), cut.summing.chunk(2, dim=1), strict=True)
            sums = torch.cat([self.in_chunks(x).double() @ half for x, half in pairs], dim=-1)
        sums = sums.unflatten(-1, (2, 2, -1))
        self.is_forward = reads_forward(cut.heads, torch.device("cpu")).view(-1, 1, 1, 1)
        # The factors of queries and keys, (b, h, n, 2, w, c).
        if self.is_one_directional:
            own = sums[..., 0, :, :].where(self.is_forward, sums[..., 1, :, :]).unsqueeze(-2)
        else:
            own = sums.transpose(-3, -2)
        own = own.to(forward.dtype).exp2().unsqueeze(-1)
        factors = own.expand(cut.batch, cut.heads, cut.num_chunks, 2, cut.ways, cut.chunk, 1)
        if has_cut:
            closed = mask_directions(forward, backward, cut.heads, cut.head_directions)
            for_mask = [self.in_chunks(x) for x in closed]
        else:
            x = torch.stack((sums[..., 0, 0, :], -sums[..., 1, 1, :]), dim=-2)
            if self.is_one_directional:
                x = x[..., :1, :].where(self.is_forward, x[..., 1:, :])
            for_mask = [in_parts(x, forward.dtype)]
        self.tables = None
        if self.is_fixed:
            self.tables = self.write_mask([x[0] for x in for_mask], 0, name="tables").split(cut.pairs)
        self.by_slice = slices_of_all(cut.pairs, factors, *() if self.is_fixed else for_mask)
        self.d_sums: Tensor | None = None
        if needs_gradient:  # of the sums, which the slices collect
            self.d_sums = torch.zeros(factors.shape[:-1], dtype=cut.scratch.dtype, device="cpu")
            self.d_by_slice = [d for (d,) in slices_of_all(cut.pairs, self.d_sums)]

    def in_chunks(self, x: Tensor) -> Tensor:
        """Log decays as `(b, h, n, c)`, or `(1, h, 1, c)` if they are the same in every chunk."""
        cut = self.cut
        if self.is_fixed:
            return x.view(1, -1, 1, 1).expand(-1, -1, -1, cut.chunk)
        x, padding = x.expand(cut.batch, cut.heads, -1), cut.num_chunks * cut.chunk - cut.length
        return (pad(x, (0, padding)) if padding else x).unflatten(2, (cut.num_chunks, cut.chunk))

    def write_mask(
        self, of_slice: Sequence[Tensor], first_head: int, chunks: slice = slice(None), name: str = "mask"
    ) -> Tensor:
        """
        The diagonal tiles of M, `(bh, n, c, c)`, from sums in base 2, `(bh, n, w, parts, c)` (`in_parts`), or, with
        cuts, from the log decays of both directions, `(bh, n, c)`.
        """
        x = of_slice[0][:, chunks]
        if len(of_slice) == 2:
            return decay_mask(x, of_slice[1][:, chunks])
        queries, keys, scratch = x.unsqueeze(-1).unbind(2), x.unsqueeze(-2).unbind(2), self.cut.scratch
        shape, above = (*x.shape[:2], self.cut.chunk, self.cut.chunk), None
        out = write_differences(queries[0], keys[0], scratch(name, *shape))
        if not self.is_one_directional:
            above = write_differences(queries[1], keys[1], scratch("mask above", *shape))
        finish_mask(out, above, first_head)
        return out

    def gradients(self, forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the log decays, in the shapes of `forward` and `backward`, from sums inside chunks."""
        cut, d_sums = self.cut, self.d_sums.double()
        if self.is_fixed:
            d_sums = d_sums.sum((0, 2), keepdim=True)
        gradients = []
        for way, x in enumerate((forward, backward)):
            half = slice(2 * cut.chunk * way, 2 * cut.chunk * (way + 1))
            d = d_sums[..., way % cut.ways, :].flatten(-2) @ cut.summing[:, half].T / LOG2_E
            if self.is_one_directional:
                d = d.where(self.is_forward.squeeze(-1) == (way == 0), 0)
            d = d.sum(-1).flatten() if self.is_fixed else d.flatten(2)[..., : cut.length].sum_to_size(x.shape)
            gradients.append(d.to(x.dtype).contiguous())
        return tuple(gradients)


class Slice:
    """
    The decays of some (batch, head) pairs, and the states that pass from chunk to chunk.

    Attributes:
        directions: for each direction, the pairs that read in it, its index among the ways of a state, its last
            step in a chunk, 0 or -1, and the factor of a state that passes each chunk, `(bh, n, 1)`.
        factors: the factors by which queries and keys are scaled, `(bh, n, 2, w, c, 1)`, in [0, 1].
    """

    def __init__(self, decays: Decays, s: int):
        self.cut, self.scratch, self.decays = decays.cut, decays.cut.scratch, decays
        self.factors, *self.for_mask = decays.by_slice[s]
        self.table = None if decays.tables is None else decays.tables[s % len(decays.tables)]
        self.first_head = first_head(s, self.cut.pairs, self.cut.heads)
        forward, backward = one_directional_rows(self.first_head) if decays.is_one_directional else [slice(None)] * 2
        self.directions = [
            (forward, 0, 0, self.factors[forward, :, 1, 0, 0]),
            (backward, self.cut.ways - 1, -1, self.factors[backward, :, 1, -1, -1]),
        ]
        self.d_sums = None if decays.d_sums is None else decays.d_by_slice[s]

    def by_chunk(self, x: Tensor) -> Tensor:
        """`(bh * p, ...)` as `(bh, p, ...)`."""
        return x.view(len(self.factors), -1, *x.shape[1:])

    def mask(self, chunks: slice) -> Tensor:
        """The diagonal tiles of M, `(h, 1, c, c)` or `(bh, p, c, c)`."""
        if self.table is not None:
            return self.table
        return self.decays.write_mask(self.for_mask, self.first_head, chunks)

    def multiply_(self, x: Tensor, mask: Tensor) -> Tensor:
        """Multiply `(bh * p, c, c)` in place by the mask."""
        x.view(-1, len(mask), len(x) // len(self.factors), *mask.shape[2:]).mul_(mask)
        return x

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """q kᵀ inside chunks, `(bh * p, c, c)`."""
        return self.scratch.product(q, k.transpose(1, 2), self.scratch("scores", *q.shape[:2], q.shape[1]))

    def scale(self, name: str, x: Tensor, chunks: slice) -> Tensor:
        """Scale queries ("q") or keys ("k") of a part, `(bh * p, c, d)`, in each direction: `(bh * p, c, w d)`."""
        rows, size, dim = x.shape
        pairs, ways = len(self.factors), self.cut.ways
        out = self.scratch("scaled " + name, rows, size, ways * dim)
        x = self.scratch.wide("wide", x).view(pairs, -1, 1, size, dim)
        factors = self.factors[:, chunks, "qk".index(name)]
        torch.mul(x, factors, out=out.view(pairs, -1, size, ways, dim).transpose(2, 3))
        return out

    def pass_states(self, sums: tuple, states: tuple, from_other_end: bool = False) -> None:
        """`pass_states` (attention/plain.py) in each direction; for gradients, from the other end."""
        shape = len(self.factors), self.cut.num_chunks, self.cut.ways, self.cut.head_dim, -1
        for pairs, way, last, keep in self.directions:
            order = slice(None, None, -1 if (last == -1) != from_other_end else None)
            keep = keep.unsqueeze(-1).unbind(1)[order]
            for added, passed in zip(sums, states, strict=True):  # the matrix, and the column
                if added is None:
                    continue
                added = added.view(shape)[pairs, :, way].unbind(1)[order]
                passed = passed.view(shape)[pairs, :, way].unbind(1)[order]
                passed[0].zero_()
                for x, before, factor, following in zip(added, passed, keep, passed[1:], strict=False):
                    torch.addcmul(x, before, factor, out=following)

    def add_gradient_inside(self, r: Tensor, chunks: slice) -> None:
        """Collect the gradients of the sums from R, `(bh * p, c, c)`, and overwrite R. (The diagonal cancels.)"""
        d_query, d_key = self.d_sums[:, chunks].unbind(2)
        r = self.by_chunk(r)
        if self.decays.is_one_directional:
            d_query[:, :, 0].add_(r.sum(-1).sub_(r.sum(-2)))
            return
        below = torch.tril(r, -1, out=self.scratch("below", *r.shape))
        above = r.sub_(below)
        d_query[:, :, 0].add_(below.sum(-1).sub_(below.sum(-2)))
        d_key[:, :, 1].add_(above.sum(-2).sub_(above.sum(-1)))

    def add_gradient_between(self, by_scaled: list[tuple[Tensor, Tensor]], through: Tensor, chunks: slice) -> None:
        """
        Collect the gradients of the sums through the states, from scaled queries and their gradients, then scaled keys
        and theirs, `(bh * p, c, w d)`, which this overwrites, and from products of states and their gradients.
        """
        d_sums = self.d_sums[:, chunks]
        for share, (scaled, d_scaled) in zip(d_sums.unbind(2), by_scaled, strict=True):
            d = d_scaled.mul_(scaled).unflatten(2, (self.cut.ways, -1)).sum(-1).transpose(1, 2)
            share.add_(self.by_chunk(d))
        through = self.by_chunk(through.unflatten(1, (self.cut.ways, -1)).sum(-1))
        for pairs, way, last, keep in self.directions:
            d_sums[pairs, :, 1, way, last].addcmul_(through[pairs, :, way], keep[:, chunks].squeeze(-1))


def add_up(scaled: Tensor, x: Tensor, ones: Tensor | None, matrix: Tensor, column: Tensor | None, scratch: Scratch):
    """Write scaledᵀ [x | ones] for the chunks of a part; `None` stands for a column of ones."""
    scratch.product(scaled.transpose(1, 2), x, matrix)
    if column is not None and ones is None:
        torch.sum(scaled, 1, out=column.squeeze(-1))
    elif column is not None:
        torch.bmm(ones.transpose(1, 2), scaled, out=column.transpose(1, 2))


def allocate_state(query: Tensor, key: Tensor, value: Tensor, forward: Tensor | None) -> Tensor:
    """Memory for the state of all tokens, `(b, h, d, e)`; empty if there are decays."""
    shape = (*query.shape[:2], query.shape[-1], value.shape[-1]) if forward is None else (0,)
    return query.new_empty(shape, dtype=accumulation_dtype(query.dtype))


def compute_without_decay(
    query: Tensor, key: Tensor, value: Tensor, pairs: int, scratch: Scratch, division: str, given: Tensor
):
    """The results of the operator (attention/custom_operator.py), the state last, in slices of `pairs`."""
    output, denominator = allocate_outputs(scratch, query, value, division)
    states = allocate_state(query, key, value, None)
    for q, k, v, out, den, state in slices_of_all(pairs, query, key, value, output, denominator, states):
        q, k, v = scratch.operands(q, k, v)
        if division != "none":
            torch.bmm(sum_of(k, scratch), scratch.wide("q", q).transpose(1, 2), out=den.unsqueeze(1))
        scratch.product(k.transpose(1, 2), v, state)
        numerator = scratch.product(q, scratch.operand("state", state), scratch("numerator", *out.shape))
        finish(out, numerator, den, division, query.shape[-1])
    scratch.release()
    return rounded(output, denominator, given, division, states)


def sum_of(x: Tensor, scratch: Scratch) -> Tensor:
    """The sum over all tokens, `(bh, 1, d)`."""
    return torch.sum(x, 1, keepdim=True, dtype=scratch.dtype)


def compute_gradients_without_decay(slices: list[tuple[Tensor, ...]], division: str, scratch: Scratch) -> None:
    """Fill dq, dk and dv; each slice has query, key, value, dy, d den, y, den, dq, dk, dv and the state."""
    for q, k, v, dy, d_denominator, y, den, *outs, state in slices:
        n, d = output_gradients(dy, d_denominator, y, den, division, (1, q.shape[1]), scratch)
        q, k, v, n = *scratch.operands(q, k, v), scratch.operand("n", n)
        d_state = scratch.operand("d state", torch.bmm(n.transpose(1, 2), q))
        names = ("dq", "dk", "dv")
        dq, dk, dv = targets = [
            scratch.target(name, out, is_sum=d is not None and name != "dv")
            for name, out in zip(names, outs, strict=True)
        ]
        scratch.product(n, scratch.operand("state", state).transpose(1, 2), dq)
        scratch.product(v, d_state, dk)
        scratch.product(k, d_state.transpose(1, 2), dv)
        if d is not None:
            dq.addcmul_(d, sum_of(k, scratch))
            dk.add_(torch.bmm(d.transpose(1, 2), scratch.wide("q", q)))
        scratch.deliver(targets, outs)


def compute_in_chunks(query, key, value, forward, backward, chunk_size, division, head_directions, plan=None):
    given, (query, key, value) = value, side_by_side(forward, query, key, value)
    cut = planned(plan, Cut, query, key, value, options=(chunk_size, head_directions))
    if forward is None:
        return compute_without_decay(query, key, value, cut.pairs, cut.scratch, division, given)
    scratch, divides, has_states = cut.scratch, division != "none", cut.num_chunks > 1
    output, denominator = allocate_outputs(scratch, query, value, division)
    decays = Decays(cut, forward, backward)
    for s, (*inputs, out, den_out) in enumerate(slices_of_all(cut.pairs, query, key, value, output, denominator)):
        some, pairs = Slice(decays, s), len(out)
        q, k, v = cut.read(*inputs)
        numerator, unpadded = cut.target(out, "numerator")
        den = scratch("denominator", len(q), cut.chunk, 1) if divides else None
        sums = states = ()
        if has_states:
            sums, states = cut.states("sums", pairs, divides), cut.states("states", pairs, divides)
        for n, (q_n, k_n, v_n, num, den_n, *sums_n) in cut.by_part(q, k, v, numerator, den, *sums):
            weights = some.multiply_(some.scores(q_n, k_n), some.mask(n))
            scratch.product(weights, v_n, num)
            if divides:
                torch.sum(weights, -1, keepdim=True, out=den_n)
            if has_states:
                add_up(some.scale("k", k_n, n), v_n, None, *sums_n, scratch)
        if has_states:
            some.pass_states(sums, states)
            for n, (q_n, num, den_n, matrix, column) in cut.by_part(q, numerator, den, *states):
                scaled = some.scale("q", q_n, n)
                scratch.product(scaled, matrix, num, adds=True)
                if divides:
                    den_n.transpose(1, 2).baddbmm_(column.transpose(1, 2), scaled.transpose(1, 2))
        if divides:
            den_out.copy_(den.view(pairs, -1)[:, : cut.length])
        finish(out, unpadded, den_out, division, cut.head_dim)
    scratch.release()
    return rounded(output, denominator, given, division, denominator.new_empty(0))


def compute_gradients_in_chunks(
    grad, grad_denominator, query, key, value, forward, backward, output, denominator, saved, chunk_size, division,
    head_directions, needs_decay, plan=None,
):  # fmt: skip
    cut = planned(plan, Cut, query, key, value, options=(chunk_size, head_directions))
    scratch, divides, has_states = cut.scratch, division != "none", cut.num_chunks > 1
    gradients = [torch.empty_like(x) for x in (query, key, value)]
    grad_denominator = denominator if grad_denominator is None else grad_denominator  # sliced, but not read
    tensors = (query, key, value, grad, grad_denominator, output, denominator, *gradients)
    if forward is None:
        compute_gradients_without_decay(slices_of_all(cut.pairs, *tensors, *saved), division, scratch)
        scratch.release()
        return *gradients, grad.new_empty(0), grad.new_empty(0)
    decays = Decays(cut, forward, backward, needs_gradient=needs_decay)
    for s, (*inputs, dy, d_den, y, den, dq, dk, dv) in enumerate(slices_of_all(cut.pairs, *tensors)):
        some, pairs = Slice(decays, s), len(dy)
        n, d = output_gradients(dy, d_den, y, den, division, (cut.num_chunks, cut.chunk), scratch)
        targets, unpadded = zip(*map(cut.target, (dq, dk, dv), ("dq", "dk", "dv")), strict=True)
        of_all = *cut.read(*inputs), scratch.operand("n", n), d, *targets
        sums = states = d_states = ()
        if has_states:
            sums, states = cut.states("sums", pairs, divides), cut.states("states", pairs, divides)
            d_states = cut.states("gradients of states", pairs, divides)
        for chunks, (q, k, v, n, d, dq_n, dk_n, dv_n, *more) in cut.by_part(*of_all, *sums, *d_states):
            g = scratch.product(n, v.transpose(1, 2), scratch("g", *q.shape[:2], cut.chunk))
            if d is not None:
                g.add_(d)
            mask, scores = some.mask(chunks), some.scores(q, k)
            g_operand = scratch.operand("g", some.multiply_(g, mask))
            scratch.product(g_operand, k, dq_n)
            scratch.product(g_operand.transpose(1, 2), q, dk_n)
            if needs_decay:
                some.add_gradient_inside(g.mul_(scores), chunks)
            scratch.product(some.multiply_(scores, mask).transpose(1, 2), n, dv_n)
            if has_states:
                add_up(some.scale("k", k, chunks), v, None, *more[:2], scratch)
                add_up(some.scale("q", q, chunks), n, d, *more[2:], scratch)
        if has_states:
            some.pass_states(sums, states)
            some.pass_states(d_states, sums, from_other_end=True)  # in the memory of the sums
            for chunks, (*tensors, column, d_sum, d_column) in cut.by_part(*of_all, *states, *sums):
                add_between_chunks(some, chunks, tensors[:-1], tensors[-1], column, d_sum, d_column)
        scratch.deliver(unpadded, (dq, dk, dv))
    scratch.release()
    if not needs_decay:
        return *gradients, grad.new_empty(0), grad.new_empty(0)
    return *gradients, *decays.gradients(forward, backward)


def add_between_chunks(some: Slice, chunks: slice, tensors, state, column, d_sum, d_column) -> None:
    """
    Add the gradients through the states to dq, dk, dv and the gradients of the decays. `tensors` are query, key,
    value, n, d, dq, dk and dv of a part; the others are the states of its chunks and the gradients of their sums.
    """
    scratch = some.scratch
    q, k, v, n, d, dq, dk, dv = tensors
    scaled_query, scaled_key = some.scale("q", q, chunks), some.scale("k", k, chunks)
    d_sum_operand = scratch.operand("d sums", d_sum)
    d_query = scratch.product(n, state.transpose(1, 2), scratch("d query", *scaled_query.shape))
    d_key = scratch.product(v, d_sum_operand.transpose(1, 2), scratch("d key", *scaled_key.shape))
    scratch.product(scaled_key, d_sum_operand, dv, adds=True)
    if column is not None:
        d_query.addcmul_(d, column.transpose(1, 2))
        d_key.add_(d_column.transpose(1, 2))
    for out, d_scaled, factors in zip((dq, dk), (d_query, d_key), some.factors[:, chunks].unbind(2), strict=True):
        by_way = some.by_chunk(d_scaled.unflatten(2, (some.cut.ways, -1))).unbind(3)
        for d_way, factor in zip(by_way, factors.unbind(2), strict=True):
            some.by_chunk(out).addcmul_(d_way, factor)
    if some.d_sums is None:
        return
    through = torch.mul(state, d_sum, out=scratch("product of states", *state.shape)).sum(-1)
    if column is not None:
        through += (column * d_column).squeeze(-1)
    some.add_gradient_between([(scaled_query, d_query), (scaled_key, d_key)], through, chunks)


cpu_chunk = cpu_operator("chunk", compute_in_chunks, compute_gradients_in_chunks, chunk_body, allocate_state)
register_kernels("cpu", chunk=cpu_chunk)
