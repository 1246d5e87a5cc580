# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Softmax attention within a window, a hand-written kernel for the CPU: O(L) time and memory, in tiles of scores.

    P = softmax(s q kᵀ + B)      y = P v      e = log Σ_k exp(s q kᵀ + B)

    dv = Pᵀ dy      dS = P ∘ (dy vᵀ - Σ_k P ∘ dy vᵀ + de)      dq = s dS k      dk = s dSᵀ q

A tile is a block of queries of some heads of one sequence, with the keys from `sliding_window` tokens before the first
query to `sliding_window` tokens behind the last. B is 0 where a query sees a key and -inf elsewhere. Windows overlap,
so the gradients of keys and values are summed over tiles. The backward recomputes P.

Dimensions: h = heads of a tile, q = its queries, k = its keys, d = head_dim.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..attention.custom_operator import NAMESPACE
from ..attention.decay_mask import cut_evenly
from ..attention.kernels import register_kernels
from ..attention.numerics import accumulation_dtype, save_for_backward, saved_for_backward
from ..attention.softmax_window import LARGE_BLOCK, SMALL_BLOCK, TILE_ELEMENTS
from ..private_apis import fused_attention_with_sums, softmax_backward_
from ..tokens import sequence_offsets, window_mask
from .scratch import Scratch


# Number of queries in a block of torch's fused attention.
FUSED_BLOCK = 32


def block_size(heads: int, sliding_window: int) -> int:
    """
    The number of queries in a block, which read block + 2 `sliding_window` keys. Measured for windows of 1 to 500
    tokens and 2 to 12 heads, 32 to 64 are best, within 5 %; 128 for larger windows, or if few heads share the cost of
    a call.
    """
    is_small = heads * SMALL_BLOCK * (SMALL_BLOCK + 2 * sliding_window) < TILE_ELEMENTS // 5
    return LARGE_BLOCK if is_small or sliding_window >= 256 else SMALL_BLOCK


class Tile(NamedTuple):
    """A tile: indices into `(batch, heads, length, d)`, and the keys that its queries see."""

    queries: tuple[int, slice, slice]
    keys: tuple[int, slice, slice]
    bias: Tensor  # B, (q, k)
    is_blind: Tensor | None  # True for queries that see no key, (q, 1); None if there are none
    is_empty: bool  # whether no query sees any key


def tiles(
    query: Tensor,
    key: Tensor,
    is_real: Tensor | None,
    cu_seqlens: Tensor | None,
    sliding_window: int,
    first_query: int,
    dtype: torch.dtype,
    ranges: list[list[tuple[int, int]]] | None = None,
) -> Iterator[Tile]:
    """The tiles of all queries, or of the queries in `ranges`, given by row."""
    batch, heads, queries, _ = query.shape
    length = key.shape[2]
    _, block = cut_evenly(queries, block_size(heads, sliding_window))
    reach = min(sliding_window, length)  # windows end at the ends of the sequence
    position = torch.arange(length, device=query.device)
    if cu_seqlens is not None:
        position = position + sequence_offsets(cu_seqlens, length, sliding_window)
    bias_of_all = usual_bias(block, reach, dtype, query.device)
    special = special_tokens(is_real, cu_seqlens, length)
    most_heads = max(1, TILE_ELEMENTS // bias_of_all.numel())
    _, step = cut_evenly(heads, most_heads)
    heads_of_tiles = [slice(head, min(head + step, heads)) for head in range(0, heads, step)]
    for row in range(batch):
        count = None if special is None else special[row % len(special)]
        for start, stop in cut_ranges([(0, queries)] if ranges is None else ranges[row], block):
            first, last = first_query + start, first_query + stop
            left, right = max(0, first - reach), min(length, last + reach)
            bias = bias_of_all[: stop - start, left - first + reach : right - first + reach]
            is_blind, is_empty = None, False
            if count is not None and count[left] < count[right]:
                real = None if is_real is None else is_real[row, left:right]
                seen = window_mask(position[first:last], position[left:right], sliding_window, real)
                bias = bias_of(seen, dtype)
                is_blind = ~seen.any(-1, keepdim=True)
                is_empty = bool(is_blind.all())
                is_blind = is_blind if is_blind.any() else None
            for some in heads_of_tiles:
                yield Tile((row, some, slice(start, stop)), (row, some, slice(left, right)), bias, is_blind, is_empty)


def cut_ranges(ranges: list[tuple[int, int]], block: int) -> Iterator[tuple[int, int]]:
    for first, end in ranges:
        for start in range(first, end, block):
            yield start, min(start + block, end)


@lru_cache(maxsize=8)
def usual_bias(block: int, reach: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """B of a block without padding, `(block, block + 2 reach)`. The cache for all layers saves 5 % of the time."""
    token = torch.arange(block + 2 * reach, device=device)
    return bias_of(window_mask(token[:block] + reach, token, reach), dtype)


def bias_of(seen: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(seen, dtype=dtype).masked_fill_(~seen, -torch.inf)


def special_tokens(is_real: Tensor | None, cu_seqlens: Tensor | None, length: int) -> list[list[int]] | None:
    """
    For each token, the number of tokens before it that are padding or begin a packed sequence: `length + 1` numbers,
    for each row or for all rows. Tiles without such tokens share one B. `None` without padding and packing.
    """
    if is_real is None and cu_seqlens is None:
        return None
    is_special = cu_seqlens.new_zeros(1, length, dtype=torch.bool) if is_real is None else ~is_real
    if cu_seqlens is not None:
        is_special[:, cu_seqlens[1:-1].long()] = True
    return pad(is_special.cumsum(1), (1, 0)).tolist()


def weights_of(
    query: Tensor, key: Tensor, tile: Tile, scaling: float, scratch: Scratch, log_sum: Tensor | None = None
) -> Tensor:
    """P, `(h, q, k)`. Writes e to `log_sum`, `(h, q)`, if given."""
    weights = scratch("weights", *query.shape[:2], key.shape[1])
    if scratch.is_mixed:
        torch.add(tile.bias, scratch.product(query, key.transpose(1, 2), weights), alpha=scaling, out=weights)
    else:
        torch.baddbmm(tile.bias, query, key.transpose(1, 2), alpha=scaling, out=weights)
    if log_sum is None:
        torch.softmax(weights, -1, out=weights)
    else:  # from the largest weight; logsumexp would take twice as long as all of this
        largest = weights.amax(-1)
        torch.softmax(weights, -1, out=weights)
        torch.sub(largest, weights.amax(-1).log_(), out=log_sum)
        if tile.is_blind is not None:
            log_sum.masked_fill_(tile.is_blind.squeeze(-1), -torch.inf)
    return weights if tile.is_blind is None else weights.masked_fill_(tile.is_blind, 0)


WINDOW_INPUTS = "Tensor query, Tensor key, Tensor value, Tensor? is_real, Tensor? cu_seqlens"
WINDOW_OPTIONS = "SymInt sliding_window, float scaling, SymInt first_query"


@torch.library.custom_op(
    f"{NAMESPACE}::softmax_window",
    mutates_args=(),
    schema=f"({WINDOW_INPUTS}, {WINDOW_OPTIONS}, bool with_log_sum) -> (Tensor, Tensor)",
)
def softmax_window(query, key, value, is_real, cu_seqlens, sliding_window, scaling, first_query, with_log_sum):
    """The results of `attend_in_window`; without `with_log_sum`, the second one has the shape `(0,)`."""
    output, log_sum = allocate_results(query, value, with_log_sum)
    scratch = Scratch(query)
    by_head = output.transpose(1, 2)
    ranges = None
    # Whether torch's fused attention can compute the blocks whose windows are whole.
    has_one_width = query.shape[-1] == value.shape[-1] and all(x.stride(-1) == 1 for x in (query, key, value))
    if has_one_width and query.dtype == scratch.operand_dtype and fused_attention_with_sums() is not None:
        ranges = attend_to_whole_windows(
            query, key, value, is_real, cu_seqlens, sliding_window, scaling, first_query, by_head, log_sum
        )
    for tile in tiles(query, key, is_real, cu_seqlens, sliding_window, first_query, scratch.dtype, ranges):
        out = by_head[tile.queries]
        sums = log_sum[tile.queries] if with_log_sum else None
        if tile.is_empty:
            out.zero_()
            if sums is not None:
                sums.fill_(-torch.inf)
            continue
        q, k, v = scratch.operands(query[tile.queries], key[tile.keys], value[tile.keys])
        weights = scratch.operand("weights", weights_of(q, k, tile, scaling, scratch, sums))
        found = scratch.product(weights, v, scratch.target("output", out))
        scratch.deliver([found], [out])
    return output, log_sum


def attend_to_whole_windows(
    query, key, value, is_real, cu_seqlens, sliding_window, scaling, first_query, output, log_sum
) -> list[list[tuple[int, int]]]:
    """
    Fill the output, `(batch, heads, queries, d)`, and the sums, unless they are `(0,)`, of all blocks whose windows
    are whole: within the sequence, without padding and borders. One call of torch's fused attention computes many
    blocks, on views of keys and values with overlapping windows, in 0.62 to 0.82 of the time of tiles (one thread,
    AVX-512, float32). Returns, for each row, the ranges of the remaining queries.
    """
    batch, _, queries, _ = query.shape
    length = key.shape[2]
    if FUSED_BLOCK + 2 * sliding_window > length:  # no window is whole
        return [[(0, queries)]] * batch
    special = special_tokens(is_real, cu_seqlens, length)
    bias = usual_bias(FUSED_BLOCK, sliding_window, query.dtype, query.device)
    left = []
    for row in range(batch):
        count = None if special is None else special[row % len(special)]
        rest, done = [], 0
        for start, stop in whole_windows(queries, length, sliding_window, first_query, count):
            rest.append((done, start))
            done = stop
            num_blocks = (stop - start) // FUSED_BLOCK
            first_key = first_query + start - sliding_window
            q = overlapping(query[row], start, num_blocks, FUSED_BLOCK)
            k, v = (overlapping(x[row], first_key, num_blocks, bias.shape[1]) for x in (key, value))
            found, sums = fused_attention_with_sums()(q, k, v, attn_mask=bias, scale=scaling)
            output[row, :, start:stop].unflatten(1, (num_blocks, FUSED_BLOCK)).copy_(found.transpose(0, 1))
            if log_sum.numel():
                log_sum[row, :, start:stop].unflatten(1, (num_blocks, FUSED_BLOCK)).copy_(sums.transpose(0, 1))
        rest.append((done, queries))
        left.append([(start, stop) for start, stop in rest if start < stop])
    return left


def whole_windows(
    queries: int, length: int, sliding_window: int, first_query: int, count: list[int] | None
) -> Iterator[tuple[int, int]]:
    """The ranges of queries, in blocks, whose windows are whole; `count` is a row of `special_tokens`."""
    start = max(0, sliding_window - first_query)
    start = -(-start // FUSED_BLOCK) * FUSED_BLOCK
    first = None
    while start + FUSED_BLOCK <= queries:
        left, right = first_query + start - sliding_window, first_query + start + FUSED_BLOCK + sliding_window
        is_whole = right <= length and (count is None or count[left] == count[right])
        if is_whole and first is None:
            first = start
        if not is_whole and first is not None:
            yield first, start
            first = None
        start += FUSED_BLOCK
    if first is not None:
        yield first, start


def overlapping(x: Tensor, first: int, num_blocks: int, tokens: int) -> Tensor:
    """Blocks of `(h, l, d)` that begin every `FUSED_BLOCK` tokens from `first` on, `(num_blocks, h, tokens, d)`."""
    by_head, by_token, _ = x.stride()
    size, stride = (num_blocks, len(x), tokens, x.shape[-1]), (FUSED_BLOCK * by_token, by_head, by_token, 1)
    return x.as_strided(size, stride, x.storage_offset() + first * by_token)


def allocate_results(query: Tensor, value: Tensor, with_log_sum: bool) -> tuple[Tensor, Tensor]:
    batch, heads, queries, _ = query.shape
    shape = (batch, heads, queries) if with_log_sum else (0,)
    log_sum = query.new_empty(shape, dtype=accumulation_dtype(query.dtype))
    return value.new_empty(batch, queries, heads, value.shape[-1]), log_sum


@softmax_window.register_fake
def window_results(query, key, value, is_real, cu_seqlens, sliding_window, scaling, first_query, with_log_sum):
    return allocate_results(query, value, with_log_sum)


@torch.library.custom_op(
    f"{NAMESPACE}::softmax_window_backward",
    mutates_args=(),
    schema=f"(Tensor grad, Tensor? d_log_sum, {WINDOW_INPUTS}, {WINDOW_OPTIONS}) -> (Tensor, Tensor, Tensor)",
)
def softmax_window_backward(
    grad, d_log_sum, query, key, value, is_real, cu_seqlens, sliding_window, scaling, first_query
):
    scratch = Scratch(query)
    d_query = torch.empty_like(query)
    d_key, d_value = (torch.zeros_like(x, dtype=scratch.dtype) for x in (key, value))
    grad = grad.contiguous().transpose(1, 2)
    for tile in tiles(query, key, is_real, cu_seqlens, sliding_window, first_query, scratch.dtype):
        dq, dk, dv = d_query[tile.queries], d_key[tile.keys], d_value[tile.keys]
        if tile.is_empty:
            dq.zero_()
            continue
        q, k, v = scratch.operands(query[tile.queries], key[tile.keys], value[tile.keys])
        dy = grad[tile.queries]
        dy = scratch.operand("dy", dy)
        weights = weights_of(q, k, tile, scaling, scratch)
        dv.add_(scratch.product(scratch.operand("weights", weights).transpose(1, 2), dy, scratch("dv", *dv.shape)))
        ds = scratch.product(dy, v.transpose(1, 2), scratch("ds", *weights.shape))
        softmax_backward_(ds, weights)
        if d_log_sum is not None:
            ds.addcmul_(weights, d_log_sum[tile.queries].unsqueeze(-1))
        ds = scratch.operand("ds", ds)
        torch.mul(scratch.product(ds, k, scratch("dq", *dq.shape)), scaling, out=dq)
        dk.add_(scratch.product(ds.transpose(1, 2), q, scratch("dk", *dk.shape)), alpha=scaling)
    return d_query, d_key.to(key.dtype), d_value.to(value.dtype)


@softmax_window_backward.register_fake
def window_gradients(grad, d_log_sum, query, key, value, *others):
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def save_window_inputs(ctx, inputs, output):
    *tensors, ctx.sliding_window, ctx.scaling, ctx.first_query, _ = inputs
    save_for_backward(ctx, *tensors)
    ctx.set_materialize_grads(False)


def differentiate_window(ctx, grad, d_log_sum):
    query, _, value, *_ = tensors = saved_for_backward(ctx)
    if grad is None:
        grad = torch.zeros_like(allocate_results(query, value, False)[0])
    grads = softmax_window_backward(grad, d_log_sum, *tensors, ctx.sliding_window, ctx.scaling, ctx.first_query)
    return *grads, *(None,) * 6


softmax_window.register_autograd(differentiate_window, setup_context=save_window_inputs)
register_kernels("cpu", softmax_window=softmax_window)
