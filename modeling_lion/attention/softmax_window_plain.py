# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Softmax attention within a window in differentiable torch operations, dense or in blocks.

Dimensions: b = batch, h = heads, q = queries, k = keys, d = head_dim, n = blocks, c = queries of a block, w = keys of
its window. Query i is token `first_query` + i of the keys.
"""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from ..private_apis import fused_attention_with_sums
from ..tokens import window_mask
from .numerics import accumulation_dtype, needs_grad
from .tracing import allows_custom_op, is_symbolic, is_transformed


def dense_body(query, key, value, sliding_window, scaling, tokens, first_query, with_log_sum):
    """One mask for all queries and keys: O(L²) time. Arguments and result as in `attend_in_window`."""
    queries, keys = query.shape[2], key.shape[2]
    farthest = max(first_query + queries, keys - first_query) - 1
    attend = attend_with_log_sum if with_log_sum else attend_by_library
    if farthest <= sliding_window and tokens.is_real is None and tokens.cu_seqlens is None:
        output, log_sum = attend(query, key, value, None, scaling)
        return output.transpose(1, 2), log_sum
    seen = tokens.seen(key[:, 0], sliding_window, slice(first_query, first_query + queries))
    output, log_sum = attend(query, key, value, seen, scaling, has_blind_queries=tokens.is_real is not None)
    return output.transpose(1, 2), log_sum


def block_body(query, key, value, sliding_window, scaling, tokens, first_query, with_log_sum):
    """Blocks of queries, each with the keys of blocks around it: O(L) time and memory, one graph for every length."""
    batch, _, queries, _ = query.shape
    keys = key.shape[2]
    block = min(64 * max(1, -(-sliding_window // 64)), 256)
    reach = -(-sliding_window // block)  # blocks on each side
    # With an unknown length (`torch.export`) there is one more block than needed, since a single one would fix the
    # graph.
    num_blocks = (queries + block * (1 + is_symbolic(queries)) - 1) // block
    # Pad keys by `reach` blocks of padded tokens on each side; a negative number cuts keys that no query sees.
    left = reach * block - first_query
    right = (num_blocks + reach) * block + first_query - keys
    position = tokens.window_positions(key[:, 0], sliding_window)
    is_real = torch.ones_like(position, dtype=torch.bool) if tokens.is_real is None else tokens.is_real
    is_real = windows(pad(is_real, (left, right)), num_blocks, block, reach)
    key_position = windows(pad(position, (left, right)), num_blocks, block, reach)
    key, value = (
        windows(pad(x.transpose(1, 2), (0, 0, 0, 0, left, right)), num_blocks, block, reach) for x in (key, value)
    )
    query = pad(query.transpose(1, 2), (0, 0, 0, 0, 0, num_blocks * block - queries)).unflatten(1, (num_blocks, block))

    query_position = key_position[:, :, reach * block : (reach + 1) * block]
    seen = window_mask(query_position, key_position, sliding_window, is_real)
    seen = seen.expand(batch, -1, -1, -1).flatten(0, 1).unsqueeze(1)  # (b n, 1, c, w)
    attend = attend_with_log_sum if with_log_sum else attend_by_library
    inputs = (x.flatten(0, 1).transpose(1, 2) for x in (query, key, value))
    output, log_sum = attend(*inputs, seen, scaling, has_blind_queries=True)
    # An index instead of a slice, which export cannot compare with the unknown length.
    cut = torch.arange(queries, device=query.device) if is_symbolic(queries) else slice(queries)
    output = output.transpose(1, 2).unflatten(0, (batch, num_blocks)).flatten(1, 2)[:, cut]
    if log_sum is not None:
        log_sum = log_sum.transpose(1, 2).unflatten(0, (batch, num_blocks)).flatten(1, 2)[:, cut].transpose(1, 2)
    return output, log_sum


def windows(x: Tensor, num_blocks: int, block: int, reach: int) -> Tensor:
    """`(b, (n + 2 reach) c, ...)` to `(b, n, w, ...)`: each block with `reach` blocks on each side."""
    parts = (x.narrow(1, start * block, num_blocks * block) for start in range(2 * reach + 1))
    return torch.cat([part.unflatten(1, (num_blocks, block)) for part in parts], dim=2)


def attend_by_library(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, scaling: float, has_blind_queries: bool = False
) -> tuple[Tensor, None]:
    """
    torch's softmax attention, `(b, h, q, d)`; 0 for a query that sees no key, which only `has_blind_queries` allows.
    `seen` is the `window_mask`, `(b or 1, 1, q, k)`, bool; `None` if every query sees every key.
    """
    is_blind = None
    if has_blind_queries:  # backends disagree about such a query: let it see every key, and set its output to 0
        is_blind = ~seen.any(-1, keepdim=True)
        seen = seen | is_blind
    if not torch.compiler.is_compiling() and is_transformed():
        with sdpa_kernel(SDPBackend.MATH):  # the only backend that supports these transforms
            output = scaled_dot_product_attention(query, key, value, seen, scale=scaling)
    else:
        output = scaled_dot_product_attention(query, key, value, seen, scale=scaling)
    return (output if is_blind is None else output.masked_fill(is_blind, 0)), None


def has_fused_sums(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether torch's fused attention can also return sums: on a CPU, without gradients, compilers or transforms."""
    is_intercepted = torch.compiler.is_compiling() or needs_grad(query, key, value) or not allows_custom_op(query)
    if is_intercepted or query.device.type != "cpu" or fused_attention_with_sums() is None:
        return False
    return query.shape[-1] == value.shape[-1] and all(x.stride(-1) == 1 for x in (query, key, value))


def attend_with_log_sum(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, scaling: float, has_blind_queries: bool = False
) -> tuple[Tensor, Tensor]:
    """`attend_by_library`, and the log-sum-exp of the scores, `(b, h, q)`; -inf for a query that sees no key."""
    is_blind = hidden = None
    if seen is not None:
        is_blind = ~seen.any(-1, keepdim=True)
        hidden = ~(seen | is_blind)
    if has_fused_sums(query, key, value):
        bias = None if hidden is None else torch.zeros_like(hidden, dtype=query.dtype).masked_fill_(hidden, -torch.inf)
        output, log_sum = fused_attention_with_sums()(query, key, value, attn_mask=bias, scale=scaling)
    else:
        scores = (scaling * query @ key.transpose(-1, -2)).to(accumulation_dtype(value.dtype))
        scores = scores if hidden is None else scores.masked_fill(hidden, -torch.inf)
        log_sum = torch.logsumexp(scores, -1)
        output = (scores - log_sum.unsqueeze(-1)).exp().to(value.dtype) @ value
    if is_blind is None:
        return output, log_sum
    return output.masked_fill(is_blind, 0), log_sum.masked_fill(is_blind.squeeze(-1), -torch.inf)
