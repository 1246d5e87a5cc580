# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""A mixer from outside of the package: a mean over neighbours, without queries and keys."""

from torch import Tensor
from torch.nn import functional as F

from modeling_lion import register_mixer
from modeling_lion.mixers.mixer import Mixer


@register_mixer
class NeighboursMixer(Mixer):
    """The mean of a token and of those within `neighbours` tokens on each side."""

    name, title, description = "neighbours", "Means over neighbours", "that is a mean over the nearest tokens"
    fields = {"neighbours": 3}
    projections = ()
    has_decays = True

    def __init__(self, config, layer_idx=0):
        super().__init__(config, layer_idx)
        self.reach = config.neighbours

    def mix(self, hidden_states: Tensor) -> Tensor:
        channels, width = hidden_states.transpose(1, 2), 2 * self.reach + 1
        mean = F.avg_pool1d(channels, width, stride=1, padding=self.reach, count_include_pad=False)
        return mean.transpose(1, 2)
