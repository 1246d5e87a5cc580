# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What sees tokens one by one: norms, the MLP of a layer, and the head before the last linear layer of a model."""

from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN


class LionRMSNorm(nn.RMSNorm):
    """torch's, also of half precision with weights in float32, as autocast has it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


def make_norm(config: PreTrainedConfig, eps: float | None = None, size: int | None = None) -> nn.Module:
    """A norm of the kind of `norm_type` over `size`, the hidden size unless given; `eps` is else `layer_norm_eps`."""
    eps = config.layer_norm_eps if eps is None else eps
    size = config.hidden_size if size is None else size
    if config.norm_type == "rms_norm":
        return LionRMSNorm(size, eps=eps)
    return nn.LayerNorm(size, eps=eps, bias=config.norm_bias)


class LionMLP(nn.Module):
    """down(act(up(x))), or gated, down(act(gate(x)) * up(x))."""

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
    A dense layer, an activation and a norm, as in the heads of BERT's masked LM and of all of ModernBERT's. `size` is
    that of what comes out, the hidden size unless given.
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
    """With a decoder that is tied to the word embeddings; nothing but the decoder without `use_lm_transform`."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config, config.embedding_size)
        self.has_transform = config.use_lm_transform
        if not self.has_transform:
            del self.dense, self.layer_norm
        self.decoder = nn.Linear(config.embedding_size or config.hidden_size, config.vocab_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.decoder(super().forward(hidden_states) if self.has_transform else hidden_states)
