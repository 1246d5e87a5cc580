# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What LION adds to an attention module of another encoder (SPEC §13): feature maps, the gate of the window, decays.

    y_i = (Σ_{|i-j| ≤ w} exp(s q_i·k_j) v_j + exp(g_i) Σ_{|i-j| > w} φ(q_i)·φ(k_j) M_ij v_j) / (the same with v = 1)

The module's own projections, norms and rotations stay: q, k and v are what it gives to transformers' attention
interface.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers import initialization as init

from configuration_lion.registry import FEATURE_MAPS

from ..attention.decay_mask import LogDecay, decay_mask_rows, finite_log_decay, over_tokens
from ..attention.far_sums import far_sums
from ..attention.lion_attention import lion_attention
from ..attention.numerics import accumulation_dtype, divide, without_autocast
from ..attention.softmax_window import dense_window_mask
from ..mixers.decay import FixedDecay
from ..mixers.feature_map import Hedgehog
from ..mixers.local_window import LocalWindow
from ..mixers.mixer import init_own_weights
from ..sequence.tiles import can_be_cut, cut_into_tiles, in_tiles
from ..tokens import Tokens


# Added to the gate to have one branch alone. A token that sees none beyond its window keeps the window.
BRANCHES = {"both": 0.0, "window": -60.0, "linear": 60.0}
# Half-lives of new decays, in tokens, of the fastest and the slowest head: all reach beyond a window of 64.
HALF_LIVES = (256.0, 65_536.0)


def bounded_exp(x: Tensor) -> Tensor:
    """exp(x) up to some 2, then less; at most 1 + e⁴, so that features of every dtype can have it as a factor."""
    return torch.sigmoid(x - 4) * (1 + math.exp(4))


class QueryFeatures(Hedgehog):
    """
    Hedgehog's features times the mean of what their softmax has divided by, bounded: how large the scores of a query
    are says how much it sees beyond its window.
    """

    def forward(self, x: Tensor) -> Tensor:
        scores = x.transpose(1, 2) @ self.weight.to(x.dtype)
        scores = torch.stack((scores, -scores), dim=-2)
        size = scores.flatten(-2).logsumexp(-1, keepdim=True) - math.log(2 * scores.shape[-1])
        return (scores.softmax(-1).flatten(-2) * bounded_exp(size)).transpose(1, 2)


class KeyFeatures(Hedgehog):
    """Hedgehog's features times exp(w_h·k_j), bounded: of some tokens, such as CLS, every query sees more."""

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__(num_heads, head_dim)
        self.size = nn.Parameter(torch.empty(num_heads, head_dim))

    def forward(self, x: Tensor) -> Tensor:
        size = torch.einsum("blhd,hd->blh", x, self.size.to(x.dtype))
        return super().forward(x) * bounded_exp(size).unsqueeze(-1)


class KeyDecay(nn.Module):
    """Log decays log λ_j = logsigmoid(w_h·k_j + b_h) from the keys, as the attention interface gets them: rotated."""

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, head_dim))
        self.bias = nn.Parameter(torch.empty(num_heads))

    def forward(self, key: Tensor) -> Tensor:
        """`(batch, heads, length, head_dim)` to `(batch, heads, length)`, float32 or float64."""
        dtype = accumulation_dtype(key.dtype)
        logits = (key.to(dtype) @ self.weight.to(dtype).unsqueeze(-1)).squeeze(-1)
        return F.logsigmoid(logits + self.bias.to(dtype).unsqueeze(-1))


class KeptAttention(nn.Module):
    """Marks an attention module that keeps softmax, beside others that became linear. It has no weights."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.config = config


class InPlaceHead(nn.Module):
    """
    The linear attention of one attention module.

    Args:
        config: of the encoder, with the fields of `InPlaceConfig`.
        num_heads, head_dim: of the queries.
    """

    def __init__(self, config: PreTrainedConfig, num_heads: int, head_dim: int):
        super().__init__()
        self.config = config
        self.window = config.lion_window
        self.branches = "both"  # of `BRANCHES`
        if config.lion_feature_map == "scaled_hedgehog":
            self.query_map, self.key_map = QueryFeatures(num_heads, head_dim), KeyFeatures(num_heads, head_dim)
        elif FEATURE_MAPS[config.lion_feature_map].is_learnt:  # different weights for queries and keys
            learnt = FEATURE_MAPS[config.lion_feature_map].function
            self.query_map, self.key_map = learnt(num_heads, head_dim), learnt(num_heads, head_dim)
        else:
            self.query_map, self.key_map = FEATURE_MAPS[config.lion_feature_map].function, None
        self.gate = nn.Parameter(torch.empty(num_heads, head_dim)) if self.window else None
        self.gate_bias = nn.Parameter(torch.empty(num_heads)) if self.window else None
        self.decay: FixedDecay | KeyDecay | None = None
        if config.lion_mixer == "decay":
            self.decay = FixedDecay(num_heads)
        elif config.lion_mixer == "selective":
            self.decay = KeyDecay(num_heads, head_dim)

    @torch.no_grad()
    def start(self, scaling: float | None = None) -> None:
        """
        Set the initial weights: features like those of softmax with this scaling of the scores (by default that of
        the head's dimension), a gate that favours neither sum, and decays that reach far.
        """
        if self.gate is not None:
            init.zeros_(self.gate)
            init.zeros_(self.gate_bias)
        for features in (self.query_map, self.key_map):
            if isinstance(features, Hedgehog):
                size = features.weight.shape[-1]
                scale = (size**-0.5 if scaling is None else scaling) ** 0.5
                init.copy_(features.weight, (scale * torch.eye(size)).expand_as(features.weight))
                if isinstance(features, KeyFeatures):
                    init.zeros_(features.size)
            elif isinstance(features, nn.Module):
                init_own_weights(features, self.config)
        if self.decay is not None:
            shortest, longest = torch.tensor(HALF_LIVES, dtype=torch.float64).log2()
            half_life = torch.logspace(longest, shortest, len(self.decay.bias), base=2.0, dtype=torch.float64)
            init.copy_(self.decay.bias, torch.logit(torch.exp2(-1 / half_life)).float())
        if isinstance(self.decay, KeyDecay):
            init.zeros_(self.decay.weight)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        tokens: Tokens | None = None,
        scaling: float | None = None,
        form: str = "auto",
        output_attentions: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """
        Args:
            query, key, value: `(batch, heads, length, head_dim)`, in one dtype.
            tokens: with their `order`; `None` if all are real.
            scaling: of the scores q·k.
            form: `"auto"`, `"parallel"`, `"chunk"` or `"rnn"`.
            output_attentions: whether to return the weights, in quadratic time.

        Returns:
            The output `(batch, length, heads, head_dim)`, and the weights `(batch, heads, length, length)` or `None`.
        """
        tokens = Tokens() if tokens is None else tokens
        query, key, value = (tokens.reordered(x, 2) for x in (query, key, value))
        needs_weights = output_attentions or form == "parallel"
        with without_autocast(query):
            output, weights = self.attend(query, key, value, tokens.contiguous(), scaling, form, needs_weights)
        output = tokens.restored(output.transpose(1, 2))
        if not output_attentions:
            return output, None
        return output, tokens.restored(tokens.restored(weights, 2), 3)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        tokens: Tokens,
        scaling: float | None,
        form: str,
        needs_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """`forward` without padding between real tokens; the output is `(batch, heads, length, head_dim)`."""
        inputs, log_decay, window = self.prepare(query, key, value, tokens, scaling)
        if window is None:
            form = "eager" if needs_weights else form
            return lion_attention(*inputs, value, LogDecay(log_decay, log_decay), form=form)
        if not needs_weights:
            if self.branches == "window":
                sums = torch.zeros_like(value), torch.zeros_like(value[..., :1])
            else:
                sums = far_sums(*inputs, value, log_decay, self.window, form=form)
            return window.join(sums, None)
        sums, linear = lion_attention(*inputs, value, LogDecay(log_decay, log_decay), form="eager", returns_sums=True)
        seen = dense_window_mask(window.query, self.window, tokens)
        return window.join(sums, linear.masked_fill(seen, 0))

    def prepare(
        self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens, scaling: float | None
    ) -> tuple[list[Tensor], Tensor | None, LocalWindow | None]:
        """The features of queries and keys, `(batch, heads, length, features)`, the log decays and the window."""
        maps = (self.query_map, query), (self.key_map or self.query_map, key)
        features = [features_of(x.transpose(1, 2), feature_map) for feature_map, x in maps]
        log_decay = None
        if self.decay is not None:
            log_decay = self.decay(key.transpose(1, 2) if isinstance(self.decay, FixedDecay) else key)
        # A fixed decay stays a number per head: padding is outside of the real tokens.
        is_fixed = log_decay is not None and log_decay.dim() == 1
        features[1], folded = tokens.fold(features[1], None if is_fixed else log_decay)
        log_decay = log_decay if is_fixed else folded
        inputs = [x.transpose(1, 2) for x in features]
        if not self.window:
            return inputs, log_decay, None
        gate = torch.einsum("bhld,hd->blh", query, self.gate.to(query.dtype)) + self.gate_bias.to(query.dtype)
        if self.branches != "both":
            gate = gate + BRANCHES[self.branches]
        near = (x.transpose(1, 2) for x in (query, key, value))
        return inputs, log_decay, LocalWindow(*near, gate, tokens, 0, self.window, scaling=scaling)

    def weights_of_tokens(
        self, query: Tensor, key: Tensor, tokens: Tokens, scaling: float | None, queries: Tensor
    ) -> Tensor:
        """
        The weights of all tokens in the outputs of some, `(batch, heads, queries, length)`, in time that grows with
        their number: distillation compares so many. No padding is between real tokens.
        """
        with without_autocast(query):
            inputs, log_decay, window = self.prepare(query, key, key, tokens, scaling)
            linear = inputs[0][:, :, queries] @ inputs[1].transpose(-1, -2)
            if log_decay is not None:
                decays = finite_log_decay(LogDecay(log_decay, log_decay), query)
                linear = linear * decay_mask_rows(*over_tokens(decays, query), queries)
            if window is None:
                return divide(linear, linear.sum(-1, keepdim=True))
            seen = dense_window_mask(window.query, self.window, tokens, queries)
            return window.weights(linear.masked_fill(seen, 0), queries)


def features_of(x: Tensor, feature_map: Callable[[Tensor], Tensor]) -> Tensor:
    """φ of `(batch, length, heads, head_dim)`; in tiles of tokens, whose intermediate results stay in cache."""
    if not can_be_cut(x):
        return feature_map(x)
    batch, length = x.shape[:2]
    return in_tiles(lambda tile: [feature_map(tile.of(x))], cut_into_tiles(batch, length), batch, length)[0]
