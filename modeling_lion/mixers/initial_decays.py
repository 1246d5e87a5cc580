# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Initial decays."""

import math

import torch
from torch import Tensor
from transformers import PreTrainedConfig


# Half-life of the fastest head, in tokens.
SHORTEST_HALF_LIFE = 0.5
# Half-lives of the slowest and the fastest head of a linearized model, in tokens: all reach beyond a window of 64.
FAR_HALF_LIVES = (65_536.0, 256.0)


def initial_decay_logits(config: PreTrainedConfig) -> Tensor:
    """
    Logits of decays, `(scans * heads,)`, float32, whose half-lives are spread over the heads, evenly on a logarithmic
    scale, from half a token to the whole context; the same for every scan. (Logits near 0, as in the published
    listing, give every head a memory of two tokens.)

    If heads have one direction, a forward head and the backward head after it have the same half-life, so that a model
    sees as far ahead as back. (A single pair has the geometric mean of both ends.)
    """
    longest = config.context_length
    heads = config.num_attention_heads
    heads_each = 2 if config.head_directions == "alternate" else 1
    if heads == heads_each == 2:
        longest = math.sqrt(longest * SHORTEST_HALF_LIFE)
    logits = decay_logits(longest, SHORTEST_HALF_LIFE, heads // heads_each)
    return logits.repeat_interleave(heads_each).repeat(config.num_scans)


def far_decay_logits(num_heads: int) -> Tensor:
    """Initial logits of decays in a linearized model, `(num_heads,)`, float32."""
    return decay_logits(*FAR_HALF_LIVES, num_heads)


def decay_logits(longest: float, shortest: float, heads: int) -> Tensor:
    """Logits of decays, `(heads,)`, float32, whose half-lives in tokens are spread evenly on a logarithmic scale."""
    half_life = torch.logspace(math.log2(longest), math.log2(shortest), heads, base=2.0, dtype=torch.float64)
    return torch.logit(torch.exp2(-1 / half_life)).float()
