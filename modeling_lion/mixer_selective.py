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
    The logits of the decays. The bias, which sets how long a head remembers, is added in float32: near λ = 1 the
    rounding of a bfloat16 logit would change the decay by percents.
    """

    def forward(self, hidden_states: Tensor) -> Tensor:
        logits = F.linear(hidden_states, self.weight.to(hidden_states.dtype))
        dtype = accumulation_dtype(logits.dtype)
        return logits.to(dtype) + self.bias.to(dtype)


class SelectiveMixer(LitMixer):
    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        self.decay_proj = DecayGate(config.hidden_size, config.num_scans * config.num_attention_heads)
        self.has_cls_token = config.modality == "image"

    def log_decay(self, hidden_states: Tensor) -> Tensor:
        log_decay = F.logsigmoid(self.decay_proj(hidden_states)).transpose(1, 2)
        if self.has_cls_token:  # λ = 1 for the CLS token of an image (SPEC §6)
            log_decay = torch.cat((torch.zeros_like(log_decay[..., :1]), log_decay[..., 1:]), dim=-1)
        return log_decay
