# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""LION-LIT: nothing decays, λ = 1 (SPEC §2). The bidirectional Linear Transformer; the other mixers add to it."""

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .feature_map import FEATURE_MAPS
from .mixer import Mixer


class LitMixer(Mixer):
    """
    A linear mixer turns hidden states into what a kernel needs: queries, keys, values and log decays.

    A padded token is exactly an absent one if its key is 0 and its λ is 1 (SPEC §4), so this is also where the
    attention mask goes. A subclass that decays overrides `log_decay` and names its parameters with "decay".
    """

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        feature_map = FEATURE_MAPS[config.feature_map]
        self.feature_map = feature_map(config.head_dim) if isinstance(feature_map, type) else feature_map

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """
        Args:
            hidden_states: `(batch, length, hidden_size)`.
            attention_mask: `(batch, length)`, bool, False for padding.

        Returns:
            query, key (after the feature map) and value, `(batch, heads, length, head_dim)`, and the log decay:
            `None`, `(scans * heads,)`, `(batch, scans * heads, length)` or, if it differs between the channels of the
            keys, `(batch, scans * heads, length, head_dim)`, float32 or wider. A scan is one order in which the tokens
            are read (patch_order.py); every one has decays of its own.
        """
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query, key, value = (proj(hidden_states).view(shape) for proj in (self.q_proj, self.k_proj, self.v_proj))
        with torch.autocast(hidden_states.device.type, enabled=False):  # on a GPU it would widen queries and keys only
            query, key = self.feature_map(query), self.feature_map(key)
        log_decay = self.log_decay(hidden_states)
        if attention_mask is not None:
            key = key * attention_mask[:, :, None, None].to(key.dtype)
            if log_decay is not None:
                log_decay = log_decay.view(1, -1, 1) if log_decay.dim() == 1 else log_decay
                mask = attention_mask[:, None] if log_decay.dim() == 3 else attention_mask[:, None, :, None]
                log_decay = torch.where(mask, log_decay, 0)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), log_decay

    def log_decay(self, hidden_states: Tensor) -> Tensor | None:
        return None
