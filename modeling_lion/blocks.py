# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The parts of a model besides attention: norms, the MLP of a layer, the pooler, and the head of masked LM."""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from .layout.layout import Layout


class LionRMSNorm(nn.RMSNorm):
    """`nn.RMSNorm` that also takes half precision with float32 weights, as under autocast."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


def make_norm(config: PreTrainedConfig, eps: float | None = None, size: int | None = None) -> nn.Module:
    """A norm of type `norm_type`; `size` defaults to `hidden_size`, `eps` to `layer_norm_eps`."""
    eps = config.layer_norm_eps if eps is None else eps
    size = config.hidden_size if size is None else size
    if config.norm_type == "rms_norm":
        return LionRMSNorm(size, eps=eps)
    return nn.LayerNorm(size, eps=eps, bias=config.norm_bias)


class LionMLP(nn.Module):
    """down(act(up(x))), or if gated down(act(gate(x)) * up(x))."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        sizes = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(*sizes, bias=config.mlp_bias) if config.use_gated_mlp else None
        self.up_proj = nn.Linear(*sizes, bias=config.mlp_bias)
        self.activation = ACT2FN[config.hidden_act]
        self.down_proj = nn.Linear(*reversed(sizes), bias=config.mlp_bias)

    def forward(self, hidden_states: Tensor) -> Tensor:
        if self.gate_proj is None:
            return self.down_proj(self.activation(self.up_proj(hidden_states)))
        return self.down_proj(self.activation(self.gate_proj(hidden_states)) * self.up_proj(hidden_states))


class LionPredictionHead(nn.Module):
    """
    A dense layer, an activation and a norm, as in BERT's head for masked LM and in all heads of ModernBERT. `size` is
    the size of the output and defaults to `hidden_size`.
    """

    def __init__(self, config: PreTrainedConfig, size: int | None = None):
        super().__init__()
        size = config.hidden_size if size is None else size
        self.dense = nn.Linear(config.hidden_size, size, bias=config.classifier_bias)
        self.activation = ACT2FN[config.hidden_act]
        self.layer_norm = make_norm(config, size=size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.layer_norm(self.activation(self.dense(hidden_states)))


class LionMaskedLMHead(LionPredictionHead):
    """A prediction head and a decoder tied to the word embeddings; the decoder alone without `use_lm_transform`."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config, config.embedding_size)
        self.has_transform = config.use_lm_transform
        if not self.has_transform:
            del self.dense, self.layer_norm
        self.decoder = nn.Linear(config.embedding_size or config.hidden_size, config.vocab_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.decoder(super().forward(hidden_states) if self.has_transform else hidden_states)


class LionAttentionPooling(nn.Module):
    """SigLIP's pooling: softmax attention of a learnt query to all tokens, then an MLP."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.head_dim = config.head_dim
        self.probe = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(config.hidden_size, config.hidden_size))
        self.layer_norm = make_norm(config)
        self.mlp = LionMLP(config)

    def forward(self, hidden_states: Tensor, is_real: Tensor | None) -> Tensor:
        """`(batch, length, hidden_size)` to `(batch, hidden_size)`."""
        query = self.q_proj(self.probe).expand(len(hidden_states), -1, -1)
        inputs = (query, self.k_proj(hidden_states), self.v_proj(hidden_states))
        inputs = (x.unflatten(2, (-1, self.head_dim)).transpose(1, 2) for x in inputs)
        mask = None if is_real is None else is_real[:, None, None]
        pooled = self.o_proj(scaled_dot_product_attention(*inputs, attn_mask=mask).transpose(1, 2).flatten(1))
        return pooled + self.mlp(self.layer_norm(pooled))


class LionPooler(nn.Module):
    """
    One vector for a sequence, by `pooling`: its first real token, the mean of its real tokens, ...; then the final
    norm if `pooler_norm`; and a dense layer with an activation if configured, as in BERT.
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

    def forward(self, hidden_states: Tensor, layout: Layout) -> Tensor:
        """`(batch, pooled_size)`; for packed rows `(batch * num_sequences, pooled_size)`."""
        if self.pooling == "late":
            hidden_states = self.project(hidden_states)
        pooled = layout.pool(hidden_states, self.reduce, self.pooling)
        if self.layer_norm is not None:
            pooled = self.layer_norm(pooled)
        return pooled if self.pooling == "late" else self.project(pooled)

    def project(self, states: Tensor) -> Tensor:
        return states if self.dense is None else self.activation(self.dense(states))

    def reduce(self, hidden_states: Tensor, is_real: Tensor | None) -> Tensor:
        """`(batch, length, hidden_size)` to `(batch, pooled_size)`."""
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
    """The mean over real tokens, `(batch, hidden_size)`; 0 if there are none."""
    if is_real is None:
        return hidden_states.mean(dim=1)
    weights = is_real.to(hidden_states.dtype).unsqueeze(-1)
    return (hidden_states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
