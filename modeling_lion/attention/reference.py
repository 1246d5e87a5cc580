# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The reference: SPEC §1 and §2 as they are written, in the dtype of the inputs, in O(L²) time and memory.

    y_i = Σ_j A_ij v_j / Σ_j A_ij          A_ij = D^-1/2 (q_i · k_j) M_ij
"""

from torch import Tensor

from .decay_mask import NO_DECAY, LogDecay, decay_mask, finite_log_decay, over_tokens
from .numerics import divide


def reference_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: LogDecay = NO_DECAY,
    *,
    normalization: str = "sum",
    cu_seqlens: Tensor | None = None,
    head_directions: str = "both",
    returns_sums: bool = False,
) -> tuple[Tensor | tuple[Tensor, Tensor], Tensor]:
    """Arguments and results as in `lion_attention` with `form="eager"`; sums have no factor D^-1/2."""
    forward, backward = finite_log_decay(log_decay, query, cu_seqlens, head_directions)
    scores = query @ key.transpose(-1, -2)
    if forward is not None:
        scores = scores * decay_mask(*over_tokens(LogDecay(forward, backward), query)).to(scores.dtype)
    if returns_sums:
        return (scores @ value, scores.sum(-1, keepdim=True)), scores
    weights = query.shape[-1] ** -0.5 * scores
    if normalization == "sum":
        weights = divide(weights, weights.sum(-1, keepdim=True))
    return weights @ value, weights
