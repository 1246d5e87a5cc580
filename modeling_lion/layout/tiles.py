# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Inference in tiles of tokens, so that what is between two layers of weights stays in cache.

Projections, short convolutions, feature maps, MLPs and norms see tokens one by one, or a few neighbours. Of a long
text, or of many texts, their outputs exceed the cache, and every large tensor is fresh memory, whose pages the kernel
of the operating system fills with zeros at the first touch: together a tenth of the time of a layer. For a tile of
tokens at a time, the same memory is used again and again. Attention (attention/, cpu/) cuts its work by itself.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..attention.decay import cut_evenly
from ..attention.tracing import is_readable, is_symbolic
from ..private_apis import has_hooks, is_transformed


# Fewer would pack the weights of a product more often than the cache saves, more would leave the second-level cache.
TILE_TOKENS = 1024


class TokenTile(NamedTuple):
    """Tokens `first` to `end` of the `rows` of a batch: some of one row, or all of several rows."""

    rows: slice
    first: int
    end: int

    def of(self, x: Tensor | None) -> Tensor | None:
        """Of `(batch, length, ...)`, or of what is the same in all rows, `(1, length, ...)`."""
        if x is None:
            return None
        return x[self.rows if len(x) > 1 else slice(None), self.first : self.end]

    def of_tables(self, tables: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor] | None:
        """Of rotary tables, `(batch or 1, length, rotary_dim)` each."""
        return None if tables is None else tuple(map(self.of, tables))


def cut_into_tiles(batch: int, length: int) -> list[TokenTile]:
    """Tiles of at most `TILE_TOKENS` tokens, about equally large, in the order of the batch."""
    if length > TILE_TOKENS:
        num_tiles, step = cut_evenly(length, TILE_TOKENS)
        borders = [(n * step, min(n * step + step, length)) for n in range(num_tiles)]
        return [TokenTile(slice(row, row + 1), *pair) for row in range(batch) for pair in borders]
    _, rows = cut_evenly(batch, TILE_TOKENS // max(1, length))
    return [TokenTile(slice(row, row + rows), 0, length) for row in range(0, batch, rows)]


def in_tiles(
    function: Callable[[TokenTile], Sequence[Tensor]], tiles: list[TokenTile], batch: int, length: int
) -> list[Tensor]:
    """
    What `function` gives for all tokens.

    Args:
        function: tensors for the tokens of a tile, `(rows, tokens, ...)` each.

    Returns:
        `(batch, length, ...)` each.
    """
    found: list[Tensor] = []
    for tile in tiles:
        parts = function(tile)
        if not found:
            found = [part.new_empty(batch, length, *part.shape[2:]) for part in parts]
        for x, part in zip(found, parts, strict=True):
            tile.of(x).copy_(part)
    return found


def is_faster_in_tiles(model: nn.Module, hidden_states: Tensor) -> bool:
    """
    Whether a model computes these hidden states, `(batch, length, hidden_size)`, in tiles: inference of more than a
    tile on a CPU, where nothing follows what is computed (autograd, compilers, exporters, `torch.func`) and no hook
    of a submodule waits for all tokens.
    """
    batch, length = hidden_states.shape[:2]
    if hidden_states.device.type != "cpu" or torch.is_grad_enabled() or is_symbolic(batch) or is_symbolic(length):
        return False
    if batch * length < 1.5 * TILE_TOKENS or type(hidden_states) is not Tensor or model.config.chunk_size_feed_forward:
        return False
    if not is_readable(hidden_states) or torch.compiler.is_compiling() or is_transformed():
        return False
    # Of a layer and its attention, hooks get whole results.
    return not any(has_hooks(part) for layer in model.layers for part in layer.computed_in_tiles())
