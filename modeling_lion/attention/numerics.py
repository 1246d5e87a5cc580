# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Rules that all forms share: dtypes, denominators of 0, and tensors saved for backward (SPEC §5)."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of decays, denominators and states (SPEC §5): float64 for float64 inputs, float32 for all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def x86_product(dtype: torch.dtype) -> bool | None:
    """Whether this CPU multiplies a dtype natively; `None` if torch cannot tell (before 2.10, or not on x86)."""
    features = {torch.bfloat16: ("avx512_bf16", "amx_bf16"), torch.float16: ("avx512_fp16", "amx_fp16")}.get(dtype)
    if features is None:
        return True
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    if capabilities.get("architecture") != "x86_64":
        return None
    return any(capabilities.get(name) for name in features)


def has_native_product(dtype: torch.dtype) -> bool:
    """Whether this CPU multiplies a dtype natively; True if torch cannot tell."""
    return x86_product(dtype) is not False


def has_fast_bfloat16() -> bool:
    """Whether oneDNN is available and known to multiply bfloat16 natively on this CPU."""
    return torch.backends.mkldnn.is_available() and bool(x86_product(torch.bfloat16))


def without_autocast(x: Tensor) -> AbstractContextManager:
    """A context without autocast on the device of `x`. (The meta device has no autocast.)"""
    device = x.device.type
    is_off = device == "meta" or not torch.is_autocast_enabled(device)
    return nullcontext() if is_off else torch.autocast(device, enabled=False)


def smallest_denominator(dtype: torch.dtype) -> float:
    """Denominators below this, 1e-28 in float32, count as 0 (SPEC §5): such sums have no significant digits."""
    return torch.finfo(dtype).tiny ** 0.75


def is_zero_denominator(denominator: Tensor) -> Tensor:
    """Elementwise: whether a denominator counts as 0."""
    return denominator.abs() < smallest_denominator(denominator.dtype)


def inverse_denominator(denominator: Tensor) -> Tensor:
    """1 / denominator, and 0 where it counts as 0, so that outputs and all gradients are 0 there."""
    return denominator.reciprocal().masked_fill_(is_zero_denominator(denominator), 0)


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator `(..., value_dim)` / denominator `(..., 1)`; 0, with gradient 0, where the denominator counts as 0."""
    is_zero = is_zero_denominator(denominator)
    return torch.where(is_zero, 0, numerator / torch.where(is_zero, 1, denominator))


def normalize(numerator: Tensor, denominator: Tensor, normalization: str, head_dim: int) -> Tensor:
    """The output of SPEC §1 with `normalization` "sum" or "none"; arguments as in `divide`."""
    return divide(numerator, denominator) if normalization == "sum" else numerator * head_dim**-0.5


def needs_grad(*inputs) -> bool:
    """Whether autograd records operations on these inputs; inputs that are not tensors are ignored."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)


def save_for_backward(ctx, *tensors: Tensor | None) -> None:
    """`ctx.save_for_backward` without `None`, which tools that draw graphs of saved tensors cannot read."""
    ctx.is_given = [x is not None for x in tensors]
    ctx.save_for_backward(*[x for x in tensors if x is not None])


def saved_for_backward(ctx) -> list[Tensor | None]:
    """The arguments of `save_for_backward`, `None` included."""
    saved = iter(ctx.saved_tensors)  # read once, since checkpointing recomputes them for each read
    return [next(saved) if is_given else None for is_given in ctx.is_given]
