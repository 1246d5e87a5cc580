# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Halos: the tokens on both sides of a segment that convolutions and windows reach (SPEC §12)."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from ..tokens import Tokens
from .tiles import TokenTile


class WithHalo(NamedTuple):
    """
    The tokens that a mixer projects: those of the call and, around a segment, those of its halo.

    Attributes:
        hidden_states: `(batch, tokens, hidden_size)`.
        tokens: which are real, and their order.
        before, after: how many tokens the halo has on each side.
    """

    hidden_states: Tensor
    tokens: Tokens
    before: int = 0
    after: int = 0

    @property
    def has_others(self) -> bool:
        """Whether there is a halo."""
        return self.before > 0 or self.after > 0

    def tile(self, tile: TokenTile, reach: int) -> "WithHalo":
        """A tile of the tokens of the call, with `reach` more on both sides, as far as there are any."""
        first, end = self.before + tile.first, self.before + tile.end
        wider = TokenTile(tile.rows, max(0, first - reach), min(self.hidden_states.shape[1], end + reach))
        sides = first - wider.first, wider.end - end
        return WithHalo(wider.of(self.hidden_states), Tokens(wider.of(self.tokens.is_real)), *sides)

    def own(self, x: Tensor) -> Tensor:
        """`(batch, tokens, ...)` without the halo."""
        return x[:, self.before : x.shape[1] - self.after] if self.has_others else x


@dataclass
class Halo:
    """
    The tokens on both sides of a segment, as many as a mixer reaches and the sequence has.

    Attributes:
        before, after: hidden states, `(batch, at most reach, hidden_size)`, as attention gets them.
        is_real: of both sides, concatenated, `(batch, tokens)`, bool; `None` without padding.
        may_have_inner_padding: whether there may be padding between real tokens, here or in the segment.
    """

    before: Tensor
    after: Tensor
    is_real: Tensor | None = None
    may_have_inner_padding: bool = False

    def with_halo(self, hidden_states: Tensor, is_real: Tensor | None) -> WithHalo:
        """
        A segment, `(batch, length, hidden_size)`, with its halo; `is_real` is that of the segment.
        """
        sizes = self.before.shape[1], self.after.shape[1]
        if self.is_real is not None:
            before, after = self.is_real.split(sizes, dim=1)
            is_real = before.new_ones(hidden_states.shape[:2]) if is_real is None else is_real
            is_real = torch.cat((before, is_real, after), dim=1)
        hidden_states = torch.cat((self.before, hidden_states, self.after), dim=1)
        tokens = Tokens(is_real)
        return WithHalo(hidden_states, tokens.with_order() if self.may_have_inner_padding else tokens, *sizes)


def reach_of(config: PreTrainedConfig, layer_type: str) -> int:
    """The tokens of a halo that a layer needs on each side: those in its window, or those its convolution reaches."""
    if layer_type == "linear_attention":
        return config.conv_kernel // 2
    return config.sliding_window if layer_type == "sliding_attention" else 0


def has_neighbours(config: PreTrainedConfig) -> bool:
    """Whether any layer sees a few neighbours only, so that padding between real tokens has to be skipped."""
    return any(reach_of(config, layer_type) for layer_type in config.layer_types_in_use)
