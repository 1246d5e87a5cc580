# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Hydra (Hwang et al., arXiv 2407.09941): one quasiseparable matrix mixes the tokens,

    QS(X) = shift(SS(X)) + flip(shift(SS(flip(X)))) + D X        SS: y_i = C_iᵀ Σ_{j ≤ i} a_{j+1} ⋯ a_i B_j Δ_j x_j

where `shift` moves by one token and leaves 0 in front. One input projection gives the gate z, x, and B, C and Δ twice,
once for each direction, so that "two selective passes" share all but these; A, of a = exp(-Δ e^A), the bias of Δ and
one output projection are shared, too. D is a number for each head and token, W x + b. In front is a convolution over
seven tokens, SiLU after it, and behind a norm (RMS), then the gate.

The scans are linear attention with a decay for each token in heads of one direction (SPEC §11), without a division, so
LION's kernels compute them. Sizes in the backbone of the others: `hydra_state` numbers for B and C, one group, and, as
for the other peers, `expand=1`. The convolution has no bias here.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from modeling_lion import register_mixer
from modeling_lion.attention.decay_mask import LogDecay
from modeling_lion.attention.lion_attention import lion_attention
from modeling_lion.attention.numerics import accumulation_dtype, without_autocast
from modeling_lion.mixers.mixer import Mixer
from modeling_lion.mixers.short_conv import ShortConv


TAPS = 7
STEPS = (0.001, 0.1)  # Δ at first: spread over the heads, evenly on a logarithmic scale


class StepSize(nn.Linear):
    """Δ of each token, head and direction, and the log decay -Δ e^A of the step to the token."""

    def __init__(self, size: int, heads: int):
        super().__init__(size, 2 * heads, bias=False)
        self.step_bias = nn.Parameter(torch.empty(heads))
        self.log_rate = nn.Parameter(torch.empty(heads))

    def init_own_weights(self, config):
        init.normal_(self.weight, std=self.in_features**-0.5)
        step = torch.logspace(*map(math.log10, STEPS), len(self.step_bias))
        init.copy_(self.step_bias, step + torch.log(-torch.expm1(-step)))  # softplus of it is the step
        init.zeros_(self.log_rate)

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """`(batch, length, directions, heads)` each."""
        logits = F.linear(hidden_states.to(self.weight.dtype), self.weight).unflatten(-1, (2, -1))
        step = F.softplus(logits + self.step_bias)
        return step, -step * self.log_rate.exp()


class Diagonal(nn.Linear):
    """D of each token and head, 1 on average at first."""

    def init_own_weights(self, config):
        init.normal_(self.weight, std=self.in_features**-0.5)
        init.ones_(self.bias)


def quasiseparable(x: Tensor, B: Tensor, C: Tensor, step: Tensor, log_decay: Tensor, diagonal: Tensor) -> Tensor:
    """
    QS(X) of the head of this file.

    Args:
        x: `(batch, length, heads, head_dim)`.
        B, C: `(batch, length, directions, state)`, the same for all heads; forward, then backward.
        step, log_decay: `(batch, length, directions, heads)`.
        diagonal: `(batch, length, heads)`.

    Returns:
        The shape of `x`.
    """
    batch, length, heads, _ = x.shape
    # Heads of LION that read one way do so alternately: (batch, length, heads, directions, ...) becomes a head each.
    by_head = lambda y: y.flatten(2, 3).transpose(1, 2)
    value = by_head(x.unsqueeze(3) * step.transpose(2, 3).unsqueeze(-1))
    query, key = (by_head(y.unsqueeze(2).expand(-1, -1, heads, -1, -1)) for y in (C, B))
    # LION's log decays are of the step from a token to the next one; these are of the step to a token.
    forward = by_head(log_decay[:, :, 0].unsqueeze(3).expand(-1, -1, -1, 2)).roll(-1, 2)
    backward = by_head(log_decay[:, :, 1].unsqueeze(3).expand(-1, -1, -1, 2)).roll(1, 2)
    scans, _ = lion_attention(
        query, key, value, LogDecay(forward, backward), normalization="none", head_directions="alternate"
    )
    ahead, back = (scans * query.shape[-1] ** 0.5).transpose(1, 2).unflatten(2, (heads, 2)).unbind(3)
    nothing = torch.zeros_like(ahead[:, :1])
    shifted = torch.cat((nothing, ahead[:, :-1]), 1) + torch.cat((back[:, 1:], nothing), 1)
    return shifted + diagonal.unsqueeze(-1) * x


@register_mixer
class HydraMixer(Mixer):
    """One quasiseparable matrix for each head."""

    name, title, description = "hydra", "Hydra", "by a quasiseparable matrix, as in Hydra"
    fields = {"hydra_state": 64}
    projections = ()
    has_decays = True

    def __init__(self, config, layer_idx=0):
        super().__init__(config, layer_idx)
        size, heads, self.state = config.hidden_size, config.num_attention_heads, config.hydra_state
        self.sizes = [size, size + 4 * self.state]
        self.in_proj = nn.Linear(size, sum(self.sizes), bias=False)
        self.conv = ShortConv(self.sizes[1], TAPS)
        self.decay_step = StepSize(size, heads)
        self.diagonal = Diagonal(size, heads)
        self.norm = nn.RMSNorm(size, eps=1e-5)

    def mix(self, hidden_states: Tensor) -> Tensor:
        gate, mixed = self.in_proj(hidden_states).split(self.sizes, -1)
        with without_autocast(hidden_states):
            mixed = self.conv(mixed.contiguous())
            diagonal = self.diagonal(mixed[..., : self.sizes[0]].to(self.diagonal.weight.dtype))
            dtype = accumulation_dtype(hidden_states.dtype)
            x, keys, queries = mixed.to(dtype).split([self.sizes[0], 2 * self.state, 2 * self.state], -1)
            B, C = (y.unflatten(-1, (2, -1)) for y in (keys, queries))
            step, log_decay = (y.to(dtype) for y in self.decay_step(hidden_states))
            x = x.unflatten(-1, (-1, self.head_dim))
            mixed = quasiseparable(x, B, C, step, log_decay, diagonal.to(dtype)).flatten(2)
            mixed = F.rms_norm(mixed, mixed.shape[-1:], self.norm.weight.to(dtype), self.norm.eps)
        return mixed.to(gate.dtype) * F.silu(gate)
