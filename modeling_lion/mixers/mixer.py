# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What mixes tokens in a layer: the base of all mixers, and what they give to the attention.

A mixer makes queries, keys and values of hidden states, and says how attention is to be called with them. A linear
mixer (mixers/linear.py) also decides how tokens decay. Attention computes, and knows nothing of mixers.
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
        attention: `attention(*inputs)` gives the output, or the output and the weights or `None`.
        inputs: query, key, value `(batch, heads, length, head_dim)` and, of linear mixers, the log decays.
        window: what heads see exactly besides (mixers/local_window.py).
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
        layer_type: of the layer that it is in.
        reach: how many tokens on each side of a segment of a longer sequence it has to see (layout/halo.py).
        window: how many tokens on each side of a token it sees with softmax, if it has a window.
        has_heads_first: whether attention gives `(batch, heads, length, head_dim)`, or the heads behind the length.
        eager_attention: the form that returns its weights.
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
        """The name of the attention function, as `attn_implementation` has it."""
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
            layout: how the tokens lie.
            memory: the second stream of hidden states, which only some mixers read and write.
            attention: the function of `attention_name`; `None` where only the inputs are wanted.
        """
        raise TypeError(f"{type(self).__name__} has no forward.")

    def weights(self, call: AttentionCall, layout: Layout) -> Tensor:
        """The weights of a call, `(batch, heads, length, keys)`, computed once more by the form that returns them."""
        raise TypeError(f"{type(self).__name__} has no weights.")

    def split_heads(self, x: Tensor) -> Tensor:
        """`(batch, length, hidden_size)` to `(batch, heads, length, head_dim)`."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
