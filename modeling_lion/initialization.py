# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Initial weights of LION's own modules; transformers initialises linear layers, norms and embeddings."""

from collections.abc import Iterable

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers import initialization as init

from .embeddings import LionImageEmbeddings
from .mixers.feature_map import Hedgehog
from .mixers.linear_decay import DecayGate, FixedDecay, initial_decay_logits
from .mixers.luna import LunaMixer
from .mixers.short_conv import ShortConv


def start_by_fan_in(projections: Iterable[tuple[str, nn.Module]], config: PreTrainedConfig) -> None:
    """
    Mark the projections in a mixer and the one after it, whose weights have their own initial scale (SPEC §12). The
    mark is an attribute of the linear layer, which `init_own_weights` reads. A subclass of `nn.Linear` would be missed
    by torch's dynamic quantization; and their parent could only set the weights a second time, since transformers
    initialises children first, which would change the random numbers of all weights that follow.
    """
    std = config.mixer_initializer_range
    for name, module in projections:
        if isinstance(module, nn.Linear) and not name.startswith("decay"):
            module.initializer_range = config.hidden_size**-0.5 if std is None else std


def init_own_weights(module: nn.Module, config: PreTrainedConfig) -> None:
    """Initialise one module, without its children; modules that are not LION's are left unchanged."""
    if hasattr(module, "initializer_range"):
        init.normal_(module.weight, std=module.initializer_range)
    elif isinstance(module, FixedDecay | DecayGate):
        init.copy_(module.bias, initial_decay_logits(config))
    elif isinstance(module, ShortConv):
        bound = module.weight.shape[-1] ** -0.5  # as nn.Conv1d
        init.uniform_(module.weight, -bound, bound)
    elif isinstance(module, Hedgehog):
        init.copy_(module.weight, torch.eye(module.weight.shape[-1]).expand_as(module.weight))
    elif isinstance(module, LunaMixer) and module.memory is not None:
        init.normal_(module.memory, std=1.0)  # as large as after the LayerNorms of the other layers
    elif isinstance(module, LionImageEmbeddings):
        for parameter in (module.cls_token, module.position_embeddings):
            if parameter is not None:
                init.trunc_normal_(parameter, std=config.initializer_range)
        if module.mask_token is not None:
            init.zeros_(module.mask_token)
