# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The linear sum without decays over the tokens outside of a window (SPEC §13), a hand-written O(L) kernel for the CPU.

    num_i = Σ_{|i-j| > w} (q_i·k_j) v_j      den_i = Σ_{|i-j| > w} q_i·k_j

Its gradients are sums of the same kind, with n and d the gradients of num and den:

    dq_i = Σ_{|i-j| > w} (n_i·v_j + d_i) k_j      dk_j = Σ (v_j·n_i + d_i) q_i      dv_j = Σ (k_j·q_i) n_i

The tokens of a head are cut into blocks. A block of queries reads the blocks at both ends of its window by masked
scores, and all blocks beyond as a sum of states k vᵀ. A segment is a number of blocks that fit the cache; one product
with a matrix of zeros and ones adds up the states of a segment for all of its blocks.

Dimensions: m = blocks of a segment, c = tokens of a block, d, e = widths of keys and values.
"""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..attention.custom_operator import NAMESPACE
from ..attention.kernels import register_kernels
from ..attention.numerics import accumulation_dtype
from .scratch import Scratch


# Number of tokens in a block, and of blocks in a segment.
FAR_BLOCK, SEGMENT_BLOCKS = 32, 32


@torch.library.custom_op(
    f"{NAMESPACE}::far_sums",
    mutates_args=(),
    schema="(Tensor query, Tensor key, Tensor value, SymInt window) -> (Tensor, Tensor)",
)
def far_sums_without_decay(query, key, value, window):
    """
    Numerators, `(batch, heads, length, e)`, and denominators, `(batch, heads, length)`, in the accumulation dtype, for
    queries and keys `(batch, heads, length, d)` and values `(batch, heads, length, e)` with any strides.
    """
    numerator, denominator = allocate_far_sums(query, key, value, window)
    scratch = Scratch(numerator)
    for row in zip(query, key, value, numerator, denominator, strict=True):
        for head in zip(*row, strict=True):
            far_sums_of_head(*head, window, scratch)
    return numerator, denominator


@far_sums_without_decay.register_fake
def allocate_far_sums(query, key, value, window):
    batch, heads, length, _ = query.shape
    dtype = accumulation_dtype(query.dtype)
    numerator = query.new_empty(batch, length, heads, value.shape[-1], dtype=dtype).transpose(1, 2)
    return numerator, query.new_empty(batch, heads, length, dtype=dtype)


def far_sums_of_head(query, key, value, numerator, denominator, window, scratch):
    """Fill numerators `(length, e)` and denominators `(length,)` of queries and keys `(length, d)`."""
    length, width = query.shape
    reach = -(-window // FAR_BLOCK)  # blocks that a window touches on each side of its own
    num_blocks = -(-length // FAR_BLOCK)
    starts = range(0, num_blocks, SEGMENT_BLOCKS)
    state_shape = width, value.shape[-1]
    behind = states_behind(key, value, starts, reach, scratch)
    before = scratch("before", *state_shape).zero_(), scratch("keys before", width).zero_()
    for first, state, keys in zip(starts, *behind, strict=True):
        m = min(SEGMENT_BLOCKS, num_blocks - first)
        q = tokens_in_blocks(query, first, m, "q", scratch)
        k, v = (
            tokens_in_blocks(x, first - reach, m + 2 * reach + 1, name, scratch)
            for name, x in (("k", key), ("v", value))
        )
        states = torch.bmm(k.transpose(1, 2), v, out=scratch("states", len(k), *state_shape))
        sums = torch.sum(k, 1, out=scratch("sums", len(k), width))
        is_far = far_blocks(m, reach, scratch.dtype)
        states_far = scratch("states far", m, *state_shape)
        state = torch.add(state, before[0], out=scratch("outside", *state_shape))
        torch.addmm(state.view(1, -1), is_far, states.flatten(1), out=states_far.flatten(1))
        sums_far = is_far @ sums + (keys + before[1])
        num = torch.bmm(q, states_far, out=scratch("num", m, FAR_BLOCK, value.shape[-1]))
        den = (q * sums_far.unsqueeze(1)).sum(-1)
        for blocks_away in {reach, window // FAR_BLOCK}:
            diagonal = blocks_away * FAR_BLOCK - window - 1
            for at, is_left in ((reach - blocks_away, True), (reach + blocks_away, False)):
                scores = torch.bmm(q, k[at : at + m].transpose(1, 2), out=scratch("scores", m, FAR_BLOCK, FAR_BLOCK))
                scores = scores.tril_(diagonal) if is_left else scores.triu_(-diagonal)
                num.baddbmm_(scores, v[at : at + m])
                den.add_(scores.sum(-1))
        before[0].add_(states[:m].sum(0))
        before[1].add_(sums[:m].sum(0))
        some = slice(first * FAR_BLOCK, min(length, (first + m) * FAR_BLOCK))
        count = some.stop - some.start
        numerator[some] = num.flatten(0, 1)[:count]
        denominator[some] = den.flatten()[:count]


def states_behind(key, value, starts, reach, scratch) -> tuple[Tensor, Tensor]:
    """Σ k_j v_jᵀ, `(segments, d, e)`, and Σ k_j, `(segments, d)`, over the keys behind the blocks of each segment."""
    width = key.shape[1]
    states = scratch("behind", len(starts), width, value.shape[1])
    sums = scratch("keys behind", len(starts), width)
    states[-1], sums[-1] = 0, 0
    for n in range(len(starts) - 1, 0, -1):
        first = (starts[n] + reach + 1) * FAR_BLOCK
        some = slice(first, first + SEGMENT_BLOCKS * FAR_BLOCK)
        k, v = (scratch.wide(name, x[some]) for name, x in (("k behind", key), ("v behind", value)))
        torch.addmm(states[n], k.T, v, out=states[n - 1])
        torch.add(sums[n], k.sum(0), out=sums[n - 1])
    return states, sums


def tokens_in_blocks(x: Tensor, first: int, count: int, name: str, scratch: Scratch) -> Tensor:
    """`count` blocks of `(length, d)`, `(count, c, d)`, in the dtype of `scratch`; 0 outside of the sequence."""
    length, width = x.shape
    start, stop = first * FAR_BLOCK, (first + count) * FAR_BLOCK
    if start >= 0 and stop <= length and x.dtype == scratch.dtype:
        return x[start:stop].unflatten(0, (count, FAR_BLOCK))
    found = scratch(name, count * FAR_BLOCK, width)
    left, right = min(max(0, -start), len(found)), max(0, min(stop, length) - start)
    found[:left], found[max(left, right) :] = 0, 0
    if left < right:
        found[left:right] = x[start + left : start + right]
    return found.view(count, FAR_BLOCK, width)


@lru_cache(maxsize=8)
def far_blocks(m: int, reach: int, dtype: torch.dtype) -> Tensor:
    """1 for blocks of keys that the window of a block of queries does not touch, `(m, m + 2 reach + 1)`."""
    query = torch.arange(m, device="cpu").unsqueeze(1)
    key = torch.arange(m + 2 * reach + 1, device="cpu")
    return ((key < query) | (key > query + 2 * reach)).to(dtype)


def save_far_inputs(ctx, inputs, output):
    *tensors, ctx.window = inputs
    ctx.save_for_backward(*tensors)


def differentiate_far_sums(ctx, n, d):
    saved = ctx.saved_tensors  # read once, since checkpointing recomputes them for each read
    query, key, value = (x.to(n.dtype) for x in saved)
    dtypes = [x.dtype for x in saved]
    both, with_one = torch.cat((n, d.unsqueeze(-1)), -1), pad(value, (0, 1), value=1.0)
    grads = (
        far_sums_without_decay(both, with_one, key, ctx.window)[0],
        far_sums_without_decay(with_one, both, query, ctx.window)[0],
        far_sums_without_decay(key, query, n, ctx.window)[0],
    )
    needed = zip(grads, dtypes, ctx.needs_input_grad, strict=False)
    return *[grad.to(dtype) if needs else None for grad, dtype, needs in needed], None


far_sums_without_decay.register_autograd(differentiate_far_sums, setup_context=save_far_inputs)
register_kernels("cpu", far_sums=far_sums_without_decay)
