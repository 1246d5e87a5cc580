# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Which kernel computes. Hand-written kernels enter themselves here when their package, cpu/ or triton/, is imported;
what has none is computed by plain, differentiable torch operations.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers.utils.import_utils import is_triton_available

from .tracing import allows_custom_op


# By backend and name: "parallel", "chunk" and "rnn" for the forms of attention (`lion_attention`), "diagonal" for
# those with decays per channel, "longest_full_form", "softmax_window" and "silu_norm".
KERNELS: dict[tuple[str, str], Callable] = {}
HAS_TRITON = is_triton_available()
# Wider heads do not fit into the Triton kernels.
LARGEST_TRITON_DIM = 256


def register_kernels(backend: str, **kernels: Callable) -> None:
    """Enter kernels of a backend, "cpu" or "triton", by name."""
    KERNELS.update({(backend, name): kernel for name, kernel in kernels.items()})


def kernel_for(name: str, query: Tensor, value: Tensor) -> Callable | None:
    """The kernel for tensors of this kind, `None` where plain torch operations compute."""
    return KERNELS.get((backend_of(query, value), name))


def backend_of(query: Tensor, value: Tensor) -> str:
    """
    Which implementation computes: "cpu" and "triton" are written by hand, "plain" consists of differentiable torch
    operations.

    "cpu" serves tensors on a CPU, eager or compiled. "triton" serves NVIDIA GPUs from compute capability 8.0 on, where
    triton is installed and head and value dimension are at most 256, but not float64. "plain" serves all else, and
    whatever has to see through the kernel (`allows_custom_op`).
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
