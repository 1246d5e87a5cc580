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

from ..attention.decay_mask import cut_evenly
from ..attention.tracing import is_compiling, is_readable, is_symbolic
from ..private_apis import has_hooks, is_transformed


# Tokens of a tile for each thread. Measured with one thread (AMD EPYC 9005; 2 layers of 768, 8192 tokens): 512 take
# .01 to .04 of the time more, since weights are packed for every product, 2048 the same, all at once .07 to .12 more.
TILE_TOKENS = 1024


class TokenTile(NamedTuple):
    """Tokens `first` to `end` of the `rows` of a batch: some of one row, or all of several rows; or `ALL_TOKENS`."""

    rows: slice
    first: int
    end: int | None

    def of(self, x: Tensor | None) -> Tensor | None:
        """The tile's part of `(batch, length, ...)`, or of `(1, length, ...)`, which all rows share."""
        if x is None or self.end is None:  # a graph has no slices then
            return x
        return x[self.rows if len(x) > 1 else slice(None), self.first : self.end]

    def of_tables(self, tables: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor] | None:
        """The tile's part of the rotary tables, `(batch or 1, length, rotary_dim)` each."""
        return None if tables is None else tuple(map(self.of, tables))


ALL_TOKENS = TokenTile(slice(None), 0, None)


def most_tokens() -> int:
    """In a tile."""
    return TILE_TOKENS * torch.get_num_threads()


def cut_into_tiles(batch: int, length: int) -> list[TokenTile]:
    """Tiles of at most `most_tokens` tokens, about equally large, in the order of the batch."""
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
    Whether a model computes these hidden states, `(batch, length, hidden_size)`, in tiles: where tokens may be cut,
    and no hook of a submodule waits for all of them.
    """
    if not can_be_cut(hidden_states):
        return False
    if any(layer.chunk_size_feed_forward for layer in model.layers):  # of all tokens
        return False
    # Hooks on a layer and its attention get whole results.
    return not any(has_hooks(part) for layer in model.layers for part in layer.computed_in_tiles())


def can_be_cut(x: Tensor) -> bool:
    """
    Whether `(batch, length, ...)` is worth tiles: inference of more than a tile on a CPU, where nothing follows what
    is computed (autograd, compilers, exporters, `torch.func`).
    """
    if is_compiling() or torch.is_grad_enabled() or x.device.type != "cpu":
        return False
    batch, length = x.shape[:2]
    if is_symbolic(batch) or is_symbolic(length) or not is_readable(x) or is_transformed():
        return False
    return type(x) is Tensor and batch * length >= 1.5 * most_tokens()
