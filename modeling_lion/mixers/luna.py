# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Luna (Ma et al., 2021; SPEC §9): two nested attentions through a memory P of a few vectors, linear in the length.

    pack     Y_P = ω(P W_pq (X W_pk)ᵀ / √D) X W_pv          P⁺ = LayerNorm(Y_P + P), for the next layer
    unpack   Y_X = softmax(X W_q (Y_P W_k)ᵀ / √D) Y_P W_v

P of the first layer is learnt. ω is softmax, or softplus or ELU + 1 divided by the sum over the tokens.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers import initialization as init

from ..attention.numerics import accumulation_dtype, divide, without_autocast
from ..sequence.layout import Layout
from ..tokens import Tokens
from .feature_map import elu
from .mixer import AttentionCall, register_mixer
from .softmax import SoftmaxMixer, eager_softmax


ACTIVATIONS = {"softplus": F.softplus, "elu": elu}


@register_mixer
class LunaMixer(SoftmaxMixer):
    """
    Luna, for comparison with LION; its training steps are the shortest. `q_proj`, `k_proj` and `v_proj` belong to the
    unpack attention, the same names with `pack_` to the pack attention.
    """

    name, title = "luna", "Luna in the backbone of LION"
    description = "through a memory of fixed length, in linear time"
    has_memory = True
    attention_functions = ("eager", "sdpa")  # others do not support these masks

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        self.activation = ACTIVATIONS.get(config.luna_activation)
        self.pack_q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        self.pack_k_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        if config.luna_tie_kv:
            self.v_proj = self.pack_v_proj = None
        else:
            self.pack_v_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        is_first, is_last = layer_idx == 0, layer_idx == config.num_hidden_layers - 1
        self.memory = nn.Parameter(torch.empty(config.luna_length, config.hidden_size)) if is_first else None
        self.memory_norm = None if is_last else nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        if self.memory is not None:
            init.normal_(self.memory, std=1.0)  # as large as after the LayerNorms of the other layers

    @staticmethod
    def layer_mask(config, hidden_states, tokens: Tokens) -> tuple[Tensor | None, Tensor | None]:
        """`SoftmaxMixer.layer_mask` for the pack and the unpack attention."""
        is_real, cu_seqlens = tokens.is_real, tokens.cu_seqlens
        if cu_seqlens is None:
            return None if is_real is None else is_real[:, None, None], None
        # Every packed sequence has its own memory.
        sequence = tokens.sequence(hidden_states)
        slot = torch.arange(len(cu_seqlens) - 1, device=sequence.device).repeat_interleave(config.luna_length)
        own = (slot.unsqueeze(1) == sequence)[None, None]
        return own if is_real is None else own & is_real[:, None, None], own.transpose(-1, -2)

    def forward(self, hidden_states: Tensor, layout: Layout, attention: Callable | None = None) -> AttentionCall:
        """`Mixer.forward` of the unpack attention. Replaces P in `layout.memory` by P⁺, one for each sequence."""
        (pack_mask, unpack_mask), memory = layout.masks[self.layer_type], layout.memory.states
        if memory is None:
            borders = layout.tokens.cu_seqlens
            num_sequences = 1 if borders is None else len(borders) - 1
            memory = self.memory.repeat(num_sequences, 1).expand(hidden_states.shape[0], -1, -1)
        query = self.split_heads(self.pack_q_proj(memory))
        key = self.split_heads(self.pack_k_proj(hidden_states))
        value = key if self.pack_v_proj is None else self.split_heads(self.pack_v_proj(hidden_states))
        if self.activation is None:
            pack = self.bound(attention or eager_softmax, layout, pack_mask)
            packed = pack(query, key, value)[0].flatten(2)
        else:
            packed = self.pack(query, key, value, pack_mask)
        query = self.split_heads(self.q_proj(hidden_states))
        key = self.split_heads(self.k_proj(packed))
        value = key if self.v_proj is None else self.split_heads(self.v_proj(packed))
        layout.memory.states = None if self.memory_norm is None else self.memory_norm(packed + memory)
        attention = None if attention is None else self.bound(attention, layout, unpack_mask)
        return AttentionCall(attention, (query, key, value))

    def pack(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Y_P by an activation, `(batch, luna_length, hidden_size)`; 0 if there is no token to pack."""
        dtype = accumulation_dtype(query.dtype)
        with without_autocast(query):
            weights = self.activation(self.scaling * query.to(dtype) @ key.to(dtype).transpose(-1, -2))
            weights = weights if mask is None else weights * mask
            packed = divide(weights @ value.to(dtype), weights.sum(-1, keepdim=True))
        return packed.to(value.dtype).transpose(1, 2).flatten(2)
