# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The orders in which the patches of an image are scanned (SPEC §6), and attention along them.

A patch order is a curve through a grid of any size, an entry in the table `CURVES`. Attention follows it through the
grid and through the transposed grid, with M = (M¹ + M²) / 2. Each M is the mask along its curve, with its own decays,
so numerators and denominators add.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from ..attention.decay_mask import LogDecay, is_per_head
from ..attention.delta_plain import finish_delta
from ..attention.numerics import normalize, without_autocast
from ..tokens import Tokens
from .border_states import Joins
from .conv_borders import ConvBorders
from .halo import WithHalo, has_neighbours
from .layout import Layout


def snake(grid: Tensor) -> Tensor:
    """The elements of `(rows, columns)` along the rows: even rows left to right, odd rows right to left."""
    is_odd = torch.arange(grid.shape[0], device=grid.device).unsqueeze(1) % 2 == 1
    return torch.where(is_odd, grid.flip(1), grid).flatten()


CURVES = {"snake": snake}


def scan_orders(
    patch_order: str, rows: int, columns: int, num_prefix_tokens: int = 1, device: torch.device | None = None
) -> Tensor:
    """
    A curve and its transpose, as indices into the sequence of prefix tokens, such as CLS, and rows x columns patches,
    `(2, num_prefix_tokens + rows * columns)`, int64; the prefix tokens are first in both.
    """
    curve = CURVES[patch_order]
    tokens = torch.arange(num_prefix_tokens + rows * columns, device=device)
    first, patches = tokens.tensor_split((num_prefix_tokens,))
    grid = patches.view(rows, columns)
    return torch.stack([torch.cat((first, along)) for along in (curve(grid), curve(grid.T))])


@dataclass
class ImageLayout(Layout):
    """
    The tokens of images: CLS and other prefix tokens, then the patches, row by row.

    Attributes:
        scans: the orders in which tokens are read (`scan_orders`); `None` for the raster order.
        convolved: the tokens for convolutions, with the prefix tokens as sequences of their own.
    """

    scans: Tensor | None = None
    convolved: Tokens = field(default_factory=Tokens)

    def with_halo(self, hidden_states: Tensor, reach: int) -> WithHalo:
        return WithHalo(hidden_states, self.convolved)

    def along(self, attention: Callable, joins: Joins) -> Callable:
        return attention if self.scans is None else partial(scan_attention, attention, scans=self.scans)


def image_layout(
    config: PreTrainedConfig, hidden_states: Tensor, grid: tuple[int, int], is_real: Tensor | None
) -> ImageLayout:
    """The layout of images from their hidden states, the rows and columns of patches, and the mask of real tokens."""
    scans = None
    if config.num_scans > 1:
        scans = scan_orders(config.patch_order, *grid, config.num_prefix_tokens, device=hidden_states.device)
    tokens = convolved = Tokens(is_real)
    if is_real is not None and has_neighbours(config):
        first = torch.arange(config.num_prefix_tokens + 1, device=hidden_states.device)
        borders = torch.cat((first, first.new_full((1,), hidden_states.shape[1])))
        tokens, convolved = tokens.with_order(), Tokens(is_real, borders).with_order()
    conv_borders = ConvBorders.of(config, hidden_states, None)
    return ImageLayout(tokens, conv_borders=conv_borders, scans=scans, convolved=convolved)


def scan_attention(
    attention: Callable,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: LogDecay,
    *beta: Tensor,
    scans: Tensor,
    normalization: str,
    **kwargs,
) -> tuple[Tensor, Tensor | None]:
    """
    Attention along several scans at once, each with its own set of heads; sums are averaged, then normalised. Inputs
    and results are in raster order.

    Args:
        attention: a form of `lion_attention`, or, with `beta`, of `delta_attention`.
        log_decay, beta: for `scans * heads` heads.
        scans: permutations of the raster order, `(scans, length)`.
    """
    heads = query.shape[1]
    forward = gates_along(scans, heads, log_decay.forward)
    is_one = log_decay.backward is log_decay.forward
    backward = forward if is_one else gates_along(scans, heads, log_decay.backward)
    inputs = [torch.cat([x[:, :, s] for s in scans], dim=1) for x in (query, key, value)]
    gates = LogDecay(forward, backward), *(gates_along(scans, heads, x) for x in beta)
    sums, weights = attention(*inputs, *gates, returns_sums=True, **kwargs)
    if weights is None:
        sums = [mean_in_raster_order(scans, heads, x) for x in ((sums,) if beta else sums)]
        if beta:
            return finish_delta(sums[0], value.dtype, normalization)[0], None
        return normalize(*sums, normalization, query.shape[-1]).to(value.dtype), None
    weights = mean_in_raster_order(scans, heads, weights, is_square=True)
    if not beta:
        weights = normalize(weights, weights.sum(-1, keepdim=True), normalization, query.shape[-1])
    with without_autocast(value):  # computed from the weights, so that these have a gradient
        output = weights @ value.to(weights.dtype)
    if beta:
        output, denominator = finish_delta(output, value.dtype, normalization)
        weights = weights / denominator.unsqueeze(-1) if normalization == "rms" else weights
    return output.to(value.dtype), weights.to(value.dtype)


def gates_along(scans: Tensor, heads: int, x):  # no annotation: torch 2.9 cannot make unions of types on Python 3.10
    """Reorder log decays, or other numbers per token, of `scans * heads` heads along the scans."""
    if x is None or is_per_head(x):
        return x
    return torch.cat([d[:, :, s] for d, s in zip(x.split(heads, 1), scans, strict=True)], dim=1)


def mean_in_raster_order(scans: Tensor, heads: int, x: Tensor, is_square: bool = False) -> Tensor:
    """The mean over the scans, in raster order; `x` has matrices `(..., length, length)` if `is_square`."""
    pairs = list(zip(x.split(heads, 1), scans.argsort(dim=1), strict=True))
    return sum(y[:, :, r][..., r] if is_square else y[:, :, r] for y, r in pairs) / len(scans)
