# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The gated delta rule on NVIDIA GPUs by the kernel of flash-linear-attention, where that library is installed
(`pip install "lion-transformers[gpu]"`). It reads forward only: the tokens of backward heads come in reverse order.
"""

from importlib import import_module

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.utils import is_flash_linear_attention_available


# Its kernel has no other dtypes, and no wider keys.
FLASH_DTYPES = (torch.float16, torch.bfloat16)
LARGEST_FLASH_DIM = 256


def has_flash_delta(query: Tensor) -> bool:
    """Whether flash-linear-attention computes for such queries. It cannot be compiled or traced as a whole."""
    return (
        query.device.type == "cuda"
        and query.dtype in FLASH_DTYPES
        and query.shape[-1] <= LARGEST_FLASH_DIM
        and not torch.compiler.is_compiling()
        and is_flash_linear_attention_available()
    )


def flash_delta_body(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    chunk_size: int,
    *,
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """
    A body as in attention/delta_plain.py; products are computed in `dtype`. The kernel chooses the chunk size, and
    decays the state before it writes, not after that: it gets the log decay of the token before.
    """
    decay = pad(log_decay[..., :-1], (1, 0)).expand(beta.shape)
    inputs = (x.to(dtype).transpose(1, 2).contiguous() for x in (query, key, value))
    gates = (x.transpose(1, 2).contiguous() for x in (decay, beta))
    # By name: a file on the Hub may not import what a reader might lack.
    library = import_module("fla.ops.gated_delta_rule")
    output, _ = library.chunk_gated_delta_rule(*inputs, *gates, scale=1.0)
    return output.transpose(1, 2).to(query.dtype)
