# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The short convolution of queries, keys and values (SPEC §12): x_i <- SiLU(Σ_o w_o x_{i+o}), one filter per channel.

    borders    x = 0 outside the sequence: beyond the borders of packed sequences and of the CLS token of an image
    padding    x = 0 at padded tokens; if they are between real tokens, x is first reordered (`Tokens.reordered`)
    images     the filter runs along the rows of patches, one row after the other, for every patch order

The result of a sequence does not depend on padding or packing.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers import initialization as init

from ..attention.custom_operator import NAMESPACE, Operator
from ..attention.numerics import has_native_product, without_autocast
from ..attention.tracing import allows_custom_op
from ..private_apis import has_backward_hooks, view_of_temporary
from ..sequence.conv_borders import ConvBorders


class ShortConv(nn.Module):
    """One filter per channel; `weight` as in a depthwise `nn.Conv1d`. `head_dim` splits the result into heads."""

    def __init__(self, channels: int, kernel: int, head_dim: int | None = None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, kernel))
        self.head_dim = head_dim

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        bound = self.weight.shape[-1] ** -0.5  # as nn.Conv1d
        init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Tensor, borders: ConvBorders | None = None, fused: Callable | None = None) -> Tensor:
        """
        The same shape as `x`, `(batch, length, channels)`, which is 0 at padded tokens; or `(batch, length, heads,
        head_dim)` with `head_dim`. The filter does not cross `borders`. `fused` is the result of `fused_convolution`,
        used without borders; `None` for torch's operators.
        """
        if borders is not None and self.training and has_backward_hooks(self):
            raise ValueError(
                "Hooks that compute gradients per example, as in opacus, do not see borders of a short convolution "
                "in images and packed rows, and would be wrong: set `conv_kernel=0`, or use torch.func.vmap."
            )
        weight = self.weight.to(x.dtype)
        if fused is not None and borders is None:
            return fused(x, weight, self.head_dim)
        y = F.silu(convolve(x, weight, borders))
        return y if self.head_dim is None else y.unflatten(-1, (-1, self.head_dim))


def convolve(x: Tensor, weight: Tensor, borders: ConvBorders | None = None) -> Tensor:
    """Σ_o w_o x_{i+o} for x `(batch, length, channels)`, contiguous; `weight` as in `ShortConv`."""
    channels, _, kernel = weight.shape
    at_borders = None if borders is None else borders.convolve(x, weight)
    if torch.compiler.is_compiling() or not has_fast_convolution(x):  # the compiler fuses the sum
        y = sum_of_shifted(x, weight)
        return y if borders is None else borders.put_(y, 1, at_borders)
    if x.device.type == "cpu":
        y = convolve_rows(x, weight)
    else:
        y = F.conv1d(x.transpose(1, 2), weight, padding=kernel // 2, groups=channels)
    if borders is not None:
        borders.put_(y, -1, at_borders.transpose(1, 2).unflatten(1, y.shape[1:-1]))
    return y.flatten(2).transpose(1, 2).contiguous()


def convolve_rows(x: Tensor, weight: Tensor) -> Tensor:
    """
    `convolve` without borders, `(batch, channels, 1, length)`. It treats rows as images of height 1, for which oneDNN
    reads channels last; conv1d would transpose.
    """
    # view, not unsqueeze, which gives the gradient other strides than the weight, so that DDP warns.
    filters, radius = weight.view(len(weight), 1, 1, -1), weight.shape[-1] // 2
    return F.conv2d(x.transpose(1, 2).unsqueeze(2), filters, padding=(0, radius), groups=len(weight))


def convolve_and_activate(x: Tensor, weight: Tensor, head_dim: int) -> Tensor:
    """SiLU of `convolve`, applied in place, `(batch, length, heads, head_dim)`."""
    y = F.silu(convolve_rows(x, weight), inplace=True)
    return view_of_temporary(y.permute(0, 3, 2, 1).contiguous(), [*x.shape[:2], -1, head_dim])


def differentiate_convolution(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    """The gradients of x and weight. The convolution is recomputed if it was not saved, or for `create_graph`."""
    x, weight, *kept = ctx.saved_tensors
    if kept and not torch.is_grad_enabled():
        y = kept[0]
    else:
        with without_autocast(x):
            y = convolve_rows(x, weight)
    needs, grad = ctx.needs_input_grad[:2], grad.flatten(2).transpose(1, 2).unsqueeze(2)
    if torch.is_grad_enabled():  # create_graph=True: the gradient itself will be differentiated
        grad = grad * y.sigmoid() * (1 + y * (-y).sigmoid())
    else:
        grad = torch.ops.aten.silu_backward(grad, y)
    image, filters = x.transpose(1, 2).unsqueeze(2), weight.view(len(weight), 1, 1, -1)
    options = [1, 1], [0, weight.shape[-1] // 2], [1, 1], False, [0, 0], len(weight), [*needs, False]
    d_image, d_filters, _ = torch.ops.aten.convolution_backward(grad, image, filters, None, *options)
    d_x = d_image.squeeze(2).transpose(1, 2) if needs[0] else None
    return d_x, d_filters.view(weight.shape) if needs[1] else None, None


class ShortConvolution(torch.autograd.Function):
    """`convolve_and_activate` with gradients."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, head_dim: int) -> Tensor:
        y = convolve_rows(x, weight)
        ctx.save_for_backward(x, weight, y)
        return view_of_temporary(F.silu(y).permute(0, 3, 2, 1).contiguous(), [*x.shape[:2], -1, head_dim])

    backward = staticmethod(differentiate_convolution)


short_conv = torch.library.custom_op(f"{NAMESPACE}::short_conv", convolve_and_activate, mutates_args=())
short_conv.register_fake(lambda x, weight, head_dim: x.new_empty(*x.shape[:2], x.shape[2] // head_dim, head_dim))
short_conv.register_autograd(
    differentiate_convolution, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:2])
)
SHORT_CONV = Operator(short_conv, convolve_and_activate, ShortConvolution)


def fused_convolution(x: Tensor) -> Callable | None:
    """An operator on a CPU that convolves tensors like `x` and applies SiLU; `None` if it does not support them."""
    is_possible = x.device.type == "cpu" and not torch.compiler.is_compiling() and allows_custom_op(x)
    if not is_possible or not has_fast_convolution(x):
        return None
    return SHORT_CONV.without_dispatcher(x) or SHORT_CONV


def has_fast_convolution(x: Tensor) -> bool:
    """False for dtypes that oneDNN does not support on this CPU: PyTorch would convolve channel by channel."""
    if x.device.type != "cpu":
        return True
    is_native = x.dtype == torch.float32 or x.dtype == torch.bfloat16 and has_native_product(x.dtype)
    return is_native and torch.backends.mkldnn.is_available()


def sum_of_shifted(x: Tensor, weight: Tensor) -> Tensor:
    """`convolve` without borders, as a sum of shifted copies, in any dtype."""
    taps, length = weight.squeeze(1).T.contiguous(), x.shape[1]
    padded = F.pad(x, (0, 0, len(taps) // 2, len(taps) // 2))
    y = padded[:, :length] * taps[0]
    for n in range(1, len(taps)):
        y = torch.addcmul(y, padded[:, n : n + length], taps[n])
    return y
