# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Number formats, denominators of 0, and what backward reads: rules that all forms share (SPEC §5)."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, float32 for all else: decays, denominators and states are never narrower (SPEC §5)."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def x86_product(dtype: torch.dtype) -> bool | None:
    """Whether this CPU multiplies matrices in a dtype; None where torch does not tell (before 2.10, not on x86)."""
    features = {torch.bfloat16: ("avx512_bf16", "amx_bf16"), torch.float16: ("avx512_fp16", "amx_fp16")}.get(dtype)
    if features is None:
        return True
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    if capabilities.get("architecture") != "x86_64":
        return None
    return any(capabilities.get(name) for name in features)


def has_native_product(dtype: torch.dtype) -> bool:
    """Whether this CPU multiplies matrices in a dtype, as far as torch can tell."""
    return x86_product(dtype) is not False


def has_fast_bfloat16() -> bool:
    """Whether oneDNN is there to multiply bfloat16 natively, and known to do so."""
    return torch.backends.mkldnn.is_available() and bool(x86_product(torch.bfloat16))


def without_autocast(x: Tensor) -> AbstractContextManager:
    """No autocast where `x` is. The meta device, on which shapes and FLOPs are counted, knows none to turn off."""
    return nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False)


def smallest_denominator(dtype: torch.dtype) -> float:
    """
    Sums of scores below it count as 0 (SPEC §5): so small, some 1e-28 in float32, that neither they nor their inverses
    have significant digits left, as when the `elu` map underflows.
    """
    return torch.finfo(dtype).tiny ** 0.75


def is_zero_denominator(denominator: Tensor) -> Tensor:
    return denominator.abs() < smallest_denominator(denominator.dtype)


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator `(..., value_dim)` / denominator `(..., 1)`; value and gradient are 0 where the denominator is 0."""
    is_zero = is_zero_denominator(denominator)
    return torch.where(is_zero, 0, numerator / torch.where(is_zero, 1, denominator))


def normalize(numerator: Tensor, denominator: Tensor, normalization: str, head_dim: int) -> Tensor:
    """The output of SPEC §1 for a `normalization` of "sum" or "none"; arguments as in `divide`."""
    return divide(numerator, denominator) if normalization == "sum" else numerator * head_dim**-0.5


def needs_grad(*inputs) -> bool:
    """Whether autograd follows what is computed with them; those that are no tensors do not count."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)


def save_for_backward(ctx, *tensors: Tensor | None) -> None:
    """`ctx.save_for_backward` of those that are given: what draws a graph of saved tensors reads no `None`."""
    ctx.is_given = [x is not None for x in tensors]
    ctx.save_for_backward(*[x for x in tensors if x is not None])


def saved_for_backward(ctx) -> list[Tensor | None]:
    """What `save_for_backward` was given."""
    saved = iter(ctx.saved_tensors)  # asked for once: checkpointing computes them for it
    return [next(saved) if is_given else None for is_given in ctx.is_given]
