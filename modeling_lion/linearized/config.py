# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The fields that `linearize` adds to the configuration of an encoder (SPEC §13)."""

import os
from collections.abc import Iterator
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from configuration_lion.registry import FEATURE_MAPS, MIXERS, unknown


PREFIX = "lion-"  # of the `model_type` of linearized models
# The form of attention for each value of `attn_implementation`.
LINEARIZED_FORMS = {"lion": "auto", "lion_parallel": "parallel", "lion_chunk": "chunk", "lion_rnn": "rnn"}


def linearized_feature_maps() -> list[str]:
    """The positive feature maps, and "scaled_hedgehog", which only linearized models have (branch.py)."""
    return [*(name for name, feature_map in FEATURE_MAPS.items() if feature_map.is_positive), "scaled_hedgehog"]


def linearized_mixers() -> list[str]:
    """The names of the linear mixers whose decays can be computed from keys."""
    return [name for name, mixer in MIXERS.items() if getattr(mixer, "decay_of_keys", None) is not None]


def check_linearized_mixer(name: str) -> None:
    """Raise a ValueError, which gives the reason, for a mixer that linearized models cannot have."""
    possible = linearized_mixers()
    if name in possible:
        return
    if name not in MIXERS:
        raise ValueError(unknown("mixer", name, dict.fromkeys(possible), "register_mixer"))
    why = "it is not linear attention with decays, which is what can be put inside another encoder"
    if MIXERS[name].is_linear:
        why = (
            "its class does not say how decays are made of keys, by a static method `decay_of_keys(num_heads, "
            "head_dim)` (modeling_lion.mixers.mixer.Mixer)"
        )
    raise ValueError(f"`mixer` is {name!r}: {why}. Give one of {', '.join(map(repr, possible))}.")


def is_lion(config: PreTrainedConfig) -> bool:
    """Whether a configuration is one of this package: of a LION or of a linearized model."""
    return config.model_type == "lion" or config.model_type.startswith(PREFIX)


def type_of_source(config: PreTrainedConfig) -> str:
    """The `model_type` of an encoder of transformers, or of the one from which a linearized model was made."""
    return config.model_type.removeprefix(PREFIX)


@strict
class LinearizedConfig(PreTrainedConfig):
    """
    Args:
        lion_layers: for each attention module, by its name within the base model: its number of heads and their
            dimension if it is linear, `None` if it keeps softmax. `linearize` finds them. `None` in a model of several
            parts, in which the configurations of linear parts have this field.
        lion_mixer: decays of the linear sum: "lit" (none), "decay" (one number per head), "selective" (from the key of
            each token), or those of another registered mixer (`Mixer.decay_of_keys`). "delta" is the gated delta rule
            over all tokens instead of the sum.
        lion_feature_map: φ, a positive feature map of `LionConfig.feature_map`, or "scaled_hedgehog".
        lion_window: number of tokens on each side that softmax reads; the linear sum reads the others. With 0, the
            linear sum reads all tokens.
        lion_exact_length: the encoder's own attention computes texts of at most so many real tokens, and images of at
            most so many patches, prefix tokens such as CLS included.
        lion_positions: "cyclic" repeats a table of positions in longer texts; `None` refuses such texts.
        lion_position_table: the name of that table within the base model and its first position; `None` without one.
    """

    # The names of the classes of this type, by Auto class.
    auto_classes = {}
    # Writes the code that loads this class; `None` in code that was itself loaded from beside weights.
    write_code = None
    # Returns the class of a model type "lion-…"; classes.py sets it.
    class_of_type = None

    lion_layers: dict | None = None
    lion_mixer: str = "lit"
    lion_feature_map: str = "hedgehog"
    lion_window: int = 64
    lion_exact_length: int = 0
    lion_positions: Literal["cyclic"] | None = None
    lion_position_table: list | tuple | None = None

    @property
    def has_longest_text(self) -> bool:
        """Whether a table of positions that is not cyclic limits the length of a text."""
        return self.lion_position_table is not None and self.lion_positions is None

    def validate_lion(self):
        check_linearized_mixer(self.lion_mixer)
        if self.lion_feature_map not in linearized_feature_maps():
            names = ", ".join(map(repr, linearized_feature_maps()))
            raise ValueError(f"`feature_map` is {self.lion_feature_map!r}; give a positive one: {names}.")
        for name in ("lion_window", "lion_exact_length"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name.removeprefix('lion_')}` is {getattr(self, name)}; give 0 or more tokens.")

    def __post_init__(self, **kwargs):
        # transformers would make the configurations of parts by fixed classes.
        for name in self.sub_configs:
            part = getattr(self, name, None)
            if isinstance(part, dict) and str(part.get("model_type")).startswith(PREFIX):
                setattr(self, name, self.class_of_type(part["model_type"])(**part))
        super().__post_init__(**kwargs)

    def to_dict(self) -> dict[str, Any]:
        """`PreTrainedConfig.to_dict`, with an attention that a class of transformers refuses to load."""
        return super().to_dict() | {"attn_implementation": "lion"}

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs):
        """`PreTrainedConfig.save_pretrained`, with an `auto_map` for this type and the code that it names."""
        # This replaces an `auto_map` of the source, whose classes would compute softmax.
        saved = self.architectures or ()
        chosen = {name: next((x for x in found if x in saved), found[0]) for name, found in self.auto_classes.items()}
        file = "modeling_lion" if self.write_code is not None else type(self).__module__.rpartition(".")[2]
        self.auto_map = {name: f"{file}.{model}" for name, model in chosen.items()}
        if self.write_code is not None:
            linear = [part for part in parts_of(self) if isinstance(part, LinearizedConfig)]
            used = [MIXERS[part.lion_mixer] for part in linear]
            maps = (FEATURE_MAPS.get(part.lion_feature_map) for part in linear)
            used += [feature_map.function for feature_map in maps if feature_map is not None]
            self.auto_map = self.write_code(save_directory, list(dict.fromkeys(used)), self.auto_map)
        super().save_pretrained(save_directory, **kwargs)


def parts_of(config: PreTrainedConfig) -> Iterator[PreTrainedConfig]:
    """Yield a configuration, then those of its parts."""
    yield config
    for name in config.sub_configs:
        if isinstance(part := getattr(config, name, None), PreTrainedConfig):
            yield from parts_of(part)
