# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tells whether a computation is compiled, exported, traced or transformed by `torch.func`, and what it allows."""

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from transformers.utils.import_utils import is_tracing

from ..private_apis import is_batched_by_vmap, is_exporting, is_transformed


def is_symbolic(size: int | torch.SymInt) -> bool:
    """Whether a size is symbolic, that is, unknown in a graph that serves every size."""
    return isinstance(size, torch.SymInt)


def is_known_true(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds for all sizes of a graph. (`torch.jit.trace` treats every size as known.)"""
    return not torch.jit.is_tracing() and statically_known_true(condition)


def fits_for_all(length: int | torch.SymInt, longest: int) -> bool:
    """
    Whether a length is at most `longest`. For an exported graph, this must hold for every length of its range. A
    compiled graph is specialized: torch compiles it again for lengths on the other side of `longest`.
    """
    if torch.compiler.is_compiling() and not is_exporting():
        return bool(length <= longest)
    return is_known_true(length <= longest)


def is_readable(x: Tensor) -> bool:
    """Whether Python can read the values of `x`: not in a graph, a CUDA graph or a vmap, nor on the meta device."""
    if is_tracing(x) or x.device.type == "meta" or is_batched_by_vmap(x):
        return False
    return x.device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def allows_custom_op(query: Tensor) -> bool:
    """Whether a custom operator may compute; not for empty batches, export, tracing, `torch.func` and forward AD."""
    if torch.compiler.is_compiling():  # which includes exporting
        return not is_exporting()
    # Not `is_tracing`, which is also true for CUDA graphs: these capture the launches of kernels.
    return query.numel() > 0 and not (is_transformed() or torch.jit.is_tracing())
