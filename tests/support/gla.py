# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
A mixer from outside of the package: gated linear attention (Yang et al., 2024), read both ways. Each channel of the
keys has a decay of its own, which no log decay of `lion_attention` can say.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from modeling_lion import register_mixer
from modeling_lion.mixers.mixer import Mixer
from modeling_lion.sequence.border_states import BorderStates


CHUNK = 8


def recurrence(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, state: Tensor, with_own: bool) -> Tensor:
    """S_t = diag(λ_t) S_{t-1} + k_t v_tᵀ and y_t = S_tᵀ q_t, token by token; `with_own`: whether y_t has k_t v_tᵀ."""
    outputs = []
    for q, k, v, decay in zip(*(x.unbind(2) for x in (query, key, value, log_decay.exp())), strict=True):
        before = state * decay.unsqueeze(-1)
        state = before + k.unsqueeze(-1) * v.unsqueeze(-2)
        outputs.append((q.unsqueeze(-2) @ (state if with_own else before)).squeeze(-2))
    return torch.stack(outputs, 2)


def chunks(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, state: Tensor, with_own: bool) -> Tensor:
    """`recurrence` by chunks: small matrices inside them, the state between them."""
    length = query.shape[2]
    spare = -length % CHUNK
    query, key, value, log_decay = (
        F.pad(x, (0, 0, 0, spare)).unflatten(2, (-1, CHUNK)) for x in (query, key, value, log_decay)
    )
    passed = log_decay.cumsum(3)
    token = torch.arange(CHUNK, device=query.device)
    is_seen = (token.unsqueeze(1) >= token if with_own else token.unsqueeze(1) > token).unsqueeze(-1)
    between = torch.where(is_seen, passed.unsqueeze(4) - passed.unsqueeze(3), -torch.inf).exp()
    outputs = torch.einsum("bhnid,bhnjd,bhnijd->bhnij", query, key, between) @ value
    from_start, to_end = passed.exp(), (passed[:, :, :, -1:] - passed).exp()
    written = (key * to_end).transpose(-1, -2) @ value
    states = []
    for n in range(written.shape[2]):
        states.append(state)
        state = state * from_start[:, :, n, -1].unsqueeze(-1) + written[:, :, n]
    outputs = outputs + (query * from_start) @ torch.stack(states, 2)
    return outputs.flatten(2, 3)[:, :, :length]


class ChannelDecay(nn.Linear):
    """log λ of each channel, whose half-lives start between 2 and 32 tokens."""

    def init_own_weights(self, config):
        init.zeros_(self.weight)
        half_life = torch.logspace(1, 5, len(self.bias), base=2.0)
        init.copy_(self.bias, torch.logit(torch.exp2(-1 / half_life)))

    def forward(self, x: Tensor) -> Tensor:
        return F.logsigmoid(super().forward(x.to(self.weight.dtype)))


@register_mixer
class GlaMixer(Mixer):
    """GLA both ways; the token itself is in the sum of one direction."""

    name, title, description = "gla", "GLA", "with a decay for each channel, read both ways"
    forms = {"chunk": chunks, "rnn": recurrence}
    has_decays = True
    reach = 0

    def __init__(self, config, layer_idx=0):
        super().__init__(config, layer_idx)
        self.decay_proj = ChannelDecay(config.hidden_size, config.hidden_size)

    def inputs(self, hidden_states: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys, values and log decays, `(batch, heads, length, head_dim)`, in float32 or float64."""
        query, key, value, log_decay = (
            self.split_heads(layer(hidden_states))
            for layer in (self.q_proj, self.k_proj, self.v_proj, self.decay_proj)
        )
        query = query * self.head_dim**-0.5
        dtype = torch.promote_types(hidden_states.dtype, torch.float32)
        return tuple(x.to(dtype) for x in (query, key, value, log_decay))

    def mix(self, hidden_states: Tensor, attention, border_states: BorderStates | None = None) -> Tensor:
        inputs = self.inputs(hidden_states)
        if border_states is None:
            nothing = inputs[0].new_zeros(*inputs[0].shape[:2], self.head_dim, self.head_dim)
            border_states = BorderStates(nothing, nothing)
        with torch.autocast(hidden_states.device.type, enabled=False):
            mixed = attention(*inputs, border_states.forward, True)
            mixed = mixed + attention(*(x.flip(2) for x in inputs), border_states.backward, False).flip(2)
        return mixed.transpose(1, 2).flatten(2).to(hidden_states.dtype)

    def segment_states(self, hidden_states: Tensor, layout) -> BorderStates:
        _, *inputs = self.inputs(hidden_states)
        (forward, forward_factor), (backward, backward_factor) = (
            state_after(*inputs),
            state_after(*(x.flip(2) for x in inputs)),
        )
        return BorderStates(forward, backward, forward_factor, backward_factor)


def state_after(key: Tensor, value: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    """What a segment writes into a state that passes through, and the factors by which it decays the state."""
    passed = log_decay.cumsum(2)
    written = (key * (passed[:, :, -1:] - passed).exp()).transpose(-1, -2) @ value
    return written, passed[:, :, -1].exp().unsqueeze(-1)
