# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""LION-S: a decay computed from each token, λ = sigmoid(w_h·x + b_h) (SPEC §2). Mamba-2's selectivity, both ways."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig

from .lion_kernel import accumulation_dtype
from .mixer_lit import LitMixer


class DecayGate(nn.Linear):
    """
    The logits z = w·x + b, and from them the log decays: logsigmoid(z) or, with `decay_activation="softplus"`,
    -exp(r) softplus(z) with a learnt rate r per output, as in Mamba-2, without a bound on how fast a decay may change.

    The bias, which sets how long a head remembers, is added in float32: near λ = 1 the rounding of a bfloat16 logit
    would change the decay by percents.
    """

    def __init__(self, in_features: int, out_features: int, activation: str = "sigmoid"):
        super().__init__(in_features, out_features)
        # "bias" in the name keeps weight decay off it, as for `FixedDecay`.
        self.log_rate_bias = nn.Parameter(torch.empty(out_features)) if activation == "softplus" else None

    def forward(self, hidden_states: Tensor) -> Tensor:
        logits = F.linear(hidden_states, self.weight.to(hidden_states.dtype))
        dtype = accumulation_dtype(logits.dtype)
        return logits.to(dtype) + self.bias.to(dtype)

    def log_decay(self, logits: Tensor) -> Tensor:
        # Not in `forward`, where tensor parallelism has DTensors, which don't know logsigmoid.
        if self.log_rate_bias is None:
            return F.logsigmoid(logits)
        return -self.log_rate_bias.to(logits.dtype).exp() * F.softplus(logits)

    def bias_of(self, logits: Tensor) -> Tensor:
        """The bias for decays sigmoid(logits), where w·x and the rate are 0: logsigmoid(z) = -softplus(-z)."""
        return logits if self.log_rate_bias is None else -logits


def gate_log_decay(gate: nn.Module, hidden_states: Tensor) -> Tensor:
    """The log decays of a `DecayGate`, also where an adapter wraps it: it adds to the logits (peft: `base_layer`)."""
    return getattr(gate, "base_layer", gate).log_decay(gate(hidden_states))


class SelectiveMixer(LitMixer):
    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        heads = config.num_scans * config.num_attention_heads
        self.decay_proj = DecayGate(config.hidden_size, heads, config.decay_activation)
        self.has_cls_token = config.modality == "image"

    def log_decay(self, hidden_states: Tensor) -> Tensor:
        log_decay = gate_log_decay(self.decay_proj, hidden_states)
        return keep_cls_token(log_decay.transpose(1, 2), self.has_cls_token)


def keep_cls_token(log_decay: Tensor, has_cls_token: bool) -> Tensor:
    """`(..., length)` with λ = 1 for the CLS token of an image (SPEC §6)."""
    if not has_cls_token:
        return log_decay
    return torch.cat((torch.zeros_like(log_decay[..., :1]), log_decay[..., 1:]), dim=-1)
