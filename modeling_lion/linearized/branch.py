# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The parts that LION adds to an attention module of another encoder (SPEC §13): feature maps, a gate and decays.

    y_i = (Σ_{|i-j| ≤ w} exp(s q_i·k_j) v_j + exp(g_i) Σ_{|i-j| > w} φ(q_i)·φ(k_j) M_ij v_j) / (the same with v = 1)

The module keeps its own projections, norms and rotations: q, k and v are the tensors that it passes to transformers'
attention interface. The gated delta rule (SPEC §14) can replace the sum. It reads all tokens, F forward, B backward:

    y_i = (1 - a_i) Σ_{|i-j| ≤ w} softmax_j(s q_i·k_j) v_j + a_i (F_i + B_i)        a_i = sigmoid(g_i)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init

from configuration_lion.registry import FEATURE_MAPS, find_mixer

from ..attention.decay_mask import LogDecay, check_decay_shape, decay_mask_rows, finite_log_decay, over_tokens
from ..attention.delta import delta_both_ways
from ..attention.far_sums import far_sums
from ..attention.lion_attention import lion_attention
from ..attention.numerics import divide, smallest_denominator, without_autocast
from ..attention.softmax_window import dense_window_mask, sliding_attention
from ..mixers.delta import unit_length
from ..mixers.feature_map import Hedgehog
from ..mixers.mixer import init_own_weights
from ..sequence.tiles import can_be_cut, cut_into_tiles, in_tiles
from ..tokens import Tokens


# Numbers that are added to the gate, to use one of the two sums alone. If no token is outside of its window, a token
# keeps the window in any case.
BRANCHES = {"both": 0.0, "window": -60.0, "linear": 60.0}


def bounded_exp(x: Tensor) -> Tensor:
    """About exp(x) for x up to 2, and at most 1 + e⁴, so that it can be a factor of features in every dtype."""
    return torch.sigmoid(x - 4) * (1 + math.exp(4))


class QueryFeatures(Hedgehog):
    """Hedgehog's features, times the bounded mean of exp(scores): larger scores give larger features."""

    def forward(self, x: Tensor) -> Tensor:
        scores = x.transpose(1, 2) @ self.weight.to(x.dtype)
        scores = torch.stack((scores, -scores), dim=-2)
        size = scores.flatten(-2).logsumexp(-1, keepdim=True) - math.log(2 * scores.shape[-1])
        return (scores.softmax(-1).flatten(-2) * bounded_exp(size)).transpose(1, 2)


class KeyFeatures(Hedgehog):
    """Hedgehog's features, times the bounded exp(w_h·k_j), by which all queries see more of a token such as CLS."""

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__(num_heads, head_dim)
        self.size = nn.Parameter(torch.empty(num_heads, head_dim))

    def forward(self, x: Tensor) -> Tensor:
        size = torch.einsum("blhd,hd->blh", x, self.size.to(x.dtype))
        return super().forward(x) * bounded_exp(size).unsqueeze(-1)


@dataclass
class LocalWindow:
    """
    Softmax over near tokens, joined with the linear sum over the others. The window's share of the output is
    sigmoid(e_i - g_i - log den_i), where e_i is the log-sum-exp of the window's scores (attention/softmax_window.py).

    Attributes:
        query, key, value: `(batch, heads, length, head_dim)`, before the feature map.
        gate: g, `(batch, heads, length)`.
        tokens: the tokens, without padding between real ones.
        reach: number of tokens in the window on each side.
        scaling: s, the scaling of the scores q·k; `None` for D^-½.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    gate: Tensor
    tokens: Tokens
    reach: int
    scaling: float | None = None

    def __post_init__(self):
        if self.scaling is None:
            self.scaling = self.query.shape[-1] ** -0.5

    def join(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        """
        The output, `(batch, heads, length, head_dim)`, in the dtype of the values, given the linear sum: a numerator
        in the same shape and a denominator `(..., 1)`.
        """
        near, log_sum = self.near()
        # The logarithm of the ratio of both denominators does not overflow, and either may be 0.
        denominator = at_least_smallest(denominator)
        ratio = (log_sum - self.gate.to(log_sum.dtype)).unsqueeze(-1) - denominator.log()
        factor = (-ratio).sigmoid() / denominator
        return torch.addcmul(near.to(ratio.dtype) * ratio.sigmoid(), numerator, factor).to(self.value.dtype)

    def near(self) -> tuple[Tensor, Tensor]:
        """Softmax within the window, `(batch, heads, length, head_dim)`, and the log-sum-exp of its scores."""
        options = {"sliding_window": self.reach, "scaling": self.scaling, "tokens": self.tokens}
        near, log_sum = sliding_attention(self.query, self.key, self.value, with_log_sum=True, **options)
        return near.transpose(1, 2), log_sum

    def mix(self, read: Tensor) -> Tensor:
        """The output, given that of the delta rule, `read`, `(batch, heads, length, head_dim)`."""
        return torch.lerp(self.near()[0].to(read.dtype), read, self.share(read.dtype)).to(self.value.dtype)

    def mix_weights(self, weights: Tensor) -> Tensor:
        """The attention weights, given those of the delta rule in the same shape."""
        return torch.lerp(self.weights(torch.zeros_like(weights)), weights, self.share(weights.dtype))

    def share(self, dtype: torch.dtype) -> Tensor:
        """The share a of the delta rule in the output, `(batch, heads, length, 1)`."""
        return self.gate.to(dtype).sigmoid().unsqueeze(-1)

    def weights(self, linear: Tensor, queries: Tensor | slice = slice(None)) -> Tensor:
        """
        The attention weights of some queries, by default all, `(batch, heads, queries, length)`, given the undivided
        weights of the linear sum in the same shape, of which those of near tokens are ignored.
        """
        seen = dense_window_mask(self.query[:, 0], self.reach, self.tokens, queries)
        linear = linear.masked_fill(seen, 0)
        query, key, gate = (x.to(linear.dtype) for x in (self.query, self.key, self.gate))
        scores = self.scaling * query[:, :, queries] @ key.transpose(-1, -2)
        # Masked before exp, which may overflow outside of the window, so that its gradient would be NaN.
        scores = torch.where(seen, scores - gate[:, :, queries, None], -torch.inf)
        log_linear = at_least_smallest(linear.sum(-1, keepdim=True)).log()
        largest = torch.maximum(scores.amax(-1, keepdim=True), log_linear).detach()
        weights = (scores - largest).exp() + linear * (-largest).exp()
        return divide(weights, weights.sum(-1, keepdim=True))


def at_least_smallest(denominator: Tensor) -> Tensor:
    return denominator.clamp(min=smallest_denominator(denominator.dtype))


class KeptAttention(nn.Module):
    """Marks an attention module of a linearized model that keeps softmax. It has no weights."""

    is_kept = True  # read instead of the class, which peft wraps (`modules_to_save`)

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.config = config


class LinearBranch(nn.Module):
    """The linear attention of one attention module; `num_heads` and `head_dim` are those of its queries."""

    is_kept = False

    def __init__(self, config: PreTrainedConfig, num_heads: int, head_dim: int):
        super().__init__()
        self.config = config
        self.window = config.lion_window
        self.branches = "both"  # a name in `BRANCHES`
        if config.lion_feature_map == "scaled_hedgehog":
            self.query_map, self.key_map = QueryFeatures(num_heads, head_dim), KeyFeatures(num_heads, head_dim)
        elif FEATURE_MAPS[config.lion_feature_map].is_learnt:  # different weights for queries and keys
            learnt = FEATURE_MAPS[config.lion_feature_map].function
            self.query_map, self.key_map = learnt(num_heads, head_dim), learnt(num_heads, head_dim)
        else:
            self.query_map, self.key_map = FEATURE_MAPS[config.lion_feature_map].function, None
        self.gate = nn.Parameter(torch.empty(num_heads, head_dim)) if self.window else None
        self.gate_bias = nn.Parameter(torch.empty(num_heads)) if self.window else None
        mixer = find_mixer(config.lion_mixer)
        self.corrects = "beta" in mixer.needs  # whether the delta rule replaces the sum
        self.decay: nn.Module | None = mixer.decay_of_keys(num_heads, head_dim)

    @torch.no_grad()
    def start(self, scaling: float | None = None) -> None:
        """
        Set the initial weights: features close to softmax with this scaling of the scores (by default `head_dim **
        -0.5`), a gate of 0, and decays with long half-lives.
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
        for module in () if self.decay is None else self.decay.modules():
            init_own_weights(module, self.config)

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
        The output, `(batch, length, heads, head_dim)`, and the weights, `(batch, heads, length, length)`, in quadratic
        time, if `output_attentions`, otherwise `None`. Inputs are `(batch, heads, length, head_dim)`, in one dtype.
        `tokens` have their `order`; `None` if all are real. `scaling` is that of the scores q·k; `None` for `head_dim
        ** -0.5`. `form` is as in `lion_attention`.
        """
        tokens = Tokens() if tokens is None else tokens
        query, key, value = (tokens.reordered(x, 2) for x in (query, key, value))
        needs_weights = output_attentions or form == "parallel"
        with without_autocast(query):
            output, weights = self.attend(form, needs_weights, query, key, value, tokens.contiguous(), scaling)
        output = tokens.restored(output.transpose(1, 2))
        if not output_attentions:
            return output, None
        return output, tokens.restored(tokens.restored(weights, 2), 3)

    def attend(self, form: str, needs_weights: bool, *given) -> tuple[Tensor, Tensor | None]:
        """`forward` if no padding is between real tokens; the output is `(batch, heads, length, head_dim)`."""
        inputs, log_decay, window = self.prepare(*given)
        _, key, value, *_ = given
        if self.corrects:
            output, weights = self.read(inputs, key, value, log_decay, "eager" if needs_weights else form)
            if weights is None:
                return output.to(value.dtype) if window is None else window.mix(output), None
            weights = (weights if window is None else window.mix_weights(weights)).to(value.dtype)
            return weights @ value, weights
        if window is None:
            form = "eager" if needs_weights else form
            return lion_attention(*inputs, value, LogDecay(log_decay, log_decay), form=form)
        if not needs_weights:
            if self.branches == "window":
                sums = torch.zeros_like(value), torch.zeros_like(value[..., :1])
            else:
                sums = far_sums(*inputs, value, log_decay, self.window, form=form)
            return window.join(*sums), None
        _, linear = lion_attention(*inputs, value, LogDecay(log_decay, log_decay), form="eager", returns_sums=True)
        weights = window.weights(linear).to(value.dtype)
        return weights @ value, weights  # computed from the weights, so that these have a gradient

    def read(
        self, features: list[Tensor], key: Tensor, value: Tensor, log_decay: Tensor, form: str
    ) -> tuple[Tensor, Tensor | None]:
        """The output of the delta rule, and, for "eager", its weights."""
        beta = self.decay.beta(key.transpose(1, 2))
        return delta_both_ways(*features, value, log_decay, beta, form=form)

    def prepare(
        self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens, scaling: float | None
    ) -> tuple[list[Tensor], Tensor | None, LocalWindow | None]:
        """The features of queries and keys, `(batch, heads, length, features)`, log decays, and the window."""
        maps = (self.query_map, query), (self.key_map or self.query_map, key)
        features = [features_of(x.transpose(1, 2), feature_map) for feature_map, x in maps]
        if self.corrects:
            features = [unit_length(x) for x in features]
        log_decay = None
        if self.decay is not None:
            log_decay = self.decay(key.transpose(1, 2))
            check_decay_shape(f"{type(self.decay).__name__}.forward", log_decay, *key.shape[:3])
        # A fixed decay stays one number per head: padding is not between real tokens.
        is_fixed = log_decay is not None and log_decay.dim() == 1
        features[1], folded = tokens.fold(features[1], None if is_fixed else log_decay)
        log_decay = log_decay if is_fixed else folded
        inputs = [x.transpose(1, 2) for x in features]
        if not self.window:
            return inputs, log_decay, None
        gate = torch.einsum("bhld,hd->bhl", query, self.gate.to(query.dtype))
        gate = gate + self.gate_bias.to(query.dtype).unsqueeze(-1)
        if self.branches != "both":
            gate = gate + BRANCHES[self.branches]
        return inputs, log_decay, LocalWindow(query, key, value, gate, tokens, self.window, scaling)

    def output_of_tokens(
        self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens, scaling: float | None, queries: Tensor
    ) -> Tensor:
        """
        The output of some queries, `(batch, queries, heads, head_dim)`, for distillation, in time proportional to
        their number; with the delta rule, to the length. There is no padding between real tokens.
        """
        if self.corrects:
            return self(query, key, value, tokens, scaling, "chunk")[0][:, queries]
        with without_autocast(query):
            inputs, log_decay, window = self.prepare(query, key, value, tokens, scaling)
            linear = inputs[0][:, :, queries] @ inputs[1].transpose(-1, -2)
            if log_decay is not None:
                decays = finite_log_decay(LogDecay(log_decay, log_decay), query)
                linear = linear * decay_mask_rows(*over_tokens(decays, query), queries)
            if window is None:
                weights = divide(linear, linear.sum(-1, keepdim=True))
            else:
                weights = window.weights(linear, queries)
            return (weights @ value).transpose(1, 2)


def features_of(x: Tensor, feature_map: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply φ to `(batch, length, heads, head_dim)`, in tiles of tokens if that is faster."""
    if not can_be_cut(x):
        return feature_map(x)
    batch, length = x.shape[:2]
    return in_tiles(lambda tile: [feature_map(tile.of(x))], cut_into_tiles(batch, length), batch, length)[0]
