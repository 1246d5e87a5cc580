# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The base of all mixers, and the call of attention that a mixer prepares.

A mixer projects hidden states to queries, keys and values, and says how attention is to be called with them. A linear
mixer (mixers/linear.py) also computes the decays. Attention does not depend on mixers.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn
from transformers import PreTrainedConfig

from ..layout.layout import PLAIN_LAYOUT, Layout
from .local_window import LocalWindow


class AttentionCall(NamedTuple):
    """
    A call of attention that a mixer prepared.

    Attributes:
        attention: `attention(*inputs)` returns the output, or a pair of the output and the weights or `None`.
        inputs: query, key, value `(batch, heads, length, head_dim)` and, from linear mixers, the log decays.
        window: the softmax window inside the heads of linear attention, if any (mixers/local_window.py).
        memory: a second stream of hidden states for the next layer (mixers/luna.py).
    """

    attention: Callable | None
    inputs: tuple
    window: LocalWindow | None = None
    memory: Tensor | None = None


class Mixer(nn.Module):
    """
    The projections to queries, keys and values.

    Attributes:
        layer_type: the type of its layer.
        reach: how many tokens on each side of a segment of a longer sequence it needs (layout/halo.py).
        window: how many tokens on each side a softmax window sees; 0 without a window.
        has_heads_first: whether attention returns `(batch, heads, length, head_dim)` rather than `(batch, length,
            heads, head_dim)`.
        eager_attention: the form of attention that returns its weights.
    """

    reach = window = 0
    has_heads_first = False
    eager_attention: Callable

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__()
        self.config = config
        self.layer_type = config.layer_type(layer_idx)
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)

    def attention_name(self, output_attentions: bool) -> str:
        """The name of the attention function, as for `attn_implementation`."""
        raise TypeError(f"{type(self).__name__} names no attention function.")

    def forward(
        self,
        hidden_states: Tensor,
        layout: Layout = PLAIN_LAYOUT,
        memory: Tensor | None = None,
        attention: Callable | None = None,
    ) -> AttentionCall:
        """
        Args:
            hidden_states: `(batch, length, hidden_size)`.
            layout: padding, packing and positions of the tokens (layout/layout.py).
            memory: a second stream of hidden states, which only some mixers read and write.
            attention: the function named by `attention_name`; `None` if only the inputs are needed.
        """
        raise TypeError(f"{type(self).__name__} has no forward.")

    def weights(self, call: AttentionCall, layout: Layout) -> Tensor:
        """The weights of a call, `(batch, heads, length, keys)`, computed again by the form that returns them."""
        raise TypeError(f"{type(self).__name__} has no weights.")

    def split_heads(self, x: Tensor) -> Tensor:
        """`(batch, length, hidden_size)` to `(batch, heads, length, head_dim)`."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
