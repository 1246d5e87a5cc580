# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The names of mixers and feature maps, and what a configuration asks of them. Classes enter themselves when their file
is imported (`register_mixer` in mixers/mixer.py, `register_feature_map` in mixers/feature_map.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class MixerTraits:
    """
    What a configuration asks of a mixer, attributes of the class `Mixer`: instead of the class where only the
    configuration was loaded, from code beside weights.
    """

    is_linear: bool
    is_softmax: bool
    has_decays: bool
    has_memory: bool
    has_scans: bool
    has_rotary_positions: bool
    tensor_parallel_plan: dict[str, str] | None
    fields: dict[str, Any] = field(default_factory=dict)


class FeatureMap(NamedTuple):
    """
    A feature map φ.

    Attributes:
        function: of vectors of the heads, `(..., head_dim)`; or the class of a module with weights, which is
            constructed with the number of heads and their dimension, once for queries and once for keys. `None` where
            only the configuration was loaded.
        is_positive: whether no score is 0 or below, so that outputs can be divided by a sum of scores.
        is_learnt: whether it has weights.
    """

    function: Callable | None
    is_positive: bool
    is_learnt: bool


# The class of each mixer by name, or its `MixerTraits`.
MIXERS: dict[str, Any] = {}
FEATURE_MAPS: dict[str, FeatureMap] = {}


def find_mixer(name: str) -> Any:
    """The class of a mixer, or its `MixerTraits`; a ValueError for a name that nobody has registered."""
    if name not in MIXERS:
        raise ValueError(unknown("mixer_type", name, MIXERS, "register_mixer"))
    return MIXERS[name]


def find_feature_map(name: str) -> FeatureMap:
    """A feature map; a ValueError for a name that nobody has registered."""
    if name not in FEATURE_MAPS:
        raise ValueError(unknown("feature_map", name, FEATURE_MAPS, "register_feature_map"))
    return FEATURE_MAPS[name]


def unknown(field_name: str, value: str, known: dict, function: str) -> str:
    return (
        f"`{field_name}` is {value!r}; give one of {', '.join(map(repr, known))}, or import the file that registers "
        f"{value!r} with `modeling_lion.{function}`."
    )
