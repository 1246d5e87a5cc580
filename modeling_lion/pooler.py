# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""One vector for a sequence."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from .feed_forward import LionMLP, make_norm
from .segments import SharedSequence


class LionAttentionPooling(nn.Module):
    """A learnt query reads all tokens by softmax attention, and an MLP follows: SigLIP's."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.head_dim = config.head_dim
        self.probe = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(config.hidden_size, config.hidden_size))
        self.layer_norm = make_norm(config)
        self.mlp = LionMLP(config)

    def forward(self, hidden_states: Tensor, is_real: Tensor | None) -> Tensor:
        """`(batch, hidden_size)` of `(batch, length, hidden_size)`."""
        query = self.q_proj(self.probe).expand(len(hidden_states), -1, -1)
        inputs = (query, self.k_proj(hidden_states), self.v_proj(hidden_states))
        inputs = (x.unflatten(2, (-1, self.head_dim)).transpose(1, 2) for x in inputs)
        mask = None if is_real is None else is_real[:, None, None]
        pooled = self.o_proj(scaled_dot_product_attention(*inputs, attn_mask=mask).transpose(1, 2).flatten(1))
        return pooled + self.mlp(self.layer_norm(pooled))


class LionPooler(nn.Module):
    """
    One vector for a sequence, as `pooling` says: its first real token, the mean of its real tokens, ...; the norm of
    the last layer if it is the pooler's; and a dense layer with an activation if configured, BERT's for text.
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.pooling = config.pooling
        self.num_prefix_tokens = config.num_prefix_tokens
        self.attention = LionAttentionPooling(config) if config.pooling == "attention" else None
        has_norm = config.norm_position == "pre" and config.pooler_norm
        self.layer_norm = make_norm(config, size=config.pooled_size) if has_norm else None
        is_bert = config.modality == "text" and config.pooling == "cls" and not config.use_prediction_head
        name = config.pooler_act or ("tanh" if is_bert else "none")
        self.dense = None
        if name != "none":
            self.dense = nn.Linear(config.pooled_size, config.pooled_size)
            self.activation = ACT2FN[name]

    def forward(
        self,
        hidden_states: Tensor,
        is_real: Tensor | None,
        cu_seqlens: Tensor | None = None,
        shared_sequence: SharedSequence | None = None,
    ) -> Tensor:
        """`(batch, pooled_size)`; of packed rows `(batch * num_sequences, pooled_size)`."""
        if cu_seqlens is not None:
            lengths = cu_seqlens.diff().tolist()
            sequences = hidden_states.split(lengths, dim=1)
            masks = [None] * len(lengths) if is_real is None else is_real.split(lengths, dim=1)
            return torch.stack([self(*pair) for pair in zip(sequences, masks, strict=True)], dim=1).flatten(0, 1)
        if self.pooling == "late":
            hidden_states = self.project(hidden_states)
        if shared_sequence is not None:
            pooled = shared_sequence.pool(hidden_states, is_real, self.pooling)
        else:
            pooled = self.reduce(hidden_states, is_real)
        if self.layer_norm is not None:
            pooled = self.layer_norm(pooled)
        return pooled if self.pooling == "late" else self.project(pooled)

    def project(self, states: Tensor) -> Tensor:
        return states if self.dense is None else self.activation(self.dense(states))

    def reduce(self, hidden_states: Tensor, is_real: Tensor | None) -> Tensor:
        """`(batch, pooled_size)` of `(batch, length, hidden_size)`."""
        if self.attention is not None:
            return self.attention(hidden_states, is_real)
        if self.pooling == "prefix":
            return hidden_states[:, : self.num_prefix_tokens].flatten(1)
        if self.pooling == "cls_mean":
            first, patches = hidden_states.tensor_split((self.num_prefix_tokens,), dim=1)
            is_real = None if is_real is None else is_real[:, self.num_prefix_tokens :]
            return torch.cat((first[:, 0], mean_of_real(patches, is_real)), dim=-1)
        if self.pooling in ("mean", "late"):
            return mean_of_real(hidden_states, is_real)
        if is_real is None:
            return hidden_states[:, 0]
        first = is_real.int().argmax(dim=1)  # not 0 where padding is on the left
        return hidden_states[torch.arange(first.shape[0], device=first.device), first]


def mean_of_real(hidden_states: Tensor, is_real: Tensor | None) -> Tensor:
    """`(batch, hidden_size)`, 0 where no token is real."""
    if is_real is None:
        return hidden_states.mean(dim=1)
    weights = is_real.to(hidden_states.dtype).unsqueeze(-1)
    return (hidden_states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
