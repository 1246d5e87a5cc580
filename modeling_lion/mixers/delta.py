# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""LION-Delta: the gated delta rule in both directions (SPEC §14)."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init

from ..attention.delta import delta_attention
from ..attention.kernels import backend_of
from ..attention.numerics import accumulation_dtype, needs_grad
from ..sequence.border_states import Joins, delta_segment_attention, delta_segment_states
from .decay import initial_decay_logits
from .linear import LinearMixer, forms_of
from .mixer import register_mixer
from .selective import DecayGate, KeyDecay, SelectiveMixer, logits_of_keys


# ε in √(‖x‖² + ε²), by which vectors are divided, so that a zero vector stays 0.
LEAST_LENGTH = 1e-3


def plain_unit_length(x: Tensor) -> Tensor:
    """
    x / √(‖x‖² + 1e-6) over the last dimension, computed in the accumulation dtype. In 16 bits it is shorter by the
    most that rounding can add, since states would grow under keys longer than 1.
    """
    wide = x.to(accumulation_dtype(x.dtype))
    longest = 1.0 if wide.dtype == x.dtype else 1 - torch.finfo(x.dtype).eps / 2
    return (wide * (longest * (wide.square().sum(-1, keepdim=True) + LEAST_LENGTH**2).rsqrt())).to(x.dtype)


def unit_length(x: Tensor, given: Tensor | None = None) -> Tensor:
    """`plain_unit_length` in fewer passes over memory if possible; in place if `x` is not the memory of `given`."""
    is_wide = x.dtype == accumulation_dtype(x.dtype)
    if torch.compiler.is_compiling() or not is_wide or backend_of(x, x) == "plain":
        return plain_unit_length(x)
    if needs_grad(x):
        return UnitLength.apply(x)
    is_new = given is not None and x.data_ptr() != given.data_ptr()
    return x.div_(length_of(x)) if is_new else x / length_of(x)


def length_of(x: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return length.hypot_(length.new_full((), LEAST_LENGTH))


class UnitLength(torch.autograd.Function):
    """`plain_unit_length` and its gradient: with y = x / n, dx = (dy - y (y · dy)) / n."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        length = length_of(x)
        y = x / length
        ctx.save_for_backward(x, y, length)
        return y

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        x, y, length = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the gradient itself will be differentiated
            return torch.autograd.grad(plain_unit_length(x), x, grad, create_graph=True)[0]
        return torch.addcmul(grad, y, (grad * y).sum(-1, keepdim=True), value=-1).div_(length)


class ForgetGate(DecayGate):
    """
    The decays of LION-S. A single pair of heads starts with the whole context: a state that corrects itself needs not
    forget, and with less, recall depends on the seed.
    """

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        init.copy_(self.bias, initial_decay_logits(config, single_pair_forgets=False))


class WriteGate(DecayGate):
    """The logits of β, computed from the input of the layer. β starts around 1/2."""

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        init.normal_(self.weight, std=config.hidden_size**-0.5)
        init.zeros_(self.bias)


class KeyGates(KeyDecay):
    """`KeyDecay` with β_j = sigmoid(u_h·k_j + c_h), which starts at 1/2."""

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__(num_heads, head_dim)
        self.beta_weight = nn.Parameter(torch.empty(num_heads, head_dim))
        self.beta_bias = nn.Parameter(torch.empty(num_heads))

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        super().init_own_weights(config)
        init.zeros_(self.beta_weight)
        init.zeros_(self.beta_bias)

    def beta(self, key: Tensor) -> Tensor:
        """`(batch, length, heads, head_dim)` to `(batch, heads, length)`, float32 or float64."""
        return logits_of_keys(key, self.beta_weight, self.beta_bias).sigmoid()


@register_mixer
class DeltaMixer(SelectiveMixer):
    """
    The gated delta rule in both directions. A token adds to the state, under its key of length 1, the difference
    between its value and what the state returns for that key, times β = sigmoid(w_h·x + b_h). Decays are those of
    LION-S. Use it for texts in which names and numbers must be looked up. Each head reads one way; an RMS norm
    replaces denominators.
    """

    name, title = "delta", "LION-Delta"
    description = "with the gated delta rule, whose state corrects what it has, read both ways"
    forms = forms_of(delta_attention)
    needs = ("log_decay", "beta")
    gate_class = ForgetGate
    joins = Joins(delta_segment_states, delta_segment_attention)
    has_scans = shares_sequences = True
    segment_states = LinearMixer.segment_states
    tensor_parallel_plan = {"decay_proj": "colwise", "decay_beta": "colwise"}
    fields = {"largest_beta": 1.0}
    defaults = {"feature_map": "silu", "normalization": "rms"}
    choices = {"normalization": ("rms", "none"), "head_directions": ("alternate",)}
    ranges = {"largest_beta": (0, 2)}

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        self.largest_beta = config.largest_beta
        # "decay" in its name keeps it in float32.
        self.decay_beta: nn.Module = WriteGate(config.hidden_size, config.num_scans * config.num_attention_heads)

    def map_features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        mapped = super().map_features(query, key)
        return unit_length(mapped[0], query), unit_length(mapped[1], key)

    def beta(self, hidden_states: Tensor) -> Tensor:
        """
        β, the share of the difference that each token writes, `(batch, scans * heads, length)`, float32 or float64.
        """
        logits = self.decay_beta(hidden_states)
        return self.largest_beta * logits.to(accumulation_dtype(logits.dtype)).sigmoid().transpose(1, 2)

    @staticmethod
    def decay_of_keys(num_heads: int, head_dim: int) -> KeyGates:
        return KeyGates(num_heads, head_dim)
