# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Halos: the tokens on both sides of a segment that its convolutions and windows read (SPEC §12)."""

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
        tokens: padding and order of these tokens.
        before, after: the number of tokens of the halo on each side.
    """

    hidden_states: Tensor
    tokens: Tokens
    before: int = 0
    after: int = 0

    def tile(self, tile: TokenTile, reach: int) -> "WithHalo":
        """A tile of the tokens of the call, with up to `reach` more on both sides."""
        first, end = self.before + tile.first, self.before + tile.end
        wider = TokenTile(tile.rows, max(0, first - reach), min(self.hidden_states.shape[1], end + reach))
        sides = first - wider.first, wider.end - end
        return WithHalo(wider.of(self.hidden_states), Tokens(wider.of(self.tokens.is_real)), *sides)

    def own(self, x: Tensor) -> Tensor:
        """`(batch, tokens, ...)` without the halo."""
        return x[:, self.before : x.shape[1] - self.after] if self.before or self.after else x


@dataclass
class Halo:
    """
    The tokens on both sides of a segment, up to `Mixer.reach` on each side.

    Attributes:
        before, after: normed hidden states, the input of attention, `(batch, at most reach, hidden_size)`.
        is_real: the mask of both sides, concatenated, `(batch, tokens)`, bool; `None` without padding.
        may_have_inner_padding: whether there may be padding between real tokens, here or in the segment.
    """

    before: Tensor
    after: Tensor
    is_real: Tensor | None = None
    may_have_inner_padding: bool = False

    def with_halo(self, hidden_states: Tensor, is_real: Tensor | None) -> WithHalo:
        """A segment, `(batch, length, hidden_size)` with the mask `is_real`, and its halo."""
        sizes = self.before.shape[1], self.after.shape[1]
        if self.is_real is not None:
            before, after = self.is_real.split(sizes, dim=1)
            is_real = before.new_ones(hidden_states.shape[:2]) if is_real is None else is_real
            is_real = torch.cat((before, is_real, after), dim=1)
        hidden_states = torch.cat((self.before, hidden_states, self.after), dim=1)
        tokens = Tokens(is_real)
        return WithHalo(hidden_states, tokens.with_order() if self.may_have_inner_padding else tokens, *sizes)


def reach_of(config: PreTrainedConfig, layer_type: str) -> int:
    """The number of tokens that the window or the convolution of a layer reads on each side of a segment."""
    if layer_type == "linear_attention":
        return config.conv_kernel // 2
    return config.sliding_window if layer_type == "sliding_attention" else 0


def has_neighbours(config: PreTrainedConfig) -> bool:
    """Whether any layer reads only a few neighbours, and so has to skip padding between real tokens."""
    return any(reach_of(config, layer_type) for layer_type in config.layer_types_in_use)
