# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""LION-D: one learnt decay per head, λ = sigmoid(α_h) (SPEC §2). The bidirectional RetNet."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig

from .lion_kernel import accumulation_dtype
from .mixer_lit import LitMixer


# In tokens, of the fastest head. With decays per channel it is that of a head's slowest channel.
SHORTEST_HALF_LIFE = {"decay": 0.5, "selective": 0.5, "diagonal": 4.0}


class FixedDecay(nn.Module):
    """The logits α, one per head: a module of their own, which peft can train beside LoRA (`modules_to_save`)."""

    def __init__(self, num_heads: int):
        super().__init__()
        # "bias" in the name keeps weight decay off it: the Trainer's rule for parameters that must not shrink to 0.
        self.bias = nn.Parameter(torch.empty(num_heads))

    def forward(self, hidden_states: Tensor) -> Tensor:
        """The log decays, `(num_heads,)`; of the hidden states only the dtype matters."""
        return F.logsigmoid(self.bias.to(accumulation_dtype(hidden_states.dtype)))


class DecayMixer(LitMixer):
    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        self.decay = FixedDecay(config.num_scans * config.num_attention_heads)

    def log_decay(self, hidden_states: Tensor) -> Tensor:
        return self.decay(hidden_states)


def initial_decay_logits(
    config: PreTrainedConfig, shortest_half_life: float | None = None, contexts: float = 1.0
) -> Tensor:
    """
    Logits of decays whose half-lives are spread evenly, on a logarithmic scale, over the heads: from half a token to
    the whole context. (Logits around 0, as in the published code, give every head a memory of two tokens.)

    With decays per channel, these are the half-lives of each head's slowest channel, from 4 tokens on, and channel c,
    from 0, decays c + 1 times as fast, but never to the half within less than a token: the rates of HiPPO's states
    (S4D-Real).

    Args:
        shortest_half_life: in tokens; `None` for that of the mixer. contexts: the longest, in lengths of the context.

    Returns:
        `(scans * heads,)`, float32, or `(scans * heads * head_dim,)` for the mixer "diagonal"; the same for every
        scan. A half-life of h tokens is λ = 2^(-1/h).
    """
    if shortest_half_life is None:
        shortest_half_life = SHORTEST_HALF_LIFE[config.mixer_type]
    longest = max(contexts * config.context_length, shortest_half_life)
    half_life = torch.logspace(
        math.log2(longest), math.log2(shortest_half_life), config.num_attention_heads, base=2.0, dtype=torch.float64
    )
    if config.mixer_type == "diagonal":
        rates = torch.arange(1, config.head_dim + 1, dtype=torch.float64)
        half_life = (half_life.unsqueeze(1) / rates).clamp(min=1).flatten()
    decay = torch.exp2(-1 / half_life)
    return torch.logit(decay).float().repeat(config.num_scans)
