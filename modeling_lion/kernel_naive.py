# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The reference: SPEC §1 and §2 as they are written, in whatever dtype the inputs have. Slow, short, and right.

    y_i = Σ_j A_ij v_j / Σ_j A_ij          A_ij = D^-1/2 (q_i · k_j) M_ij
"""

from torch import Tensor

from .decay_mask import decay_mask, step_decays
from .lion_kernel import divide


def naive_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor | None = None,
    *,
    normalization: str = "sum",
    chunk_size: int | None = None,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """
    Args and errors as `lion_kernel` gives them; `chunk_size` is ignored.

    Returns:
        The output `(batch, heads, length, value_dim)` and the weights A `(batch, heads, length, length)`, divided by
        their row sums if `normalization` is `"sum"`.
    """
    mask = decay_mask(*step_decays(log_decay, query, cu_seqlens))
    if mask.dim() == 4:
        weights = (query @ key.transpose(-1, -2)) * mask
    else:  # one for every channel of the keys
        query_by_channel, key_by_channel = query.transpose(2, 3).unsqueeze(-1), key.transpose(2, 3).unsqueeze(-2)
        weights = (query_by_channel * mask * key_by_channel).sum(2)
    weights = query.shape[-1] ** -0.5 * weights
    if normalization == "sum":
        weights = divide(weights, weights.sum(-1, keepdim=True))
    return weights @ value, weights
