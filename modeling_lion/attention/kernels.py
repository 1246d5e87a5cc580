# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The table of hand-written kernels. Those of cpu/ and triton/ register here when their package is imported. Without a
kernel, differentiable torch operations compute.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers.utils.import_utils import is_triton_available

from .tracing import allows_custom_op


# Kernels by backend and name: "parallel", "chunk" and "rnn" are forms of attention (`lion_attention`); the others are
# "longest_full_form", "softmax_window", "far_sums" and "silu_norm".
KERNELS: dict[tuple[str, str], Callable] = {}
HAS_TRITON = is_triton_available()
# The largest head and value dimension that the Triton kernels support.
LARGEST_TRITON_DIM = 256


def register_kernels(backend: str, **kernels: Callable) -> None:
    """Register kernels of a backend, "cpu" or "triton", by name."""
    KERNELS.update({(backend, name): kernel for name, kernel in kernels.items()})


def kernel_for(name: str, query: Tensor, value: Tensor) -> Callable | None:
    """The kernel of this name for such tensors; `None` if torch operations compute."""
    return KERNELS.get((backend_of(query, value), name))


def backend_of(query: Tensor, value: Tensor) -> str:
    """
    What computes: the hand-written kernels "cpu" and "triton", or "plain", differentiable torch operations, which
    serve all tensors without a kernel, and tracers and transforms that need the operations inside of one
    (`allows_custom_op`).

    "triton" serves NVIDIA GPUs from compute capability 8.0 on, for dimensions up to 256 and all dtypes but float64.
    """
    if not allows_custom_op(query):
        return "plain"
    if query.device.type == "cpu":
        return "cpu"
    is_triton = (
        query.device.type == "cuda"
        and HAS_TRITON
        and query.dtype != torch.float64
        and max(query.shape[-1], value.shape[-1]) <= LARGEST_TRITON_DIM
        and runs_triton(query.device.index)
    )
    return "triton" if is_triton else "plain"


@torch.compiler.assume_constant_result
def runs_triton(device: int | None) -> bool:
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (8, 0)
