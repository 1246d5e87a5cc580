# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
A mixer from outside of the package: the gated delta rule in heads of one direction (SPEC §14), as it was first tried,
in a hundred lines of plain torch. The package's own is modeling_lion/mixers/delta.py.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from modeling_lion import register_feature_map, register_mixer
from modeling_lion.mixers.linear import LinearMixer
from modeling_lion.mixers.selective import DecayGate, gate_log_decay


@partial(register_feature_map, is_positive=False)
def unit_silu(x: Tensor) -> Tensor:
    return F.normalize(F.silu(x), dim=-1)


def chunks(query: Tensor, key: Tensor, value: Tensor, step: Tensor, beta: Tensor, size: int) -> Tensor:
    """`step`: the log decay of the step into each token, `(batch, heads, length)`."""
    length = query.shape[2]
    spare = -length % size
    query, key, value = (F.pad(x, (0, 0, 0, spare)).unflatten(2, (-1, size)) for x in (query, key, value))
    step, beta = (F.pad(x, (0, spare)).unflatten(2, (-1, size)) for x in (step, beta))
    passed = step.cumsum(-1)
    ratio = (passed.unsqueeze(-1) - passed.unsqueeze(-2)).tril().exp().tril()
    reads = (beta.unsqueeze(-1) * (key @ key.mT) * ratio).tril(-1)
    right = torch.cat((beta.unsqueeze(-1) * value, (beta * passed.exp()).unsqueeze(-1) * key), -1)
    solved = torch.linalg.solve_triangular(reads, right, upper=False, unitriangular=True)
    new, read = solved.split((value.shape[-1], key.shape[-1]), -1)
    scores = (query @ key.mT) * ratio
    query = query * passed.exp().unsqueeze(-1)
    key = key * (passed[..., -1:] - passed).exp().unsqueeze(-1)
    state, outputs = 0, []
    for n in range(query.shape[2]):
        written = new[:, :, n] - read[:, :, n] @ state if n else new[:, :, n]
        outputs.append(scores[:, :, n] @ written + (query[:, :, n] @ state if n else 0))
        state = state * passed[:, :, n, -1, None, None].exp() + key[:, :, n].mT @ written
    return torch.cat(outputs, 2)[:, :, :length]


def recurrence(query: Tensor, key: Tensor, value: Tensor, step: Tensor, beta: Tensor, size: int) -> Tensor:
    state, outputs = 0, []
    for q, k, v, g, b in zip(*(x.unbind(2) for x in (query, key, value, step.exp(), beta)), strict=True):
        state = state * g[..., None, None]
        missing = v.unsqueeze(-2) - k.unsqueeze(-2) @ state if outputs else v.unsqueeze(-2)
        state = state + (b[..., None, None] * k.unsqueeze(-1)) * missing
        outputs.append((q.unsqueeze(-2) @ state).squeeze(-2))
    return torch.stack(outputs, 2)


def attend(
    rule, query, key, value, log_decay, beta, *, normalization, chunk_size, cu_seqlens, head_directions, plan=None
):
    """Even heads from the first token to the last, odd ones from the last to the first."""
    dtype, step = value.dtype, F.pad(log_decay.forward.expand_as(beta), (1, 1))
    wide = torch.promote_types(dtype, torch.float32)
    # Into each token: λ of the one before it, in the order of the head.
    step = torch.stack((step[:, ::2, :-2], step[:, 1::2, 2:]), 2).flatten(1, 2)
    inputs = [x.to(wide) for x in (query, key, value, step, beta)]

    def turned(x: Tensor) -> Tensor:
        return torch.stack((x[:, ::2], x[:, 1::2].flip(2)), 2).flatten(1, 2)

    with torch.autocast(query.device.type, enabled=False):
        lengths = [query.shape[2]] if cu_seqlens is None else cu_seqlens.diff().tolist()
        parts = zip(*(x.split(lengths, 2) for x in inputs), strict=True)
        outputs = torch.cat([turned(rule(*map(turned, part), chunk_size)) for part in parts], 2)
        return F.rms_norm(outputs, outputs.shape[-1:], eps=1e-5).to(dtype), None


class BetaGate(nn.Linear):
    def init_own_weights(self, config):
        init.normal_(self.weight, std=config.hidden_size**-0.5)
        init.zeros_(self.bias)


@register_mixer
class DeltaSketchMixer(LinearMixer):
    name, description = "delta_sketch", "with the gated delta rule"
    forms = {"chunk": partial(attend, chunks), "rnn": partial(attend, recurrence)}
    needs = ("log_decay", "beta")
    defaults = {"feature_map": "unit_silu", "normalization": "none"}
    choices = {"normalization": ("none",), "head_directions": ("alternate",)}
    fields = {"delta_most": 1.0}

    def __init__(self, config, layer_idx=0):
        super().__init__(config, layer_idx)
        self.decay_proj = DecayGate(config.hidden_size, config.num_attention_heads)
        self.decay_beta = BetaGate(config.hidden_size, config.num_attention_heads)

    def log_decay(self, hidden_states: Tensor) -> Tensor:
        return gate_log_decay(self.decay_proj, hidden_states).transpose(1, 2)

    def beta(self, hidden_states: Tensor) -> Tensor:
        logits = self.decay_beta(hidden_states.to(self.decay_beta.weight.dtype))
        return self.config.delta_most * logits.sigmoid().transpose(1, 2)
