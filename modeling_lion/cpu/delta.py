# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The gated delta rule (SPEC §14) in chunks, a hand-written kernel for the CPU. O(L·C·D + L·D²) time, O(L·D) memory.

A step takes the next chunk of all (batch, head) pairs of a slice, of those that read forward and, from the end of the
sequence on, of those that read backward, and the states that reach it, S. With x = [k; q], a chunk of keys above one
of queries, M the mask of the chunk (1 on the diagonal, 0 above it, or below it where heads read backward), β, and the
decays from its start, s, to its end, e, and through it, g, in the direction of the head:

    [K₀; Q₀] = (x kᵀ) ∘ M                    (I + K₀ β) n = v - s k S        N = β n
    y = Q₀ N + s q S                         S ← g S + kᵀ e N

β of the keys is in the exponent of the mask. n is solved in place, by substitution: the products of powers of K₀ β
would have no digits left where keys repeat. Gradients, with dy, that of y, and dS, that of the next S:

    dN = Q₀ᵀ dy + e k dS                     (I + β K₀)ᵀ p = dN              dv = β p        dβ = n · p
    δ = [-dv; dy]    E = (δ Nᵀ) ∘ M          dx = E k + s δ Sᵀ               dk also has Eᵀ x + e N dSᵀ
    dS ← g dS + (s x)ᵀ δ

where the part of E for keys is 0 on the diagonal. The states and n are computed again in the backward, since saving
them would take twice the memory of the values. R = E ∘ [K₀; Q₀] is the gradient of log M (cpu/decay_mask.py).

Dimensions: p = pairs of a slice, first those that read forward, m = tokens of a step, d = head_dim, e = value_dim.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..attention.custom_operator import attention_operator
from ..attention.decay_mask import LOG2_E, LONGEST_CHUNK, LogDecay, cut_evenly, is_per_head, over_tokens
from ..attention.delta_plain import LEAST_LOG_DECAY, RMS_EPS, delta_chunk_body, run_delta_body
from ..attention.kernels import register_kernels
from ..attention.numerics import accumulation_dtype
from ..attention.plan import planned
from .scratch import Scratch


# (batch, head) pairs at once: what a step makes of them stays in cache.
PAIRS_AT_ONCE = 16
# In base 2: a step that nothing survives. Sums of a chunk of them are exact, and differ by more than all other sums.
CUT = -(2.0**14)


class DeltaCut:
    """
    How the work is cut, the same for all layers of a call: into slices, some rows of the batch and some heads, as many
    forward ones as backward ones; and into steps.

    Attributes:
        sizes: the tokens of each step, as many in all but the last one.
        parts: for each slice the rows, and for each way, forward and backward, the heads among those that read so.
        summing: for each way, a matrix of zeros and ones, `(c, 2c)`: log decays `(..., c)` times it are the sums
            before each token, in the direction of the head, and those from it on.
        hidden: for each way -inf where a query does not see a key, otherwise 0, `(c, c)`.
    """

    def __init__(self, query: Tensor, value: Tensor, chunk_size: int):
        batch, heads, self.length, _ = query.shape
        self.scratch = Scratch(query)
        self.root_eps = torch.tensor(RMS_EPS**0.5, dtype=self.scratch.dtype)
        num_steps, self.chunk = cut_evenly(self.length, min(chunk_size, LONGEST_CHUNK))
        self.last = self.length - (num_steps - 1) * self.chunk
        self.sizes = [self.chunk] * (num_steps - 1) + [self.last]
        some_heads = min(heads, PAIRS_AT_ONCE // 2 * 2)
        some_rows = max(1, PAIRS_AT_ONCE // some_heads)
        self.parts = [
            (slice(row, row + some_rows), (slice(head // 2, (end + 1) // 2), slice(head // 2, end // 2)))
            for row in range(0, batch, some_rows)
            for head, end in ((first, min(first + some_heads, heads)) for first in range(0, heads, some_heads))
        ]
        token = torch.arange(self.chunk)
        before = token.unsqueeze(1) < token
        ways = (before, ~before), (before.T, ~before.T)
        self.summing = [torch.cat(way, dim=1).double() for way in ways]
        self.hidden = [torch.zeros(before.shape).masked_fill(x, -torch.inf) for x in (before, before.T)]
        self.hidden = [x.to(self.scratch.dtype) for x in self.hidden]

    def in_steps(self, x: Tensor, like: Tensor, way: int) -> Tensor:
        """The heads of a way of `(1 or b, 1 or h, l)` as `(b, its heads, steps, c)`, in the order of their steps."""
        x = x.expand(*like.shape[:3])[:, way::2]
        if way == 0:
            return pad(x, (0, self.chunk - self.last)).unflatten(2, (-1, self.chunk))
        last, others = x[:, :, None, : self.last], x[..., self.last :].unflatten(2, (-1, self.chunk))
        return torch.cat((others.flip(2), pad(last, (0, self.chunk - self.last))), dim=2)

    def out_of_steps(self, ways: list[Tensor]) -> Tensor:
        """`in_steps`, back, of both ways: `(b, h, l)`."""
        ahead, back = ways
        out = ahead.new_empty(len(ahead), ahead.shape[1] + back.shape[1], self.length)
        out[:, ::2] = ahead.flatten(2)[..., : self.length]
        out[:, 1::2, : self.last] = back[:, :, -1, : self.last]
        out[:, 1::2, self.last :] = back[:, :, :-1].flip(2).flatten(2)
        return out


class Gates(NamedTuple):
    """
    Decays and β of the heads of one way, in steps; of a layer, or of a slice, where `(b, heads)` are `p` pairs.

    Attributes:
        beta, from_start, to_end: β, and the decays from the start of a chunk to each token and from each token to its
            end, `(b, heads, steps, c, 1)`.
        queries, keys: whose product is the exponent of the mask in base 2, `(b, heads, steps, c, 4)` and `(b, heads,
            steps, 4, c)`: sums of log decays before each token, in two parts, so that the difference of two sums has
            all digits of the smaller one.
        keys_with_beta: likewise, for a mask times β of the keys.
    """

    beta: Tensor
    from_start: Tensor
    to_end: Tensor
    queries: Tensor
    keys: Tensor
    keys_with_beta: Tensor


def gates_of(cut: DeltaCut, log_decay: Tensor, beta: Tensor, like: Tensor, way: int) -> Gates:
    steps, beta = cut.in_steps(log_decay, like, way), cut.in_steps(beta, like, way)
    is_cut = steps < LEAST_LOG_DECAY
    sums = steps.masked_fill(is_cut, 0).double() @ cut.summing[way].mul(LOG2_E)
    whole = sums.round()
    rest = (sums - whole).to(beta.dtype)
    if is_cut.any():
        whole += (is_cut.double() @ cut.summing[way]) * CUT
    whole = whole.to(beta.dtype)
    from_start, to_end = (whole + rest).exp2_().unsqueeze(-1).chunk(2, dim=-2)
    whole, rest = whole[..., : cut.chunk], rest[..., : cut.chunk]
    one = torch.ones_like(rest)
    keys, with_beta = (torch.stack((one, -whole, one, x), dim=-2) for x in (-rest, beta.log2() - rest))
    queries = torch.stack((whole, one, rest, one), dim=-1)
    return Gates(beta.unsqueeze(-1), from_start, to_end, queries, keys, with_beta)


def gates_of_ways(cut: DeltaCut, forward: Tensor, backward: Tensor, beta: Tensor, like: Tensor) -> list[Gates]:
    """The gates of the heads that read forward, and of those that read backward."""
    log_decays = over_tokens(LogDecay(forward, backward), like)
    return [gates_of(cut, x, beta, like, way) for way, x in enumerate(log_decays)]


Ways = tuple[Tensor, Tensor]


class Pairs:
    """
    The pairs of a slice, first those that read forward.

    Attributes:
        gates: of each step, `(p, m, ...)` and `(p, 4, m)`.
        size, num_forward: how many pairs there are, and how many of them read forward.
    """

    def __init__(self, cut: DeltaCut, ways: list[Gates], part: tuple[slice, tuple[slice, slice]]):
        self.cut, self.scratch = cut, cut.scratch
        self.rows, self.heads = part
        found = []
        for of_ways in zip(*ways, strict=True):
            of_pairs = [x[self.rows, heads].flatten(0, 1) for x, heads in zip(of_ways, self.heads, strict=True)]
            found.append(torch.cat(of_pairs).unbind(1))
            self.num_forward, self.size = len(of_pairs[0]), sum(map(len, of_pairs))
        self.gates = [Gates(*x) for x in zip(*found, strict=True)]
        *tokens, keys, keys_with_beta = self.gates[-1]
        self.gates[-1] = Gates(
            *(x[:, : cut.last] for x in tokens), *(x[..., : cut.last] for x in (keys, keys_with_beta))
        )

    def steps(self, x: Tensor) -> list[Ways]:
        """`(b, h, l, ...)` by steps: the tokens of each way, `(rows, heads, m, ...)`."""
        ahead, back = x[self.rows, ::2][:, self.heads[0]], x[self.rows, 1::2][:, self.heads[1]]
        sizes = self.cut.sizes
        return list(zip(ahead.split(sizes, dim=2), back.split(sizes[::-1], dim=2)[::-1], strict=True))

    def match(self, ways: Ways, pairs: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each way, its tokens and the part of `(p, m, ...)` that is theirs, in the same shape."""
        own = pairs[: self.num_forward], pairs[self.num_forward :]
        return [(tokens, x.view(tokens.shape)) for tokens, x in zip(ways, own, strict=True)]

    def read(self, ways: Ways, out: Tensor) -> Tensor:
        """The tokens of a step in `out`, `(p, m, ...)`."""
        for tokens, own in self.match(ways, out):
            own.copy_(tokens)
        return out

    def write(self, ways: Ways, pairs: Tensor) -> None:
        """`read`, back: write `(p, m, ...)` to the tokens of a step."""
        for tokens, own in self.match(ways, pairs):
            tokens.copy_(own)

    def memory(self, name: str, m: int, *shape: int) -> Tensor:
        """Memory for m tokens of every pair, `(p, m, ...)`."""
        return self.scratch(name, self.size, m, *shape)

    def read_keys(self, key: Ways, query: Ways | None = None) -> Tensor:
        """Keys `(p, m, d)`, or keys above queries, `(p, 2m, d)`."""
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
        for part, hidden in zip(
            (slice(self.num_forward), slice(self.num_forward, None)), self.cut.hidden, strict=True
        ):
            own = out[part]
            torch.baddbmm(hidden[:m, :m].expand_as(own), queries[part], keys[part], out=own)
        return out.exp2_().unsqueeze(1)

    def scores(self, x: Tensor, mask: Tensor) -> Tensor:
        """(x kᵀ) ∘ M, `(p, m, m)` or `(p, 2m, m)`; of the first m rows the diagonal is not that of K₀."""
        m = mask.shape[-1]
        out = torch.bmm(x, x[:, :m].transpose(1, 2), out=self.scratch("scores", *x.shape[:2], m))
        out.view(self.size, -1, m, m).mul_(mask)
        return out

    def solve_(self, reads: Tensor, x: Tensor, transposes: bool = False) -> Tensor:
        """(I + K)⁻¹ x in place of x, `(p, m, e)`, for K `(p, m, m)`, or the transpose of such; with any diagonal."""
        for upper, part in enumerate((slice(self.num_forward), slice(self.num_forward, None))):
            own = x[part]
            options = {"upper": bool(upper) != transposes, "unitriangular": True}
            torch.linalg.solve_triangular(reads[part], own, out=own, **options)
        return x

    def solve_values(self, gates: Gates, x: Tensor, scores: Tensor, state: Tensor | None, n: Tensor) -> Tensor | None:
        """
        Turn `n`, which holds the values, `(p, m, e)`, into n. Returns x S, `(p, m or 2m, e)`; `None` without a state.
        """
        m, reads = n.shape[1], None
        if state is not None:
            reads = torch.bmm(x, state, out=self.scratch("reads", *x.shape[:2], n.shape[-1]))
            n.addcmul_(reads[:, :m], gates.from_start, value=-1)
        self.solve_(scores[:, :m], n)
        return reads

    def through(self, s: int) -> Tensor:
        """The decay of a state that passes step s, `(p, 1, 1)`."""
        to_end = self.gates[s].to_end
        return torch.cat((to_end[: self.num_forward, :1], to_end[self.num_forward :, -1:]))

    def next_state(self, s: int, key: Tensor, n: Tensor, state: Tensor | None, out: Tensor) -> Tensor:
        """The state behind step s, in `out`, which may be `state`."""
        factor = self.gates[s].beta * self.gates[s].to_end
        written = torch.mul(n, factor, out=self.memory("written", *n.shape[1:]))
        if state is None:
            return torch.bmm(key.transpose(1, 2), written, out=out)
        return torch.mul(state, self.through(s), out=out).baddbmm_(key.transpose(1, 2), written)


def compute_delta(query, key, value, forward, backward, beta, chunk_size, division, head_directions, plan=None):
    cut = planned(plan, DeltaCut, query, value, options=(chunk_size,))
    output = torch.empty_like(value, dtype=cut.scratch.dtype)
    denominator = query.new_empty((*query.shape[:3], 1), dtype=cut.scratch.dtype)
    ways, value_dim = gates_of_ways(cut, forward, backward, beta, query), value.shape[-1]
    for part in cut.parts:
        pairs, state = Pairs(cut, ways, part), None
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
    is_needed = division == "rms"
    return output.to(value.dtype), denominator, output if is_needed else denominator.new_empty(0)


def allocate_saved_of_delta(query, key, value, forward, backward, beta, chunk_size, division, head_directions):
    dtype = accumulation_dtype(value.dtype)
    has_wider = value.dtype != dtype and division == "rms"
    return (torch.empty_like(value, dtype=dtype) if has_wider else value.new_empty(0, dtype=dtype),)


class DeltaGradients:
    """
    The gradients of a slice, from the last step to the first.

    Attributes:
        d_gates: of β, of the sums of log decays before each token, and of those from it on, `(p, steps, 3, c)`.
        d_state: dS, `(p, d, e)`; `None` behind the last step.
    """

    def __init__(self, pairs: Pairs, states: list[Tensor | None], n: list[Tensor], needs_decay: bool):
        self.pairs, self.states, self.n, self.needs_decay = pairs, states, n, needs_decay
        self.scratch = pairs.scratch
        self.d_gates = self.scratch("d gates", pairs.size, len(n), 3, pairs.cut.chunk).zero_()
        self.d_state: Tensor | None = None

    def step(self, s: int, x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """
        Args:
            x: keys above queries, `(p, 2m, d)`.
            delta: memory `(p, 2m, e)`, of which the lower half is dy; the upper half becomes -dv.

        Returns:
            dx, `(p, 2m, d)`, and what is to be added to its upper half, dk, `(p, m, d)`.
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
        """Add to `dx` what the state before step s gives, and replace dS by its gradient."""
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
            d_to_end[: pairs.num_forward, 0] += d_through[: pairs.num_forward]
            d_to_end[pairs.num_forward :, -1] += d_through[pairs.num_forward :]
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
    ways, value_dim = gates_of_ways(cut, forward, backward, beta, query), value.shape[-1]
    gradients = [torch.empty_like(x) for x in (query, key, value)]
    d_ways = [x.queries.new_empty(*x.queries.shape[:3], 3, cut.chunk) for x in ways]
    for part in cut.parts:
        pairs = Pairs(cut, ways, part)
        own = DeltaGradients(pairs, *states_of_delta(pairs, key, value), needs_decay)
        tensors = grad, query, key, output, denominator.unsqueeze(-1), *gradients
        of_steps = list(enumerate(zip(*map(pairs.steps, tensors), strict=True)))
        for s, (dy, q, k, out, root, dq, dk, dv) in reversed(of_steps):
            x, m = pairs.read_keys(k, q), cut.sizes[s]
            delta = cut.scratch("delta", pairs.size, 2 * m, value_dim)
            dy = pairs.read(dy, delta[:, m:])
            if division == "rms":
                y, size = (
                    pairs.read(out, pairs.memory("y", m, value_dim)),
                    pairs.read(root, pairs.memory("root", m, 1)),
                )
                along = torch.mul(dy, y, out=pairs.memory("product", m, value_dim)).mean(-1, keepdim=True)
                dy.addcmul_(y, along, value=-1).div_(size)
            dx, added = own.step(s, x, delta)
            for tokens, of_way in pairs.match(dv, delta[:, :m]):
                torch.neg(of_way, out=tokens) if tokens.dtype == delta.dtype else tokens.copy_(-of_way)
            own.through_state(s, x, delta, dx)
            pairs.write(dk, added.add_(dx[:, :m]))
            pairs.write(dq, dx[:, m:])
        for d_way, heads, of_way in zip(
            d_ways, pairs.heads, own.d_gates.split((pairs.num_forward, pairs.size - pairs.num_forward)), strict=True
        ):
            d_way[pairs.rows, heads] = of_way.view(d_way[pairs.rows, heads].shape)
    cut.scratch.release()
    d_beta = cut.out_of_steps([d[..., 0, :] for d in d_ways])
    if not needs_decay:
        return *gradients, grad.new_empty(0), grad.new_empty(0), d_beta
    return *gradients, *gradients_of_steps(cut, [d[..., 1:, :] for d in d_ways], forward, backward), d_beta


def gradients_of_steps(cut: DeltaCut, d_ways: list[Tensor], forward: Tensor, backward: Tensor) -> list[Tensor]:
    """
    The gradients of the log decays, in the shapes of `forward` and `backward`, from those of their sums before and
    from each token, `(b, heads, steps, 2, c)` for each way: each step has what crosses it inside a chunk.
    """
    d_steps = [d.double().flatten(-2) @ summing.T for d, summing in zip(d_ways, cut.summing, strict=True)]
    gradients = []
    for way, x in enumerate((forward, backward)):
        d = cut.out_of_steps([d if n == way else torch.zeros_like(d) for n, d in enumerate(d_steps)])
        gradients.append((d.sum((0, 2)) if is_per_head(x) else d.sum_to_size(x.shape)).to(x.dtype))
    return gradients


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
