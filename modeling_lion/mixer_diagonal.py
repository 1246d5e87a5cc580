# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""A decay for each channel of the keys, from each token (SPEC §2 with a vector λ): GLA, HGRN and RWKV, both ways."""

from torch import Tensor, nn
from transformers import PreTrainedConfig

from .mixer_lit import LitMixer
from .mixer_selective import DecayGate, gate_log_decay, keep_cls_token


class DiagonalMixer(LitMixer):
    """λ_c = sigmoid(W₂ W₁ x + b)_c for channel c: by way of `decay_rank` numbers, so that it costs few parameters."""

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        channels = config.num_scans * config.hidden_size
        self.decay_down_proj = nn.Linear(config.hidden_size, config.decay_rank, bias=False)
        self.decay_up_proj = DecayGate(config.decay_rank, channels, config.decay_activation)
        self.has_cls_token = config.modality == "image"

    def log_decay(self, hidden_states: Tensor) -> Tensor:
        """`(batch, scans * heads, length, head_dim)`"""
        # In float32, as all of the decays.
        down = self.decay_down_proj(hidden_states.to(self.decay_down_proj.weight.dtype))
        log_decay = gate_log_decay(self.decay_up_proj, down)
        log_decay = keep_cls_token(log_decay.transpose(1, 2), self.has_cls_token)
        return log_decay.unflatten(1, (-1, self.head_dim)).transpose(2, 3)
