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

Without decays (LIT) one state of all tokens serves every query, and nothing is cut into blocks. That state is kept.

Dimensions: b = batch, h = heads, n = blocks, c = tokens of a block, d = head_dim, e = value_dim, r = b·h.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from .decay_mask import (
    BLOCK_SIZE,
    LOG2_E,
    block_sums,
    cut_evenly,
    decay_mask,
    sums_for_mask,
    wide_dtype,
    write_block_mask,
)
from .fused_kernel import (
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
from .kernel_diagonal import diagonal_chunk
from .kernel_triton import triton_operator
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
    """
    What tokens and states lose inside and between blocks, all in [0, 1], and how the work is cut: into slices s of
    some (batch, head) pairs, and those of long sequences into parts of their blocks n.
    """

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, right: Tensor, left: Tensor | None, chunk_size: int):
        batch, heads, length, _ = query.shape
        # Masks of longer blocks would be differences of long sums, with few digits left.
        self.num_blocks, self.block = cut_evenly(length, min(chunk_size, BLOCK_SIZE))
        self.sizes = sizes = (self.num_blocks, self.block)
        self.num_rows = rows_at_a_time(SLICE_TOKENS // max(1, length), query, key, value)
        step = self.num_blocks if length <= SLICE_TOKENS else max(1, SLICE_TOKENS // max(1, self.block))
        # The parts, as indices of blocks; and whether there is only one, for which all blocks of a slice are taken.
        self.parts = [slice(n, min(n + step, self.num_blocks)) for n in range(0, self.num_blocks, step)]
        self.is_whole = len(self.parts) == 1
        is_fixed = right.shape[-1] == 1
        left = right if left is None else left
        if is_fixed:  # the same sums in every block
            right, left = (a.expand(-1, heads, self.block).unsqueeze(2) for a in (right, left))
        else:
            right, left = (pad(a, (0, sizes[0] * sizes[1] - length)).unflatten(2, sizes) for a in (right, left))
        from_start, to_end, from_end, to_start = block_sums(right * LOG2_E, left * LOG2_E)
        # By slice: (b * h, n, c, 1).
        self.query_right, self.key_right, self.query_left, self.key_left = factors = [
            self.views(x.exp2().unsqueeze(-1).expand(batch, heads, *sizes, 1))
            for x in (from_start, to_end, from_end, to_start)
        ]
        self.is_fixed = is_fixed
        sums = sums_for_mask(right, left, from_start, to_start)
        if is_fixed:
            tables = right.new_empty(heads, 1, self.block, self.block)
            memory = (torch.empty_like(tables) for _ in range(2))
            write_block_mask(tables, *(x[0] for x in sums), memory=memory)
            self.tables = tables.split(self.num_rows)
        else:
            self.sums = [self.views(x.expand(batch, heads, *sizes)) for x in sums]
        # What a state keeps of itself in each block, by slice and block: (b * h, 1, 1).
        self.keep_right, self.keep_left = (
            [x[:, :, border, None].unbind(1) for x in by_slice]
            for by_slice, border in ((factors[1], 0), (factors[3], -1))
        )
        self.halves: dict[tuple, list[tuple[Tensor, ...]]] = {}

    def views(self, x: Tensor) -> list[Tensor]:
        return row_views(x, self.num_rows)

    def slices(self, *tensors: Tensor):
        """Slices of tensors `(b, h, ...)`, numbered."""
        return enumerate(row_slices(self.num_rows, *tensors))

    def part(self, x: Tensor | None, n: slice) -> Tensor | None:
        """Of `(b * h * n, ...)`, the blocks of one part."""
        return x if self.is_whole or x is None else x[n]

    def mask(self, s: int, n: slice, scratch: Scratch) -> Tensor:
        """The diagonal blocks of M, `(h, 1, c, c)` or `(b * h, n, c, c)`."""
        if self.is_fixed:
            return self.tables[s % len(self.tables)]
        sums = [x[s][:, n] for x in self.sums]
        out, second = (scratch(name, *sums[0].shape, self.block) for name in ("mask", "other"))
        first = out if len(sums) == 2 else scratch("third", *out.shape)
        write_block_mask(out, *sums, memory=(first, second))
        return out

    def multiply_(self, x: Tensor, mask: Tensor, n: slice) -> Tensor:
        """Multiply the blocks n of one slice, `(b * h * n, c, c)`, with their mask, in place."""
        x.view(-1, len(mask), n.stop - n.start, *mask.shape[2:]).mul_(mask)
        return x

    def scale_queries(self, q: Tensor, s: int, n: slice, scratch: Scratch) -> Tensor:
        """[q_F | q_B], `(b * h * n, c, 2 d)`, of `(b * h * n, c, d)`."""
        return scale(q, self.query_right[s][:, n], self.query_left[s][:, n], scratch, "scaled q")

    def scale_keys(self, k: Tensor, s: int, n: slice, scratch: Scratch) -> Tensor:
        """[k_F | k_B], likewise."""
        return scale(k, self.key_right[s][:, n], self.key_left[s][:, n], scratch, "scaled k")

    def pass_sums(self, sums: Tensor, s: int, out: Tensor, transpose: bool = False) -> Tensor:
        """
        `pass_states` for the halves [F | B] of `sums`, `(b * h * n, 2 d, e)`, into `out`; `transpose` runs both
        directions from the other end, as their derivative does.
        """
        for half, keeps, backwards in ((0, self.keep_right, transpose), (1, self.keep_left, not transpose)):
            adds, states, kept = self.blocks_of_half(sums, half), self.blocks_of_half(out, half), keeps[s]
            if backwards:
                adds, states, kept = adds[::-1], states[::-1], kept[::-1]
            states[0].zero_()
            for add, state, keep, following in zip(adds, states, kept, states[1:], strict=False):
                torch.addcmul(add, state, keep, out=following)
        return out

    def blocks_of_half(self, x: Tensor, half: int) -> tuple[Tensor, ...]:
        """The blocks `(b * h, d, e)` of one half of scratch memory `(b * h * n, 2 d, e)`."""
        key = (x.data_ptr(), x.shape)
        if key not in self.halves:
            by_block = x.view(-1, self.num_blocks, 2, x.shape[1] // 2, x.shape[2])
            self.halves[key] = [by_block[:, :, i].unbind(1) for i in (0, 1)]
        return self.halves[key][half]


def scale(x: Tensor, toward_right: Tensor, toward_left: Tensor, scratch: Scratch, name: str) -> Tensor:
    shape, dim = toward_right.shape[:-1], x.shape[-1]
    out, x = scratch(name, *shape, 2 * dim), x.view(*shape, dim)
    torch.mul(x, toward_right, out=out[..., :dim])
    torch.mul(x, toward_left, out=out[..., dim:])
    return out.view(-1, shape[-1], 2 * dim)


def forward(query, key, value, right, left, chunk_size, normalize):
    if right is None:
        return forward_without_decay(query, key, value, normalize)
    head_dim = query.shape[-1]
    scratch = Scratch(query, accumulation_dtype(query.dtype))
    output = torch.empty_like(value, dtype=scratch.dtype)
    inverse = torch.full(query.shape[:3], head_dim**-0.5, dtype=scratch.dtype, device=query.device)
    decays = BlockDecays(query, key, value, right, left, chunk_size)
    sizes = decays.sizes
    for s, (q, k, v, out, inverses) in decays.slices(query, key, value, output, inverse):
        q, k, v = (read_blocks(x, *sizes, scratch, name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
        if sizes[0] > 1:
            sums = scratch("sums", len(q), 2 * head_dim, v.shape[-1])
            of_ones = scratch("sums of ones", len(q), 2 * head_dim, 1)
            for n in decays.parts:
                scaled_k = decays.scale_keys(decays.part(k, n), s, n, scratch)
                add_up(scaled_k, *(decays.part(x, n) for x in (v, None, sums, of_ones)))
            states = decays.pass_sums(sums, s, scratch("states", *sums.shape))
            totals = decays.pass_sums(of_ones, s, scratch("totals", *of_ones.shape))
        summed = blocks_to_write(out, *sizes, scratch, "summed")
        total = scratch("total", *summed.shape[:2], 1)
        for n in decays.parts:
            q_n, k_n, v_n, summed_n, total_n = (decays.part(x, n) for x in (q, k, v, summed, total))
            weights = torch.bmm(q_n, k_n.transpose(1, 2), out=scratch("weights", *q_n.shape[:2], sizes[1]))
            decays.multiply_(weights, decays.mask(s, n, scratch), n)
            torch.bmm(weights, v_n, out=summed_n)
            torch.sum(weights, -1, keepdim=True, out=total_n)
            if sizes[0] > 1:
                scaled_q = decays.scale_queries(q_n, s, n, scratch)
                summed_n.baddbmm_(scaled_q, decays.part(states, n))
                of_ones_n = decays.part(totals, n).transpose(1, 2)
                total_n.transpose(1, 2).baddbmm_(of_ones_n, scaled_q.transpose(1, 2))
        if normalize:
            inverses.copy_(inverse_totals(total).view(len(out), -1)[:, : out.shape[1]])
        write_blocks(out, summed)
        out.mul_(inverses.unsqueeze(-1))
    return output, inverse, keep_state(query, key, value, right)


def keep_state(query, key, value, right, *others) -> Tensor:
    """Memory for the state of all tokens, `(b, h, d, e)`, or none if there are decays."""
    shape = (*query.shape[:2], query.shape[-1], value.shape[-1]) if right is None else (0,)
    return query.new_empty(shape, dtype=accumulation_dtype(query.dtype))


def add_up(scaled: Tensor, x: Tensor, of_ones: Tensor | None, sums: Tensor, totals: Tensor) -> None:
    """X = scaledᵀ [x | of_ones] of each block, into `sums` and `totals`; `of_ones` is 1 if None."""
    torch.bmm(scaled.transpose(1, 2), x, out=sums)
    if of_ones is None:
        torch.sum(scaled, 1, out=totals.squeeze(-1))
    else:
        torch.bmm(of_ones.transpose(1, 2), scaled, out=totals.transpose(1, 2))


def backward(
    grad, query, key, value, right, left, output, inverse, state, chunk_size, normalize, needs_decay
):  # fmt: skip
    if right is None:
        return backward_without_decay(grad, query, key, value, output, inverse, state, normalize)
    batch, heads, length, _ = query.shape
    scratch = Scratch(query, inverse.dtype)
    grads = [torch.empty_like(x) for x in (query, key, value)]
    decays = BlockDecays(query, key, value, right, left, chunk_size)
    sizes = decays.sizes
    d_decays = DecayGradient(inverse, batch, heads, *sizes) if needs_decay else None
    shares = d_decays.views(decays.num_rows) if needs_decay else None
    for s, (q, k, v, dy, y, inverses, *outs) in decays.slices(query, key, value, grad, output, inverse, *grads):
        q, k, v = (read_blocks(x, *sizes, scratch, name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
        n_all, d_all = scaled_gradient(dy, inverses, y if normalize else None, sizes, scratch)
        found = [blocks_to_write(x, *sizes, scratch, name) for x, name in zip(outs, ("dq", "dk", "dv"), strict=True)]
        passed = (None,) * 4
        if sizes[0] > 1:
            passed = pass_both_ways(q, k, v, n_all, d_all, decays, s, scratch)
        for blocks in decays.parts:
            inputs = (q, k, v, n_all, d_all, *found)
            q_n, k_n, v_n, n, d, dq, dk, dv = (decays.part(x, blocks) for x in inputs)
            mask = decays.mask(s, blocks, scratch)
            shape = (*n.shape[:2], sizes[1])
            scores = torch.bmm(q_n, k_n.transpose(1, 2), out=scratch("scores", *shape))
            g = torch.bmm(n, v_n.transpose(1, 2), out=scratch("g", *shape))
            if normalize:
                g.add_(d)
            decays.multiply_(g, mask, blocks)
            torch.bmm(g, k_n, out=dq)
            torch.bmm(g.transpose(1, 2), q_n, out=dk)
            share = shares[s].of_blocks(blocks) if needs_decay else None
            if needs_decay:
                r, below = (x.view(len(y), -1, *shape[1:]) for x in (g.mul_(scores), scratch("below", *shape)))
                to_right, to_left = d_decays.inside_blocks(r, below)
                share.query_right.add_(to_right)
                share.key_left.add_(to_left)
            torch.bmm(decays.multiply_(scores, mask, blocks).transpose(1, 2), n, out=dv)
            if sizes[0] > 1:
                if not decays.is_whole:  # those of the only part are still there
                    decays.scale_queries(q_n, s, blocks, scratch)
                    decays.scale_keys(k_n, s, blocks, scratch)
                scaled = [scratch(name, *shape[:2], 2 * dq.shape[-1]) for name in ("scaled q", "scaled k")]
                between = [decays.part(x, blocks) for x in passed]
                add_between_blocks(v_n, n, d, *scaled, *between, dq, dk, dv, decays, share, s, blocks, scratch)
        for out, blocks in zip(outs, found, strict=True):
            write_blocks(out, blocks)
    if not needs_decay:
        return *grads, grad.new_empty(0), grad.new_empty(0)
    return *grads, *d_decays.result(length, right, left)


def pass_both_ways(q, k, v, n_all, d_all, decays, s, scratch):
    """S and dX of every block, `(b * h * n, 2 d, e)` each, and their columns for v = 1, `(b * h * n, 2 d, 1)` each."""
    shape = (len(v), 2 * q.shape[-1], v.shape[-1])
    sums, d_states = scratch("sums", *shape), scratch("d states", *shape)
    of_ones, d_totals = scratch("sums of ones", *shape[:2], 1), scratch("d totals", *shape[:2], 1)
    for n in decays.parts:
        q_n, k_n, v_n, n_n, d_n = (decays.part(x, n) for x in (q, k, v, n_all, d_all))
        add_up(decays.scale_keys(k_n, s, n, scratch), v_n, None, *(decays.part(x, n) for x in (sums, of_ones)))
        add_up(decays.scale_queries(q_n, s, n, scratch), n_n, d_n, *(decays.part(x, n) for x in (d_states, d_totals)))
    states = decays.pass_sums(sums, s, scratch("states", *shape))
    d_sums = decays.pass_sums(d_states, s, sums, transpose=True)
    if d_all is None:
        return states, d_sums, None, None
    totals = decays.pass_sums(of_ones, s, scratch("totals", *of_ones.shape))
    return states, d_sums, totals, decays.pass_sums(d_totals, s, of_ones, transpose=True)


def add_between_blocks(
    v, n, d, scaled_q, scaled_k, states, d_sums, totals, d_of_ones, dq, dk, dv, decays, share, s, blocks, scratch
):  # fmt: skip
    """Add to dq, dk, dv and to the gradients of the decays what comes through the states."""
    d_scaled_q = torch.bmm(n, states.transpose(1, 2), out=scratch("d scaled q", *scaled_q.shape))
    d_scaled_k = torch.bmm(v, d_sums.transpose(1, 2), out=scratch("d scaled k", *scaled_k.shape))
    dv.baddbmm_(scaled_k, d_sums)
    if d is not None:  # the column for v = 1
        d_scaled_q.addcmul_(d, totals.transpose(1, 2))
        d_scaled_k.add_(d_of_ones.transpose(1, 2))
    dim = dq.shape[-1]
    shape = (-1, blocks.stop - blocks.start, dq.shape[1])
    for out, d_scaled, toward_right, toward_left in (
        (dq, d_scaled_q, decays.query_right[s], decays.query_left[s]),
        (dk, d_scaled_k, decays.key_right[s], decays.key_left[s]),
    ):
        d_scaled, out = d_scaled.view(*shape, 2 * dim), out.view(*shape, dim)
        out.addcmul_(d_scaled[..., :dim], toward_right[:, blocks])
        out.addcmul_(d_scaled[..., dim:], toward_left[:, blocks])
    if share is None:
        return
    for scaled, d_scaled, to_right, to_left in (
        (scaled_q, d_scaled_q, share.query_right, share.query_left),
        (scaled_k, d_scaled_k, share.key_right, share.key_left),
    ):
        dots = d_scaled.mul_(scaled).view(*shape, 2, dim).sum(-1)
        to_right.add_(dots[..., 0])
        to_left.add_(dots[..., 1])
    through = torch.mul(states, d_sums, out=scratch("product of states", *states.shape)).sum(-1)
    if d is not None:
        through += (totals * d_of_ones).squeeze(-1)
    through = through.view(*shape[:2], 2, dim).sum(-1)
    torch.mul(through[..., 0], decays.key_right[s][:, blocks, 0, 0], out=share.through_right)
    torch.mul(through[..., 1], decays.key_left[s][:, blocks, -1, 0], out=share.through_left)


def forward_without_decay(query, key, value, normalize):
    scratch = Scratch(query, accumulation_dtype(query.dtype))
    output = torch.empty_like(value, dtype=scratch.dtype)
    inverse = torch.full(query.shape[:3], query.shape[-1] ** -0.5, dtype=scratch.dtype, device=query.device)
    states = keep_state(query, key, value, None)
    tensors = (query, key, value, output, inverse, states)
    rows = rows_at_a_time(SLICE_TOKENS // max(1, query.shape[2]), query, key, value)
    for q, k, v, out, factor, state in row_slices(rows, *tensors):
        q, k, v = scratch.cast(q, k, v)
        if normalize:
            inverse_totals(torch.bmm(k.sum(1, keepdim=True), q.transpose(1, 2), out=factor.unsqueeze(1)))
        torch.bmm(k.transpose(1, 2), v, out=state)
        torch.mul(torch.bmm(q, state, out=scratch("summed", *out.shape)), factor.unsqueeze(-1), out=out)
    return output, inverse, states


def backward_without_decay(grad, query, key, value, output, inverse, states, normalize):
    length = query.shape[2]
    scratch = Scratch(query, inverse.dtype)
    grads = [torch.empty_like(x) for x in (query, key, value)]
    tensors = (query, key, value, grad, output, inverse, states, *grads)
    rows = rows_at_a_time(SLICE_TOKENS // max(1, length), query, key, value)
    for q, k, v, dy, y, factor, state, *outs in row_slices(rows, *tensors):
        q, k, v = scratch.cast(q, k, v)
        n, d = scaled_gradient(dy, factor, y if normalize else None, (1, length), scratch)
        d_state = torch.bmm(n.transpose(1, 2), q)
        dq, dk, dv = found = [scratch.target(name, out) for name, out in zip(("dq", "dk", "dv"), outs, strict=True)]
        torch.bmm(n, state.transpose(1, 2), out=dq)
        torch.bmm(v, d_state, out=dk)
        torch.bmm(k, d_state.transpose(1, 2), out=dv)
        if normalize:
            dq.addcmul_(d, k.sum(1, keepdim=True))
            dk.add_(torch.bmm(d.transpose(1, 2), q))
        scratch.deliver(found, outs)
    return *grads, grad.new_empty(0), grad.new_empty(0)


fused_chunk = fused_operator("chunk", forward, backward, plain_chunk, keep_state)
triton_chunk = triton_operator("chunk", plain_chunk)


@lion_kernel(fused_chunk, triton_chunk, diagonal=diagonal_chunk)
def chunk_attention(query, key, value, right, left, chunk_size):
    return plain_chunk(query, key, value, right, left, chunk_size)
