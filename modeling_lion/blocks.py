# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The parts of a model besides attention: norms, the MLP, the pooler, and the masked language modeling head."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from .attention.numerics import accumulation_dtype
from .sequence.layout import Layout


def make_norm(config: PreTrainedConfig, eps: float | None = None) -> nn.LayerNorm:
    """A norm of hidden states; `eps` defaults to `layer_norm_eps`."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps if eps is None else eps)


class LionMLP(nn.Module):
    """down(act(up(x))), or if gated down(act(gate(x)) * up(x))."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        sizes = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(*sizes) if config.use_gated_mlp else None
        self.up_proj = nn.Linear(*sizes)
        self.activation = ACT2FN[config.hidden_act]
        self.down_proj = nn.Linear(*reversed(sizes))

    def forward(self, hidden_states: Tensor) -> Tensor:
        if self.gate_proj is None:
            return self.down_proj(self.activation(self.up_proj(hidden_states)))
        return self.down_proj(self.activation(self.gate_proj(hidden_states)) * self.up_proj(hidden_states))


class LionMaskedLMHead(nn.Module):
    """A dense layer, an activation, a norm, and a decoder tied to the word embeddings, as in BERT."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.layer_norm = make_norm(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.decoder(self.layer_norm(self.activation(self.dense(hidden_states))))


class LionPooler(nn.Module):
    """Reduces a sequence to its first real token, in texts with a dense layer and tanh as in BERT, or to a mean."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.pooling = config.pooling
        is_bert = config.modality == "text" and config.pooling == "cls"
        self.dense = nn.Linear(config.hidden_size, config.hidden_size) if is_bert else None

    def forward(self, hidden_states: Tensor, layout: Layout) -> Tensor:
        """Returns `(batch, hidden_size)`, or `(batch * num_sequences, hidden_size)` for packed rows."""
        pooled = layout.pool(hidden_states, self.reduce, self.pooling)
        return pooled if self.dense is None else self.dense(pooled).tanh()

    def reduce(self, hidden_states: Tensor, is_real: Tensor | None) -> Tensor:
        """Reduces `(batch, length, hidden_size)` to `(batch, hidden_size)`."""
        if self.pooling == "mean":
            return mean_of_real(hidden_states, is_real)
        if is_real is None:
            return hidden_states[:, 0]
        first = is_real.int().argmax(dim=1)  # not 0 if padding is on the left
        return hidden_states[torch.arange(first.shape[0], device=first.device), first]


def mean_of_real(hidden_states: Tensor, is_real: Tensor | None) -> Tensor:
    """The mean over the real tokens of each row, `(batch, hidden_size)`; 0 if a row has none."""
    if is_real is None:
        return hidden_states.mean(dim=1)
    dtype = accumulation_dtype(hidden_states.dtype)  # in float16, sums and counts would overflow
    weights = is_real.to(hidden_states.dtype).unsqueeze(-1)
    count = weights.sum(dim=1, dtype=dtype).clamp(min=1)
    return ((hidden_states * weights).sum(dim=1, dtype=dtype) / count).to(hidden_states.dtype)
