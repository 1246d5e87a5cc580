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

import torch
from torch import Tensor
from torch.nn.functional import pad

from .decay_mask import block_sums, decay_mask, write_block_mask
from .fused_kernel import (
    LOG2_E,
    DecayGradient,
    Scratch,
    blocks_to_write,
    fused_operator,
    inverse_totals,
    read_blocks,
    row_slices,
    scaled_gradient,
    write_blocks,
)
from .lion_kernel import accumulation_dtype, lion_kernel


# Tokens at a time, over all heads at a time.
SLICE_TOKENS = 3072


def plain_chunk(query, key, value, right, left, chunk_size):
    value = pad(value, (0, 1), value=1.0)  # a column of ones: its output is the denominator
    if right is None:
        output = query @ (key.transpose(-1, -2) @ value)
        return output[..., :-1], output[..., -1:]

    length = query.shape[2]
    num_blocks = -(-length // chunk_size)
    block = -(-length // num_blocks)  # even blocks: the least padding
    padding = num_blocks * block - length
    if padding:  # a branch for torch.compile, which takes an empty pad for one that makes its input contiguous
        query, key, value = (pad(x, (0, 0, 0, padding)) for x in (query, key, value))
    query, key, value = (x.unflatten(2, (num_blocks, block)) for x in (query, key, value))
    right, left = (pad(a, (0, padding)).unflatten(2, (num_blocks, block)) for a in (right, left))

    scores = query @ key.transpose(-1, -2) * decay_mask(right, left)
    output = scores @ value
    if num_blocks > 1:
        from_start, to_end, from_end, to_start = (x.exp().unsqueeze(-1) for x in block_sums(right, left))
        state_right = pass_states((key * to_end).transpose(-1, -2) @ value, to_end[..., :1, :])
        state_left = pass_states((key * to_start).transpose(-1, -2) @ value, to_start[..., -1:, :], reverse=True)
        output = output + (query * from_start) @ state_right + (query * from_end) @ state_left
    output = output.flatten(2, 3)[:, :, :length]  # cut the padding before anything is divided
    return output[..., :-1], output[..., -1:]


def pass_states(sums: Tensor, decay: Tensor, reverse: bool = False) -> Tensor:
    """
    The state that reaches each block from the blocks before it (after it, if `reverse`).

    Args:
        sums: what each block adds, `(b, h, n, d, e)`.
        decay: what a state keeps of itself on its way through each block, `(1 or b, h, n, 1, 1)`, in [0, 1].
    """
    order = range(sums.shape[2])
    order = order[::-1] if reverse else order
    states = [torch.zeros_like(sums[:, :, 0])]
    for n in order[:-1]:
        states.append(torch.addcmul(sums[:, :, n], states[-1], decay[:, :, n]))
    return torch.stack(states[::-1] if reverse else states, dim=2)


class BlockDecays:
    """What tokens and states lose inside and between blocks; `(1 or b, h, n, c, 1)`, all in [0, 1]."""

    def __init__(self, query: Tensor, right: Tensor, left: Tensor | None, chunk_size: int):
        batch, heads, length, _ = query.shape
        self.num_blocks = max(1, -(-length // chunk_size))
        self.block = -(-length // self.num_blocks)  # even blocks: the least padding
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

    def mask(self, b: slice, h: slice, scratch: Scratch) -> Tensor:
        """The diagonal blocks of M, `(1 or b, h, 1 or n, c, c)`."""
        if self.table is not None:
            return self.table[:, h]
        sums = [x[b, h] for x in self.sums]
        shape = (*sums[0].shape, self.block)
        out = scratch("mask", *shape)
        write_block_mask(out, *sums, out, scratch("other", *shape))
        return out

    def scale(self, q: Tensor, k: Tensor, b: slice, h: slice, scratch: Scratch) -> tuple[Tensor, Tensor]:
        """[q_F | q_B] and [k_F | k_B], `(r * n, c, 2 d)`, of `(r * n, c, d)`."""
        dim = q.shape[-1]
        scaled = []
        for name, x, toward_right, toward_left in (
            ("scaled q", q, self.query_right, self.query_left),
            ("scaled k", k, self.key_right, self.key_left),
        ):
            shape = toward_right[b, h].shape[:-1]
            out, x = scratch(name, *shape, 2 * dim), x.view(*shape, dim)
            torch.mul(x, toward_right[b, h], out=out[..., :dim])
            torch.mul(x, toward_left[b, h], out=out[..., dim:])
            scaled.append(out.view(-1, shape[-1], 2 * dim))
        return scaled

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


def forward(query, key, value, right, left, chunk_size, normalize):
    if right is None:
        return forward_without_decay(query, key, value, normalize)
    batch, heads, length, head_dim = query.shape
    scratch = Scratch(query, accumulation_dtype(query.dtype))
    output = torch.empty_like(value, dtype=scratch.dtype)
    inverse = torch.full((batch, heads, length), head_dim**-0.5, dtype=scratch.dtype, device=query.device)
    decays = BlockDecays(query, right, left, chunk_size)
    sizes = (decays.num_blocks, decays.block)
    for b, h in row_slices(batch, heads, max(1, SLICE_TOKENS // max(1, length))):
        q, k, v = (read_blocks(x[b, h], *sizes, scratch, n) for x, n in ((query, "q"), (key, "k"), (value, "v")))
        shape = (*query[b, h].shape[:2], *sizes)
        weights = torch.bmm(q, k.transpose(1, 2), out=scratch("weights", len(q), sizes[1], sizes[1]))
        weights.view(*shape, -1).mul_(decays.mask(b, h, scratch))
        summed = torch.bmm(weights, v, out=blocks_to_write(output[b, h], *sizes, scratch, "summed"))
        total = torch.sum(weights, -1, out=scratch("total", *weights.shape[:2]))
        if sizes[0] > 1:
            scaled_q, scaled_k = decays.scale(q, k, b, h, scratch)
            states, totals = states_of_blocks(scaled_k, v, decays, b, h, scratch)
            summed.baddbmm_(scaled_q, states)
            total += torch.bmm(totals.unsqueeze(1), scaled_q.transpose(1, 2)).squeeze(1)
        factor = inverse[b, h]
        if normalize:
            factor.copy_(inverse_totals(total).view(*shape[:2], -1)[:, :, :length])
        write_blocks(output[b, h], summed)
        output[b, h].mul_(factor.unsqueeze(-1))
    return output, inverse


def states_of_blocks(scaled_k, v, decays, b, h, scratch):
    """S of every block, `(r * n, 2 d, e)`, and its column for v = 1, `(r * n, 2 d)`."""
    shape = (len(v), scaled_k.shape[-1], v.shape[-1])
    sums = torch.bmm(scaled_k.transpose(1, 2), v, out=scratch("sums", *shape))
    states = decays.pass_sums(sums, b, h, scratch("states", *shape))
    totals = decays.pass_sums(scaled_k.sum(1), b, h, scratch("totals", *shape[:2]))
    return states, totals


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
    if needs_decay:
        d_decays = DecayGradient(inverse, batch, heads, *sizes)
    for b, h in row_slices(batch, heads, max(1, SLICE_TOKENS // max(1, length))):
        q, k, v = (read_blocks(x[b, h], *sizes, scratch, n) for x, n in ((query, "q"), (key, "k"), (value, "v")))
        by_head = (*query[b, h].shape[:2], *sizes)
        n, d = scaled_gradient(grad[b, h], inverse[b, h], output[b, h] if normalize else None, sizes, scratch)
        mask = decays.mask(b, h, scratch)
        shape = (len(q), sizes[1], sizes[1])
        scores = torch.bmm(q, k.transpose(1, 2), out=scratch("scores", *shape))
        weights = scratch("weights", *shape)
        torch.mul(scores.view(*by_head, -1), mask, out=weights.view(*by_head, -1))
        g = torch.bmm(n, v.transpose(1, 2), out=scratch("g", *shape))
        if normalize:
            g.add_(d)
        g.view(*by_head, -1).mul_(mask)
        outs = (d_query[b, h], d_key[b, h], d_value[b, h])
        dq, dk, dv = (blocks_to_write(x, *sizes, scratch, n) for x, n in zip(outs, ("dq", "dk", "dv"), strict=True))
        torch.bmm(g, k, out=dq)
        torch.bmm(g.transpose(1, 2), q, out=dk)
        torch.bmm(weights.transpose(1, 2), n, out=dv)
        if needs_decay:
            r = g.mul_(scores).view(*by_head, -1)
            d_decays.add_diagonal(r, b, h, slice(None), weights.view(*by_head, -1))
        if sizes[0] > 1:
            add_between_blocks(q, k, v, n, d, dq, dk, dv, decays, d_decays if needs_decay else None, b, h, scratch)
        for out, blocks in zip(outs, (dq, dk, dv), strict=True):
            write_blocks(out, blocks)
    if not needs_decay:
        return d_query, d_key, d_value, grad.new_empty(0), grad.new_empty(0)
    return d_query, d_key, d_value, *d_decays.result(length, right, left)


def add_between_blocks(q, k, v, n, d, dq, dk, dv, decays, d_decays, b, h, scratch):
    """Add to dq, dk, dv and to the gradients of the decays what comes through the states."""
    scaled_q, scaled_k = decays.scale(q, k, b, h, scratch)
    states, totals = states_of_blocks(scaled_k, v, decays, b, h, scratch)
    d_scaled_q = torch.bmm(n, states.transpose(1, 2), out=scratch("d scaled q", *scaled_q.shape))
    d_states = torch.bmm(scaled_q.transpose(1, 2), n, out=scratch("sums", *states.shape))
    d_sums = decays.pass_sums(d_states, b, h, scratch("d sums", *states.shape), transpose=True)
    d_scaled_k = torch.bmm(v, d_sums.transpose(1, 2), out=scratch("d scaled k", *scaled_k.shape))
    dv.baddbmm_(scaled_k, d_sums)
    if d is not None:  # the column for v = 1
        d_scaled_q.addcmul_(d, totals.unsqueeze(1))
        d_totals = torch.bmm(d.transpose(1, 2), scaled_q).squeeze(1)
        d_totals = decays.pass_sums(d_totals, b, h, scratch("d totals", *totals.shape), transpose=True)
        d_scaled_k.add_(d_totals.unsqueeze(1))
    dim = q.shape[-1]
    shape = decays.query_right[b, h].shape[:-1]
    for out, d_scaled, toward_right, toward_left in (
        (dq, d_scaled_q, decays.query_right, decays.query_left),
        (dk, d_scaled_k, decays.key_right, decays.key_left),
    ):
        d_scaled, out = d_scaled.view(*shape, 2 * dim), out.view(*shape, dim)
        out.addcmul_(d_scaled[..., :dim], toward_right[b, h]).addcmul_(d_scaled[..., dim:], toward_left[b, h])
    if d_decays is None:
        return
    for name, scaled, d_scaled in (("query", scaled_q, d_scaled_q), ("key", scaled_k, d_scaled_k)):
        dots = d_scaled.mul_(scaled).view(*shape, 2, dim).sum(-1)
        getattr(d_decays, name + "_right")[b, h] += dots[..., 0]
        getattr(d_decays, name + "_left")[b, h] += dots[..., 1]
    through = d_sums.mul_(states).sum(-1)
    if d is not None:
        through += d_totals.mul_(totals)
    through = through.view(*shape[:3], 2, dim).sum(-1)
    d_decays.through_right[b, h] = through[..., 0] * decays.state_right[b, h].squeeze(-1)
    d_decays.through_left[b, h] = through[..., 1] * decays.state_left[b, h].squeeze(-1)


def forward_without_decay(query, key, value, normalize):
    batch, heads, length, head_dim = query.shape
    scratch = Scratch(query, accumulation_dtype(query.dtype))
    output = torch.empty_like(value, dtype=scratch.dtype)
    inverse = torch.full((batch, heads, length), head_dim**-0.5, dtype=scratch.dtype, device=query.device)
    for b, h in row_slices(batch, heads, max(1, SLICE_TOKENS // max(1, length))):
        q, k, v = (read_blocks(x[b, h], 1, length, scratch, n) for x, n in ((query, "q"), (key, "k"), (value, "v")))
        factor = inverse[b, h]
        if normalize:
            factor.copy_(inverse_totals(torch.bmm(k.sum(1, keepdim=True), q.transpose(1, 2))).view_as(factor))
        summed = blocks_to_write(output[b, h], 1, length, scratch, "summed")
        write_blocks(output[b, h], torch.bmm(q, torch.bmm(k.transpose(1, 2), v), out=summed))
        output[b, h].mul_(factor.unsqueeze(-1))
    return output, inverse


def backward_without_decay(grad, query, key, value, output, inverse, normalize):
    batch, heads, length, head_dim = query.shape
    scratch = Scratch(query, inverse.dtype)
    d_query, d_key, d_value = (torch.empty_like(x) for x in (query, key, value))
    for b, h in row_slices(batch, heads, max(1, SLICE_TOKENS // max(1, length))):
        q, k, v = (read_blocks(x[b, h], 1, length, scratch, n) for x, n in ((query, "q"), (key, "k"), (value, "v")))
        n, d = scaled_gradient(grad[b, h], inverse[b, h], output[b, h] if normalize else None, (1, length), scratch)
        state, d_state = torch.bmm(v.transpose(1, 2), k), torch.bmm(n.transpose(1, 2), q)
        outs = (d_query[b, h], d_key[b, h], d_value[b, h])
        dq, dk, dv = (blocks_to_write(x, 1, length, scratch, n) for x, n in zip(outs, ("dq", "dk", "dv"), strict=True))
        torch.bmm(n, state, out=dq)
        torch.bmm(v, d_state, out=dk)
        torch.bmm(k, d_state.transpose(1, 2), out=dv)
        if normalize:
            dq.addcmul_(d, k.sum(1, keepdim=True))
            dk.add_(torch.bmm(d.transpose(1, 2), q))
        for out, blocks in zip(outs, (dq, dk, dv), strict=True):
            write_blocks(out, blocks)
    return d_query, d_key, d_value, grad.new_empty(0), grad.new_empty(0)


fused_chunk = fused_operator("chunk", forward, backward, plain_chunk)


@lion_kernel(fused_chunk)
def chunk_attention(query, key, value, right, left, chunk_size):
    return plain_chunk(query, key, value, right, left, chunk_size)
