# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""An order of tokens without padding between real ones, for short convolutions (SPEC §12)."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from ..attention.packing import may_have_inner_padding, unpadded_positions


@dataclass
class Unpadded:
    """
    The order of tokens in which the real tokens of every sequence are contiguous (`unpadded_positions`).

    Attributes:
        order: the index of the token at each place, `(batch * length,)`, int64, counted through all rows.
        place: the place of each token, likewise.
        is_real: False for padding, in this order, `(batch, length)`, bool.
    """

    order: Tensor
    place: Tensor
    is_real: Tensor

    @classmethod
    def of(cls, is_real: Tensor | None, cu_seqlens: Tensor | None = None) -> "Unpadded | None":
        """
        `None` without padding between real tokens. This is read once per call of the model, even though an accelerator
        stalls: otherwise every layer would copy its tokens. Arguments as in `unpadded_positions`.
        """
        if is_real is None or not may_have_inner_padding(is_real, cu_seqlens):
            return None
        place = unpadded_positions(is_real, cu_seqlens)
        order = place.argsort(dim=1)
        rows = torch.arange(is_real.shape[0], device=is_real.device).unsqueeze(1) * is_real.shape[1]
        return cls((rows + order).flatten(), (rows + place).flatten(), is_real.gather(1, order))

    @classmethod
    def for_convolutions(
        cls, config: PreTrainedConfig, is_real: Tensor | None, cu_seqlens: Tensor | None
    ) -> "Unpadded | None":
        """`of`; also `None` for a model without short convolutions."""
        return cls.of(is_real, cu_seqlens) if config.conv_kernel > 1 else None

    def reorder(self, x: Tensor) -> Tensor:
        """`(batch, length, ...)` in this order; differentiable."""
        return take(x, self.order)

    def restore(self, x: Tensor) -> Tensor:
        """`(batch, length, ...)` back in the original order; differentiable."""
        return take(x, self.place)


def take(x: Tensor, tokens: Tensor) -> Tensor:
    """The tokens of `(batch, length, ...)` in another order, given by indices that count through all rows."""
    return x.flatten(0, 1).index_select(0, tokens).view(x.shape)
