# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Short convolutions at the borders of packed sequences, and after the CLS token of an image."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedConfig


@dataclass
class ConvBorders:
    """
    The tokens at which some taps cross a border inside a row. They are convolved again, without those taps.

    Attributes:
        tokens: their indices, `(m,)`, int64, sorted, with repetitions if borders are close to each other.
        is_repeated: True for repetitions of an earlier entry, `(m, 1)`, bool.
        window: the tokens under the taps, `(m, kernel)`, int64.
        is_inside: whether the token under a tap is in the same sequence, `(m, kernel, 1)`, bool.
    """

    tokens: Tensor
    is_repeated: Tensor
    window: Tensor
    is_inside: Tensor

    @classmethod
    def of(cls, config: PreTrainedConfig, hidden_states: Tensor, cu_seqlens: Tensor | None) -> "ConvBorders | None":
        """The borders for all rows of a batch, made once per model call; `None` if no taps cross a border."""
        radius, length, device = config.conv_kernel // 2, hidden_states.shape[1], hidden_states.device
        borders = [] if cu_seqlens is None else [cu_seqlens[1:-1].long()]
        if config.num_prefix_tokens > 0:
            borders.append(torch.arange(1, config.num_prefix_tokens + 1, device=device))
        if radius == 0 or not borders:
            return None
        borders = torch.cat(borders).sort().values
        offsets = torch.arange(-radius, radius + 1, device=device)
        tokens = (borders.unsqueeze(1) + offsets[:-1]).flatten().clamp(0, length - 1).sort().values
        is_repeated = tokens.diff(prepend=tokens.new_full((1,), -1)) == 0
        window = tokens.unsqueeze(1) + offsets
        inside = window.clamp(0, length - 1)
        # The sequence of each token. ONNX has no binary search, so images, with few borders, use comparisons.
        sequence = partial(torch.searchsorted, borders, right=True)
        if cu_seqlens is None:
            sequence = lambda tokens: tokens.unsqueeze(-1).ge(borders).sum(-1)  # noqa: E731
        is_inside = (window == inside) & (sequence(inside) == sequence(tokens).unsqueeze(1))
        return cls(tokens, is_repeated.unsqueeze(-1), inside, is_inside.unsqueeze(-1))

    def between(self, first: int, end: int) -> "ConvBorders":
        """The borders of a tile, the tokens `first` to `end`; taps that leave the tile are outside."""
        chosen = (self.tokens >= first) & (self.tokens < end)
        window = self.window[chosen] - first
        is_inside = self.is_inside[chosen] & (window >= 0).unsqueeze(-1) & (window < end - first).unsqueeze(-1)
        window = window.clamp(0, end - first - 1)
        return ConvBorders(self.tokens[chosen] - first, self.is_repeated[chosen], window, is_inside)

    def convolve(self, x: Tensor, weight: Tensor) -> Tensor:
        """The convolution at `tokens`, `(batch, m, channels)`; 0 at repetitions."""
        window = x.index_select(1, self.window.flatten()).unflatten(1, self.window.shape)
        sums = torch.einsum("bmkc,ck->bmc", torch.where(self.is_inside, window, 0), weight.squeeze(1))
        return sums.masked_fill(self.is_repeated, 0)

    def put_(self, y: Tensor, dim: int, at_borders: Tensor) -> Tensor:
        """Write the results of `convolve` into y in place. Autograd copies y if it is a view."""
        return y.index_fill_(dim, self.tokens, 0).index_add_(dim, self.tokens, at_borders)
