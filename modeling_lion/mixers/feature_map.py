# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The feature maps φ, which mixers apply to the query and key vectors of each head, with autocast off (SPEC §1).
"""

from collections.abc import Callable
from functools import partial
from types import FunctionType

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers import initialization as init

from configuration_lion.registry import FEATURE_MAPS, FeatureMap

from ..attention.kernels import KERNELS, backend_of


def register_feature_map(function: Callable, *, name: str | None = None, is_positive: bool = True) -> Callable:
    """
    Register a feature map by its name, for `LionConfig.feature_map`, saved models and tests. A model that is saved
    with it stores the file of the function beside the weights.

    Args:
        function: maps vectors of the heads, `(..., head_dim)`, to vectors of any size; or a class of modules with
            weights, constructed as `function(num_heads, head_dim)`. Queries and keys then have an instance each, whose
            `forward` gets `(batch, length, heads, head_dim)`. Its method `init_own_weights(config)` sets the initial
            weights, with functions of `transformers.initialization`.
        name: the name; by default that of the function or class.
        is_positive: whether every score φ(q)·φ(k) is above 0. Otherwise the map needs `normalization="none"`.

    Returns:
        The function, so that this function can be a decorator.

    Raises:
        ValueError: if another function has the name.
        TypeError: if it is neither a function made by `def` nor a class: saving would not find its file.
    """
    if not isinstance(function, (type, FunctionType)) or function.__name__ == "<lambda>":
        raise TypeError(f"{function!r} is no feature map: give a function that `def` makes, or a class.")
    name = function.__name__ if name is None else name
    known = FEATURE_MAPS[name].function if name in FEATURE_MAPS else None
    if known is not None and known.__qualname__ != function.__qualname__:
        raise ValueError(f"The feature map {name!r} is {known.__qualname__}: give another `name`.")
    FEATURE_MAPS[name] = FeatureMap(function, is_positive, isinstance(function, type))
    return function


@register_feature_map
def silu_norm(x: Tensor) -> Tensor:
    """u / ‖u‖₂ with u = SiLU(x) + 0.5. The elements of u are above 0.22, so the norm is never 0."""
    if torch.compiler.is_compiling():  # the compiler fuses the plain form
        return plain_silu_norm(x)
    needs_grad = x.requires_grad and torch.is_grad_enabled()
    if x.device.type == "cpu" and not needs_grad:
        return silu_and_norm(x)[0]
    backend = backend_of(x, x)
    if backend == "plain":
        return plain_silu_norm(x)
    kernel = KERNELS.get((backend, "silu_norm"))
    return SiluNorm.apply(x, kernel) if needs_grad or kernel is None else kernel(x)


def silu_and_norm(x: Tensor) -> tuple[Tensor, Tensor]:
    """The result of `plain_silu_norm`, with fewer temporary tensors, and ‖u‖."""
    u = F.silu(x).add_(0.5)
    norm = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
    return u.div_(norm), norm


def plain_silu_norm(x: Tensor) -> Tensor:
    u = F.silu(x) + 0.5
    return u / torch.linalg.vector_norm(u, dim=-1, keepdim=True)


class SiluNorm(torch.autograd.Function):
    """`plain_silu_norm` in fewer passes over memory: with y = u / ‖u‖, dx = SiLU'(x) (dy - y (y · dy)) / ‖u‖."""

    @staticmethod
    def forward(ctx, x: Tensor, kernel: Callable | None) -> Tensor:
        ctx.kernel = kernel
        if kernel is not None:
            ctx.save_for_backward(x)
            return kernel(x)
        y, norm = silu_and_norm(x)
        ctx.save_for_backward(x, y, norm)
        return y

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        x, *saved = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the gradient itself will be differentiated
            return torch.autograd.grad(plain_silu_norm(x), x, grad, create_graph=True)[0], None
        if ctx.kernel is not None:
            return ctx.kernel(x, grad), None
        y, norm = saved
        along = (grad * y).sum(-1, keepdim=True)
        du = torch.addcmul(grad, y, along, value=-1).div_(norm)
        return torch.ops.aten.silu_backward(du, x), None


@register_feature_map
def elu(x: Tensor) -> Tensor:
    """ELU(x) + 1, computed as exp(x) for x < 0, since (exp(x) - 1) + 1 would round small values."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


@partial(register_feature_map, is_positive=False)
def identity(x: Tensor) -> Tensor:
    """The vectors unchanged. Needs `normalization="none"`, since scores of either sign may sum to 0."""
    return x


@partial(register_feature_map, is_positive=False)
def silu(x: Tensor) -> Tensor:
    """SiLU(x), for `mixer_type="delta"`, which then scales vectors to length 1."""
    return F.silu(x)


@register_feature_map
def relu(x: Tensor) -> Tensor:
    """ReLU(x) + 0.001, as in the Performer's generalised attention; no score is 0."""
    return F.relu(x) + 1e-3


@partial(register_feature_map, name="hedgehog")
class Hedgehog(nn.Module):
    """
    Learnt features that can imitate softmax attention (Zhang et al., 2024): φ(x) = [softmax(W x), softmax(-W x)], with
    one W per head, initially the identity. Queries and keys have a module each.
    """

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, head_dim, head_dim))

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        init.copy_(self.weight, torch.eye(self.weight.shape[-1]).expand_as(self.weight))

    def forward(self, x: Tensor) -> Tensor:
        """`(batch, length, heads, head_dim)` to `(batch, length, heads, 2 * head_dim)`."""
        weight = self.weight.to(x.dtype)
        scores = x.transpose(1, 2) @ torch.cat((weight, -weight), dim=-1)
        return scores.unflatten(-1, (2, -1)).softmax(-1).flatten(-2).transpose(1, 2)
