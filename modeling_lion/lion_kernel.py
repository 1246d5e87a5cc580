# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What every kernel has in common: its arguments, its number formats, and the division by the denominators."""

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor
from transformers.utils.import_utils import is_tracing

from .decay_mask import step_decays


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, float32 for all else: decays, denominators and states are never narrower (SPEC §5)."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def lion_kernel(body: Callable) -> Callable:
    """
    Make an attention kernel of `body(query, key, value, right, left, chunk_size) -> (numerator, denominator)`.

    The body gets query, key and value in the accumulation dtype and the decays of `step_decays`, or `None` twice where
    nothing decays. It returns Σ_j (q_i·k_j) M_ij v_j and Σ_j (q_i·k_j) M_ij.

    The kernel's arguments:
        query, key: `(batch, heads, length, head_dim)`, after the feature map. A padded token has key 0.
        value: `(batch, heads, length, value_dim)`, same dtype.
        log_decay: log λ ≤ 0: `None` (λ = 1), `(heads,)` or `(batch, heads, length)`. -inf is allowed. A padded token
            has log λ = 0. Computed with in float32, or in float64 for float64 inputs.
        normalization: `"sum"` divides each output by the sum of its scores (0 where the sum is 0); `"none"` scales
            scores by `head_dim ** -0.5`.
        chunk_size: tokens per block, for kernels that work in blocks. Never changes the result.
        cu_seqlens: borders of packed sequences, `(num_sequences + 1,)`, the same for every row of the batch.

    The kernel returns `(output, None)`: the output `(batch, heads, length, value_dim)` in the dtype of `value`.

    Raises:
        ValueError: if shapes, dtypes or names do not fit together.
    """

    @wraps(body)
    def kernel(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        log_decay: Tensor | None = None,
        *,
        normalization: str = "sum",
        chunk_size: int = 64,
        cu_seqlens: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        check_arguments(query, key, value, log_decay, normalization, chunk_size, cu_seqlens)
        dtype = accumulation_dtype(query.dtype)
        with torch.autocast(query.device.type, enabled=False):
            right, left = None, None
            if log_decay is not None or cu_seqlens is not None:
                right, left = step_decays(log_decay, query.to(dtype), cu_seqlens)
            numerator, denominator = body(*(x.to(dtype) for x in (query, key, value)), right, left, chunk_size)
            if normalization == "sum":
                output = divide(numerator, denominator)
            else:
                output = numerator * query.shape[-1] ** -0.5
        return output.to(value.dtype), None

    return kernel


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator `(..., value_dim)` / denominator `(..., 1)`, with value and gradient 0 where the denominator is 0."""
    is_empty = denominator == 0
    return torch.where(is_empty, 0, numerator / torch.where(is_empty, 1, denominator))


def check_arguments(query, key, value, log_decay, normalization, chunk_size, cu_seqlens) -> None:
    """Raise a ValueError that says which argument of a kernel does not fit."""
    if query.dim() != 4 or key.shape != query.shape or value.shape[:-1] != query.shape[:-1]:
        raise ValueError(
            "query and key must be (batch, heads, length, head_dim) and value (batch, heads, length, value_dim); got "
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError(f"query, key and value must share a dtype; got {query.dtype}, {key.dtype}, {value.dtype}.")
    if log_decay is not None and log_decay.shape not in (query.shape[1:2], query.shape[:3]):
        raise ValueError(
            f"log_decay must be None, (heads,) = {tuple(query.shape[1:2])} or (batch, heads, length) = "
            f"{tuple(query.shape[:3])}; got {tuple(log_decay.shape)}."
        )
    if normalization not in ("sum", "none"):
        raise ValueError(f'normalization is {normalization!r}; give "sum" or "none".')
    if chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size}; give at least 1.")
    if cu_seqlens is not None and not is_tracing():
        borders = cu_seqlens.tolist()
        if borders[0] != 0 or borders[-1] != query.shape[2] or borders != sorted(set(borders)):
            raise ValueError(f"cu_seqlens must rise from 0 to the length {query.shape[2]}; got {borders}.")
