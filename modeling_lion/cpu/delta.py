# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The gated delta rule (SPEC §14) in chunks, a hand-written kernel for the CPU. O(L·C·D + L·D²) time, O(L·D) memory.

Heads that read backward are computed as those that read forward, with their tokens from the last to the first: this
order of a head is its reading order. A step takes the next chunk of all (batch, head) pairs of a slice, forward and
backward ones, and the states that reach it, S. With x = [k; q], a chunk of keys above one of queries, M the mask of
the chunk (1 on the diagonal, 0 above it), β, and the decays from its start, s, to its end, e, and through it, g:

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

from ..attention.custom_operator import attention_operator
from ..attention.decay_mask import LOG2_E, LONGEST_CHUNK, LogDecay, cut_evenly, is_per_head, over_tokens, reads_forward
from ..attention.delta_plain import LEAST_LOG_DECAY, RMS_EPS, delta_chunk_body, run_delta_body
from ..attention.kernels import register_kernels
from ..attention.numerics import accumulation_dtype
from ..attention.plan import planned
from .scratch import Scratch


# (batch, head) pairs at once: what a step makes of them stays in cache.
PAIRS_AT_ONCE = 16
# In base 2: a step that nothing survives. Sums of a chunk of them are exact, and differ by more than all other sums.
CUT = -(2.0**14)


class Part(NamedTuple):
    """A slice: some rows of the batch, and an even number of heads, but for the last ones."""

    rows: slice
    heads: slice

    def of(self, x: Tensor) -> Tensor:
        return x[self.rows, self.heads]


class DeltaCut:
    """
    How the work is cut, into slices and steps, the same for all layers of a call.

    Attributes:
        steps: for each step the tokens of the pairs that read forward, and of those that read backward.
        chunk: the tokens of a step, but for the last one.
        summing: a matrix of zeros and ones, `(c, 2c)`: log decays `(..., c)` times it are their sums before each token
            and from it on.
        above: -inf above the diagonal, `(c, c)`.
    """

    def __init__(self, query: Tensor, value: Tensor, chunk_size: int):
        batch, self.heads, self.length, _ = query.shape
        self.scratch = Scratch(query)
        num_steps, self.chunk = cut_evenly(self.length, min(chunk_size, LONGEST_CHUNK))
        ends = [*range(self.chunk, self.length, self.chunk), self.length]
        firsts = [0, *ends[:-1]]
        self.steps = [
            (slice(first, end), slice(self.length - end, self.length - first))
            for first, end in zip(firsts, ends, strict=True)
        ]
        some_heads = min(self.heads, PAIRS_AT_ONCE // 2 * 2)
        some_rows = max(1, PAIRS_AT_ONCE // some_heads)
        self.parts = [
            Part(slice(row, row + some_rows), slice(head, head + some_heads))
            for row in range(0, batch, some_rows)
            for head in range(0, self.heads, some_heads)
        ]
        token = torch.arange(self.chunk)
        is_added = token.unsqueeze(1) < token, token.unsqueeze(1) >= token
        self.summing = torch.cat(is_added, dim=1).double()
        self.above = torch.full((self.chunk, self.chunk), -torch.inf, dtype=self.scratch.dtype).triu_(1)

    def in_steps(self, forward: Tensor, backward: Tensor, like: Tensor) -> Tensor:
        """Two tensors `(1 or b, 1 or h, l)`, one for each way to read, as `(b, h, steps, c)` in reading order."""
        batch, heads, length = like.shape[:3]
        own = torch.empty(batch, heads, len(self.steps) * self.chunk, dtype=forward.dtype)
        own[:, ::2, :length] = forward.expand(batch, heads, -1)[:, ::2]
        own[:, 1::2, :length] = backward.expand(batch, heads, -1)[:, 1::2].flip(2)
        own[..., length:] = 0
        return own.unflatten(2, (-1, self.chunk))

    def gradients_of_steps(self, d_sums: Tensor, forward: Tensor, backward: Tensor) -> list[Tensor]:
        """
        The gradients of the log decays, in the shapes of `forward` and `backward`, of those of their sums before and
        from each token, `(b, h, steps, 2, c)`: each step has what crosses it inside a chunk.
        """
        own = self.out_of_steps(d_sums.double().flatten(-2) @ self.summing.T)
        is_forward = reads_forward(self.heads).view(-1, 1)
        of_ways = own.where(is_forward, 0), own.where(~is_forward, 0)
        return [
            (d.sum((0, 2)) if is_per_head(x) else d.sum_to_size(x.shape)).to(x.dtype)
            for x, d in zip((forward, backward), of_ways, strict=True)
        ]

    def out_of_steps(self, x: Tensor) -> Tensor:
        """`in_steps`, back: `(b, h, l)`."""
        x = x.flatten(2)[..., : self.length]
        out = torch.empty_like(x)
        out[:, ::2], out[:, 1::2] = x[:, ::2], x[:, 1::2].flip(2)
        return out


class Gates:
    """
    Decays and β of a layer, in steps.

    Attributes:
        is_cut: where nothing survives the step from a token to the next, `(b, h, steps, c)`.
        factors: β, and the decays from the start of a chunk to each token and from each token to the end,
            `(b, h, steps, 3, c)`.
        queries, keys: whose product is the exponent of the mask in base 2, `(b, h, steps, c, 4)` and `(b, h, steps, 4,
            c)`: sums of log decays before each token, in two parts, so that the difference of two sums has all digits
            of the smaller one.
        keys_with_beta: likewise, for a mask times β of the keys.
    """

    def __init__(self, cut: DeltaCut, forward: Tensor, backward: Tensor, beta: Tensor, like: Tensor):
        forward, backward = over_tokens(LogDecay(forward, backward), like)
        steps, beta = cut.in_steps(forward, backward, like), cut.in_steps(beta, beta, like)
        self.is_cut = steps < LEAST_LOG_DECAY
        sums = steps.masked_fill(self.is_cut, 0).double() @ cut.summing.mul(LOG2_E)
        whole = sums.round()
        rest = (sums - whole).to(beta.dtype)
        if self.is_cut.any():
            whole += (self.is_cut.double() @ cut.summing) * CUT
        whole = whole.to(beta.dtype)
        self.factors = torch.stack((beta, *(whole + rest).exp2_().chunk(2, dim=-1)), dim=-2)
        whole, rest = whole[..., : cut.chunk], rest[..., : cut.chunk]
        one = torch.ones_like(rest)
        self.queries = torch.stack((whole, one, rest, one), dim=-1)
        self.keys = torch.stack((one, -whole, one, -rest), dim=-2)
        self.keys_with_beta = torch.stack((one, -whole, one, beta.log2() - rest), dim=-2)


class Pairs:
    """
    The pairs of a slice.

    Attributes:
        beta, from_start, to_end: of each token, `(p, steps, c, 1)`.
    """

    def __init__(self, cut: DeltaCut, gates: Gates, part: Part):
        self.cut, self.part, self.scratch = cut, part, cut.scratch
        rows, heads = part.of(gates.factors).shape[:2]
        self.size, self.num_forward = rows * heads, rows * (heads - heads // 2)
        gated = (gates.factors, gates.queries, gates.keys, gates.keys_with_beta)
        factors, self.queries, self.keys, self.keys_with_beta = map(self.forward_first, gated)
        self.beta, self.from_start, self.to_end = factors.unsqueeze(-1).unbind(2)

    def forward_first(self, x: Tensor) -> Tensor:
        """`(b, h, ...)` as `(p, ...)`."""
        x = self.part.of(x)
        return torch.cat((x[:, ::2].flatten(0, 1), x[:, 1::2].flatten(0, 1)))

    def in_heads(self, of_pairs: Tensor, out: Tensor) -> None:
        """`forward_first`, back: write `(p, ...)` to `out`, `(b, h, ...)`."""
        out = self.part.of(out)
        for own, given in ((out[:, ::2], of_pairs[: self.num_forward]), (out[:, 1::2], of_pairs[self.num_forward :])):
            own.copy_(given.view(own.shape))

    def ways(self, x: Tensor, s: int, of_pairs: Tensor) -> list[Tensor]:
        """Step s of `x`, `(b, h, l, ...)`, and where it goes in `(p, m, ...)`: of each way, in the same shape."""
        x, (ahead, back) = self.part.of(x), self.cut.steps[s]
        first, second = x[:, ::2, ahead], x[:, 1::2, back]
        split = self.num_forward
        return [first, second, of_pairs[:split].view(first.shape), of_pairs[split:].view(second.shape)]

    def read(self, x: Tensor, s: int, out: Tensor) -> Tensor:
        """Step s of `x`, `(b, h, l, ...)`, in reading order, in `out`, `(p, m, ...)`."""
        ahead, back, first, second = self.ways(x, s, out)
        first.copy_(ahead)
        second.copy_(back.flip(2))
        return out

    def write(self, x: Tensor, s: int, given: Tensor) -> None:
        """`read`, back: write `given` to step s of `x`."""
        ahead, back, first, second = self.ways(x, s, given)
        ahead.copy_(first)
        back.copy_(second.flip(2))

    def memory(self, name: str, s: int, *shape: int) -> Tensor:
        """Memory for the tokens of step s, `(p, m, ...)`; the same for every step of as many tokens."""
        return self.scratch(name, self.size, self.num_tokens(s), *shape)

    def num_tokens(self, s: int) -> int:
        ahead = self.cut.steps[s][0]
        return ahead.stop - ahead.start

    def read_keys(self, key: Tensor, s: int, query: Tensor | None = None) -> Tensor:
        """Keys `(p, m, d)`, or keys above queries, `(p, 2m, d)`."""
        m = self.num_tokens(s)
        x = self.scratch("keys", self.size, m if query is None else 2 * m, key.shape[-1])
        self.read(key, s, x[:, :m])
        if query is not None:
            self.read(query, s, x[:, m:])
        return x

    def mask(self, s: int, keys: Tensor) -> Tensor:
        """The mask of a step, `(p, 1, m, m)`; `keys`: `Gates.keys` or `Gates.keys_with_beta`."""
        m = self.num_tokens(s)
        out = self.scratch("mask", self.size, m, m)
        above = self.cut.above[:m, :m].expand_as(out)
        torch.baddbmm(above, self.queries[:, s, :m], keys[:, s, :, :m], out=out)
        return out.exp2_().unsqueeze(1)

    def scores(self, x: Tensor, mask: Tensor) -> Tensor:
        """(x kᵀ) ∘ M, `(p, m, m)` or `(p, 2m, m)`; the upper part of the first m rows is not defined."""
        m = mask.shape[-1]
        out = torch.bmm(x, x[:, :m].transpose(1, 2), out=self.scratch("scores", *x.shape[:2], m))
        out.view(self.size, -1, m, m).mul_(mask)
        return out

    def solve(self, s: int, x: Tensor, scores: Tensor, state: Tensor | None, n: Tensor) -> Tensor | None:
        """
        Turn `n`, which holds the values, `(p, m, e)`, into n. Returns x S, `(p, m or 2m, e)`; `None` without a state.
        """
        m, reads = n.shape[1], None
        if state is not None:
            reads = torch.bmm(x, state, out=self.scratch("reads", *x.shape[:2], n.shape[-1]))
            n.addcmul_(reads[:, :m], self.from_start[:, s, :m], value=-1)
        torch.linalg.solve_triangular(scores[:, :m], n, upper=False, unitriangular=True, out=n)
        return reads

    def next_state(self, s: int, key: Tensor, n: Tensor, state: Tensor | None, out: Tensor) -> Tensor:
        """The state behind step s, in `out`, which may be `state`."""
        m = n.shape[1]
        factor = self.beta[:, s, :m] * self.to_end[:, s, :m]
        written = torch.mul(n, factor, out=self.memory("written", s, n.shape[-1]))
        if state is None:
            return torch.bmm(key.transpose(1, 2), written, out=out)
        return torch.mul(state, self.to_end[:, s, :1], out=out).baddbmm_(key.transpose(1, 2), written)


def compute_delta(query, key, value, forward, backward, beta, chunk_size, division, head_directions, plan=None):
    cut = planned(plan, DeltaCut, query, value, options=(chunk_size,))
    output = torch.empty_like(value, dtype=cut.scratch.dtype)
    denominator = query.new_empty(query.shape[:3], dtype=cut.scratch.dtype)
    gates, value_dim = Gates(cut, forward, backward, beta, query), value.shape[-1]
    for part in cut.parts:
        pairs, state = Pairs(cut, gates, part), None
        for s in range(len(cut.steps)):
            x = pairs.read_keys(key, s, query)
            m = x.shape[1] // 2
            scores = pairs.scores(x, pairs.mask(s, pairs.keys_with_beta))
            n = pairs.read(value, s, pairs.memory("n", s, value_dim))
            reads = pairs.solve(s, x, scores, state, n)
            y = torch.bmm(scores[:, m:], n, out=pairs.memory("y", s, value_dim))
            if reads is not None:
                y.addcmul_(reads[:, m:], pairs.from_start[:, s, :m])
            if s + 1 < len(cut.steps):
                memory = cut.scratch("state", pairs.size, query.shape[-1], value_dim)
                state = pairs.next_state(s, x[:, :m], n, state, memory)
            if division == "rms":
                size = torch.linalg.vector_norm(y, dim=-1, keepdim=True).square_().div_(value_dim).add_(RMS_EPS)
                y.div_(size.sqrt_())
                pairs.write(denominator.unsqueeze(-1), s, size)
            pairs.write(output, s, y)
    cut.scratch.release()
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
        d_factors: of β, of the sums of log decays before each token, and of those from it on, `(p, steps, 3, c)`.
        d_state: dS, `(p, d, e)`; `None` behind the last step.
    """

    def __init__(self, pairs: Pairs, states: list[Tensor | None], n: list[Tensor], needs_decay: bool):
        self.pairs, self.states, self.n, self.needs_decay = pairs, states, n, needs_decay
        self.scratch = pairs.scratch
        shape = pairs.size, len(n), 3, pairs.cut.chunk
        self.d_factors = self.scratch("d factors", *shape).zero_()
        self.d_state: Tensor | None = None

    def step(self, s: int, x: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        """
        Args:
            x: keys above queries, `(p, 2m, d)`.
            delta: memory `(p, 2m, e)`, of which the lower half is dy; the upper half becomes -dv.

        Returns:
            dx, `(p, 2m, d)`, and what is to be added to its upper half, dk, `(p, m, d)`.
        """
        pairs, n, d_state, scratch = self.pairs, self.n[s], self.d_state, self.scratch
        m, value_dim = n.shape[1:]
        beta, to_end = pairs.beta[:, s, :m], pairs.to_end[:, s, :m]
        d_beta, d_from_start, d_to_end = self.d_factors[:, s, :, :m].unbind(1)
        mask = pairs.mask(s, pairs.keys)
        scores = pairs.scores(x, mask)
        p = torch.bmm(scores[:, m:].transpose(1, 2), delta[:, m:], out=pairs.memory("p", s, value_dim))
        if d_state is not None:
            sent = torch.bmm(x[:, :m], d_state, out=pairs.memory("sent", s, value_dim)).mul_(to_end)
            p.add_(sent)
        by_row = torch.mul(scores[:, :m], beta, out=pairs.memory("scores by row", s, m))
        torch.linalg.solve_triangular(by_row.transpose(1, 2), p, upper=True, unitriangular=True, out=p)
        product = pairs.memory("product", s, value_dim)
        torch.sum(torch.mul(n, p, out=product), -1, out=d_beta)
        torch.mul(p, -beta, out=delta[:, :m])
        written = torch.mul(n, beta, out=pairs.memory("written", s, value_dim))
        e = torch.bmm(delta, written.transpose(1, 2), out=scratch("e", *scores.shape))
        e[:, :m].diagonal(dim1=1, dim2=2).zero_()
        if self.needs_decay:
            r = torch.mul(e, scores, out=scratch("r", *e.shape))
            d_from_start.add_(r.sum(-1).view(-1, 2, m).sum(1)).sub_(r.sum(1))
        e.view(-1, 2, m, m).mul_(mask)
        dx = torch.bmm(e, x[:, :m], out=scratch("dx", *x.shape))
        dk = torch.bmm(e.transpose(1, 2), x, out=pairs.memory("dk", s, x.shape[-1]))
        if d_state is not None:
            if self.needs_decay:
                d_to_end.add_(torch.mul(written, sent, out=product).sum(-1))
            dk.baddbmm_(written.mul_(to_end), d_state.transpose(1, 2))
        return dx, dk

    def through_state(self, s: int, x: Tensor, delta: Tensor, dx: Tensor) -> None:
        """Add to `dx` what the state before step s gives, and replace dS by its gradient."""
        pairs, state, scratch = self.pairs, self.states[s], self.scratch
        if state is None:
            return
        m = x.shape[1] // 2
        _, d_from_start, d_to_end = self.d_factors[:, s, :, :m].unbind(1)
        delta.view(-1, 2, m, delta.shape[-1]).mul_(pairs.from_start[:, s, None, :m])
        d_reads = torch.bmm(delta, state.transpose(1, 2), out=scratch("d reads", *x.shape))
        dx.add_(d_reads)
        if self.needs_decay:
            d_from_start.add_(d_reads.mul_(x).sum(-1).view(-1, 2, m).sum(1))
        if self.d_state is None:
            self.d_state = torch.bmm(x.transpose(1, 2), delta, out=scratch("d state", *state.shape))
            return
        through = pairs.to_end[:, s, :1]
        if self.needs_decay:
            product = torch.mul(self.d_state, state, out=scratch("product of states", *state.shape))
            d_to_end[:, 0].addcmul_(product.sum((1, 2)), through.flatten())
        self.d_state.mul_(through).baddbmm_(x.transpose(1, 2), delta)


def states_of_delta(pairs: Pairs, key: Tensor, value: Tensor) -> tuple[list[Tensor | None], list[Tensor]]:
    """The state before each step, `None` before the first, and n of each step."""
    steps, value_dim = pairs.cut.steps, value.shape[-1]
    all_n = pairs.scratch("all n", len(steps), pairs.size * pairs.cut.chunk * value_dim)
    memory = pairs.scratch("states", max(1, len(steps) - 1), pairs.size, key.shape[-1], value_dim)
    states, n = [None], []
    for s in range(len(steps)):
        k, m = pairs.read_keys(key, s), pairs.num_tokens(s)
        n.append(pairs.read(value, s, all_n[s, : pairs.size * m * value_dim].view(pairs.size, m, value_dim)))
        pairs.solve(s, k, pairs.scores(k, pairs.mask(s, pairs.keys_with_beta)), states[s], n[s])
        if s + 1 < len(steps):
            states.append(pairs.next_state(s, k, n[s], states[s], memory[s]))
    return states, n


def compute_delta_gradients(
    grad, grad_denominator, query, key, value, forward, backward, beta, output, denominator, saved, chunk_size,
    division, head_directions, needs_decay, plan=None,
):  # fmt: skip
    cut = planned(plan, DeltaCut, query, value, options=(chunk_size,))
    gates, value_dim = Gates(cut, forward, backward, beta, query), value.shape[-1]
    d_query, d_key, d_value = (torch.empty_like(x) for x in (query, key, value))
    d_factors = torch.empty_like(gates.factors)
    for part in cut.parts:
        pairs = Pairs(cut, gates, part)
        gradients = DeltaGradients(pairs, *states_of_delta(pairs, key, value), needs_decay)
        for s in reversed(range(len(cut.steps))):
            x = pairs.read_keys(key, s, query)
            m = x.shape[1] // 2
            delta = cut.scratch("delta", pairs.size, 2 * m, value_dim)
            dy = pairs.read(grad, s, delta[:, m:])
            if division == "rms":
                y = pairs.read(output, s, pairs.memory("y", s, value_dim))
                size = pairs.read(denominator.unsqueeze(-1), s, pairs.memory("size", s, 1))
                along = torch.mul(dy, y, out=pairs.memory("product", s, value_dim)).mean(-1, keepdim=True)
                dy.addcmul_(y, along, value=-1).div_(size)
            dx, dk = gradients.step(s, x, delta)
            pairs.write(d_value, s, delta[:, :m].neg())
            gradients.through_state(s, x, delta, dx)
            pairs.write(d_key, s, dk.add_(dx[:, :m]))
            pairs.write(d_query, s, dx[:, m:])
        pairs.in_heads(gradients.d_factors, d_factors)
    cut.scratch.release()
    d_beta = cut.out_of_steps(d_factors[..., 0, :]).sum_to_size(beta.shape)
    if not needs_decay:
        return d_query, d_key, d_value, grad.new_empty(0), grad.new_empty(0), d_beta
    return d_query, d_key, d_value, *cut.gradients_of_steps(d_factors[..., 1:, :], forward, backward), d_beta


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
