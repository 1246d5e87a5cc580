# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Padding, folded into what linear mixers compute (SPEC §4): a padded token has key 0 and λ = 1, and is 0 to a
convolution, so that attention does not know of it. sequence/text.py reads the masks that users pass;
windows and convolutions skip padding between real tokens by attention/packing.py and sequence/unpadded.py.
"""

import torch
from torch import Tensor

from ..attention.decay_mask import is_per_head


def make_padding_absent(key: Tensor, log_decay: Tensor | None, is_real: Tensor) -> tuple[Tensor, Tensor | None]:
    """
    Keys and log decays with which a padded token has no effect: key 0 and λ = 1 (SPEC §4).

    Args:
        key: `(batch, length, heads, head_dim)`.
        log_decay: `(heads,)`, `(batch, heads, length)`, or `None`.
        is_real: False for padding, `(batch, length)`, bool.
    """
    key = key * is_real[:, :, None, None].to(key.dtype)
    if log_decay is not None:
        log_decay = log_decay.view(1, -1, 1) if is_per_head(log_decay) else log_decay
        log_decay = torch.where(is_real[:, None], log_decay, 0)
    return key, log_decay


def absent(x: Tensor, is_real: Tensor | None) -> Tensor:
    """
    `x`, `(batch, length, channels)`, set to 0 where `is_real`, `(batch, length)`, is False; unchanged for `None`.
    """
    return x if is_real is None else x * is_real.unsqueeze(-1).to(x.dtype)
