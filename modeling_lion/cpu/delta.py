# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The gated delta rule (SPEC §14) in chunks, a hand-written kernel for the CPU. O(L·C·D + L·D²) time, O(L·D) memory.

A step computes one chunk of all (batch, head) pairs of a slice, in the reading order of each head: backward heads
start at the end of the sequence. S is the state before the chunk, x = [k; q] its keys above its queries, M its mask (1
on the diagonal, and 0 above it, or below it for backward heads), and s, e and g are the decays from its start, to its
end and through it, in the direction of the head:

    [K₀; Q₀] = (x kᵀ) ∘ M                    (I + K₀ β) n = v - s k S        N = β n
    y = Q₀ N + s q S                         S ← g S + kᵀ e N

The exponent of the mask includes β of the keys. n is computed in place, by substitution: a product of powers of K₀ β
would lose all digits where keys repeat. The gradients, with those of y, dy, and of the next S, dS:

    dN = Q₀ᵀ dy + e k dS                     (I + β K₀)ᵀ p = dN              dv = β p        dβ = n · p
    δ = [-dv; dy]    E = (δ Nᵀ) ∘ M          dx = E k + s δ Sᵀ               dk also has Eᵀ x + e N dSᵀ
    dS ← g dS + (s x)ᵀ δ

The part of E for keys is 0 on the diagonal. The backward recomputes the states and n: saving them would take twice the
memory of the values. R = E ∘ [K₀; Q₀] is the gradient of log M (cpu/decay_mask.py).

Dimensions: p = pairs of a slice, first those that read forward, m = tokens of a step, d = head_dim, e = value_dim.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ..attention.custom_operator import attention_operator
from ..attention.decay_mask import LOG2_E, LONGEST_CHUNK, LogDecay, cut_evenly, is_per_head, over_tokens, reads_forward
from ..attention.delta_plain import LEAST_LOG_DECAY, RMS_EPS, delta_chunk_body, run_delta_body
from ..attention.kernels import register_kernels
from ..attention.numerics import accumulation_dtype
from ..attention.plan import planned
from .scratch import Scratch


# (batch, head) pairs in a slice, so that the results of a step stay in cache.
PAIRS_AT_ONCE = 16
# The log2 of a step with λ = 0. Sums of such steps in a chunk are exact, and differ by more than all other sums.
CUT = -(2.0**14)


class Part(NamedTuple):
    """A slice of the (batch, head) pairs: rows of the batch, and heads from an even one to before an even one."""

    rows: slice
    heads: slice

    def ways(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The forward heads and the backward heads of the slice, from `(b, h, ...)`."""
        first, end = self.heads.start, self.heads.stop
        return x[self.rows, first:end:2], x[self.rows, first + 1 : end : 2]

    def of_gates(self, x: Tensor) -> Tensor:
        """The slice, `(p, ...)`, forward heads first, from `(ways, b, heads of each way, ...)`."""
        first, end = self.heads.start, self.heads.stop
        if (end - first) % 2 == 0:
            return x[:, self.rows, first // 2 : end // 2].flatten(0, 2)
        pairs = x[0, self.rows, first // 2 : end // 2 + 1], x[1, self.rows, first // 2 : end // 2]
        return torch.cat([way.flatten(0, 1) for way in pairs])


class DeltaCut:
    """
    The division of the work into slices and steps, the same for all layers of a call. A way is a direction of heads.

    Attributes:
        sizes: the number of tokens of each step, equal in all but the last one.
        summing: for each way, a matrix of zeros and ones, `(2, c, 2c)`. Log decays `(..., c)` times it are the sums
            before each token, in the direction of the head, and the sums from it on.
        hidden: for each way, -inf where a query does not see a key, otherwise 0, `(2, 1, c, c)`.
    """

    def __init__(self, query: Tensor, value: Tensor, chunk_size: int):
        batch, heads, self.length, _ = query.shape
        self.scratch = Scratch(query)
        self.root_eps = torch.tensor(RMS_EPS**0.5, dtype=self.scratch.dtype, device="cpu")
        num_steps, self.chunk = cut_evenly(self.length, min(chunk_size, LONGEST_CHUNK))
        self.last = self.length - (num_steps - 1) * self.chunk
        self.sizes = [self.chunk] * (num_steps - 1) + [self.last]
        some_heads = min(heads, PAIRS_AT_ONCE // 2 * 2)
        some_rows = max(1, PAIRS_AT_ONCE // some_heads)
        self.parts = [
            Part(slice(row, min(row + some_rows, batch)), slice(head, min(head + some_heads, heads)))
            for row in range(0, batch, some_rows)
            for head in range(0, heads, some_heads)
        ]
        token = torch.arange(self.chunk, device="cpu")
        before = token.unsqueeze(1) < token
        forward, backward = (torch.cat((x, ~x), dim=1) for x in (before, before.T))
        self.summing = torch.stack((forward, backward)).double()
        self.log2_summing = self.summing * LOG2_E
        hidden = torch.stack((before, before.T)).unsqueeze(1)
        self.hidden = torch.zeros(hidden.shape, dtype=self.scratch.dtype, device="cpu").masked_fill(hidden, -torch.inf)

    def in_steps(self, forward: Tensor, backward: Tensor, like: Tensor) -> Tensor:
        """
        Split the even heads of `forward` and the odd heads of `backward`, both `(1 or b, 1 or h, l)`, into steps in
        reading order, `(2, b, heads of each way, steps, c)`. If the number of heads is odd, way 1 has an unused one.
        """
        steps, chunk, last = len(self.sizes), self.chunk, self.last
        first, second = forward.expand(*like.shape[:3])[:, ::2], backward.expand(*like.shape[:3])[:, 1::2]
        out = forward.new_zeros(2, *first.shape[:2], steps, chunk)
        out[0].flatten(2)[..., : self.length] = first
        own = out[1, :, : second.shape[1]]
        own[:, :, -1, :last] = second[..., :last]
        own[:, :, :-1] = second[..., last:].unflatten(2, (steps - 1, chunk)).flip(2)
        return out

    def out_of_steps(self, x: Tensor, heads: int) -> Tensor:
        """Undo `in_steps`: `(b, h, l)`."""
        own = x[1, :, : heads // 2]
        out = x.new_empty(x.shape[1], heads, self.length)
        out[:, ::2] = x[0].flatten(2)[..., : self.length]
        out[:, 1::2, : self.last] = own[:, :, -1, : self.last]
        out[:, 1::2, self.last :] = own[:, :, :-1].flip(2).flatten(2)
        return out


class Gates(NamedTuple):
    """
    Decays and β in steps, for a layer, `(2, b, heads of each way, steps, ...)`, or for a step of a slice, `(p, ...)`.

    Attributes:
        beta, from_start, to_end: β, the decays from the start of a chunk to each token, and those from each token to
            its end, `(..., c, 1)`.
        queries, keys: factors of the exponent of the mask in base 2, `(..., c, 4)` and `(..., 4, c)`. They hold the
            sums of log decays before each token in two parts, so that the difference of two sums has all
            digits of the smaller one.
        keys_with_beta: the same as `keys`, for a mask times β of the keys.
    """

    beta: Tensor
    from_start: Tensor
    to_end: Tensor
    queries: Tensor
    keys: Tensor
    keys_with_beta: Tensor


def gates_of(cut: DeltaCut, forward: Tensor, backward: Tensor, beta: Tensor, like: Tensor) -> Gates:
    steps = cut.in_steps(*over_tokens(LogDecay(forward, backward), like), like)
    beta = cut.in_steps(beta, beta, like)
    is_cut = steps < LEAST_LOG_DECAY
    has_cuts = is_cut.any()
    # Both ways in one product: `(2, b * heads * steps, c)` times `(2, c, 2c)`.
    sums = torch.bmm((steps.masked_fill(is_cut, 0) if has_cuts else steps).flatten(1, 3).double(), cut.log2_summing)
    whole = sums.round()
    rest = sums.sub_(whole).to(beta.dtype)
    if has_cuts:
        whole.add_(torch.bmm(is_cut.flatten(1, 3).double(), cut.summing), alpha=CUT)
    whole, rest = (x.view(*steps.shape[:-1], 2, cut.chunk) for x in (whole.to(beta.dtype), rest))
    factors = (whole + rest).exp2_().unsqueeze(-1)
    whole, rest = whole[..., 0, :], rest[..., 0, :]
    queries = torch.ones((*steps.shape, 4), dtype=beta.dtype, device="cpu")
    queries[..., 0], queries[..., 2] = whole, rest
    keys = torch.ones((2, *steps.shape[:-1], 4, cut.chunk), dtype=beta.dtype, device="cpu")
    torch.neg(whole, out=keys[0, ..., 1, :])
    torch.neg(rest, out=keys[0, ..., 3, :])
    keys[1, ..., 1, :] = keys[0, ..., 1, :]
    torch.sub(beta.log2(), rest, out=keys[1, ..., 3, :])
    return Gates(beta.unsqueeze(-1), factors[..., 0, :, :], factors[..., 1, :, :], queries, *keys)


Ways = tuple[Tensor, Tensor]


class Pairs:
    """
    The pairs of a slice, first those that read forward.

    Attributes:
        gates: the `Gates` of each step.
        size, num_forward: the number of pairs, and of those that read forward.
        hidden: `DeltaCut.hidden` for each pair, `(p, c, c)`.
    """

    def __init__(self, cut: DeltaCut, gates: Gates, part: Part):
        self.cut, self.part, self.scratch = cut, part, cut.scratch
        of_steps = [part.of_gates(x).unbind(1) for x in gates]
        self.gates = [Gates(*x) for x in zip(*of_steps, strict=True)]
        if cut.last < cut.chunk:
            *tokens, keys, with_beta = self.gates[-1]
            keys = [x[..., : cut.last] for x in (keys, with_beta)]
            self.gates[-1] = Gates(*(x[:, : cut.last] for x in tokens), *keys)
        rows, heads = part.rows.stop - part.rows.start, part.heads.stop - part.heads.start
        self.size, self.num_forward = rows * heads, rows * (heads - heads // 2)
        self.hidden = self.scratch("hidden", self.size, cut.chunk, cut.chunk)
        for own, way in zip(self.split(self.hidden), cut.hidden, strict=True):
            own.copy_(way)

    def split(self, x: Tensor) -> Ways:
        """The forward pairs and the backward pairs of `(p, ...)`."""
        return x[: self.num_forward], x[self.num_forward :]

    def steps(self, x: Tensor) -> list[Ways]:
        """The tokens of each step and way of `(b, h, l, ...)`, `(rows, heads, m, ...)`."""
        (ahead, back), sizes = self.part.ways(x), self.cut.sizes
        if len(sizes) == 1:
            return [(ahead, back)]
        return list(zip(ahead.split(sizes, dim=2), back.split(sizes[::-1], dim=2)[::-1], strict=True))

    def match(self, ways: Ways, pairs: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each way, its tokens and their part of `(p, m, ...)`, in the same shape."""
        return [(tokens, x.view(tokens.shape)) for tokens, x in zip(ways, self.split(pairs), strict=True)]

    def read(self, ways: Ways, out: Tensor) -> Tensor:
        """Copy the tokens of a step to `out`, `(p, m, ...)`."""
        for tokens, own in self.match(ways, out):
            own.copy_(tokens)
        return out

    def write(self, ways: Ways, pairs: Tensor) -> None:
        """Undo `read`: copy `(p, m, ...)` to the tokens of a step."""
        for tokens, own in self.match(ways, pairs):
            tokens.copy_(own)

    def memory(self, name: str, m: int, *shape: int) -> Tensor:
        """Scratch memory for m tokens of every pair, `(p, m, ...)`."""
        return self.scratch(name, self.size, m, *shape)

    def read_keys(self, key: Ways, query: Ways | None = None) -> Tensor:
        """The keys, `(p, m, d)`, or the keys above the queries, `(p, 2m, d)`."""
        m, dim = key[0].shape[2:]
        x = self.memory("keys", m if query is None else 2 * m, dim)
        self.read(key, x[:, :m])
        if query is not None:
            self.read(query, x[:, m:])
        return x

    def mask(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The mask of a step, `(p, 1, m, m)`, from its `Gates`."""
        m = queries.shape[1]
        out = self.memory("mask", m, m)
        torch.baddbmm(self.hidden[:, :m, :m], queries, keys, out=out)
        return out.exp2_().unsqueeze(1)

    def scores(self, x: Tensor, mask: Tensor) -> Tensor:
        """(x kᵀ) ∘ M, `(p, m, m)` or `(p, 2m, m)`: K₀, but with a diagonal, and Q₀ below it."""
        m = mask.shape[-1]
        out = torch.bmm(x, x[:, :m].transpose(1, 2), out=self.scratch("scores", *x.shape[:2], m))
        out.view(self.size, -1, m, m).mul_(mask)
        return out

    def solve_(self, reads: Tensor, x: Tensor, transposes: bool = False) -> Tensor:
        """Overwrite x, `(p, m, e)`, with (I + K)⁻¹ x. K, `(p, m, m)`, or its transpose, may have any diagonal."""
        for upper, (of_way, own) in enumerate(zip(self.split(reads), self.split(x), strict=True)):
            options = {"upper": bool(upper) != transposes, "unitriangular": True}
            torch.linalg.solve_triangular(of_way, own, out=own, **options)
        return x

    def solve_values(self, gates: Gates, x: Tensor, scores: Tensor, state: Tensor | None, n: Tensor) -> Tensor | None:
        """Overwrite `n`, the values, `(p, m, e)`, with n. Returns x S, `(p, m or 2m, e)`; `None` without a state."""
        m, reads = n.shape[1], None
        if state is not None:
            reads = torch.bmm(x, state, out=self.scratch("reads", *x.shape[:2], n.shape[-1]))
            n.addcmul_(reads[:, :m], gates.from_start, value=-1)
        self.solve_(scores[:, :m], n)
        return reads

    def through(self, s: int) -> Tensor:
        """The decay of a state that passes through step s, `(p, 1, 1)`."""
        ahead, back = self.split(self.gates[s].to_end)
        return torch.cat((ahead[:, :1], back[:, -1:]))

    def next_state(self, s: int, key: Tensor, n: Tensor, state: Tensor | None, out: Tensor) -> Tensor:
        """The state after step s, in `out`, which may be `state`."""
        factor = self.gates[s].beta * self.gates[s].to_end
        written = torch.mul(n, factor, out=self.memory("written", *n.shape[1:]))
        if state is None:
            return torch.bmm(key.transpose(1, 2), written, out=out)
        return torch.mul(state, self.through(s), out=out).baddbmm_(key.transpose(1, 2), written)


def compute_delta(query, key, value, forward, backward, beta, chunk_size, division, head_directions, plan=None):
    cut = planned(plan, DeltaCut, query, value, options=(chunk_size,))
    output = torch.empty_like(value, dtype=cut.scratch.dtype)
    denominator = query.new_empty((*query.shape[:3], 1), dtype=cut.scratch.dtype)
    of_layer, value_dim = gates_of(cut, forward, backward, beta, query), value.shape[-1]
    for part in cut.parts:
        pairs, state = Pairs(cut, of_layer, part), None
        memory = cut.scratch("state", pairs.size, query.shape[-1], value_dim)
        of_steps = zip(pairs.gates, *map(pairs.steps, (query, key, value, output, denominator)), strict=True)
        for s, (gates, q, k, v, out, root) in enumerate(of_steps):
            x, m = pairs.read_keys(k, q), v[0].shape[2]
            scores = pairs.scores(x, pairs.mask(gates.queries, gates.keys_with_beta))
            n = pairs.read(v, pairs.memory("n", m, value_dim))
            reads = pairs.solve_values(gates, x, scores, state, n)
            y = torch.bmm(scores[:, m:], n, out=pairs.memory("y", m, value_dim))
            if reads is not None:
                y.addcmul_(reads[:, m:], gates.from_start)
            if s + 1 < len(cut.sizes):
                state = pairs.next_state(s, x[:, :m], n, state, memory)
            if division != "rms":
                pairs.write(out, y)
                continue
            size = torch.linalg.vector_norm(y, dim=-1, keepdim=True).mul_(value_dim**-0.5).hypot_(cut.root_eps)
            pairs.write(root, size)
            for (tokens, own), (_, divisor) in zip(pairs.match(out, y), pairs.match(root, size), strict=True):
                torch.div(own, divisor, out=tokens)
    cut.scratch.release()
    denominator = denominator.squeeze(-1)
    if output.dtype == value.dtype or division == "deferred":
        return output, denominator, denominator.new_empty(0)
    return output.to(value.dtype), denominator, output if division == "rms" else denominator.new_empty(0)


def allocate_saved_of_delta(query, key, value, forward, backward, beta, chunk_size, division, head_directions):
    dtype = accumulation_dtype(value.dtype)
    has_wider = value.dtype != dtype and division == "rms"
    return (torch.empty_like(value, dtype=dtype) if has_wider else value.new_empty(0, dtype=dtype),)


class DeltaGradients:
    """
    The gradients of a slice, computed from the last step to the first: dS in `d_state`, and in `d_gates`, `(p, steps,
    3, c)`, those of β and of the sums of log decays before each token and from it on.
    """

    def __init__(self, pairs: Pairs, states: list[Tensor | None], n: list[Tensor], needs_decay: bool):
        self.pairs, self.states, self.n, self.needs_decay = pairs, states, n, needs_decay
        self.scratch = pairs.scratch
        self.d_gates = self.scratch("d gates", pairs.size, len(n), 3, pairs.cut.chunk).zero_()
        self.d_state: Tensor | None = None

    def step(self, s: int, x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """
        Returns dx, `(p, 2m, d)`, for keys above queries x, and a term to add to its upper half, dk, `(p, m, d)`. The
        lower half of `delta`, `(p, 2m, e)`, is dy; this method sets its upper half to -dv.
        """
        pairs, n, d_state, gates = self.pairs, self.n[s], self.d_state, self.pairs.gates[s]
        m, value_dim = n.shape[1:]
        d_beta, d_from_start, d_to_end = self.d_gates[:, s, :, :m].unbind(1)
        mask = pairs.mask(gates.queries, gates.keys)
        scores = pairs.scores(x, mask)
        p = torch.bmm(scores[:, m:].transpose(1, 2), delta[:, m:], out=pairs.memory("p", m, value_dim))
        if d_state is not None:
            sent = torch.bmm(x[:, :m], d_state, out=pairs.memory("sent", m, value_dim)).mul_(gates.to_end)
            p.add_(sent)
        by_row = torch.mul(scores[:, :m], gates.beta, out=pairs.memory("scores by row", m, m))
        pairs.solve_(by_row.transpose(1, 2), p, transposes=True)
        product = pairs.memory("product", m, value_dim)
        torch.sum(torch.mul(n, p, out=product), -1, out=d_beta)
        torch.mul(p, -gates.beta, out=delta[:, :m])
        written = torch.mul(n, gates.beta, out=pairs.memory("written", m, value_dim))
        e = torch.bmm(delta, written.transpose(1, 2), out=self.scratch("e", *scores.shape))
        e[:, :m].diagonal(dim1=1, dim2=2).zero_()
        if self.needs_decay:
            r = torch.mul(e, scores, out=self.scratch("r", *e.shape))
            d_from_start.add_(r.sum(-1).view(-1, 2, m).sum(1)).sub_(r.sum(1))
        e.view(-1, 2, m, m).mul_(mask)
        dx = torch.bmm(e, x[:, :m], out=self.scratch("dx", *x.shape))
        dk = torch.bmm(e.transpose(1, 2), x, out=pairs.memory("dk", m, x.shape[-1]))
        if d_state is not None:
            if self.needs_decay:
                d_to_end.add_(torch.mul(written, sent, out=product).sum(-1))
            dk.baddbmm_(written.mul_(gates.to_end), d_state.transpose(1, 2))
        return dx, dk

    def through_state(self, s: int, x: Tensor, delta: Tensor, dx: Tensor) -> None:
        """Add the gradient through the state before step s to `dx`, and replace dS by that of this state."""
        pairs, state, scratch, m = self.pairs, self.states[s], self.scratch, x.shape[1] // 2
        if state is None:
            return
        _, d_from_start, d_to_end = self.d_gates[:, s, :, :m].unbind(1)
        delta.view(-1, 2, m, delta.shape[-1]).mul_(pairs.gates[s].from_start.unsqueeze(1))
        d_reads = torch.bmm(delta, state.transpose(1, 2), out=scratch("d reads", *x.shape))
        dx.add_(d_reads)
        if self.needs_decay:
            d_from_start.add_(d_reads.mul_(x).sum(-1).view(-1, 2, m).sum(1))
        if self.d_state is None:
            self.d_state = torch.bmm(x.transpose(1, 2), delta, out=scratch("d state", *state.shape))
            return
        through = pairs.through(s)
        if self.needs_decay:
            product = torch.mul(self.d_state, state, out=scratch("product of states", *state.shape))
            d_through = product.sum((1, 2)).mul_(through.flatten())
            (ahead, back), (d_ahead, d_back) = pairs.split(d_to_end), pairs.split(d_through)
            ahead[:, 0] += d_ahead
            back[:, -1] += d_back
        self.d_state.mul_(through).baddbmm_(x.transpose(1, 2), delta)


def states_of_delta(pairs: Pairs, key: Tensor, value: Tensor) -> tuple[list[Tensor | None], list[Tensor]]:
    """The state before each step, `None` before the first, and n of each step."""
    cut, value_dim = pairs.cut, value.shape[-1]
    all_n = pairs.scratch("all n", len(cut.sizes), pairs.size * cut.chunk * value_dim)
    memory = pairs.scratch("states", max(1, len(cut.sizes) - 1), pairs.size, key.shape[-1], value_dim)
    states, n = [None], []
    for s, (gates, k, v) in enumerate(zip(pairs.gates, pairs.steps(key), pairs.steps(value), strict=True)):
        x, shape = pairs.read_keys(k), (pairs.size, cut.sizes[s], value_dim)
        n.append(pairs.read(v, all_n[s, : pairs.size * cut.sizes[s] * value_dim].view(shape)))
        scores = pairs.scores(x, pairs.mask(gates.queries, gates.keys_with_beta))
        pairs.solve_values(gates, x, scores, states[s], n[s])
        if s + 1 < len(cut.sizes):
            states.append(pairs.next_state(s, x, n[s], states[s], memory[s]))
    return states, n


def compute_delta_gradients(
    grad, grad_denominator, query, key, value, forward, backward, beta, output, denominator, saved, chunk_size,
    division, head_directions, needs_decay, plan=None,
):  # fmt: skip
    cut = planned(plan, DeltaCut, query, value, options=(chunk_size,))
    gates, value_dim, heads = gates_of(cut, forward, backward, beta, query), value.shape[-1], query.shape[1]
    gradients = [torch.empty_like(x) for x in (query, key, value)]
    d_gates = gates.queries.new_zeros(*gates.queries.shape[:4], 3, cut.chunk)
    for part in cut.parts:
        pairs = Pairs(cut, gates, part)
        own = DeltaGradients(pairs, *states_of_delta(pairs, key, value), needs_decay)
        tensors = grad, query, key, output, denominator.unsqueeze(-1), *gradients
        of_steps = list(enumerate(zip(*map(pairs.steps, tensors), strict=True)))
        for s, (dy, q, k, out, root, dq, dk, dv) in reversed(of_steps):
            x, m = pairs.read_keys(k, q), cut.sizes[s]
            delta = cut.scratch("delta", pairs.size, 2 * m, value_dim)
            dy = pairs.read(dy, delta[:, m:])
            if division == "rms":
                y = pairs.read(out, pairs.memory("y", m, value_dim))
                size = pairs.read(root, pairs.memory("root", m, 1))
                along = torch.mul(dy, y, out=pairs.memory("product", m, value_dim)).mean(-1, keepdim=True)
                dy.addcmul_(y, along, value=-1).div_(size)
            dx, added = own.step(s, x, delta)
            for tokens, of_way in pairs.match(dv, delta[:, :m]):
                torch.neg(of_way, out=tokens) if tokens.dtype == delta.dtype else tokens.copy_(-of_way)
            own.through_state(s, x, delta, dx)
            pairs.write(dk, added.add_(dx[:, :m]))
            pairs.write(dq, dx[:, m:])
        for way, d in enumerate(pairs.split(own.d_gates)):
            first, rows = part.heads.start // 2, part.rows
            some = d_gates[way, rows, first : first + len(d) // (rows.stop - rows.start)]
            some.copy_(d.view(some.shape))
    cut.scratch.release()
    d_beta_steps, *d_sums = d_gates.unbind(-2)
    d_beta = cut.out_of_steps(d_beta_steps, heads)
    if not needs_decay:
        return *gradients, grad.new_empty(0), grad.new_empty(0), d_beta
    # The gradient of each step is a sum of gradients of sums inside its chunk.
    d_steps = torch.bmm(torch.cat(d_sums, dim=-1).flatten(1, 3).double(), cut.summing.mT)
    d_steps = cut.out_of_steps(d_steps.view(d_beta_steps.shape), heads)
    is_forward = reads_forward(heads, d_steps.device).view(-1, 1)
    for x, is_read in ((forward, is_forward), (backward, ~is_forward)):
        d = d_steps.where(is_read, 0)
        gradients.append((d.sum((0, 2)) if is_per_head(x) else d.sum_to_size(x.shape)).to(x.dtype))
    return *gradients, d_beta


cpu_delta = attention_operator(
    "delta_chunk",
    compute_delta,
    compute_delta_gradients,
    partial(run_delta_body, delta_chunk_body),
    allocate_saved_of_delta,
    num_saved=1,
    is_direct=True,
    more_inputs=("beta",),
)
register_kernels("cpu", delta_chunk=cpu_delta)
