# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The registry of mixers and feature maps, with the traits that a configuration reads. When the file of a class is
imported, the class replaces its entry here or adds one (`register_mixer` in modeling_lion/mixers/mixer.py,
`register_feature_map` in modeling_lion/mixers/feature_map.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple


@dataclass(frozen=True)
class MixerTraits:
    """The attributes of the class `Mixer` that a configuration reads, for processes without the class."""

    is_linear: bool = False
    is_softmax: bool = False
    has_decays: bool = False
    has_memory: bool = False
    has_scans: bool = False
    has_rotary_positions: bool = False
    tensor_parallel_plan: dict[str, str] | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)


class FeatureMap(NamedTuple):
    """
    A feature map φ.

    Attributes:
        function: maps the vectors of the heads, `(..., head_dim)`; or the class of a module with weights, constructed
            as `function(num_heads, head_dim)`, once for queries and once for keys. `None` if only the configuration
            was imported.
        is_positive: whether every score φ(q)·φ(k) is above 0, so that outputs can be divided by a sum of scores.
        is_learnt: whether it has weights.
    """

    function: Callable | None
    is_positive: bool
    is_learnt: bool


# The traits of every `LinearMixer`.
LINEAR = MixerTraits(
    is_linear=True, has_scans=True, has_rotary_positions=True, choices={"normalization": ("sum", "none")}
)
# By name: the class of a mixer, or its `MixerTraits`.
MIXERS: dict[str, Any] = {
    "lit": replace(LINEAR, tensor_parallel_plan={}),
    "decay": replace(LINEAR, has_decays=True, tensor_parallel_plan={"decay.bias": "colwise", "decay": "local_params"}),
    "selective": replace(LINEAR, has_decays=True, tensor_parallel_plan={"decay_proj": "colwise"}),
    "delta": replace(
        LINEAR,
        has_decays=True,
        tensor_parallel_plan={"decay_proj": "colwise", "decay_beta": "colwise"},
        fields={"largest_beta": 1.0},
        defaults={"feature_map": "silu", "normalization": "rms"},
        choices={"normalization": ("rms", "none"), "head_directions": ("alternate",)},
        ranges={"largest_beta": (0, 2)},
    ),
    "softmax": MixerTraits(is_softmax=True, has_rotary_positions=True),
    "luna": MixerTraits(is_softmax=True, has_memory=True),
}
FEATURE_MAPS: dict[str, FeatureMap] = {
    "silu_norm": FeatureMap(None, is_positive=True, is_learnt=False),
    "elu": FeatureMap(None, is_positive=True, is_learnt=False),
    "identity": FeatureMap(None, is_positive=False, is_learnt=False),
    "silu": FeatureMap(None, is_positive=False, is_learnt=False),
    "relu": FeatureMap(None, is_positive=True, is_learnt=False),
    "hedgehog": FeatureMap(None, is_positive=True, is_learnt=True),
}


def find_mixer(name: str) -> Any:
    """The class of a mixer, or its `MixerTraits`. Raises a ValueError if the name is not registered."""
    if name not in MIXERS:
        raise ValueError(unknown("mixer_type", name, MIXERS, "register_mixer"))
    return MIXERS[name]


def find_feature_map(name: str) -> FeatureMap:
    """The feature map of this name. Raises a ValueError if the name is not registered."""
    if name not in FEATURE_MAPS:
        raise ValueError(unknown("feature_map", name, FEATURE_MAPS, "register_feature_map"))
    return FEATURE_MAPS[name]


def unknown(field_name: str, value: str, known: dict, function: str) -> str:
    return (
        f"`{field_name}` is {value!r}; give one of {', '.join(map(repr, known))}, or import the file that registers "
        f"{value!r} with `modeling_lion.{function}`."
    )
