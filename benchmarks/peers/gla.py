# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Gated linear attention (GLA, Yang et al., arXiv 2312.06635) as an encoder: half of the heads read forward, half
backward.

Each channel of the keys has a decay of its own, which no log decay of `lion_attention` can say. As in the paper,
decays come from a projection through 16 dimensions, λ = sigmoid(z)^(1/16), the output of each head is normalised (RMS,
without weights), and a gate SiLU(W x + b) multiplies it. Queries and keys have no feature map, and nothing is divided.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from modeling_lion import register_mixer
from modeling_lion.mixers.mixer import Mixer
from modeling_lion.sequence.border_states import BorderStates


CHUNK = 8
LEAST_LOG_DECAY = -20.0  # CHUNK of them are less than float32's largest exponent, twice over
RANK = TEMPERATURE = 16  # of the decays


def recurrence(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, state: Tensor) -> Tensor:
    """S_t = diag(λ_t) S_{t-1} + k_t v_tᵀ and y_t = S_tᵀ q_t, token by token, `(batch, heads, length, head_dim)`."""
    outputs = []
    for q, k, v, decay in zip(*(x.unbind(2) for x in (query, key, value, log_decay.exp())), strict=True):
        state = state * decay.unsqueeze(-1) + k.unsqueeze(-1) * v.unsqueeze(-2)
        outputs.append((q.unsqueeze(-2) @ state).squeeze(-2))
    return torch.stack(outputs, 2)


def chunks(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, state: Tensor) -> Tensor:
    """
    `recurrence` by chunks: small matrices inside them, the state between them.

    Inside, queries and keys have the decays from the middle of the decay of their chunk, so that no exponent is larger
    than half of it. A λ below e^`LEAST_LOG_DECAY` counts as that, for which a state is as good as gone.
    """
    length = query.shape[2]
    log_decay = log_decay.clamp(min=LEAST_LOG_DECAY)
    spare = -length % CHUNK
    query, key, value, log_decay = (
        F.pad(x, (0, 0, 0, spare)).unflatten(2, (-1, CHUNK)) for x in (query, key, value, log_decay)
    )
    passed = log_decay.cumsum(3)
    through = passed[:, :, :, -1:]
    from_middle = passed - through / 2
    scores = (query * from_middle.exp()) @ (key * (-from_middle).exp()).mT
    outputs = scores.tril() @ value
    from_start, to_end = passed.exp(), (through - passed).exp()
    written = (key * to_end).transpose(-1, -2) @ value
    states = []
    for n in range(written.shape[2]):
        states.append(state)
        state = state * from_start[:, :, n, -1].unsqueeze(-1) + written[:, :, n]
    outputs = outputs + (query * from_start) @ torch.stack(states, 2)
    return outputs.flatten(2, 3)[:, :, :length]


class ChannelDecay(nn.Module):
    """log λ of each channel; it begins near a half-life of 16 tokens."""

    def __init__(self, size: int):
        super().__init__()
        self.down = nn.Parameter(torch.empty(RANK, size))
        self.up = nn.Parameter(torch.empty(size, RANK))
        self.bias = nn.Parameter(torch.empty(size))

    def init_own_weights(self, config):
        for weight in (self.down, self.up):
            init.normal_(weight, std=weight.shape[1] ** -0.5)
        init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.down.dtype)
        return F.logsigmoid(F.linear(x @ self.down.T, self.up, self.bias)) / TEMPERATURE


def turned(x: Tensor) -> Tensor:
    """`(batch, heads, length, ...)`, the second half of the heads from its end; its own inverse."""
    forward, backward = x.chunk(2, 1)
    return torch.cat((forward, backward.flip(2)), 1)


@register_mixer
class GlaMixer(Mixer):
    """GLA in heads of one direction, of which there is an even number."""

    name, title, description = "gla", "GLA", "with a decay for each channel, in heads of one direction"
    forms = {"chunk": chunks, "rnn": recurrence}
    has_decays = True
    reach = 0

    def __init__(self, config, layer_idx=0):
        super().__init__(config, layer_idx)
        if config.num_attention_heads % 2:
            raise ValueError(
                f"`num_attention_heads` is {config.num_attention_heads}, and the mixer 'gla' reads forward in half of "
                "the heads: give an even number."
            )
        self.gate_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.decay_proj = ChannelDecay(config.hidden_size)

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
        query, *inputs = self.inputs(hidden_states)
        if border_states is None:
            state = query.new_zeros(*query.shape[:2], self.head_dim, self.head_dim)
        else:
            state = torch.cat((border_states.forward, border_states.backward), 1)
        with torch.autocast(hidden_states.device.type, enabled=False):
            mixed = turned(attention(*map(turned, (query, *inputs)), state))
            mixed = F.rms_norm(mixed, (self.head_dim,), eps=1e-5)
        gate = F.silu(self.gate_proj(hidden_states))
        return mixed.transpose(1, 2).flatten(2).to(gate.dtype) * gate

    def segment_states(self, hidden_states: Tensor, layout) -> BorderStates:
        """Return what a segment writes into a state that passes through, and the factors by which it decays it."""
        key, value, log_decay = map(turned, self.inputs(hidden_states)[1:])
        passed = log_decay.cumsum(2)
        written = (key * (passed[:, :, -1:] - passed).exp()).transpose(-1, -2) @ value
        return BorderStates(*written.chunk(2, 1), *passed[:, :, -1].exp().unsqueeze(-1).chunk(2, 1))
