# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What looks at a computation beside running it: compilers, export, tracing, `torch.func`; and what it can see."""

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from transformers.utils.import_utils import is_tracing

from ..private_apis import is_batched_by_vmap, is_exporting, is_transformed


def is_compiling() -> bool:
    """Whether `torch.compile` or `torch.export` is at work."""
    return torch.compiler.is_compiling()


def is_symbolic(size: int | torch.SymInt) -> bool:
    """Whether a size stands for every size, in a graph."""
    return isinstance(size, torch.SymInt)


def is_known_true(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds for all sizes of a graph; `torch.jit.trace` takes any size for known."""
    return not torch.jit.is_tracing() and statically_known_true(condition)


def is_readable(x: Tensor) -> bool:
    """
    Whether Python can ask for the values of `x`: not in a graph, also one that CUDA records, on the meta device or
    within `torch.func.vmap`.
    """
    if x.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return False
    return not (is_tracing(x) or x.device.type == "meta" or is_batched_by_vmap(x))


def allows_custom_op(query: Tensor) -> bool:
    """
    False for empty batches, and where export, tracing, `torch.func` or forward-mode derivatives have to see through
    the kernel.
    """
    if is_exporting():
        return False
    if is_compiling():
        return True
    return query.numel() > 0 and not (is_transformed() or is_tracing())
