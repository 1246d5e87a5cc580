# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The linear sum over the tokens outside of a window (SPEC §13), by the kernels of `lion_attention`:

    num_i = Σ_j φ(q_i)·φ(k_j) M_ij v_j      den_i = Σ_j φ(q_i)·φ(k_j) M_ij      |i - j| > window

A head that reads forward sees exactly the tokens before the window if every key is moved `window` + 1 tokens to the
end; a head that reads backward sees those behind it if every key is moved as far to the start. So each head becomes
two heads of one direction (SPEC §11), whose sums are added; nothing is subtracted. Each moved key is multiplied by the
decays of the `window` + 1 steps that it skips.
"""

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d, pad

from .decay_mask import LogDecay, is_per_head
from .kernels import kernel_for
from .lion_attention import lion_attention
from .numerics import accumulation_dtype


def far_sums(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor | None,
    window: int,
    *,
    form: str = "auto",
) -> tuple[Tensor, Tensor]:
    """
    Args:
        query, key: `(batch, heads, length, features)`, after the feature map. A padded token has key 0. There is no
            padding between real tokens.
        value: `(batch, heads, length, value_dim)`, in the same dtype.
        log_decay: log λ of each token, `(heads,)` or `(batch, heads, length)`, 0 for a padded token; `None` for λ = 1.
        window: number of tokens on each side that are left out, at least 1.
        form: `"auto"`, `"parallel"`, `"chunk"` or `"rnn"`, as in `lion_attention`.

    Returns:
        Numerators `(batch, heads, length, value_dim)` and denominators `(batch, heads, length, 1)`, float32, or
        float64 for float64.
    """
    kernel = kernel_for("far_sums", query, value)
    if kernel is not None and log_decay is None and form in ("auto", "chunk"):
        numerator, denominator = kernel(query, key, value, window)
        return numerator, denominator.unsqueeze(-1)
    delay = window + 1
    keys = shifted(key, delay), shifted(key, -delay)
    values = shifted(value, delay), shifted(value, -delay)
    both = None
    if log_decay is not None:
        log_decay = log_decay.to(accumulation_dtype(query.dtype))
        late, early = decays_on_the_way(log_decay, delay)
        keys = tuple(k * d.exp().unsqueeze(-1).to(k.dtype) for k, d in zip(keys, (late, early), strict=True))
        both = alternated(log_decay, log_decay, dim=0 if is_per_head(log_decay) else 1)
    inputs = alternated(query, query), alternated(*keys), alternated(*values), LogDecay(both, both)
    sums, _ = lion_attention(*inputs, form=form, head_directions="alternate", returns_sums=True)
    return tuple(x.unflatten(1, (-1, 2)).sum(2) for x in sums)


def shifted(x: Tensor, steps: int) -> Tensor:
    """Move `(batch, heads, length, d)` by `steps` tokens to the end (if negative, to the start); zeros fill in."""
    length = x.shape[2]
    if steps > 0:
        return pad(x, (0, 0, steps, 0))[:, :, :length]
    return pad(x, (0, 0, 0, -steps))[:, :, -steps:]


def alternated(forward: Tensor, backward: Tensor, dim: int = 1) -> Tensor:
    """Interleave heads that read forward with heads that read backward."""
    return torch.stack((forward, backward), dim + 1).flatten(dim, dim + 1)


def decays_on_the_way(log_decay: Tensor, delay: int) -> tuple[Tensor, Tensor]:
    """
    For each token t, the sums of log decays over the tokens t - delay … t - 1 and over t + 1 … t + delay, which a key
    moved to t has skipped; `(1, heads, 1)` or `(batch, heads, length)` each.
    """
    if is_per_head(log_decay):
        total = (delay * log_decay).view(1, -1, 1)
        return total, total
    # Sums of `delay` terms each: differences of cumulative sums would lose digits (SPEC §5).
    # `cat` instead of `pad`: ONNX Runtime would fuse `pad` with the pooling, which refuses that much padding.
    ends = log_decay.new_zeros(*log_decay.shape[:-1], delay)
    sums = avg_pool1d(torch.cat((ends, log_decay.clamp(min=-1e4), ends), -1), delay, stride=1) * delay
    length = log_decay.shape[-1]
    return sums[..., :length], sums[..., delay + 1 : delay + 1 + length]
