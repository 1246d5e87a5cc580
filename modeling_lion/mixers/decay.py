# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Linear mixers with decays (SPEC §2): D and S; and the initial decays."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedConfig
from transformers import initialization as init

from ..attention.numerics import accumulation_dtype
from ..attention.tracing import is_exporting
from ..private_apis import has_backward_hooks, is_torch_func_active
from .linear import LinearMixer
from .mixer import register_mixer


# In tokens, of the fastest head.
SHORTEST_HALF_LIFE = 0.5
# In tokens, of the fastest and the slowest head inside another encoder: all reach beyond a window of 64.
FAR_HALF_LIVES = (256.0, 65_536.0)


def logsigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)); exported graphs avoid log(1 + exp(-x)), where the digits of a small exp(-x) would be lost."""
    if not (torch.compiler.is_compiling() and is_exporting()):
        return F.logsigmoid(x)
    small = (-x.abs()).exp()
    return x.clamp(max=0) - 2 * torch.atanh(small / (2 + small))


class FixedDecay(nn.Module):
    """The logits α, one per head, in their own module, so that peft can train it beside LoRA (`modules_to_save`)."""

    def __init__(self, num_heads: int):
        super().__init__()
        # The Trainer applies no weight decay to parameters with "bias" in their names.
        self.bias = nn.Parameter(torch.empty(num_heads))

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        init.copy_(self.bias, initial_decay_logits(config))

    def forward(self, hidden_states: Tensor) -> Tensor:
        """
        The log decays, `(num_heads,)`; only the dtype of the hidden states matters. They are `(batch, num_heads,
        length)` where gradients are needed per sequence: under `torch.func`, and for hooks such as those of opacus.
        """
        log_decay = logsigmoid(self.bias.to(accumulation_dtype(hidden_states.dtype)))
        if not (has_backward_hooks(self) or is_torch_func_active()):
            return log_decay
        batch, length = hidden_states.shape[:2]
        return log_decay.view(1, -1, 1).expand(batch, -1, length)


class FarDecay(FixedDecay):
    """`FixedDecay` inside another encoder, where near tokens have a window."""

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        init.copy_(self.bias, far_decay_logits(len(self.bias)))


class KeyDecay(nn.Module):
    """Log decays log λ_j = logsigmoid(w_h·k_j + b_h) from the keys of another encoder, after its rotation."""

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_heads, head_dim))
        self.bias = nn.Parameter(torch.empty(num_heads))

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        init.zeros_(self.weight)
        init.copy_(self.bias, far_decay_logits(len(self.bias)))

    def forward(self, key: Tensor) -> Tensor:
        """`(batch, length, heads, head_dim)` to `(batch, heads, length)`, float32 or float64."""
        key = key.transpose(1, 2)
        dtype = accumulation_dtype(key.dtype)
        logits = (key.to(dtype) @ self.weight.to(dtype).unsqueeze(-1)).squeeze(-1)
        return F.logsigmoid(logits + self.bias.to(dtype).unsqueeze(-1))


@register_mixer
class DecayMixer(LinearMixer):
    """
    LION-D: one learnt decay per head, λ = sigmoid(α_h). Those of RetNet are fixed. Take it for images, with
    `patch_order="snake"`.
    """

    name, title = "decay", "LION-D"
    description = "with one learnt decay per head, as RetNet has fixed ones"
    tensor_parallel_plan = {"decay.bias": "colwise", "decay": "local_params"}

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        self.decay = FixedDecay(config.num_scans * config.num_attention_heads)

    def log_decay(self, hidden_states: Tensor) -> Tensor:
        return self.decay(hidden_states.detach())  # backward hooks would wait for their gradient

    @staticmethod
    def decay_of_keys(num_heads: int, head_dim: int) -> FarDecay:
        return FarDecay(num_heads)


class DecayGate(nn.Linear):
    """
    The logits z = w·x + b, and from them the log decays, logsigmoid(z).

    The bias, which sets how long a head remembers, is added in float32: near λ = 1, rounding a logit to bfloat16 would
    change the half-life by percents.
    """

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        init.copy_(self.bias, initial_decay_logits(config))

    def forward(self, hidden_states: Tensor) -> Tensor:
        logits = F.linear(hidden_states, self.weight.to(hidden_states.dtype))
        dtype = accumulation_dtype(logits.dtype)
        return logits.to(dtype) + self.bias.to(dtype)

    def log_decay(self, logits: Tensor) -> Tensor:
        # Not in `forward`: under tensor parallelism its tensors are DTensors, which have no logsigmoid.
        return logsigmoid(logits)


def gate_log_decay(gate: nn.Module, hidden_states: Tensor) -> Tensor:
    """
    The log decays of a `DecayGate`, which may be wrapped by an adapter that adds to the logits (peft: `base_layer`).
    """
    layer = getattr(gate, "base_layer", gate)
    if not hasattr(layer, "log_decay"):
        raise TypeError(
            f"A layer that makes decays has become a {type(layer).__name__}, which cannot: whatever replaces linear "
            'layers has to leave out those with "decay" in their names (optimum-quanto: quantize(model, '
            'weights=..., exclude="*decay*")).'
        )
    return layer.log_decay(gate(hidden_states))


@register_mixer
class SelectiveMixer(LinearMixer):
    """
    LION-S: a decay computed from each token, λ = sigmoid(w_h·x + b_h), of the shape of Mamba-2's. Take it for text; it
    is the default.
    """

    name, title = "selective", "LION-S"
    description = "with a decay per head computed from each token, as in Mamba-2"
    tensor_parallel_plan = {"decay_proj": "colwise"}

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        heads = config.num_scans * config.num_attention_heads
        self.decay_proj = DecayGate(config.hidden_size, heads)
        self.num_prefix_tokens = config.num_prefix_tokens

    def log_decay(self, hidden_states: Tensor) -> Tensor:
        log_decay = gate_log_decay(self.decay_proj, hidden_states).transpose(1, 2)
        if self.num_prefix_tokens == 0:
            return log_decay
        # λ = 1 for the tokens before the patches of an image, such as CLS (SPEC §6).
        first, rest = log_decay.tensor_split((self.num_prefix_tokens,), dim=-1)
        return torch.cat((torch.zeros_like(first), rest), dim=-1)

    @staticmethod
    def decay_of_keys(num_heads: int, head_dim: int) -> KeyDecay:
        return KeyDecay(num_heads, head_dim)


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
