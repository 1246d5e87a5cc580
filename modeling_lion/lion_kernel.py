# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What every kernel has in common: its arguments, its number formats, and the division by the denominators."""

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor
from transformers.utils.import_utils import is_tracing, is_triton_available

from .decay_mask import step_decays


HAS_TRITON = is_triton_available()
# Wider heads do not fit into the Triton kernels.
LARGEST_TRITON_DIM = 256


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, float32 for all else: decays, denominators and states are never narrower (SPEC §5)."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def use_fused(query: Tensor) -> bool:
    """
    Whether a kernel runs its fused body, written by hand for the CPU, rather than the plain one.

    On a CPU always, eager or compiled, unless `may_be_opaque` says no.
    """
    return query.device.type == "cpu" and may_be_opaque(query)


def use_triton(query: Tensor, value: Tensor) -> bool:
    """
    Whether a kernel runs its Triton body: on NVIDIA GPUs from compute capability 8.0 on, where triton is installed and
    head and value dimension are at most 256; not for float64. Otherwise the plain body runs on the GPU.
    """
    return (
        query.device.type == "cuda"
        and HAS_TRITON
        and query.dtype != torch.float64
        and max(query.shape[-1], value.shape[-1]) <= LARGEST_TRITON_DIM
        and runs_triton(query.device.index)
        and may_be_opaque(query)
    )


@torch.compiler.assume_constant_result
def runs_triton(device: int | None) -> bool:
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (8, 0)


def may_be_opaque(query: Tensor) -> bool:
    """Whether the batch is not empty and nobody has to see through the kernel: export, tracing or `torch.func`."""
    if torch.compiler.is_exporting():
        return False
    if torch.compiler.is_compiling():
        return True
    return query.numel() > 0 and not (torch._C._are_functorch_transforms_active() or is_tracing())


def lion_kernel(
    fused: Callable | None = None, triton: Callable | None = None, diagonal: Callable | None = None
) -> Callable:
    """
    Make an attention kernel of a plain body, `body(query, key, value, right, left, chunk_size)`.

    The body gets query, key and value in the accumulation dtype and the decays of `step_decays`, or `None` twice where
    nothing decays. It returns Σ_j (q_i·k_j) M_ij v_j and Σ_j (q_i·k_j) M_ij. `fused` is a second body of the same
    kernel for the CPU (fused_kernel.py), `triton` a third one for GPUs (kernel_triton.py), and `diagonal` the body for
    decays per channel, if it is another one than the plain body.

    The kernel's arguments:
        query, key: `(batch, heads, length, head_dim)`, after the feature map. A padded token has key 0.
        value: `(batch, heads, length, value_dim)`, in the same dtype or in the accumulation dtype.
        log_decay: log λ ≤ 0: `None` (λ = 1), `(heads,)`, `(batch, heads, length)` or, for every channel of the keys,
            `(batch, heads, length, head_dim)`. -inf is allowed. A padded token has log λ = 0. Computed with in
            float32, or in float64 for float64 inputs.
        normalization: `"sum"` divides each output by the sum of its scores (0 where the sum is 0); `"none"` scales
            scores by `head_dim ** -0.5`.
        chunk_size: tokens per block, for kernels that work in blocks. Never changes the result: the fused body takes
            fewer where more would cost digits. Triton kernels use their tuned sizes.
        cu_seqlens: borders of packed sequences, `(num_sequences + 1,)`, the same for every row of the batch.

    The kernel returns `(output, None)`: the output `(batch, heads, length, value_dim)` in the dtype of `value`.

    Raises:
        ValueError: if shapes, dtypes or names do not fit together.
    """

    def make_kernel(body: Callable) -> Callable:
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
            with torch.autocast(query.device.type, enabled=False):
                if log_decay is not None and log_decay.dim() == 4:
                    like = query[:1, :1, :, :1].to(accumulation_dtype(query.dtype))
                    decays = step_decays(log_decay, like, cu_seqlens)
                    inputs = (query, key, value, *decays, chunk_size, normalization == "sum")
                    return run_plain(diagonal or body, *inputs), None
                on_gpu = triton is not None and use_triton(query, value)
                right, left = None, None
                if on_gpu and cu_seqlens is None:  # the kernels bound decays themselves: fewer launches
                    right = log_decay.view(1, -1, 1) if log_decay is not None and log_decay.dim() == 1 else log_decay
                elif log_decay is not None or cu_seqlens is not None:
                    is_fixed = cu_seqlens is None and log_decay.dim() == 1
                    like = query[:1, :1, : 1 if is_fixed else None, :1].to(accumulation_dtype(query.dtype))
                    right, left = step_decays(log_decay, like, cu_seqlens)
                    left = None if left is right else left
                inputs = (query, key, value, right, left, chunk_size, normalization == "sum")
                if on_gpu:
                    return triton(*inputs), None
                output = fused(*inputs) if fused is not None and use_fused(query) else run_plain(body, *inputs)
            return output, None

        return kernel

    return make_kernel


def run_plain(
    body: Callable,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    right: Tensor | None,
    left: Tensor | None,
    chunk_size: int,
    normalize: bool,
) -> Tensor:
    """
    The output of a plain body. `right` may have a length of 1, for decays that are the same at every token, and `left`
    is `None` where it is no other than `right`.
    """
    dtype = accumulation_dtype(query.dtype)
    if right is not None:
        right, left = (x.expand(*x.shape[:-1], query.shape[2]) for x in (right, right if left is None else left))
    numerator, denominator = body(*(x.to(dtype) for x in (query, key, value)), right, left, chunk_size)
    output = divide(numerator, denominator) if normalize else numerator * query.shape[-1] ** -0.5
    return output.to(value.dtype)


def smallest_total(dtype: torch.dtype) -> float:
    """
    Sums of scores below it count as 0 (SPEC §5): so small, some 1e-28 in float32, that neither they nor their inverses
    have digits left, as when the `elu` map underflows.
    """
    return torch.finfo(dtype).tiny ** 0.75


def is_empty(total: Tensor) -> Tensor:
    """Which sums of scores count as 0."""
    return total.abs() < smallest_total(total.dtype)


def divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator `(..., value_dim)` / denominator `(..., 1)`, with value and gradient 0 where the latter `is_empty`."""
    empty = is_empty(denominator)
    return torch.where(empty, 0, numerator / torch.where(empty, 1, denominator))


def check_arguments(query, key, value, log_decay, normalization, chunk_size, cu_seqlens) -> None:
    """Raise a ValueError that says which argument of a kernel does not fit."""
    if query.dim() != 4 or key.shape != query.shape or value.shape[:-1] != query.shape[:-1]:
        raise ValueError(
            "query and key must be (batch, heads, length, head_dim) and value (batch, heads, length, value_dim); got "
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )
    if query.dtype != key.dtype or value.dtype not in (query.dtype, accumulation_dtype(query.dtype)):
        raise ValueError(
            "query, key and value must share a dtype, or value be in the one that is computed with; got "
            f"{query.dtype}, {key.dtype}, {value.dtype}."
        )
    # By dimension: a batch as large as the number of heads is nothing for torch.export to wonder about.
    shapes = {1: query.shape[1:2], 3: query.shape[:3], 4: query.shape}
    if log_decay is not None and log_decay.shape != shapes.get(log_decay.dim()):
        raise ValueError(
            f"log_decay must be None, (heads,) = {tuple(query.shape[1:2])}, (batch, heads, length) = "
            f"{tuple(query.shape[:3])} or (batch, heads, length, head_dim) = {tuple(query.shape)}; got "
            f"{tuple(log_decay.shape)}."
        )
    if normalization not in ("sum", "none"):
        raise ValueError(f'normalization is {normalization!r}; give "sum" or "none".')
    if chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size}; give at least 1.")
    if cu_seqlens is not None and cu_seqlens.device.type == "cpu":
        check_borders(cu_seqlens, query.shape[2])


def check_borders(cu_seqlens: Tensor, length: int) -> None:
    """
    Raise a ValueError for borders that do not rise from 0 to the length. Kernels ask for it on the CPU only; on an
    accelerator each answer stalls, so the model asks once for all its layers.
    """
    if is_tracing():
        return
    borders = cu_seqlens.tolist()
    if borders[0] != 0 or borders[-1] != length or borders != sorted(set(borders)):
        raise ValueError(f"cu_seqlens must rise from 0 to the length {length}; got {borders}.")
