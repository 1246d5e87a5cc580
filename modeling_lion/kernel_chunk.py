# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The block form (SPEC §3 "chunk"): full attention inside blocks of C tokens, one state per direction between them.
O(L·C·D + L·D²) time, O(L·C) memory, any length. This is the state-passing algorithm of Mamba-2 (SSD), run in both
directions around one shared diagonal block.

With the sums of log decays inside a block (`block_sums`), queries and keys are scaled for each direction, and every
block adds a sum X to a state S, S and X with a column for v = 1, which is the denominator:

    q_F = exp(from_start) q    k_F = exp(to_end) k      X_F = k_Fᵀ [v|1]    S_F[n+1] = X_F[n] + exp(A) S_F[n]
    q_B = exp(from_end) q      k_B = exp(to_start) k    X_B = k_Bᵀ [v|1]    S_B[n-1] = X_B[n] + exp(A') S_B[n]

    [num|den] = ((q kᵀ) ∘ M) [v|1] + q_F S_F + q_B S_B

Backward, with n_i = dy_i / den_i and d_i = -n_i · y_i, dS = q_Fᵀ [n|d], and the same recurrence from the other end:

    dX_F[n-1] = dS_F[n] + exp(A[n]) dX_F[n]             dq_F = [n|d] S_Fᵀ        dk_F = [v|1] dX_Fᵀ
    G_ij = (n_i · v_j + d_i) M_ij                       dq = G k + exp(from_start) dq_F + exp(from_end) dq_B
    dv = ((q kᵀ) ∘ M)ᵀ n + k_F dX_F + k_B dX_B          dk = Gᵀ q + exp(to_end) dk_F + exp(to_start) dk_B

`DecayGradient` turns q_F · dq_F, k_F · dk_F, exp(A) dX_F · S_F and R = G ∘ (q kᵀ) into gradients of the decays. States
are computed again in the backward: keeping them would take twice the memory of the queries and save no time.

Without decays (LIT) one state of all tokens serves every query, and nothing is cut into blocks.

Dimensions: b = batch, h = heads, n = blocks, c = tokens of a block, d = head_dim, e = value_dim, r = b·h.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from .decay_mask import block_sums, cut_evenly, decay_mask, wide_dtype, write_block_mask
from .fused_kernel import (
    LOG2_E,
    DecayGradient,
    Scratch,
    blocks_to_write,
    fused_operator,
    inverse_totals,
    read_blocks,
    row_slices,
    row_views,
    rows_at_a_time,
    scaled_gradient,
    write_blocks,
)
from .lion_kernel import accumulation_dtype, lion_kernel


# Tokens at a time, of some heads together or of a part of one head's.
SLICE_TOKENS = 3072


def plain_chunk(query, key, value, right, left, chunk_size):
    value = pad(value, (0, 1), value=1.0)  # a column of ones: its output is the denominator
    if right is None:
        output = query @ (key.transpose(-1, -2) @ value)
        return output[..., :-1], output[..., -1:]

    length = query.shape[2]
    num_blocks, block = cut_evenly(length, chunk_size)
    is_known = not isinstance(length, torch.SymInt)
    padding = num_blocks * block - length
    if not is_known or padding:  # for torch.compile, which takes an empty pad for one that makes its input contiguous
        query, key, value = (pad(x, (0, 0, 0, padding)) for x in (query, key, value))
    query, key, value = (x.unflatten(2, (num_blocks, block)) for x in (query, key, value))
    right, left = (pad(a, (0, padding)).unflatten(2, (num_blocks, block)) for a in (right, left))

    scores = query @ key.transpose(-1, -2) * decay_mask(right, left)
    output = scores @ value
    if not is_known or num_blocks > 1:
        from_start, to_end, from_end, to_start = (x.exp().unsqueeze(-1) for x in block_sums(right, left))
        state_right = pass_states((key * to_end).transpose(-1, -2) @ value, to_end[..., :1, :])
        state_left = pass_states((key * to_start).transpose(-1, -2) @ value, to_start[..., -1:, :], reverse=True)
        output = output + (query * from_start) @ state_right + (query * from_end) @ state_left
    # Cut the padding before anything is divided; not with a slice where how it relates to the whole is unknown.
    cut = slice(length) if is_known else torch.arange(length, device=output.device)
    output = output.flatten(2, 3)[:, :, cut]
    return output[..., :-1], output[..., -1:]


def pass_states(sums: Tensor, decay: Tensor, reverse: bool = False) -> Tensor:
    """
    The state that reaches each block from the blocks before it (after it, if `reverse`).

    Args:
        sums: what each block adds, `(b, h, n, d, e)`.
        decay: what a state keeps of itself on its way through each block, `(1 or b, h, n, 1, 1)`, in [0, 1].
    """
    if isinstance(sums.shape[2], torch.SymInt):
        return pass_states_at_once(sums, decay, reverse)
    order = range(sums.shape[2])
    order = order[::-1] if reverse else order
    states = [torch.zeros_like(sums[:, :, 0])]
    for n in order[:-1]:
        states.append(torch.addcmul(sums[:, :, n], states[-1], decay[:, :, n]))
    return torch.stack(states[::-1] if reverse else states, dim=2)


def pass_states_at_once(sums: Tensor, decay: Tensor, reverse: bool) -> Tensor:
    """
    `pass_states` without a loop, for a graph that serves any number of blocks (`torch.export`): one product with the
    n x n matrix of what each state keeps on its way from block to block, in n² d e operations.
    """
    log_decay = decay[..., 0, 0].to(wide_dtype(decay.device))
    log_decay = log_decay.clamp(min=torch.finfo(log_decay.dtype).tiny).log()
    through = log_decay.cumsum(-1)  # this block included
    before = through - log_decay
    kept = before.unsqueeze(-2) - through.unsqueeze(-1) if reverse else before.unsqueeze(-1) - through.unsqueeze(-2)
    position = torch.arange(sums.shape[2], device=sums.device)
    is_on_the_way = position[:, None] < position if reverse else position[:, None] > position
    kept = kept.masked_fill(~is_on_the_way, -torch.inf).to(sums.dtype).exp()
    return (kept @ sums.flatten(3)).unflatten(3, sums.shape[3:])


class BlockDecays:
    """What tokens and states lose inside and between blocks; `(1 or b, h, n, c, 1)`, all in [0, 1]."""

    def __init__(self, query: Tensor, right: Tensor, left: Tensor | None, chunk_size: int):
        batch, heads, length, _ = query.shape
        self.num_blocks, self.block = cut_evenly(length, chunk_size)
        sizes = (self.num_blocks, self.block)
        is_fixed = right.shape[-1] == 1
        left = right if left is None else left
        if is_fixed:  # the same sums in every block
            right, left = (a.expand(-1, -1, self.block).unsqueeze(2) for a in (right, left))
        else:
            right, left = (pad(a, (0, sizes[0] * sizes[1] - length)).unflatten(2, sizes) for a in (right, left))
        from_start, to_end, from_end, to_start = block_sums(right * LOG2_E, left * LOG2_E)
        self.sums = [x.expand(batch, heads, -1 if is_fixed else sizes[0], -1) for x in (from_start, to_start)]
        self.query_right, self.key_right, self.query_left, self.key_left = (
            x.exp2().unsqueeze(-1).expand(batch, heads, *sizes, 1) for x in (from_start, to_end, from_end, to_start)
        )
        self.state_right, self.state_left = self.key_right[:, :, :, 0], self.key_left[:, :, :, -1]
        self.table = None
        if is_fixed:
            self.table = right.new_empty(1, heads, 1, self.block, self.block)
            sums = [x[:1] for x in self.sums]
            write_block_mask(self.table, *sums, torch.empty_like(self.table), torch.empty_like(self.table))

    def slices(self, batch: int, heads: int, length: int) -> Iterator[tuple[slice, slice, list[tuple[slice, slice]]]]:
        """
        What is computed at a time: batch, heads, and the parts of the blocks, which are all of them for short
        sequences. A part is its blocks n and their indices among the `(r * n)` of the slice.
        """
        step = max(1, SLICE_TOKENS // max(1, self.block))
        for b, h in row_slices(batch, heads, max(1, SLICE_TOKENS // max(1, length))):
            if length <= SLICE_TOKENS:
                yield b, h, [(slice(0, self.num_blocks), slice(None))]
            else:
                starts = range(0, self.num_blocks, step)
                parts = [slice(n, min(n + step, self.num_blocks)) for n in starts]
                yield b, h, list(zip(parts, parts, strict=True))

    def mask(self, b: slice, h: slice, n: slice, scratch: Scratch) -> Tensor:
        """The diagonal blocks of M, `(1 or b, h, 1 or n, c, c)`."""
        if self.table is not None:
            return self.table[:, h]
        sums = [x[b, h, n] for x in self.sums]
        shape = (*sums[0].shape, self.block)
        out = scratch("mask", *shape)
        write_block_mask(out, *sums, out, scratch("other", *shape))
        return out

    def scale_queries(self, q: Tensor, b: slice, h: slice, n: slice, scratch: Scratch) -> Tensor:
        """[q_F | q_B], `(r * n, c, 2 d)`, of `(r * n, c, d)`."""
        return scale(q, self.query_right[b, h, n], self.query_left[b, h, n], scratch, "scaled q")

    def scale_keys(self, k: Tensor, b: slice, h: slice, n: slice, scratch: Scratch) -> Tensor:
        """[k_F | k_B], likewise."""
        return scale(k, self.key_right[b, h, n], self.key_left[b, h, n], scratch, "scaled k")

    def pass_sums(self, sums: Tensor, b: slice, h: slice, out: Tensor, transpose: bool = False) -> Tensor:
        """
        `pass_states` for the halves [F | B] of `sums`, `(r * n, 2 d, ...)`, into `out`; `transpose` runs both
        directions from the other end, as their derivative does.
        """
        dim = sums.shape[1] // 2
        sums, out = (x.view(-1, self.num_blocks, *x.shape[1:]) for x in (sums, out))
        for half, decay, backwards in (
            (slice(0, dim), self.state_right, transpose),
            (slice(dim, None), self.state_left, not transpose),
        ):
            decay = decay[b, h].reshape(-1, self.num_blocks, *(1,) * (sums.dim() - 2))
            order = slice(None, None, -1) if backwards else slice(None)
            adds, keeps, states = (x.unbind(1)[order] for x in (sums[:, :, half], decay, out[:, :, half]))
            states[0].zero_()
            for i in range(self.num_blocks - 1):
                torch.addcmul(adds[i], states[i], keeps[i], out=states[i + 1])
        return out.flatten(0, 1)


def scale(x: Tensor, toward_right: Tensor, toward_left: Tensor, scratch: Scratch, name: str) -> Tensor:
    shape, dim = toward_right.shape[:-1], x.shape[-1]
    out, x = scratch(name, *shape, 2 * dim), x.view(*shape, dim)
    torch.mul(x, toward_right, out=out[..., :dim])
    torch.mul(x, toward_left, out=out[..., dim:])
    return out.view(-1, shape[-1], 2 * dim)


def forward(query, key, value, right, left, chunk_size, normalize):
    if right is None:
        return forward_without_decay(query, key, value, normalize)
    batch, heads, length, head_dim = query.shape
    scratch = Scratch(query, accumulation_dtype(query.dtype))
    output = torch.empty_like(value, dtype=scratch.dtype)
    inverse = torch.full((batch, heads, length), head_dim**-0.5, dtype=scratch.dtype, device=query.device)
    decays = BlockDecays(query, right, left, chunk_size)
    sizes = (decays.num_blocks, decays.block)
    for b, h, parts in decays.slices(batch, heads, length):
        q, k, v = (read_blocks(x[b, h], *sizes, scratch, n) for x, n in ((query, "q"), (key, "k"), (value, "v")))
        if sizes[0] > 1:
            shape = (len(q), 2 * head_dim, v.shape[-1])
            sums, of_ones = scratch("sums", *shape), scratch("sums of ones", *shape[:2])
            for n, i in parts:
                add_up(decays.scale_keys(k[i], b, h, n, scratch), v[i], None, sums[i], of_ones[i])
            states = decays.pass_sums(sums, b, h, scratch("states", *shape))
            totals = decays.pass_sums(of_ones, b, h, scratch("totals", *shape[:2]))
        summed = blocks_to_write(output[b, h], *sizes, scratch, "summed")
        total = scratch("total", *summed.shape[:2])
        for n, i in parts:
            weights = torch.bmm(q[i], k[i].transpose(1, 2), out=scratch("weights", *q[i].shape[:2], sizes[1]))
            mask = decays.mask(b, h, n, scratch)
            weights.view(*decays.query_right[b, h, n].shape[:-1], sizes[1]).mul_(mask)
            torch.bmm(weights, v[i], out=summed[i])
            torch.sum(weights, -1, out=total[i])
            if sizes[0] > 1:
                scaled_q = decays.scale_queries(q[i], b, h, n, scratch)
                summed[i].baddbmm_(scaled_q, states[i])
                total[i] += torch.bmm(totals[i].unsqueeze(1), scaled_q.transpose(1, 2)).squeeze(1)
        if normalize:
            inverse[b, h] = inverse_totals(total).view(*query[b, h].shape[:2], -1)[:, :, :length]
        write_blocks(output[b, h], summed)
        output[b, h].mul_(inverse[b, h].unsqueeze(-1))
    return output, inverse


def add_up(scaled: Tensor, x: Tensor, of_ones: Tensor | None, sums: Tensor, totals: Tensor) -> None:
    """X = scaledᵀ [x | of_ones] of each block, into `sums` and `totals`; `of_ones` is 1 if None."""
    torch.bmm(scaled.transpose(1, 2), x, out=sums)
    if of_ones is None:
        torch.sum(scaled, 1, out=totals)
    else:
        torch.bmm(of_ones.transpose(1, 2), scaled, out=totals.unsqueeze(1))


def backward(
    grad, query, key, value, right, left, output, inverse, chunk_size, normalize, needs_decay
):  # fmt: skip
    if right is None:
        return backward_without_decay(grad, query, key, value, output, inverse, normalize)
    batch, heads, length, head_dim = query.shape
    scratch = Scratch(query, inverse.dtype)
    d_query, d_key, d_value = (torch.empty_like(x) for x in (query, key, value))
    decays = BlockDecays(query, right, left, chunk_size)
    sizes = (decays.num_blocks, decays.block)
    d_decays = DecayGradient(inverse, batch, heads, *sizes) if needs_decay else None
    for b, h, parts in decays.slices(batch, heads, length):
        q, k, v = (read_blocks(x[b, h], *sizes, scratch, n) for x, n in ((query, "q"), (key, "k"), (value, "v")))
        n_all, d_all = scaled_gradient(grad[b, h], inverse[b, h], output[b, h] if normalize else None, sizes, scratch)
        outs = (d_query[b, h], d_key[b, h], d_value[b, h])
        dq_all, dk_all, dv_all = (
            blocks_to_write(x, *sizes, scratch, name) for x, name in zip(outs, ("dq", "dk", "dv"), strict=True)
        )
        if sizes[0] > 1:
            passed = pass_both_ways(q, k, v, n_all, d_all, decays, b, h, parts, scratch)
        for blocks, i in parts:
            n, d = n_all[i], None if d_all is None else d_all[i]
            mask = decays.mask(b, h, blocks, scratch)
            shape = (*n.shape[:2], sizes[1])
            by_head = (*decays.query_right[b, h, blocks].shape[:-1], sizes[1])
            scores = torch.bmm(q[i], k[i].transpose(1, 2), out=scratch("scores", *shape))
            g = torch.bmm(n, v[i].transpose(1, 2), out=scratch("g", *shape))
            if normalize:
                g.add_(d)
            g.view(by_head).mul_(mask)
            dq = torch.bmm(g, k[i], out=dq_all[i])
            dk = torch.bmm(g.transpose(1, 2), q[i], out=dk_all[i])
            if needs_decay:
                r = g.mul_(scores).view(by_head)
                to_right, to_left = d_decays.inside_blocks(r, scratch("below", *by_head))
                d_decays.query_right[b, h, blocks] += to_right
                d_decays.key_left[b, h, blocks] += to_left
            weights = scores.view(by_head).mul_(mask).view(shape)
            dv = torch.bmm(weights.transpose(1, 2), n, out=dv_all[i])
            if sizes[0] > 1:
                if len(parts) > 1:  # those of the only part are still there
                    decays.scale_queries(q[i], b, h, blocks, scratch)
                    decays.scale_keys(k[i], b, h, blocks, scratch)
                scaled = [scratch(name, *shape[:2], 2 * head_dim) for name in ("scaled q", "scaled k")]
                between = [x[i] if x is not None else None for x in passed]
                add_between_blocks(
                    v[i], n, d, *scaled, *between, dq, dk, dv, decays, d_decays, (b, h, blocks), scratch
                )
        for out, blocks in zip(outs, (dq_all, dk_all, dv_all), strict=True):
            write_blocks(out, blocks)
    if not needs_decay:
        return d_query, d_key, d_value, grad.new_empty(0), grad.new_empty(0)
    return d_query, d_key, d_value, *d_decays.result(length, right, left)


def pass_both_ways(q, k, v, n_all, d_all, decays, b, h, parts, scratch):
    """S and dX of every block, `(r * n, 2 d, e)` each, and their columns for v = 1, `(r * n, 2 d)` each."""
    shape = (len(v), 2 * q.shape[-1], v.shape[-1])
    sums, d_states = scratch("sums", *shape), scratch("d states", *shape)
    of_ones, d_totals = scratch("sums of ones", *shape[:2]), scratch("d totals", *shape[:2])
    for n, i in parts:
        add_up(decays.scale_keys(k[i], b, h, n, scratch), v[i], None, sums[i], of_ones[i])
        d = None if d_all is None else d_all[i]
        add_up(decays.scale_queries(q[i], b, h, n, scratch), n_all[i], d, d_states[i], d_totals[i])
    states = decays.pass_sums(sums, b, h, scratch("states", *shape))
    d_sums = decays.pass_sums(d_states, b, h, sums, transpose=True)
    if d_all is None:
        return states, d_sums, None, None
    totals = decays.pass_sums(of_ones, b, h, scratch("totals", *shape[:2]))
    return states, d_sums, totals, decays.pass_sums(d_totals, b, h, of_ones, transpose=True)


def add_between_blocks(
    v, n, d, scaled_q, scaled_k, states, d_sums, totals, d_of_ones, dq, dk, dv, decays, d_decays, at, scratch
):  # fmt: skip
    """Add to dq, dk, dv and to the gradients of the decays what comes through the states."""
    d_scaled_q = torch.bmm(n, states.transpose(1, 2), out=scratch("d scaled q", *scaled_q.shape))
    d_scaled_k = torch.bmm(v, d_sums.transpose(1, 2), out=scratch("d scaled k", *scaled_k.shape))
    dv.baddbmm_(scaled_k, d_sums)
    if d is not None:  # the column for v = 1
        d_scaled_q.addcmul_(d, totals.unsqueeze(1))
        d_scaled_k.add_(d_of_ones.unsqueeze(1))
    dim = dq.shape[-1]
    shape = decays.query_right[at].shape[:-1]
    for out, d_scaled, toward_right, toward_left in (
        (dq, d_scaled_q, decays.query_right, decays.query_left),
        (dk, d_scaled_k, decays.key_right, decays.key_left),
    ):
        d_scaled, out = d_scaled.view(*shape, 2 * dim), out.view(*shape, dim)
        out.addcmul_(d_scaled[..., :dim], toward_right[at]).addcmul_(d_scaled[..., dim:], toward_left[at])
    if d_decays is None:
        return
    for name, scaled, d_scaled in (("query", scaled_q, d_scaled_q), ("key", scaled_k, d_scaled_k)):
        dots = d_scaled.mul_(scaled).view(*shape, 2, dim).sum(-1)
        getattr(d_decays, name + "_right")[at] += dots[..., 0]
        getattr(d_decays, name + "_left")[at] += dots[..., 1]
    through = torch.mul(states, d_sums, out=scratch("product of states", *states.shape)).sum(-1)
    if d is not None:
        through += totals * d_of_ones
    through = through.view(*shape[:3], 2, dim).sum(-1)
    d_decays.through_right[at] = through[..., 0] * decays.state_right[at].squeeze(-1)
    d_decays.through_left[at] = through[..., 1] * decays.state_left[at].squeeze(-1)


def forward_without_decay(query, key, value, normalize):
    scratch = Scratch(query, accumulation_dtype(query.dtype))
    output = torch.empty_like(value, dtype=scratch.dtype)
    inverse = torch.full(query.shape[:3], query.shape[-1] ** -0.5, dtype=scratch.dtype, device=query.device)
    tensors = (query, key, value, output, inverse)
    rows = rows_at_a_time(SLICE_TOKENS // max(1, query.shape[2]), query, key, value)
    for q, k, v, out, factor in zip(*(row_views(x, rows) for x in tensors), strict=True):
        q, k, v = scratch.cast(q, k, v)
        if normalize:
            inverse_totals(torch.bmm(k.sum(1, keepdim=True), q.transpose(1, 2), out=factor.unsqueeze(1)))
        state = torch.bmm(k.transpose(1, 2), v, out=scratch("state", len(k), k.shape[-1], v.shape[-1]))
        torch.mul(torch.bmm(q, state, out=scratch("summed", *out.shape)), factor.unsqueeze(-1), out=out)
    return output, inverse


def backward_without_decay(grad, query, key, value, output, inverse, normalize):
    length = query.shape[2]
    scratch = Scratch(query, inverse.dtype)
    grads = [torch.empty_like(x) for x in (query, key, value)]
    tensors = (query, key, value, grad, output, inverse, *grads)
    rows = rows_at_a_time(SLICE_TOKENS // max(1, length), query, key, value)
    for q, k, v, dy, y, factor, *outs in zip(*(row_views(x, rows) for x in tensors), strict=True):
        q, k, v = scratch.cast(q, k, v)
        n, d = scaled_gradient(dy, factor, y if normalize else None, (1, length), scratch)
        state, d_state = torch.bmm(v.transpose(1, 2), k), torch.bmm(n.transpose(1, 2), q)
        dq, dk, dv = found = [scratch.target(name, out) for name, out in zip(("dq", "dk", "dv"), outs, strict=True)]
        torch.bmm(n, state, out=dq)
        torch.bmm(v, d_state, out=dk)
        torch.bmm(k, d_state.transpose(1, 2), out=dv)
        if normalize:
            dq.addcmul_(d, k.sum(1, keepdim=True))
            dk.add_(torch.bmm(d.transpose(1, 2), q))
        scratch.deliver(found, outs)
    return *grads, grad.new_empty(0), grad.new_empty(0)


fused_chunk = fused_operator("chunk", forward, backward, plain_chunk)


@lion_kernel(fused_chunk)
def chunk_attention(query, key, value, right, left, chunk_size):
    return plain_chunk(query, key, value, right, left, chunk_size)
