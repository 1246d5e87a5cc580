# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
How the tokens of one call of the model lie, and what layers ask of it: one object per call, made before the first
layer.

`Layout` is for rows that hold one sequence each. Its subclasses are for rows of packed sequences (below), the patches
of an image (layout/scans.py), a segment of a long text (layout/segments.py), and a sequence that several processes
share (layout/processes.py).
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .border_taps import BorderTaps
from .halo import Surrounded
from .tiles import ALL_TOKENS, TokenTile, cut_into_tiles, in_tiles
from .without_gaps import WithoutGaps


PositionEmbeddings = tuple[Tensor, Tensor]


@dataclass
class Layout:
    """
    Rows of one sequence each.

    Attributes:
        is_real: which tokens are, `(batch, length)`, bool; `None` where nothing is padded.
        position_ids: of text, `(batch or 1, length)`, int64.
        sequence_lengths: of the sequence of each token, `(batch or 1, length or 1)`, int64; `None` where no
            frequencies depend on it (`LionConfig.scales_with_length`).
        rotary_tables: cosines and sines (layout/rotary.py) by type of layers; empty without rotary positions.
        masks: what mixers of softmax made of padding and packing (`Mixer.layer_mask`), by type of layers.
        border_taps: what short convolutions need at borders inside of rows; `None` where there are none.
        without_gaps: what they need where tokens are padded between real ones; `None` where none are.
        has_tiles: whether what sees tokens one by one computes some at a time (layout/tiles.py).
    """

    is_real: Tensor | None = None
    position_ids: Tensor | None = None
    sequence_lengths: Tensor | None = None
    rotary_tables: dict[str, PositionEmbeddings] = field(default_factory=dict)
    masks: dict[str, Any] = field(default_factory=dict)
    border_taps: BorderTaps | None = None
    without_gaps: WithoutGaps | None = None
    has_tiles: bool = False

    cu_seqlens = None  # borders of packed sequences
    is_segment = False  # whether mixers see tokens beside these

    def surround(self, hidden_states: Tensor, reach: int) -> Surrounded:
        """The tokens that a mixer projects: these, `(batch, length, hidden_size)`, and `reach` more on both sides."""
        return Surrounded(hidden_states, self.is_real, self.without_gaps)

    def positions_around(self, reach: int) -> Tensor:
        """`position_ids` of the tokens that `surround` gives."""
        return self.position_ids

    def by_token(self, function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """`function` of tensors `(batch, length, ...)`, which it computes token by token."""
        (found,) = self.by_tile(lambda tile: [function(*map(tile.of, tensors))], tensors[0])
        return found

    def by_tile(self, function: Callable[[TokenTile], list[Tensor]], tokens: Tensor) -> list[Tensor]:
        """`in_tiles`, for all of `tokens`, `(batch, length, ...)`; as one tile where it computes all at once."""
        if not self.has_tiles:
            return function(ALL_TOKENS)
        batch, length = tokens.shape[:2]
        return in_tiles(function, cut_into_tiles(batch, length), batch, length)

    def along(self, attention: Callable) -> Callable:
        """`attention`, in any form of `lion_attention`, as it is computed for these tokens."""
        return attention

    def mask(self, mixer_class: type, config: PreTrainedConfig, hidden_states: Tensor) -> Any:
        """What a class of mixers makes of padding and packing: its `layer_mask`."""
        return mixer_class.layer_mask(config, hidden_states, self.is_real, self.cu_seqlens)

    def pool(self, hidden_states: Tensor, reduce: Callable[[Tensor, Tensor | None], Tensor], pooling: str) -> Tensor:
        """
        One vector for each sequence.

        Args:
            hidden_states: `(batch, length, hidden_size)`.
            reduce: makes `(batch, size)` of hidden states and `is_real`.
            pooling: the name of what it does.
        """
        return reduce(hidden_states, self.is_real)

    def to(self, device: torch.device | str, **kwargs) -> "Layout":
        """On another device: accelerate asks for it where layers are spread over several."""

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


PLAIN_LAYOUT = Layout()  # whole rows of real tokens, without positions


@dataclass
class PackedLayout(Layout):
    """
    Rows of several sequences, which do not see each other (SPEC §4).

    Attributes:
        cu_seqlens: their borders, `(num_sequences + 1,)`, the same in every row.
    """

    cu_seqlens: Tensor | None = None

    def pool(self, hidden_states: Tensor, reduce: Callable[[Tensor, Tensor | None], Tensor], pooling: str) -> Tensor:
        """`(batch * num_sequences, size)`"""
        lengths = self.cu_seqlens.diff().tolist()
        sequences = hidden_states.split(lengths, dim=1)
        masks = [None] * len(lengths) if self.is_real is None else self.is_real.split(lengths, dim=1)
        return torch.stack([reduce(*pair) for pair in zip(sequences, masks, strict=True)], dim=1).flatten(0, 1)
