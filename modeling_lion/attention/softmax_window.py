# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Softmax attention within a sliding window (SPEC §12): checks the inputs, chooses an implementation, and runs it."""

import torch
from torch import Tensor

from ..tokens import Tokens, check_borders
from .kernels import kernel_for
from .numerics import accumulation_dtype, has_fast_bfloat16, needs_grad, without_autocast
from .softmax_window_plain import block_body, dense_body, has_fused_sums
from .tracing import is_known_true


# Number of scores in a tile: 600 KB, which fit the second-level cache together with their keys.
TILE_ELEMENTS = 150_000
# Queries in a block.
SMALL_BLOCK, LARGE_BLOCK = 64, 128


def sliding_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    sliding_window: int,
    scaling: float,
    tokens: Tokens | None = None,
    first_query: int = 0,
    with_log_sum: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """
    y_i = Σ_j softmax_j(scaling q_i·k_j) v_j over the keys j that query i sees: the real tokens of the same packed
    sequence that are at most `sliding_window` real tokens away. A padded query sees no key. O(L) time and memory.

    Args:
        query: `(batch, heads, queries, head_dim)`, with any strides, like key and value.
        key, value: `(batch, heads, keys, head_dim)`, in the same dtype. Sums are float32, or float64 for float64.
        tokens: the tokens of the keys, with their `order` if padding may be between real ones; `None` if all are real.
            All rows must have the same borders.
        first_query: the index of the first query among the keys, which may begin before and end behind the queries.
        with_log_sum: whether to return the log-sum-exp e_i = log Σ_j exp(scaling q_i·k_j), too.

    Returns:
        The output, `(batch, queries, heads, head_dim)`, in the dtype of `value`; 0, with gradient 0, for a query that
        sees no key. With `with_log_sum`, the output and e, `(batch, heads, queries)`, float32, or float64 for float64;
        -inf for such a query.

    Raises:
        ValueError: if shapes and dtypes do not fit together.
    """
    tokens = Tokens() if tokens is None else tokens
    check_window_arguments(query, key, value, sliding_window, tokens, first_query)
    inputs = (tokens.reordered(x, 2) for x in (query, key, value))
    options = sliding_window, scaling, tokens.contiguous(), first_query, with_log_sum
    output, log_sum = attend_in_window(*inputs, *options)
    output = tokens.restored(output)
    if with_log_sum:
        log_sum = tokens.restored(log_sum, 2)
    if tokens.is_real is not None:
        is_padded = ~tokens.is_real[:, first_query : first_query + query.shape[2]]
        output = output.masked_fill(is_padded[:, :, None, None], 0)
        if with_log_sum:
            log_sum = log_sum.masked_fill(is_padded.unsqueeze(1), -torch.inf)
    return (output, log_sum) if with_log_sum else output


def attend_in_window(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sliding_window: int,
    scaling: float,
    tokens: Tokens,
    first_query: int,
    with_log_sum: bool,
) -> tuple[Tensor, Tensor | None]:
    """`sliding_attention` without padding between real tokens: the output, and the log-sum-exp if asked for."""
    is_cpu = query.device.type == "cpu"
    kernel = kernel_for("softmax_window", query, value)
    has_native_dtype = kernel is not None and query.dtype == torch.bfloat16 and has_fast_bfloat16()
    is_dense = is_dense_fastest(query, key, sliding_window, has_native_dtype)
    with without_autocast(query):
        # The dense form is fast only by torch's attention, which may lack sums.
        if kernel is not None and not (is_dense and (not with_log_sum or has_fused_sums(query, key, value))):
            options = sliding_window, scaling, first_query, with_log_sum
            return kernel(query, key, value, tokens.is_real, tokens.cu_seqlens, *options)
        # All of them accumulate in float32. On a CPU, only the backward of float32 is fast.
        is_wider = is_cpu and (needs_grad(query, key, value) or not has_native_dtype)
        inputs = (x.to(accumulation_dtype(x.dtype)) if is_wider else x for x in (query, key, value))
        body = dense_body if is_dense else block_body
        output, log_sum = body(*inputs, sliding_window, scaling, tokens, first_query, with_log_sum)
        return output.to(value.dtype), log_sum


def dense_window_mask(
    like: Tensor, sliding_window: int, tokens: Tokens, queries: Tensor | slice = slice(None)
) -> Tensor:
    """`Tokens.seen`, but padded queries see no key. Padding between real tokens needs the `order` of `tokens`."""
    seen = tokens.seen(like, sliding_window, queries)
    return seen if tokens.is_real is None else seen & tokens.is_real[:, None, queries, None]


def is_dense_fastest(query: Tensor, key: Tensor, sliding_window: int, has_native_dtype: bool) -> bool:
    """
    Whether the dense form is faster than blocks: if the window of a block covers all keys, or a sequence has at most
    two tiles of scores. On a CPU (AMD EPYC 9005, one thread, float32, windows of 1 to 500 tokens, 2 to 12 heads), both
    forms took equally long at 0.9 to 1.0 of this length. With native bfloat16 (`has_native_dtype`) and 4 or more heads
    of 64 or more channels, blocks take half the time, and the limit is lower. A graph for every length uses blocks.
    """
    heads, keys = query.shape[1], key.shape[2]
    if has_native_dtype and heads >= 4 and query.shape[3] >= 64:
        return heads * keys * keys <= TILE_ELEMENTS // 3
    return is_known_true(keys <= SMALL_BLOCK + 2 * sliding_window) or is_known_true(
        heads * keys * keys <= 2 * TILE_ELEMENTS
    )


def check_window_arguments(query, key, value, sliding_window, tokens, first_query) -> None:
    """Raise a ValueError that names the wrong argument of `sliding_attention`."""
    if (
        query.dim() != 4
        or key.dim() != 4
        or value.shape[:-1] != key.shape[:-1]
        or (query.shape[:2] != key.shape[:2] or query.shape[3] != key.shape[3])
    ):
        raise ValueError(
            "query must be (batch, heads, queries, head_dim), key and value (batch, heads, keys, head_dim); got "
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError(f"query, key and value must share a dtype; got {query.dtype}, {key.dtype}, {value.dtype}.")
    if sliding_window < 0:
        raise ValueError(f"sliding_window is {sliding_window}; give at least 0.")
    if tokens.order is not None and query.shape[2] != key.shape[2]:
        raise ValueError(f"With an `order`, all {key.shape[2]} keys need a query; got {query.shape[2]} queries.")
    if first_query < 0 or first_query + query.shape[2] > key.shape[2]:
        raise ValueError(
            f"Queries {first_query} to {first_query + query.shape[2]} are not among the {key.shape[2]} keys."
        )
    is_real, cu_seqlens = tokens.is_real, tokens.cu_seqlens
    if is_real is not None and (is_real.dtype != torch.bool or is_real.shape != (key.shape[0], key.shape[2])):
        raise ValueError(
            f"is_real must be (batch, keys) = {(key.shape[0], key.shape[2])}, bool; got {tuple(is_real.shape)}, "
            f"{is_real.dtype}."
        )
    if cu_seqlens is not None and cu_seqlens.device.type == "cpu":
        check_borders(cu_seqlens, key.shape[2])
