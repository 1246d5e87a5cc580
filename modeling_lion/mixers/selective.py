# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""LION-S: a decay computed from each token (SPEC §2)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers import initialization as init

from ..attention.numerics import accumulation_dtype
from .decay import Float32Parameters, far_decay_logits, initial_decay_logits, logsigmoid
from .linear import LinearMixer
from .mixer import register_mixer


class DecayGate(Float32Parameters, nn.Linear):
    """
    The logits z = w·x + b, and from them the log decays, logsigmoid(z).

    The bias, which sets the half-life of a head, is added in float32: near λ = 1, rounding a logit to bfloat16 would
    change the half-life by several percent.
    """

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        init.copy_(self.bias, initial_decay_logits(config))

    def forward(self, hidden_states: Tensor) -> Tensor:
        logits = F.linear(hidden_states, self.weight.to(hidden_states.dtype))
        dtype = accumulation_dtype(logits.dtype)
        return logits.to(dtype) + self.bias.to(dtype)

    def log_decay(self, logits: Tensor) -> Tensor:
        # Not part of `forward`, whose tensors are DTensors under tensor parallelism: these have no logsigmoid.
        return logsigmoid(logits)


def gate_log_decay(gate: nn.Module, hidden_states: Tensor) -> Tensor:
    """The log decays of a `DecayGate`, which an adapter may wrap that adds to the logits (peft: `base_layer`)."""
    layer = getattr(gate, "base_layer", gate)
    if not hasattr(layer, "log_decay"):
        raise TypeError(
            f"A layer that computes decays has become a {type(layer).__name__}, which cannot compute them: leave out "
            'layers with "decay" in their names where linear layers are replaced (optimum-quanto: quantize(model, '
            'weights=..., exclude="*decay*")).'
        )
    return layer.log_decay(gate(hidden_states))


class KeyDecay(Float32Parameters):
    """Log decays log λ_j = logsigmoid(w_h·k_j + b_h), from the rotated keys of a linearized model."""

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, head_dim))
        self.bias = nn.Parameter(torch.empty(num_heads))

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        init.zeros_(self.weight)
        init.copy_(self.bias, far_decay_logits(len(self.bias)))

    def forward(self, key: Tensor) -> Tensor:
        """`(batch, length, heads, head_dim)` to `(batch, heads, length)`, float32 or float64."""
        return logsigmoid(logits_of_keys(key, self.weight, self.bias))


def logits_of_keys(key: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """w_h·k_j + b_h for keys `(batch, length, heads, head_dim)`: `(batch, heads, length)`, float32 or float64."""
    key = key.transpose(1, 2)
    dtype = accumulation_dtype(key.dtype)
    return (key.to(dtype) @ weight.to(dtype).unsqueeze(-1)).squeeze(-1) + bias.to(dtype).unsqueeze(-1)


@register_mixer
class SelectiveMixer(LinearMixer):
    """
    LION-S, the default: a decay per head computed from each token, λ = sigmoid(w_h·x + b_h), as in Mamba-2. For texts.
    """

    name, title = "selective", "LION-S"
    description = "with a decay per head computed from each token, as in Mamba-2"
    tensor_parallel_plan = {"decay_proj": "colwise"}
    gate_class = DecayGate

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        heads = config.num_scans * config.num_attention_heads
        self.decay_proj = self.gate_class(config.hidden_size, heads)
        self.num_prefix_tokens = config.num_prefix_tokens

    def log_decay(self, hidden_states: Tensor) -> Tensor:
        log_decay = gate_log_decay(self.decay_proj, hidden_states).transpose(1, 2)
        if self.num_prefix_tokens == 0:
            return log_decay
        # λ = 1 for the tokens before the patches of an image, such as CLS (SPEC §6).
        first, rest = log_decay.tensor_split((self.num_prefix_tokens,), dim=-1)
        return torch.cat((torch.zeros_like(first), rest), dim=-1)

    @staticmethod
    def decay_of_keys(num_heads: int, head_dim: int) -> KeyDecay:
        return KeyDecay(num_heads, head_dim)
