# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Inference in tiles of tokens, so that intermediate results stay in cache.

Projections, short convolutions, feature maps, MLPs and norms read one token at a time, or a few neighbours. For a long
text or many texts, their outputs exceed the cache, and every large tensor is fresh memory, which the operating system
fills with zeros: together a tenth of the time of a layer. Tiles of tokens reuse the same memory. Attention
(attention/, cpu/) divides its own work.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..attention.decay_mask import cut_evenly
from ..attention.tracing import is_readable, is_symbolic
from ..private_apis import has_hooks, is_transformed


# Tokens of a tile for each thread. Measured with one thread (AMD EPYC 9005; 2 layers of width 768, 8192 tokens), 512
# tokens take 1 to 4 % more time, since every product packs its weights, 2048 the same, and no tiles 7 to 12 % more.
TILE_TOKENS = 1024


class TokenTile(NamedTuple):
    """Tokens `first` to `end` of `rows`: a part of one row, or several whole rows; or `ALL_TOKENS`."""

    rows: slice
    first: int
    end: int | None

    def of(self, x: Tensor | None) -> Tensor | None:
        """The part of `(batch, length, ...)`, or of `(1, length, ...)`, that belongs to the tile."""
        if x is None or self.end is None:  # without a slice in graphs
            return x
        return x[self.rows if len(x) > 1 else slice(None), self.first : self.end]

    def of_tables(self, tables: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor] | None:
        """The part of the rotary tables, `(batch or 1, length, rotary_dim)` each, that belongs to the tile."""
        return None if tables is None else tuple(map(self.of, tables))


ALL_TOKENS = TokenTile(slice(None), 0, None)


def most_tokens() -> int:
    return TILE_TOKENS * torch.get_num_threads()


def cut_into_tiles(batch: int, length: int) -> list[TokenTile]:
    """Tiles of about equal size, at most `most_tokens`, in the order of the batch."""
    most = most_tokens()
    if length > most:
        num_tiles, step = cut_evenly(length, most)
        borders = [(n * step, min(n * step + step, length)) for n in range(num_tiles)]
        return [TokenTile(slice(row, row + 1), *pair) for row in range(batch) for pair in borders]
    _, rows = cut_evenly(batch, most // max(1, length))
    return [TokenTile(slice(row, row + rows), 0, length) for row in range(0, batch, rows)]


def in_tiles(
    function: Callable[[TokenTile], Sequence[Tensor]], tiles: list[TokenTile], batch: int, length: int
) -> list[Tensor]:
    """Call `function` for every tile, and join its tensors, `(rows, tokens, ...)`, to `(batch, length, ...)`."""
    found: list[Tensor] = []
    for tile in tiles:
        parts = function(tile)
        if not found:
            found = [part.new_empty(batch, length, *part.shape[2:]) for part in parts]
        for x, part in zip(found, parts, strict=True):
            tile.of(x).copy_(part)
    return found


def is_faster_in_tiles(model: nn.Module, hidden_states: Tensor) -> bool:
    """Whether a model computes in tiles: if `can_be_cut`, and no hook on a submodule needs all tokens at once."""
    if not can_be_cut(hidden_states):
        return False
    if any(layer.chunk_size_feed_forward for layer in model.layers):  # which needs all tokens at once
        return False
    # Hooks on a layer and its attention get all tokens in any case.
    return not any(has_hooks(part) for layer in model.layers for part in layer.computed_in_tiles())


def can_be_cut(x: Tensor) -> bool:
    """Whether tiles pay off for `(batch, length, ...)`: in plain inference on more than 1.5 tiles, on a CPU."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or x.device.type != "cpu":
        return False
    batch, length = x.shape[:2]
    if is_symbolic(batch) or is_symbolic(length) or not is_readable(x) or is_transformed():
        return False
    return type(x) is Tensor and batch * length >= 1.5 * most_tokens()
