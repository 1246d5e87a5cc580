# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The chunk form (SPEC §3 "chunk"), a hand-written kernel for the CPU: full attention inside chunks of C tokens, and one
state per direction between them. O(L·C·D + L·D²) time, O(L·C) memory, any length. This is the state-passing algorithm
of Mamba-2 (SSD), run in both directions around one shared diagonal tile.

Queries and keys are scaled for each direction with the sums of log decays inside a chunk (`ChunkSums`), and every
chunk adds a sum X to a state S. Both have a column for v = 1, which gives the denominators:

    q_F = exp(from_start) q    k_F = exp(to_end) k      X_F = k_Fᵀ [v|1]    S_F[n+1] = X_F[n] + exp(A) S_F[n]
    q_B = exp(from_end) q      k_B = exp(to_start) k    X_B = k_Bᵀ [v|1]    S_B[n-1] = X_B[n] + exp(A') S_B[n]

    [num|den] = ((q kᵀ) ∘ M) [v|1] + q_F S_F + q_B S_B

Gradients, with those of numerator and denominator n and d (cpu/parallel.py), dS = q_Fᵀ [n|d], and the same recurrence
from the other end:

    dX_F[n-1] = dS_F[n] + exp(A[n]) dX_F[n]             dq_F = [n|d] S_Fᵀ        dk_F = [v|1] dX_Fᵀ
    G_ij = (n_i · v_j + d_i) M_ij                       dq = G k + exp(from_start) dq_F + exp(from_end) dq_B
    dv = ((q kᵀ) ∘ M)ᵀ n + k_F dX_F + k_B dX_B          dk = Gᵀ q + exp(to_end) dk_F + exp(to_start) dk_B

`DecayGradient` turns q_F · dq_F, k_F · dk_F, exp(A) dX_F · S_F and R = G ∘ (q kᵀ) into gradients of the decays. The
backward recomputes the states: saving them would take twice the memory of the queries and save no time.

A head that reads one way (SPEC §11) has only the terms of its direction, F or B.

Dimensions: bh = (batch, head) pairs, n = chunks, p = those of a part, c = tokens of a chunk, d = head_dim, e =
value_dim, w = 2 directions, or 1 where each head has its own.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..attention.decay import LONGEST_CHUNK, cut_evenly, is_per_head
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
    slices_of_all,
)
from .decay_mask import (
    DecayGradient,
    MaskSums,
    base2_sums,
    one_way_base2_sums,
    one_way_rows,
    write_mask,
)
from .lit import allocate_state, compute_gradients_without_decay, compute_without_decay


# Tokens at a time: those of several heads, or a part of one head.
TOKENS_AT_ONCE = 3072


class Cut:
    """
    How the work of a call is cut: into n chunks of c tokens; into slices of `pairs` (batch, head) pairs; and, for long
    sequences, whose slices are single pairs, into parts of some chunks.

    Attributes:
        ways: how many directions each head reads, 2 or 1; states have them side by side.
        parts: the chunks of each part.
    """

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, chunks: tuple[int, int], ways: int):
        self.batch, self.heads, self.length, self.head_dim = query.shape
        self.value_dim = value.shape[-1]
        self.num_chunks, self.chunk = chunks
        self.ways = ways
        self.pairs = pairs_per_slice(TOKENS_AT_ONCE // max(1, self.length), query, key, value)
        step = self.num_chunks if self.length <= TOKENS_AT_ONCE else max(1, TOKENS_AT_ONCE // max(1, self.chunk))
        self.parts = [slice(n, min(n + step, self.num_chunks)) for n in range(0, self.num_chunks, step)]

    def read(self, tensors: tuple[Tensor, ...], scratch: Scratch) -> list[Tensor]:
        """Query, key and value `(bh, length, d)` as operands `(bh * n, c, d)`, padded with zeros."""
        padded, operands = self.num_chunks * self.chunk, []
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

    def target(self, out: Tensor, scratch: Scratch, name: str) -> tuple[Tensor, Tensor]:
        """
        Memory `(bh * n, c, d)` for the values of `out`, `(bh, length, d)`, and a view of it without the padding. The
        memory is that of `out` if matrix products can write there.
        """
        dim = out.shape[-1]
        if self.num_chunks * self.chunk == self.length and out.is_contiguous() and out.dtype == scratch.dtype:
            return out.view(-1, self.chunk, dim), out
        memory = scratch(name, len(out), self.num_chunks * self.chunk, dim)
        return memory.view(-1, self.chunk, dim), memory[:, : self.length]


class Part:
    """
    Some chunks of a slice, p of its n, and memory for what is computed from them. All parts share the same memory.

    Attributes:
        shape: (batch, head) pairs, p and c.
        scores: `(bh * p, c, c)`.
        mask: `(bh, p, c, c)`.
        scaled_query, scaled_key: `(bh * p, c, w d)`.
        query_by_way, key_by_way: the same by direction, `(bh, p, c, d)` each.
    """

    def __init__(self, cut: Cut, chunks: slice, pairs: int, scratch: Scratch):
        self.chunks, self.is_all = chunks, len(cut.parts) == 1
        self.shape = shape = pairs, chunks.stop - chunks.start, cut.chunk
        rows, width = shape[0] * shape[1], cut.ways * cut.head_dim
        self.scores = scratch("scores", rows, cut.chunk, cut.chunk)
        self.mask = scratch("mask", *shape, cut.chunk)
        self.scaled_query = scratch("scaled query", rows, cut.chunk, width)
        self.scaled_key = scratch("scaled key", rows, cut.chunk, width)
        self.query_by_way = self.scaled_query.view(*shape, cut.ways, cut.head_dim).unbind(3)
        self.key_by_way = self.scaled_key.view(*shape, cut.ways, cut.head_dim).unbind(3)

    def of(self, *tensors: Tensor | None) -> list[Tensor | None] | tuple[Tensor | None, ...]:
        """The rows of this part of tensors `(bh * n, ...)`."""
        return tensors if self.is_all else [x if x is None else x[self.chunks] for x in tensors]


def scale(x: Tensor, factors: list[Tensor], outs: list[Tensor], scratch: Scratch) -> None:
    """`x`, `(bh * p, c, d)`, times the factors of each way, `(bh, p, c, 1 or d)`, into `(bh, p, c, d)` each."""
    x = x if x.dtype == scratch.dtype else scratch("wide", *x.shape).copy_(x)
    x = x.view(outs[0].shape)
    for factor, out in zip(factors, outs, strict=True):
        torch.mul(x, factor, out=out)


class States:
    """
    A sum or a state for every chunk and direction.

    Attributes:
        matrix: `(bh * n, w d, e)`.
        column: the column for v = 1, `(bh * n, w d, 1)`; `None` without denominators.
        by_chunk: by direction, the matrices and columns of all chunks, `(bh, d, e)` and `(bh, d, 1)`.
    """

    def __init__(self, cut: Cut, directions: list[tuple], pairs: int, scratch: Scratch, name: str, divides: bool):
        rows, width = pairs * cut.num_chunks, cut.ways * cut.head_dim
        self.matrix = scratch(name, rows, width, cut.value_dim)
        self.column = scratch(f"{name} of ones", rows, width, 1) if divides else None
        self.by_chunk = [[] for _ in directions]
        for x in (self.matrix, self.column) if divides else (self.matrix,):
            by_way = x.view(pairs, cut.num_chunks, cut.ways, cut.head_dim, x.shape[-1])
            for (rows, way, _), of_direction in zip(directions, self.by_chunk, strict=True):
                of_direction.append(by_way[rows, :, way].unbind(1))

    def add_up(self, scaled: Tensor, x: Tensor, ones: Tensor | None, part: Part, scratch: Scratch) -> None:
        """Write scaledᵀ [x | ones] for the chunks of a part; `ones` are all 1 if `None`."""
        matrix, column = part.of(self.matrix, self.column)
        scratch.product(scaled.transpose(1, 2), x, matrix)
        if column is not None and ones is None:
            torch.sum(scaled, 1, out=column.squeeze(-1))
        elif column is not None:
            torch.bmm(ones.transpose(1, 2), scaled, out=column.transpose(1, 2))


class Workspace:
    """
    Memory that slices share: those with the same number of (batch, head) pairs that begin with the same direction.

    Attributes:
        first_head: 1 for slices that begin with an odd head, if heads read one way; otherwise 0.
        directions: for each direction, the (batch, head) pairs that read it, its index among the ways of a state, and
            whether it is backward.
        parts: the parts that slices are cut into.
        denominator: `(bh * n, c, 1)`; `None` without denominators.
        states: memory for sums, states and, in a backward, gradients of states; empty if there is only one chunk.
    """

    def __init__(
        self, cut: Cut, first_head: int, pairs: int, scratch: Scratch, divides: bool, has_gradients: bool = False
    ):
        self.scratch, self.first_head = scratch, first_head
        self.parts = [Part(cut, chunks, pairs, scratch) for chunks in cut.parts]
        self.denominator = scratch("denominator", pairs * cut.num_chunks, cut.chunk, 1) if divides else None
        self.directions = [(slice(None), 0, False), (slice(None), 1, True)]
        if cut.ways == 1:
            self.directions = [(heads, 0, bool(n)) for n, heads in enumerate(one_way_rows(first_head))]
        names = ("sums", "states", "gradients of states") if has_gradients else ("sums", "states")
        names = names if cut.num_chunks > 1 else ()
        self.states = [States(cut, self.directions, pairs, scratch, name, divides) for name in names]

    def pass_states(self, keep: list[tuple[Tensor, ...]], sums: States, states: States, turned: bool = False) -> None:
        """
        `pass_states` (attention/plain.py) in each direction; `turned` starts at the other end, as the backward does.

        Args:
            keep: by direction, the factor of a state that passes each chunk, `(bh, 1 or d, 1)`.
        """
        by_direction = zip(self.directions, keep, sums.by_chunk, states.by_chunk, strict=True)
        for (_, _, is_backward), factors, added, passed in by_direction:
            order = slice(None, None, -1) if is_backward != turned else slice(None)
            for add, state in zip(added, passed, strict=True):  # of the matrix and of the column
                state = state[order]
                state[0].zero_()
                for x, before, factor, following in zip(add[order], state, factors[order], state[1:], strict=False):
                    torch.addcmul(x, before, factor, out=following)


class Workspaces:
    """The workspaces of a call: few, since all slices but the last are alike."""

    def __init__(self, cut: Cut, *args):
        self.cut, self.args = cut, args
        self.made: dict[tuple[int, int], Workspace] = {}

    def __call__(self, s: int, pairs: int) -> Workspace:
        cut = self.cut
        kind = first_head(s, cut.pairs, cut.heads) % 2 if cut.ways == 1 else 0, pairs
        if kind not in self.made:
            self.made[kind] = Workspace(cut, *kind, *self.args)
        return self.made[kind]


class TokenDecays:
    """
    The decays of tokens or heads in the chunk form.

    Attributes:
        cut: how the work is cut.
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
        # In longer chunks, exponents would be differences of long sums, with few digits left.
        chunks = cut_evenly(length, min(chunk_size, LONGEST_CHUNK))
        is_one_way = head_directions == "alternate"
        self.cut = cut = Cut(query, key, value, chunks, ways=1 if is_one_way else 2)
        is_fixed = is_per_head(forward)
        if is_fixed:  # the same sums in every chunk
            forward, backward = [x.view(1, -1, 1, 1).expand(-1, -1, -1, cut.chunk) for x in (forward, backward)]
        else:
            if forward.shape[:2] != (batch, heads):
                forward, backward = forward.expand(batch, heads, -1), backward.expand(batch, heads, -1)
            padding = (0, chunks[0] * chunks[1] - length)
            forward, backward = pad(forward, padding).unflatten(2, chunks), pad(backward, padding).unflatten(2, chunks)
        if is_one_way:
            sums, for_mask, is_forward = one_way_base2_sums(forward, backward)
            by_way = (sums.from_start.where(is_forward, sums.from_end), sums.to_end.where(is_forward, sums.to_start))
        else:
            sums, for_mask = base2_sums(forward, backward)
            by_way = (sums.from_start, sums.from_end, sums.to_end, sums.to_start)
        # By slice: the factors of queries in each direction, then those of keys, (bh, n, c, 1) each.
        factors = torch.stack(by_way, dim=2).exp2_().unsqueeze(-1).expand(batch, heads, -1, *chunks, 1)
        by_slice = slices_of_all(cut.pairs, factors, *() if is_fixed else for_mask.tensors())
        self.factors = [of_slice[0].unbind(1) for of_slice in by_slice]
        self.gradient: DecayGradient | None = None
        self.tables = self.mask_sums = None
        if is_fixed:
            tables = factors.new_empty(heads, 1, cut.chunk, cut.chunk)
            write_mask(tables, MaskSums(*(x[0] for x in for_mask.tensors())), Scratch(query))
            self.tables = tables.split(cut.pairs)
        else:
            self.mask_sums = [MaskSums(*of_slice[1:]) for of_slice in by_slice]

    def start_gradient(self, like: Tensor) -> None:
        """From now on, collect the gradients of the log decays."""
        cut = self.cut
        self.gradient = DecayGradient(like, cut.batch, cut.heads, cut.num_chunks, cut.chunk, cut.ways == 1)
        self.shares = self.gradient.slices(cut.pairs)

    def gradients(self, forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the log decays, in the shapes of `forward` and `backward`."""
        return self.gradient.result(self.cut.length, forward, backward)

    def of_slice(self, s: int, work: Workspace) -> "TokenDecaysOfSlice":
        return TokenDecaysOfSlice(self, s, work)


class TokenDecaysOfSlice:
    """The decays of slice s, inside its chunks and between them, as factors in [0, 1]."""

    def __init__(self, decays: TokenDecays, s: int, work: Workspace):
        cut, self.scratch, self.first_head = decays.cut, work.scratch, work.first_head
        self.directions = work.directions
        self.query_factors, self.key_factors = decays.factors[s][: cut.ways], decays.factors[s][cut.ways :]
        self.table = None if decays.tables is None else decays.tables[s % len(decays.tables)]
        self.sums = None if decays.mask_sums is None else decays.mask_sums[s]
        self.shares = None if decays.gradient is None else decays.shares[s]
        self.gradient, self.has_gradient = decays.gradient, decays.gradient is not None

    def factors(self, part: Part) -> tuple[list[Tensor], list[Tensor]]:
        """What queries and keys of a part are scaled with, by direction, `(bh, p, c, 1)` each."""
        if part.is_all:
            return self.query_factors, self.key_factors
        return [x[:, part.chunks] for x in self.query_factors], [x[:, part.chunks] for x in self.key_factors]

    def keep(self) -> list[tuple[Tensor, ...]]:
        """
        By direction, the factor of a state that passes each chunk, `(bh, 1, 1)`; call it after `weights` of all parts.
        """
        return [
            self.key_factors[way][pairs, :, -1 if is_backward else 0, None].unbind(1)
            for pairs, way, is_backward in self.directions
        ]

    def mask(self, part: Part) -> Tensor:
        """The diagonal tiles of M, `(h, 1, c, c)` or `(bh, p, c, c)`."""
        if self.table is not None:
            return self.table
        sums = self.sums if part.is_all else self.sums.of_chunks(part.chunks)
        write_mask(part.mask, sums, self.scratch, self.first_head)
        return part.mask

    def weights(self, q: Tensor, k: Tensor, part: Part) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """(q kᵀ) ∘ M inside chunks, `(bh * p, c, c)`, and `factors`."""
        scores = self.scratch.product(q, k.transpose(1, 2), part.scores)
        mask = self.mask(part)
        scores.view(-1, len(mask), part.shape[1], *mask.shape[2:]).mul_(mask)
        return scores, *self.factors(part)

    def inside_gradients(
        self, q: Tensor, k: Tensor, g: Tensor, dq: Tensor, dk: Tensor, part: Part
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """
        The gradients from inside chunks: write dq and dk, `(bh * p, c, d)`, collect those of the decays, and return
        the results of `weights`. `g`, the gradient of the weights, is overwritten.
        """
        scratch, mask = self.scratch, self.mask(part)
        by_mask = (-1, len(mask), part.shape[1], *mask.shape[2:])
        scores = scratch.product(q, k.transpose(1, 2), part.scores)
        g.view(by_mask).mul_(mask)
        g_operand = scratch.operand("g", g)
        scratch.product(g_operand, k, dq)
        scratch.product(g_operand.transpose(1, 2), q, dk)
        if self.gradient is not None:
            r = g.mul_(scores).view(*part.shape, part.shape[-1])
            self.gradient.add_inside_chunks(self.shares.of_chunks(part.chunks), r, scratch)
        scores.view(by_mask).mul_(mask)
        return scores, *self.factors(part)

    def add_between(self, d_scaled_query: Tensor, d_scaled_key: Tensor, through: Tensor, part: Part) -> None:
        """
        Collect the gradients of the decays that come through the states.

        Args:
            d_scaled_query, d_scaled_key: the gradients of scaled queries and keys, `(bh * p, c, w d)`; overwritten.
            through: products of states and their gradients, `(bh * p, w d)`.
        """
        pairs, chunks, _ = part.shape
        ways = len(self.key_factors)
        shares = self.shares.of_chunks(part.chunks)
        for d_scaled, scaled, share in (
            (d_scaled_query, part.scaled_query, shares.query),
            (d_scaled_key, part.scaled_key, shares.key),
        ):
            share.add_(d_scaled.mul_(scaled).view(*part.shape, ways, -1).sum(-1).movedim(3, 2))
        through = through.view(pairs, chunks, ways, -1).sum(-1)
        for rows, way, is_backward in self.directions:
            keep = self.key_factors[way][rows, part.chunks, -1 if is_backward else 0, 0]
            torch.mul(through[rows, :, way], keep, out=shares.through[rows, :, way])


def compute_in_chunks(query, key, value, forward, backward, chunk_size, division, head_directions):
    given, (query, key, value) = value, side_by_side(forward, query, key, value)
    if forward is None:
        pairs = pairs_per_slice(TOKENS_AT_ONCE // max(1, query.shape[2]), query, key, value)
        return compute_without_decay(query, key, value, pairs, division, given)
    scratch, output, denominator = allocate_outputs(query, value, division)
    decays_of_all = TokenDecays(query, key, value, forward, backward, chunk_size, head_directions)
    cut, has_denominators = decays_of_all.cut, division != "none"
    workspaces = Workspaces(cut, scratch, has_denominators)
    for s, (*inputs, out, den_out) in enumerate(slices_of_all(cut.pairs, query, key, value, output, denominator)):
        work = workspaces(s, len(out))
        decays = decays_of_all.of_slice(s, work)
        q, k, v = cut.read(inputs, scratch)
        numerator, unpadded = cut.target(out, scratch, "numerator")
        sums, states = work.states or (None, None)
        for part in work.parts:
            q_n, k_n, v_n, num, den = part.of(q, k, v, numerator, work.denominator)
            weights, query_factors, key_factors = decays.weights(q_n, k_n, part)
            scratch.product(weights, v_n, num)
            if has_denominators:
                torch.sum(weights, -1, keepdim=True, out=den)
            if sums is not None:
                scale(k_n, key_factors, part.key_by_way, scratch)
                sums.add_up(part.scaled_key, v_n, None, part, scratch)
        if sums is not None:
            work.pass_states(decays.keep(), sums, states)
            for part in work.parts:
                if not part.is_all:
                    query_factors, _ = decays.factors(part)
                q_n, num, den, matrix, column = part.of(q, numerator, work.denominator, states.matrix, states.column)
                scale(q_n, query_factors, part.query_by_way, scratch)
                scratch.product(part.scaled_query, matrix, num, adds=True)
                if has_denominators:
                    den.transpose(1, 2).baddbmm_(column.transpose(1, 2), part.scaled_query.transpose(1, 2))
        if has_denominators:
            den_out.copy_(work.denominator.view(len(out), -1)[:, : cut.length])
        finish(out, unpadded, den_out, division, cut.head_dim)
    return rounded(output, denominator, given, division, denominator.new_empty(0))


class Operands(NamedTuple):
    """
    Inputs of a slice or a part, the gradients n and d of numerators and denominators, and memory for the results.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    n: Tensor
    d: Tensor | None
    dq: Tensor
    dk: Tensor
    dv: Tensor


def compute_gradients_in_chunks(
    grad, grad_denominator, query, key, value, forward, backward, output, denominator, saved, chunk_size, division,
    head_directions, needs_decay,
):  # fmt: skip
    scratch = Scratch(query)
    gradients = [torch.empty_like(x) for x in (query, key, value)]
    grad_denominator = denominator if grad_denominator is None else grad_denominator  # in slices, but not read
    tensors = (query, key, value, grad, grad_denominator, output, denominator, *gradients)
    if forward is None:
        pairs = pairs_per_slice(TOKENS_AT_ONCE // max(1, query.shape[2]), query, key, value)
        compute_gradients_without_decay(slices_of_all(pairs, *tensors, *saved), division, scratch)
        return *gradients, grad.new_empty(0), grad.new_empty(0)
    decays_of_all = TokenDecays(query, key, value, forward, backward, chunk_size, head_directions)
    if needs_decay:
        decays_of_all.start_gradient(denominator)
    cut, chunks = decays_of_all.cut, (decays_of_all.cut.num_chunks, decays_of_all.cut.chunk)
    workspaces = Workspaces(cut, scratch, division != "none", True)
    for s, (q, k, v, dy, d_denominator, y, den, *outs) in enumerate(slices_of_all(cut.pairs, *tensors)):
        work = workspaces(s, len(dy))
        decays = decays_of_all.of_slice(s, work)
        n, d = output_gradients(dy, d_denominator, y, den, division, chunks, scratch)
        results, unpadded = zip(*map(cut.target, outs, [scratch] * 3, ("dq", "dk", "dv")), strict=True)
        of_all = Operands(*cut.read((q, k, v), scratch), scratch.operand("n", n), d, *results)
        sums, states, d_states = work.states or (None, None, None)
        for part in work.parts:
            x = Operands(*part.of(*of_all))
            g = scratch.product(x.n, x.v.transpose(1, 2), scratch("g", *part.scores.shape))
            if d is not None:
                g.add_(x.d)
            weights, *scales = decays.inside_gradients(x.q, x.k, g, x.dq, x.dk, part)
            scratch.product(weights.transpose(1, 2), x.n, x.dv)
            if sums is not None:
                scale_both(x, *scales, part, scratch)
                sums.add_up(part.scaled_key, x.v, None, part, scratch)
                d_states.add_up(part.scaled_query, x.n, x.d, part, scratch)
        if sums is not None:
            work.pass_states(decays.keep(), sums, states)
            work.pass_states(decays.keep(), d_states, sums, turned=True)  # in the memory of the sums
            for part in work.parts:
                x = Operands(*part.of(*of_all))
                if not part.is_all:
                    scales = decays.factors(part)
                    scale_both(x, *scales, part, scratch)
                add_between_chunks(x, *scales, states, sums, decays, part, scratch)
        scratch.deliver(unpadded, outs)
    if not needs_decay:
        return *gradients, grad.new_empty(0), grad.new_empty(0)
    return *gradients, *decays_of_all.gradients(forward, backward)


def scale_both(x: Operands, query_factors: list[Tensor], key_factors: list[Tensor], part: Part, scratch: Scratch):
    """Scale queries and keys into the memory of a part."""
    scale(x.q, query_factors, part.query_by_way, scratch)
    scale(x.k, key_factors, part.key_by_way, scratch)


def add_between_chunks(
    x: Operands,
    query_factors: list[Tensor],
    key_factors: list[Tensor],
    states: States,
    d_sums: States,
    decays: TokenDecaysOfSlice,
    part: Part,
    scratch: Scratch,
) -> None:
    """
    Add what comes through the states to dq, dk, dv and the gradients of the decays; `part` holds scaled operands.
    """
    state, column, d_sum, d_column = part.of(states.matrix, states.column, d_sums.matrix, d_sums.column)
    d_sum_operand = scratch.operand("d sums", d_sum)
    d_query = scratch.product(x.n, state.transpose(1, 2), scratch("d query", *part.scaled_query.shape))
    d_key = scratch.product(x.v, d_sum_operand.transpose(1, 2), scratch("d key", *part.scaled_key.shape))
    scratch.product(part.scaled_key, d_sum_operand, x.dv, adds=True)
    if column is not None:
        d_query.addcmul_(x.d, column.transpose(1, 2))
        d_key.add_(d_column.transpose(1, 2))
    for out, d_scaled, factors in ((x.dq, d_query, query_factors), (x.dk, d_key, key_factors)):
        out = out.view(*part.shape, -1)
        by_way = d_scaled.view(*part.shape, len(factors), -1).unbind(3)
        for d, factor in zip(by_way, factors, strict=True):
            out.addcmul_(d, factor)
    if not decays.has_gradient:
        return
    through = torch.mul(state, d_sum, out=scratch("product of states", *state.shape)).sum(-1)
    if column is not None:
        through += (column * d_column).squeeze(-1)
    decays.add_between(d_query, d_key, through, part)


cpu_chunk = cpu_operator("chunk", compute_in_chunks, compute_gradients_in_chunks, chunk_body, allocate_state)
register_kernels("cpu", chunk=cpu_chunk)
