# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""One vector for a sequence."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from .segments import SharedSequence


class LionPooler(nn.Module):
    """
    One vector for a sequence: that of its first real token, or the mean of its real tokens; for text, the first
    token's goes through BERT's dense tanh layer, unless classifiers have a head of their own.
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.pooling = config.pooling
        self.dense = None
        if config.modality == "text" and config.pooling == "cls" and not config.use_prediction_head:
            self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden_states: Tensor,
        is_real: Tensor | None,
        cu_seqlens: Tensor | None = None,
        shared_sequence: SharedSequence | None = None,
    ) -> Tensor:
        """`(batch, hidden_size)`; of packed rows `(batch * num_sequences, hidden_size)`."""
        if cu_seqlens is not None:
            lengths = cu_seqlens.diff().tolist()
            sequences = hidden_states.split(lengths, dim=1)
            masks = [None] * len(lengths) if is_real is None else is_real.split(lengths, dim=1)
            return torch.stack([self(*pair) for pair in zip(sequences, masks, strict=True)], dim=1).flatten(0, 1)
        if shared_sequence is not None:
            pooled = shared_sequence.pool(hidden_states, is_real, self.pooling)
            return pooled if self.dense is None else torch.tanh(self.dense(pooled))
        if self.pooling == "mean":
            if is_real is None:
                return hidden_states.mean(dim=1)
            weights = is_real.to(hidden_states.dtype).unsqueeze(-1)
            return (hidden_states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
        if is_real is None:
            pooled = hidden_states[:, 0]
        else:
            first = is_real.int().argmax(dim=1)  # not 0 where padding is on the left
            pooled = hidden_states[torch.arange(first.shape[0], device=first.device), first]
        return pooled if self.dense is None else torch.tanh(self.dense(pooled))
