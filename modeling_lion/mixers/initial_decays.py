# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The decays that mixers start with."""

import math

import torch
from torch import Tensor
from transformers import PreTrainedConfig


# In tokens, of the fastest head.
SHORTEST_HALF_LIFE = 0.5
# In tokens, of the fastest and the slowest head inside another encoder: all reach beyond a window of 64.
FAR_HALF_LIVES = (256.0, 65_536.0)


def initial_decay_logits(config: PreTrainedConfig) -> Tensor:
    """
    Logits of decays whose half-lives are spread over the heads, evenly on a logarithmic scale, from half a token to
    the whole context. (Logits near 0, as in the published code, give every head a memory of two tokens.)

    If heads have one direction, two neighbours, one of each, have the same half-life, so that a model sees as
    far after a token as before it. (A single pair has the geometric mean of both ends.)

    Returns:
        `(scans * heads,)`, float32; the same for every scan. A half-life of h tokens is λ = 2^(-1/h).
    """
    longest = config.context_length
    heads = config.num_attention_heads
    heads_each = 2 if config.head_directions == "alternate" else 1
    if heads == heads_each == 2:
        longest = math.sqrt(longest * SHORTEST_HALF_LIFE)
    half_life = torch.logspace(
        math.log2(longest), math.log2(SHORTEST_HALF_LIFE), heads // heads_each, base=2.0, dtype=torch.float64
    ).repeat_interleave(heads_each)
    decay = torch.exp2(-1 / half_life)
    return torch.logit(decay).float().repeat(config.num_scans)


def far_decay_logits(num_heads: int) -> Tensor:
    """Logits of decays with the half-lives of `FAR_HALF_LIVES`, the longest first, `(num_heads,)`, float32."""
    shortest, longest = torch.tensor(FAR_HALF_LIVES, dtype=torch.float64).log2()
    half_life = torch.logspace(longest, shortest, num_heads, base=2.0, dtype=torch.float64)
    return torch.logit(torch.exp2(-1 / half_life)).float()
