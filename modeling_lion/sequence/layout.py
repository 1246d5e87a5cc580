# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The layout of the tokens of one model call: padding, packing and positions, and what layers derive from them. The model
makes one object per call, before the first layer.

`Layout` is for texts, packed or not. Its subclasses are for the patches of an image (sequence/scans.py), a segment of
a long text (sequence/segments.py), and a sequence that several processes share (sequence/sequence_parallel.py).
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
from .border_states import Joins
from .conv_borders import ConvBorders
from .halo import WithHalo, has_neighbours
from .tiles import ALL_TOKENS, TokenTile, cut_into_tiles, in_tiles


PositionEmbeddings = tuple[Tensor, Tensor]


@dataclass
class Memory:
    """A second stream of hidden states (mixers/luna.py). Copies of a layout share this object."""

    states: Tensor | None = None


@dataclass
class Layout:
    """
    The data that the layers of one call share.

    Attributes:
        tokens: real tokens, borders, positions and neighbours (tokens.py).
        sequence_lengths: the length of the sequence of each token, `(batch or 1, length or 1)`, int64; `None` unless
            rotary frequencies depend on it (`LionConfig.scales_with_length`).
        rotary_tables: cosines and sines by layer type (sequence/rotary.py); empty without rotary positions.
        masks: attention masks of softmax mixers by layer type (`SoftmaxMixer.layer_mask`).
        conv_borders: the borders that short convolutions do not cross; `None` if there are none inside rows.
        has_tiles: whether to compute tokenwise functions in tiles (sequence/tiles.py).
        plan: results that attention shares among layers (attention/plan.py); `None` without sharing.
        memory: the `Memory` that the previous layer left; `None` in models without one.
    """

    tokens: Tokens = field(default_factory=Tokens)
    sequence_lengths: Tensor | None = None
    rotary_tables: dict[str, PositionEmbeddings] = field(default_factory=dict)
    masks: dict[str, Any] = field(default_factory=dict)
    conv_borders: ConvBorders | None = None
    has_tiles: bool = False
    plan: CallPlan | None = None
    memory: Any = None

    is_segment = False  # whether mixers see tokens outside of this layout
    border_states = None  # the states that mixers receive from other segments

    def with_halo(self, hidden_states: Tensor, reach: int) -> WithHalo:
        """The tokens to project, `(batch, length, hidden_size)`, and in a segment `reach` more on both sides."""
        return WithHalo(hidden_states, self.tokens)

    def positions_around(self, reach: int) -> Tensor:
        """The `position_ids` of the tokens that `with_halo` returns."""
        return self.tokens.position_ids

    def by_token(self, function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """Apply a tokenwise `function` to tensors `(batch, length, ...)`, in tiles if the layout has any."""
        if not self.has_tiles:
            return function(*tensors)
        (found,) = self.by_tile(lambda tile: [function(*map(tile.of, tensors))], tensors[0])
        return found

    def by_tile(self, function: Callable[[TokenTile], list[Tensor]], tokens: Tensor) -> list[Tensor]:
        """Call `function` on every tile of `tokens`, `(batch, length, ...)`, or once if the layout has no tiles."""
        if not self.has_tiles:
            return function(ALL_TOKENS)
        batch, length = tokens.shape[:2]
        return in_tiles(function, cut_into_tiles(batch, length), batch, length)

    def along(self, attention: Callable, joins: Joins) -> Callable:
        """An attention operator, such as a form of `lion_attention`, adapted to this layout by its `joins`."""
        return attention

    def pool(self, hidden_states: Tensor, reduce: Callable[[Tensor, Tensor | None], Tensor], pooling: str) -> Tensor:
        """
        Reduce each sequence of `(batch, length, hidden_size)` to one vector, `(batch, size)`, or `(batch *
        num_sequences, size)` for packed rows. `reduce` maps hidden states and `is_real` to vectors; `pooling` is its
        name.
        """
        is_real, borders = self.tokens.is_real, self.tokens.cu_seqlens
        if borders is None:
            return reduce(hidden_states, is_real)
        lengths = borders.diff().tolist()
        sequences = hidden_states.split(lengths, dim=1)
        masks = [None] * len(lengths) if is_real is None else is_real.split(lengths, dim=1)
        return torch.stack([reduce(*pair) for pair in zip(sequences, masks, strict=True)], dim=1).flatten(0, 1)

    def to(self, device: torch.device | str, **kwargs) -> "Layout":
        """The layout on another device. accelerate calls this if layers are on several devices."""

        def move(x: Any) -> Any:
            if isinstance(x, dict):
                return {name: move(value) for name, value in x.items()}
            if isinstance(x, tuple):
                return tuple(map(move, x))
            if isinstance(x, Memory):  # shared with the layers of other devices
                x.states = move(x.states)
                return x
            if dataclasses.is_dataclass(x):
                return dataclasses.replace(x, **{f.name: move(getattr(x, f.name)) for f in dataclasses.fields(x)})
            return x.to(device, **kwargs) if isinstance(x, Tensor) else x

        return move(self)


def text_layout(config: PreTrainedConfig, inputs: Tensor, tokens: Tokens) -> Layout:
    """The layout of texts, `(batch, length, ...)`, from the tokens of `read_text`."""
    if has_neighbours(config):
        tokens = tokens.with_order()
    lengths = tokens.sequence_lengths() if config.scales_with_length else None
    return Layout(tokens, lengths, conv_borders=ConvBorders.of(config, inputs, tokens.cu_seqlens))
