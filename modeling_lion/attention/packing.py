# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Borders of packed sequences, `cu_seqlens`: the tokens at which each begins, and the length (SPEC §4)."""

import torch
from torch import Tensor

from .tracing import is_readable


def sequence_of_each_token(cu_seqlens: Tensor, length: int) -> Tensor:
    """Which of the packed sequences a token belongs to, `(length,)`, int64."""
    position = torch.arange(length, device=cu_seqlens.device)
    return torch.searchsorted(cu_seqlens, position, right=True) - 1


def check_borders(cu_seqlens: Tensor, length: int) -> None:
    """
    Raise a ValueError for borders that do not rise from 0 to the length. Kernels ask for it on the CPU only; on an
    accelerator each answer stalls, so the model asks once for all its layers.
    """
    if not is_readable(cu_seqlens):
        return
    borders = cu_seqlens.tolist()
    if borders[0] != 0 or borders[-1] != length or borders != sorted(set(borders)):
        raise ValueError(f"cu_seqlens must rise from 0 to the length {length}; got {borders}.")
