# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What all mixers share: the projections to queries, keys and values, and the mask that layers get.

There are two kinds. A linear mixer, a subclass of `LitMixer`, only says how tokens decay: its forward gives what a
kernel of LION needs. Any other mixer computes by itself: its forward gives the mixed values (mixer_softmax.py).
"""

from torch import Tensor, nn
from transformers import PreTrainedConfig


class Mixer(nn.Module):
    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)

    def split_heads(self, x: Tensor) -> Tensor:
        """`(batch, length, hidden_size)` to `(batch, heads, length, head_dim)`."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    @staticmethod
    def layer_mask(
        config: PreTrainedConfig, hidden_states: Tensor, attention_mask: Tensor | None, cu_seqlens: Tensor | None
    ):
        """
        What every layer gets as its `attention_mask`, made once per model call.

        Args:
            hidden_states: `(batch, length, hidden_size)`.
            attention_mask: `(batch, length)`, bool, False for padding, or `None`.
            cu_seqlens: borders of packed sequences, `(num_sequences + 1,)`, or `None`.
        """
        return attention_mask
