# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""LION-D: one learnt decay per head (SPEC §2); and the initial values of decays."""

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


# Half-life of the fastest head, in tokens.
SHORTEST_HALF_LIFE = 0.5
# Half-lives of the slowest and the fastest head of a linearized model, in tokens: all reach beyond a window of 64.
FAR_HALF_LIVES = (65_536.0, 256.0)


def initial_decay_logits(config: PreTrainedConfig, single_pair_forgets: bool = True) -> Tensor:
    """
    Logits of decays, `(scans * heads,)`, float32, whose half-lives are spread over the heads, evenly on a logarithmic
    scale, from half a token to the whole context; the same for every scan. (Logits near 0, as in the published
    listing, give every head a memory of two tokens.)

    If heads have one direction, a forward head and the backward head after it have the same half-life, so that a model
    sees as far ahead as back. A single pair has the geometric mean of both ends, or the whole context if not
    `single_pair_forgets`.
    """
    longest = config.context_length
    heads = config.num_attention_heads
    heads_each = 2 if config.head_directions == "alternate" else 1
    if heads == heads_each == 2 and single_pair_forgets:
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


def logsigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)); exported graphs avoid log(1 + exp(-x)), which would round a small exp(-x) to 0."""
    if not (torch.compiler.is_compiling() and is_exporting()):
        return F.logsigmoid(x)
    small = (-x.abs()).exp()
    return x.clamp(max=0) - 2 * torch.atanh(small / (2 + small))


class Float32Parameters(nn.Module):
    """A module whose parameters stay in float32 where a model is converted, as by `model.half()` (SPEC §5)."""

    def _apply(self, fn, recurse: bool = True):
        wide = {name: x for name, x in self.named_parameters(recurse=False) if x.dtype.itemsize >= 4}
        before = {name: (x.data, None if x.grad is None else x.grad.data) for name, x in wide.items()}
        super()._apply(fn, recurse)
        for name, x in self.named_parameters(recurse=False):
            if x.dtype.itemsize < 4 and name in before:
                data, gradient = (y if y is None else y.to(x.device, torch.float32) for y in before[name])
                x.grad = None  # torch wants that of the parameter's dtype
                x.data, x.grad = data, gradient
        return self


class FixedDecay(Float32Parameters):
    """The logits α, one per head, as a module, which peft can train beside LoRA (`modules_to_save`)."""

    def __init__(self, num_heads: int):
        super().__init__()
        # The Trainer applies no weight decay to parameters with "bias" in their names.
        self.bias = nn.Parameter(torch.empty(num_heads))

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        init.copy_(self.bias, initial_decay_logits(config))

    def forward(self, hidden_states: Tensor) -> Tensor:
        """
        The log decays, `(num_heads,)`, in the accumulation dtype of the hidden states, whose values do not matter.
        Under `torch.func` and with backward hooks such as those of opacus, which need a gradient for each sequence,
        they are expanded to `(batch, num_heads, length)`.
        """
        log_decay = logsigmoid(self.bias.to(accumulation_dtype(hidden_states.dtype)))
        if not (has_backward_hooks(self) or is_torch_func_active()):
            return log_decay
        batch, length = hidden_states.shape[:2]
        return log_decay.view(1, -1, 1).expand(batch, -1, length)


class FarDecay(FixedDecay):
    """`FixedDecay` of a linearized model, where softmax in a window covers the near tokens."""

    def init_own_weights(self, config: PreTrainedConfig) -> None:
        init.copy_(self.bias, far_decay_logits(len(self.bias)))


@register_mixer
class DecayMixer(LinearMixer):
    """LION-D: one learnt decay per head, λ = sigmoid(α_h). Use it for images, with `patch_order="snake"`."""

    name, title = "decay", "LION-D"
    description = "with one learnt decay per head, as RetNet has fixed ones"
    tensor_parallel_plan = {"decay.bias": "colwise", "decay": "local_params"}

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        self.decay = FixedDecay(config.num_scans * config.num_attention_heads)

    def log_decay(self, hidden_states: Tensor) -> Tensor:
        return self.decay(hidden_states.detach())  # otherwise backward hooks would wait for their gradient

    @staticmethod
    def decay_of_keys(num_heads: int, head_dim: int) -> FarDecay:
        return FarDecay(num_heads)
