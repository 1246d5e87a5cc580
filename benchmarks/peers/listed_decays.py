# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
LION-D and LION-S with the initial decays of the listing in part II of the authors' blog: logits N(0, 1) for LION-D,
and for LION-S the weights and biases of `torch.nn.Linear`.
"""

from transformers import initialization as init

from modeling_lion import register_mixer
from modeling_lion.mixers.decay import DecayMixer, FixedDecay
from modeling_lion.mixers.selective import DecayGate, SelectiveMixer


class NormalDecay(FixedDecay):
    def init_own_weights(self, config):
        init.normal_(self.bias)


class LinearGate(DecayGate):
    def init_own_weights(self, config):
        bound = self.in_features**-0.5
        init.uniform_(self.weight, -bound, bound)
        init.uniform_(self.bias, -bound, bound)


@register_mixer
class ListedDecayMixer(DecayMixer):
    """LION-D whose logits begin as N(0, 1)."""

    name, title = "decay_listed", "LION-D with N(0, 1) decays"
    description = "with one learnt decay per head, whose logit begins as N(0, 1)"

    def __init__(self, config, layer_idx=0):
        super().__init__(config, layer_idx)
        self.decay = NormalDecay(len(self.decay.bias))


@register_mixer
class ListedSelectiveMixer(SelectiveMixer):
    """LION-S whose gate begins as a layer of torch does."""

    name, title = "selective_listed", "LION-S with listed decays"
    description = "with a decay per head computed from each token, by a layer that begins as torch's do"

    def __init__(self, config, layer_idx=0):
        super().__init__(config, layer_idx)
        self.decay_proj = LinearGate(self.decay_proj.in_features, self.decay_proj.out_features)
