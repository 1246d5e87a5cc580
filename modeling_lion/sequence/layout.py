# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The layout of the tokens in one call of the model: padding, packing and positions, and what layers derive from them.
One object per call, made before the first layer.

`Layout` is for texts, packed ones too. Its subclasses are for the patches of an image (sequence/scans.py), a segment
of a long text (sequence/segments.py), and a sequence that several processes share (sequence/sequence_parallel.py).
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from ..attention.plan import CallPlan
from ..tokens import Tokens
from .conv_borders import ConvBorders
from .halo import WithHalo, has_neighbours
from .tiles import ALL_TOKENS, TokenTile, cut_into_tiles, in_tiles


PositionEmbeddings = tuple[Tensor, Tensor]


class Memory:
    """
    A second stream of hidden states, which layers hand on where the mixer has one (mixers/luna.py). An object of its
    own, so that copies of a layout share it.
    """

    states: Tensor | None = None


@dataclass
class Layout:
    """
    What the layers of one call share.

    Attributes:
        tokens: which are real, borders, positions and neighbours (tokens.py).
        sequence_lengths: the length of each token's sequence, `(batch or 1, length or 1)`, int64; `None` unless rotary
            frequencies depend on it (`LionConfig.scales_with_length`).
        rotary_tables: cosines and sines by layer type (sequence/rotary.py); empty without rotary positions.
        masks: attention masks of softmax mixers by layer type (`SoftmaxMixer.layer_mask`).
        conv_borders: for short convolutions at borders inside rows; `None` if there are none.
        has_tiles: whether to compute token by token in tiles (sequence/tiles.py).
        plan: what attention of all layers shares (attention/plan.py); `None` if the layout is not of one call.
        memory: what the layer before left.
    """

    tokens: Tokens = field(default_factory=Tokens)
    sequence_lengths: Tensor | None = None
    rotary_tables: dict[str, PositionEmbeddings] = field(default_factory=dict)
    masks: dict[str, Any] = field(default_factory=dict)
    conv_borders: ConvBorders | None = None
    has_tiles: bool = False
    plan: CallPlan | None = None
    memory: Memory = field(default_factory=Memory)

    is_segment = False  # whether mixers see tokens outside of this layout
    border_states = None  # what mixers receive from the other segments

    def with_halo(self, hidden_states: Tensor, reach: int) -> WithHalo:
        """
        The tokens to project: those of `(batch, length, hidden_size)` and, in a segment, `reach` more on both sides.
        """
        return WithHalo(hidden_states, self.tokens)

    def positions_around(self, reach: int) -> Tensor:
        """`position_ids` of the tokens that `with_halo` returns."""
        return self.tokens.position_ids

    def by_token(self, function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """`function` of tensors `(batch, length, ...)`, which it computes token by token."""
        if not self.has_tiles:
            return function(*tensors)
        (found,) = self.by_tile(lambda tile: [function(*map(tile.of, tensors))], tensors[0])
        return found

    def by_tile(self, function: Callable[[TokenTile], list[Tensor]], tokens: Tensor) -> list[Tensor]:
        """`in_tiles`, for all of `tokens`, `(batch, length, ...)`; as one tile where it computes all at once."""
        if not self.has_tiles:
            return function(ALL_TOKENS)
        batch, length = tokens.shape[:2]
        return in_tiles(function, cut_into_tiles(batch, length), batch, length)

    def along(self, attention: Callable) -> Callable:
        """`attention`, which is `lion_attention` in any form, adapted to this layout."""
        return attention

    def mask(self, mixer_class: type, config: PreTrainedConfig, hidden_states: Tensor) -> Any:
        """The `layer_mask` of a class of mixers, for padding and packing."""
        return mixer_class.layer_mask(config, hidden_states, self.tokens)

    def pool(self, hidden_states: Tensor, reduce: Callable[[Tensor, Tensor | None], Tensor], pooling: str) -> Tensor:
        """
        One vector for each sequence: `(batch, size)`, or `(batch * num_sequences, size)` of packed rows.

        Args:
            hidden_states: `(batch, length, hidden_size)`.
            reduce: maps hidden states and `is_real` to `(batch, size)`.
            pooling: its name, `LionConfig.pooling`.
        """
        is_real, borders = self.tokens.is_real, self.tokens.cu_seqlens
        if borders is None:
            return reduce(hidden_states, is_real)
        lengths = borders.diff().tolist()
        sequences = hidden_states.split(lengths, dim=1)
        masks = [None] * len(lengths) if is_real is None else is_real.split(lengths, dim=1)
        return torch.stack([reduce(*pair) for pair in zip(sequences, masks, strict=True)], dim=1).flatten(0, 1)

    def to(self, device: torch.device | str, **kwargs) -> "Layout":
        """The layout on another device. accelerate calls this when layers are spread over several devices."""

        def move(x: Any) -> Any:
            if isinstance(x, dict):
                return {name: move(value) for name, value in x.items()}
            if isinstance(x, tuple):
                moved = [move(value) for value in x]
                return type(x)(*moved) if hasattr(x, "_fields") else tuple(moved)
            if dataclasses.is_dataclass(x):
                return dataclasses.replace(x, **{f.name: move(getattr(x, f.name)) for f in dataclasses.fields(x)})
            return x.to(device, **kwargs) if isinstance(x, Tensor) else x

        return move(self)


def text_layout(config: PreTrainedConfig, inputs: Tensor, tokens: Tokens) -> Layout:
    """
    Args:
        inputs: `(batch, length, ...)`.
        tokens: of `read_text`.
    """
    if has_neighbours(config):
        tokens = tokens.with_order()
    lengths = tokens.sequence_lengths() if config.scales_with_length else None
    return Layout(tokens, lengths, conv_borders=ConvBorders.of(config, inputs, tokens.cu_seqlens))
