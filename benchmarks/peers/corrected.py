# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The gated delta rule (Yang et al., arXiv 2412.06464) as a mixer of one's own, in plain torch: an example of linear
attention whose operator needs more than log decays. The package has it, too, as `mixer_type="delta"`, which is faster.

A token lets the state forget by its decay, then adds under its key, of length 1, what the value has and the state
lacks, times β = sigmoid(w·x + b). Even heads read forward, odd heads backward; the output of each head is normalised
(RMS, without weights).
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from modeling_lion import register_feature_map, register_mixer
from modeling_lion.mixers.linear import LinearMixer


CHUNK = 64


@partial(register_feature_map, is_positive=False)
def unit_silu(x: Tensor) -> Tensor:
    return F.normalize(F.silu(x), dim=-1)


def recurrence(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    """S ← λ_t S; S ← S + β_t k_t (v_t - Sᵀ k_t)ᵀ; y_t = Sᵀ q_t, token by token."""
    state, outputs = key.new_zeros(*key.shape[:2], key.shape[-1], value.shape[-1]), []
    for q, k, v, decay, write in zip(*(x.unbind(2) for x in (query, key, value, log_decay.exp(), beta)), strict=True):
        state = decay[..., None, None] * state
        lacking = v - (k.unsqueeze(-2) @ state).squeeze(-2)
        state = state + k.unsqueeze(-1) * (write.unsqueeze(-1) * lacking).unsqueeze(-2)
        outputs.append((q.unsqueeze(-2) @ state).squeeze(-2))
    return torch.stack(outputs, 2)


def chunks(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    """`recurrence` by chunks: a triangular system for all writes of a chunk, the state between them."""
    length = query.shape[2]
    spare = -length % CHUNK
    query, key, value = (F.pad(x, (0, 0, 0, spare)).unflatten(2, (-1, CHUNK)) for x in (query, key, value))
    log_decay, beta = (F.pad(x, (0, spare)).unflatten(2, (-1, CHUNK)) for x in (log_decay, beta))
    passed = log_decay.cumsum(-1)
    between = (passed.unsqueeze(-1) - passed.unsqueeze(-2)).tril().exp().tril()
    system = (beta.unsqueeze(-1) * (key @ key.mT) * between).tril(-1) + torch.eye(CHUNK).to(key)
    sides = torch.cat((value, passed.exp().unsqueeze(-1) * key), -1) * beta.unsqueeze(-1)
    solved = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
    written, read = solved.split((value.shape[-1], key.shape[-1]), -1)
    scores, from_start = (query @ key.mT) * between, query * passed.exp().unsqueeze(-1)
    to_end = key * (passed[..., -1:] - passed).exp().unsqueeze(-1)
    state, outputs = key.new_zeros(*key.shape[:2], key.shape[-1], value.shape[-1]), []
    for n in range(query.shape[2]):
        new = written[:, :, n] - read[:, :, n] @ state
        outputs.append(from_start[:, :, n] @ state + scores[:, :, n] @ new)
        state = state * passed[:, :, n, -1, None, None].exp() + to_end[:, :, n].mT @ new
    return torch.cat(outputs, 2)[:, :, :length]


def in_both_directions(
    rule: Callable, query: Tensor, key: Tensor, value: Tensor, decays, beta: Tensor, *, cu_seqlens=None, **options
) -> tuple[Tensor, None]:
    """A form of attention: the rule forward in even heads and backward in odd ones, of each packed sequence."""
    dtype = torch.promote_types(value.dtype, torch.float32)
    inputs = [x.to(dtype) for x in (query, key, value, decays.forward, beta)]
    lengths = [query.shape[2]] if cu_seqlens is None else cu_seqlens.diff().tolist()
    outputs = []
    for sequence in zip(*(x.split(lengths, 2) for x in inputs), strict=True):
        forward = rule(*(x[:, ::2] for x in sequence))
        backward = rule(*(x[:, 1::2].flip(2) for x in sequence)).flip(2)
        outputs.append(torch.stack((forward, backward), 2).flatten(1, 2))
    mixed = torch.cat(outputs, 2)
    return F.rms_norm(mixed, (mixed.shape[-1],), eps=1e-5).to(value.dtype), None


class Gate(nn.Linear):
    """Logits for each head. "decay" in the names of both gates keeps them in float32."""

    def __init__(self, hidden_size: int, heads: int, start: float):
        super().__init__(hidden_size, heads)
        self.start = start

    def init_own_weights(self, config):
        init.normal_(self.weight, std=config.hidden_size**-0.5)
        init.constant_(self.bias, self.start)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype)).transpose(1, 2)


@register_mixer
class CorrectedMixer(LinearMixer):
    """The gated delta rule in heads of one direction, of which there is an even number."""

    name, title, description = "corrected", "corrected sums", "with the gated delta rule, in plain torch"
    forms = {"chunk": partial(in_both_directions, chunks), "rnn": partial(in_both_directions, recurrence)}
    needs = ("log_decay", "beta")
    defaults = {"feature_map": "unit_silu", "normalization": "none"}
    choices = {"normalization": ("none",), "head_directions": ("alternate",)}

    def __init__(self, config, layer_idx=0):
        super().__init__(config, layer_idx)
        self.decay_proj = Gate(config.hidden_size, config.num_attention_heads, start=4.0)
        self.decay_beta = Gate(config.hidden_size, config.num_attention_heads, start=0.0)

    def log_decay(self, hidden_states: Tensor) -> Tensor:
        return F.logsigmoid(self.decay_proj(hidden_states))

    def beta(self, hidden_states: Tensor) -> Tensor:
        return self.decay_beta(hidden_states).sigmoid()
