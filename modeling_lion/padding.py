# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Which tokens are real, and where packed sequences begin: worked out once per model call (SPEC §4)."""

import torch
from torch import Tensor
from transformers.utils.import_utils import is_tracing


def packed_borders(position_ids: Tensor | None) -> Tensor | None:
    """The `cu_seqlens` of sequences packed into one row, which start where `position_ids` are 0 (SPEC §4)."""
    if position_ids is None or position_ids.shape[0] != 1 or is_tracing(position_ids):
        return None
    starts = (position_ids[0] == 0).nonzero().flatten().tolist()
    borders = sorted({0, *starts, position_ids.shape[1]})
    return torch.tensor(borders, device=position_ids.device) if len(borders) > 2 else None


def padding_mask(attention_mask: Tensor | None, inputs: Tensor) -> Tensor | None:
    """
    The attention mask as bool, `(batch, length)`, False for padding; `None` where nothing is padded.

    Args:
        inputs: `(batch, length, ...)`, what the mask must fit.
    """
    if attention_mask is None:
        return None
    if attention_mask.shape != inputs.shape[:2]:
        raise ValueError(
            f"`attention_mask` must be (batch, length) = {tuple(inputs.shape[:2])}, 1 for real tokens and 0 "
            f"for padding; got {tuple(attention_mask.shape)}."
        )
    attention_mask = attention_mask.bool()
    # Only where the answer costs nothing: on an accelerator it would stall, in a graph it would break it.
    if attention_mask.device.type == "cpu" and not is_tracing(attention_mask) and attention_mask.all():
        return None
    return attention_mask
