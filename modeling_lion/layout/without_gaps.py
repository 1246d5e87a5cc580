# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Padding between real tokens, where short convolutions must see none (SPEC §12): another order of the tokens."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from ..attention.packing import may_have_gaps, places_without_gaps


@dataclass
class WithoutGaps:
    """
    The order of tokens in which the real ones of every sequence stand together (`places_without_gaps`).

    Attributes:
        order: which token is at each place, `(batch * length,)`, int64, counted through all rows.
        place: where each token is, likewise.
        is_real: which tokens are, in this order, `(batch, length)`, bool.
    """

    order: Tensor
    place: Tensor
    is_real: Tensor

    @classmethod
    def of(cls, is_real: Tensor | None, cu_seqlens: Tensor | None = None) -> "WithoutGaps | None":
        """
        `None` where no token is padded between real ones. That is asked once per call, also on an accelerator, which
        waits for the answer: without it, every layer would copy its tokens. Arguments as of `places_without_gaps`.
        """
        if is_real is None or not may_have_gaps(is_real, cu_seqlens):
            return None
        place = places_without_gaps(is_real, cu_seqlens)
        order = place.argsort(dim=1)
        rows = torch.arange(is_real.shape[0], device=is_real.device).unsqueeze(1) * is_real.shape[1]
        return cls((rows + order).flatten(), (rows + place).flatten(), is_real.gather(1, order))

    @classmethod
    def for_convolutions(
        cls, config: PreTrainedConfig, is_real: Tensor | None, cu_seqlens: Tensor | None
    ) -> "WithoutGaps | None":
        """`of`; `None` also for a model whose layers see no neighbours by a convolution."""
        return cls.of(is_real, cu_seqlens) if config.conv_kernel > 1 else None

    def reorder(self, x: Tensor) -> Tensor:
        """`(batch, length, ...)` in this order; differentiable."""
        return take(x, self.order)

    def restore(self, x: Tensor) -> Tensor:
        """`(batch, length, ...)` of this order as the tokens were; differentiable."""
        return take(x, self.place)


def take(x: Tensor, tokens: Tensor) -> Tensor:
    """Tokens of `(batch, length, ...)`, as many, by indices that count through all rows."""
    return x.flatten(0, 1).index_select(0, tokens).view(x.shape)
