# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The short convolution of queries, keys and values (SPEC §12): x_i <- SiLU(Σ_o w_o x_{i+o}), one filter per channel.

    x = 0      outside the sequence, and over a border: of packed sequences, or behind the CLS token of an image
    x = 0      at padded tokens, also where they are in the middle of a sequence: they count as tokens of zeros
    images     along the rows of patches, one row after the other, whatever the patch order; then come the scans

So a sequence that is padded at its ends or packed has the results of the sequence alone.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig

from ..attention.numerics import has_native_product, without_autocast


class ShortConv(nn.Module):
    """The filters of `channels` channels; `weight` is that of a depthwise `nn.Conv1d` without a bias."""

    def __init__(self, channels: int, kernel: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, kernel))

    def forward(self, x: Tensor, borders: "BorderTaps | None" = None) -> Tensor:
        """`x` is `(batch, length, channels)`, 0 at padded tokens (`absent`)."""
        if self._backward_hooks and self.training and borders is not None:
            raise ValueError(
                "A library reads gradients per example by hooks (as opacus does), which see no borders of a short "
                "convolution, of images or of packed rows, and would be wrong: set `conv_kernel=0`, or take them by "
                "torch.func.vmap."
            )
        with without_autocast(x):
            return F.silu(convolve(x, self.weight.to(x.dtype), borders))


def absent(x: Tensor, is_real: Tensor | None) -> Tensor:
    """`x`, `(batch, length, channels)`, with 0 where `is_real`, `(batch, length)`, is False; `None`: as it is."""
    return x if is_real is None else x * is_real.unsqueeze(-1).to(x.dtype)


def convolve(x: Tensor, weight: Tensor, borders: "BorderTaps | None" = None) -> Tensor:
    """Σ_o w_o x_{i+o} of `(batch, length, channels)`, contiguous, with x = 0 outside; the weight of a `ShortConv`."""
    channels, _, kernel = weight.shape
    at_borders = None if borders is None else borders.convolve(x, weight)
    if torch.compiler.is_compiling() or not has_fast_convolution(x):  # a compiler fuses the sum by itself
        y = sum_of_shifted(x, weight)
        return y if borders is None else borders.put_(y, 1, at_borders)
    if x.device.type == "cpu":
        # As an image of one row: of this, oneDNN takes the channels last, where conv1d transposes.
        image = x.transpose(1, 2).unsqueeze(2)
        y = F.conv2d(image, weight.unsqueeze(2), padding=(0, kernel // 2), groups=channels)
    else:
        y = F.conv1d(x.transpose(1, 2), weight, padding=kernel // 2, groups=channels)
    if borders is not None:
        borders.put_(y, -1, at_borders.transpose(1, 2).unflatten(1, y.shape[1:-1]))
    return y.flatten(2).transpose(1, 2).contiguous()


def has_fast_convolution(x: Tensor) -> bool:
    """False on a CPU in the dtypes for which oneDNN has no code there; PyTorch's own goes channel by channel."""
    if x.device.type != "cpu":
        return True
    is_native = x.dtype == torch.float32 or x.dtype == torch.bfloat16 and has_native_product(x.dtype)
    return is_native and torch.backends.mkldnn.is_available()


def sum_of_shifted(x: Tensor, weight: Tensor) -> Tensor:
    """`convolve` in plain sums, in any dtype."""
    taps, length = weight.squeeze(1).T.contiguous(), x.shape[1]
    padded = F.pad(x, (0, 0, len(taps) // 2, len(taps) // 2))
    y = padded[:, :length] * taps[0]
    for n in range(1, len(taps)):
        y = torch.addcmul(y, padded[:, n : n + length], taps[n])
    return y


@dataclass
class BorderTaps:
    """
    The tokens next to borders inside of rows, where some taps reach over: they are convolved once more, without these.

    Attributes:
        tokens: `(m,)`, int64, sorted; repeated where borders are close to each other.
        is_repeated: `(m, 1)`, bool, True but for the first of the same tokens.
        window: the tokens under the taps, `(m, kernel)`, int64.
        is_inside: whether they are in the same sequence, `(m, kernel, 1)`, bool.
    """

    tokens: Tensor
    is_repeated: Tensor
    window: Tensor
    is_inside: Tensor

    @classmethod
    def of(cls, config: PreTrainedConfig, hidden_states: Tensor, cu_seqlens: Tensor | None) -> "BorderTaps | None":
        """
        Of all rows of a batch, once per call of the model; `None` where there are no borders or no taps beside them.

        Args:
            hidden_states: `(batch, length, hidden_size)`.
            cu_seqlens: borders of packed sequences, `(num_sequences + 1,)`.
        """
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
        # Which sequence a token is in. ONNX has no binary search; for the few borders of an image, comparisons do.
        sequence = partial(torch.searchsorted, borders, right=True)
        if cu_seqlens is None:
            sequence = lambda tokens: tokens.unsqueeze(-1).ge(borders).sum(-1)  # noqa: E731
        is_inside = (window == inside) & (sequence(inside) == sequence(tokens).unsqueeze(1))
        return cls(tokens, is_repeated.unsqueeze(-1), inside, is_inside.unsqueeze(-1))

    def convolve(self, x: Tensor, weight: Tensor) -> Tensor:
        """Of the tokens of x, `(batch, m, channels)`, 0 for the repeated ones."""
        window = x.index_select(1, self.window.flatten()).unflatten(1, self.window.shape)
        sums = torch.einsum("bmkc,ck->bmc", torch.where(self.is_inside, window, 0), weight.squeeze(1))
        return sums.masked_fill(self.is_repeated, 0)

    def put_(self, y: Tensor, dim: int, at_borders: Tensor) -> Tensor:
        """Write what `convolve` found over these tokens of y, in place; y is no view, of which autograd would copy."""
        return y.index_fill_(dim, self.tokens, 0).index_add_(dim, self.tokens, at_borders)


@dataclass
class Halo:
    """
    The tokens beside a segment of a longer sequence (layout/segments.py), as many as the taps, or a window
    (mixers/softmax.py), reach and the sequence has.

    Attributes:
        before, after: hidden states, `(batch, at most reach, hidden_size)`, as attention gets them; the reach of a
            mixer is `kernel // 2` or its window.
        is_real: of both, one after the other, `(batch, tokens)`, bool; `None` where nothing is padded.
    """

    before: Tensor
    after: Tensor
    is_real: Tensor | None = None

    def extend(self, hidden_states: Tensor, is_real: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The tokens to project, and which of them are real."""
        if self.is_real is not None:
            before, after = self.is_real.split((self.before.shape[1], self.after.shape[1]), dim=1)
            is_real = before.new_ones(hidden_states.shape[:2]) if is_real is None else is_real
            is_real = torch.cat((before, is_real, after), dim=1)
        return torch.cat((self.before, hidden_states, self.after), dim=1), is_real

    def trim(self, x: Tensor) -> Tensor:
        """Without the tokens that were added, `(batch, length, channels)`."""
        first = self.before.shape[1]
        return x[:, first : x.shape[1] - self.after.shape[1]]


def reach_of(config: PreTrainedConfig, layer_type: str) -> int:
    """How many tokens of a `Halo` a layer sees on each side: those in its window, and under the taps of their keys."""
    if layer_type == "linear_attention":
        return config.local_window + config.conv_kernel // 2
    return config.sliding_window if layer_type == "sliding_attention" else 0
