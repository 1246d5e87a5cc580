# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Softmax inside the heads of linear attention (SPEC §12): softmax over near tokens plus the linear sum over all tokens,
with one denominator for both.

    y_i = (Σ_j exp(s q_i·k_j) v_j + exp(g_i) num_i) / (Σ_j exp(s q_i·k_j) + exp(g_i) den_i),  |i - j| <= local_window

num_i and den_i are the sums of SPEC §1 over all tokens, s = D^-½, and g_i = w·x_i + b is a gate per head. Softmax and
linear attention are computed by two independent functions: with e_i, the logarithm of the window's denominator
(attention/softmax_window.py), the window's share of the output is sigmoid(e_i - g_i - log den_i).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..attention.numerics import divide, smallest_denominator, without_autocast
from ..attention.softmax_window import dense_window_mask, sliding_attention
from ..tokens import Tokens


@dataclass
class LocalWindow:
    """
    The window of the heads of a linear layer.

    Attributes:
        query: `(batch, length, heads, head_dim)`, before the feature map.
        key, value: of the same tokens and, in a segment, of those that the window reaches on both sides.
        gate: g, `(batch, length, heads)`.
        tokens: those of the keys.
        first_query: query i is token `first_query + i` of the keys.
        reach: how many tokens a head sees on each side.
        scaling: s, of the scores q·k; `None` for D^-½.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    gate: Tensor
    tokens: Tokens
    first_query: int
    reach: int
    scaling: float | None = None

    def __post_init__(self):
        if self.scaling is None:
            self.scaling = self.query.shape[-1] ** -0.5

    def join(self, sums: tuple[Tensor, Tensor], linear: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """
        The output of the layer, `(batch, heads, length, head_dim)`, in the dtype of the values, and its weights.

        Args:
            sums: numerator and denominator of the linear sum, `(batch, heads, length, head_dim)` and `(..., 1)`.
            linear: its undivided weights; `None` if no weights are needed. With weights, the output is computed from
                them, so that they have gradients.
        """
        if linear is not None:
            weights = self.weights(linear).to(self.value.dtype)
            return weights @ self.value.transpose(1, 2), weights
        return self.output(*sums), None

    def output(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        """The output, from the sums of `join`."""
        near, log_sum = sliding_attention(
            *(x.transpose(1, 2) for x in (self.query, self.key, self.value)),
            sliding_window=self.reach,
            scaling=self.scaling,
            tokens=self.tokens,
            first_query=self.first_query,
            with_log_sum=True,
        )
        with without_autocast(near):
            # The logarithm of the ratio of both denominators: neither overflows, and either may be 0.
            gate = self.gate.transpose(1, 2).unsqueeze(-1).to(log_sum.dtype)
            denominator = at_least_smallest(denominator)
            ratio = log_sum.unsqueeze(-1) - gate - denominator.log()
            near = near.transpose(1, 2).to(ratio.dtype)
            factor = (-ratio).sigmoid() / denominator
            return torch.addcmul(near * ratio.sigmoid(), numerator, factor).to(self.value.dtype)

    def weights(self, linear: Tensor, queries: Tensor | slice = slice(None)) -> Tensor:
        """
        The weights of all tokens in the outputs of some, `(batch, heads, tokens, length)`.

        Args:
            linear: undivided weights of the linear sum, in the same shape.
            queries: indices of the outputs; all by default.
        """
        with without_autocast(linear):
            seen = dense_window_mask(self.query, self.reach, self.tokens, queries)
            query, key, gate = (x.transpose(1, 2).to(linear.dtype) for x in (self.query, self.key, self.gate))
            scores = self.scaling * query[:, :, queries] @ key.transpose(-1, -2)
            # Masked before exp: far from the window it may overflow, and its gradient would be NaN.
            scores = torch.where(seen, scores - gate[:, :, queries, None], -torch.inf)
            log_linear = at_least_smallest(linear.sum(-1, keepdim=True)).log()
            largest = torch.maximum(scores.amax(-1, keepdim=True), log_linear).detach()
            weights = (scores - largest).exp() + linear * (-largest).exp()
            return divide(weights, weights.sum(-1, keepdim=True))


def at_least_smallest(denominator: Tensor) -> Tensor:
    return denominator.clamp(min=smallest_denominator(denominator.dtype))
