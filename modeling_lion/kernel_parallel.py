# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The full form (SPEC §3 "parallel"): one length x length matrix per head. O(L²) time and memory, best for short L."""

from torch import Tensor

from .decay_mask import decay_mask
from .lion_kernel import lion_kernel


@lion_kernel
def parallel_attention(
    query: Tensor, key: Tensor, value: Tensor, right: Tensor | None, left: Tensor | None, chunk_size: int
) -> tuple[Tensor, Tensor]:
    scores = query @ key.transpose(-1, -2)
    if right is not None:
        scores = scores * decay_mask(right, left)
    return scores @ value, scores.sum(-1, keepdim=True)
