# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The fastest kernel for given inputs, as measured by benchmarks/bench_kernels.py; on a GPU by tune_triton.py."""

from collections.abc import Callable

import torch
from torch import Tensor

from .kernel_chunk import chunk_attention
from .kernel_parallel import parallel_attention
from .lion_kernel import use_triton
from .triton_plan import longest_full_form


def fastest_kernel(query: Tensor, log_decay: Tensor | None, chunk_size: int) -> Callable:
    """
    Which of the kernels computes these inputs fastest.

    The full form costs 2 L D operations a token, blocks and states 2 C D + 4 D²: equal at L = C + 2 D, and measured
    (C = D = 64, 1 and 2 threads, with and without gradients) at 200 to 256 tokens, a little later since states cost
    traffic in memory. Without decays one state serves all queries, which is always less work. Triton kernels have a
    length of their own for each kind of GPU. With decays per channel, the full form is the same work in longer blocks.

    Args:
        query: `(batch, heads, length, head_dim)`.
        log_decay: as in `lion_kernel`.
    """
    length, head_dim = query.shape[2:]
    if isinstance(length, torch.SymInt):  # a graph for every length (`torch.export`) can't choose, so it scales
        return chunk_attention
    longest = longest_full_form(query.device) if use_triton(query, query) else chunk_size + 2.5 * head_dim
    if log_decay is not None and log_decay.dim() < 4 and length <= longest:
        return parallel_attention
    return chunk_attention


def auto_attention(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor | None = None, **kwargs):
    """Run the fastest kernel. Arguments of `lion_kernel`."""
    kernel = fastest_kernel(query, log_decay, kwargs.get("chunk_size", 64))
    return kernel(query, key, value, log_decay, **kwargs)
