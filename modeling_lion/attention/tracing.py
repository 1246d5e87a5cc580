# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Whether a computation is compiled, exported, traced or transformed (`torch.func`), and what may be asked then."""

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from transformers.utils.import_utils import is_tracing

from ..private_apis import is_batched_by_vmap, is_exporting, is_transformed


def is_compiling() -> bool:
    """Whether `torch.compile` or `torch.export` is tracing."""
    return torch.compiler.is_compiling()


def is_symbolic(size: int | torch.SymInt) -> bool:
    """Whether a size is symbolic: unknown in a graph that serves every size."""
    return isinstance(size, torch.SymInt)


def is_known_true(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds for all sizes of a graph. (`torch.jit.trace` treats every size as known.)"""
    return not torch.jit.is_tracing() and statically_known_true(condition)


def fits_for_all(length: int | torch.SymInt, longest: int) -> bool:
    """
    Whether a length is at most `longest`, for all that the computation serves: an exported graph all lengths of its
    range, a compiled one those on this side of `longest` (on the other, it is compiled once more).
    """
    if is_compiling() and not is_exporting():
        return bool(length <= longest)
    return is_known_true(length <= longest)


def is_readable(x: Tensor) -> bool:
    """
    Whether Python can read the values of `x`: not in a graph, nor while a CUDA graph is captured, on the meta device,
    or within `torch.func.vmap`.
    """
    if is_tracing(x) or x.device.type == "meta" or is_batched_by_vmap(x):
        return False
    return x.device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def allows_custom_op(query: Tensor) -> bool:
    """
    Whether a custom operator may compute: not for empty batches, nor where export, tracing, `torch.func` or
    forward-mode derivatives have to see the operations inside.
    """
    if torch.compiler.is_compiling():  # which includes exporting
        return not is_exporting()
    # `is_tracing` is true for CUDA graphs, too, which capture what kernels launch.
    return query.numel() > 0 and not (is_transformed() or torch.jit.is_tracing())
