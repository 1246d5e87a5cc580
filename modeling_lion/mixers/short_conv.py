# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The short convolution of queries, keys and values (SPEC §12): x_i <- SiLU(Σ_o w_o x_{i+o}), one filter per channel.

    x = 0      outside the sequence and across borders: of packed sequences, and after the CLS token of an image
    padding    is absent: with padding between real tokens, x is reordered so that the real tokens of a sequence are
               contiguous (layout/without_gaps.py), and x = 0 at padded tokens
    images     are convolved along the rows of patches, one row after the other, for every patch order; scans follow

So the results of a sequence do not depend on padding or packing.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers import initialization as init

from ..attention.numerics import has_native_product, without_autocast
from ..attention.tracing import is_compiling
from ..layout.border_taps import BorderTaps
from ..private_apis import has_backward_hooks


class ShortConv(nn.Module):
    """One filter per channel; `weight` is that of a depthwise `nn.Conv1d` without a bias."""

    def __init__(self, channels: int, kernel: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, kernel))

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        bound = self.weight.shape[-1] ** -0.5  # as nn.Conv1d
        init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Tensor, borders: BorderTaps | None = None) -> Tensor:
        """`x`: `(batch, length, channels)`, 0 at padded tokens (`absent`). Returns the same shape."""
        if borders is not None and self.training and has_backward_hooks(self):
            raise ValueError(
                "A library reads gradients per example by hooks (as opacus does), which see no borders of a short "
                "convolution, of images or of packed rows, and would be wrong: set `conv_kernel=0`, or take them by "
                "torch.func.vmap."
            )
        with without_autocast(x):
            return F.silu(convolve(x, self.weight.to(x.dtype), borders))


def convolve(x: Tensor, weight: Tensor, borders: BorderTaps | None = None) -> Tensor:
    """
    Σ_o w_o x_{i+o} for `(batch, length, channels)`, x = 0 outside; contiguous. `weight` is that of a `ShortConv`.
    """
    channels, _, kernel = weight.shape
    at_borders = None if borders is None else borders.convolve(x, weight)
    if is_compiling() or not has_fast_convolution(x):  # the compiler fuses the sum
        y = sum_of_shifted(x, weight)
        return y if borders is None else borders.put_(y, 1, at_borders)
    if x.device.type == "cpu":
        # As an image of one row: oneDNN then takes channels last, while conv1d transposes.
        image = x.transpose(1, 2).unsqueeze(2)
        # A view, since with unsqueeze the gradient has other strides than the weight, and DDP warns.
        y = F.conv2d(image, weight.view(channels, 1, 1, kernel), padding=(0, kernel // 2), groups=channels)
    else:
        y = F.conv1d(x.transpose(1, 2), weight, padding=kernel // 2, groups=channels)
    if borders is not None:
        borders.put_(y, -1, at_borders.transpose(1, 2).unflatten(1, y.shape[1:-1]))
    return y.flatten(2).transpose(1, 2).contiguous()


def has_fast_convolution(x: Tensor) -> bool:
    """False on a CPU in dtypes that oneDNN does not support there; PyTorch would go channel by channel."""
    if x.device.type != "cpu":
        return True
    is_native = x.dtype == torch.float32 or x.dtype == torch.bfloat16 and has_native_product(x.dtype)
    return is_native and torch.backends.mkldnn.is_available()


def sum_of_shifted(x: Tensor, weight: Tensor) -> Tensor:
    """`convolve` as a sum of shifted copies, in any dtype."""
    taps, length = weight.squeeze(1).T.contiguous(), x.shape[1]
    padded = F.pad(x, (0, 0, len(taps) // 2, len(taps) // 2))
    y = padded[:, :length] * taps[0]
    for n in range(1, len(taps)):
        y = torch.addcmul(y, padded[:, n : n + length], taps[n])
    return y
