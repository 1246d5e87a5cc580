# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The feature maps φ of queries and keys, applied to the vector of each head (SPEC §1). To add one: a function, a line in
the table below, and its name in `LionConfig.feature_map`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention.kernels import KERNELS, backend_of
from ..attention.tracing import is_compiling


def silu_norm(x: Tensor) -> Tensor:
    """u / ‖u‖₂ with u = SiLU(x) + 0.5. Every u is above 0.22, so the norm is never 0."""
    if is_compiling():  # the compiler fuses the plain form
        return plain_silu_norm(x)
    backend = backend_of(x, x)
    return plain_silu_norm(x) if backend == "plain" else SiluNorm.apply(x, KERNELS.get((backend, "silu_norm")))


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
        u = F.silu(x).add_(0.5)
        norm = torch.linalg.vector_norm(u, dim=-1, keepdim=True)
        y = u.div_(norm)
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


def elu(x: Tensor) -> Tensor:
    """ELU(x) + 1, as exp(x) for x < 0: (exp(x) - 1) + 1 would lose the digits of small values."""
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def identity(x: Tensor) -> Tensor:
    """x; needs `normalization="none"`, since scores of either sign may sum to 0."""
    return x


def relu(x: Tensor) -> Tensor:
    """ReLU(x) + 0.001, as in the Performer's generalised attention; no score is 0."""
    return F.relu(x) + 1e-3


class Hedgehog(nn.Module):
    """
    Learnt features that can imitate softmax attention (Zhang et al., 2024): φ(x) = [softmax(W x), softmax(-W x)], with
    one W per head, initially the identity. Queries and keys have a module each. There are twice as many features as
    the head has dimensions.
    """

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, head_dim, head_dim))

    def forward(self, x: Tensor) -> Tensor:
        """`(batch, length, heads, head_dim)` to `(batch, length, heads, 2 * head_dim)`."""
        weight = self.weight.to(x.dtype)
        scores = x.transpose(1, 2) @ torch.cat((weight, -weight), dim=-1)
        return scores.unflatten(-1, (2, -1)).softmax(-1).flatten(-2).transpose(1, 2)


# Functions, or modules constructed with the number of heads and their dimension. Mixers call them with autocast off.
FEATURE_MAPS = {
    "silu_norm": silu_norm,
    "elu": elu,
    "relu": relu,
    "hedgehog": Hedgehog,
    "identity": identity,
}
