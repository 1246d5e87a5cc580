# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The fields that the configuration of an encoder gets when it becomes linear (SPEC §13)."""

from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from ..mixers.feature_map import FEATURE_MAPS


PREFIX = "lion-"  # of `model_type`


@strict
class InPlaceConfig(PreTrainedConfig):
    """
    Args:
        lion_layers: by name within the base model, each attention module: its number of heads and their dimension if
            it is linear, `None` if it keeps softmax. `linearize` finds them.
        lion_mixer: decays of the linear sum: "lit" (none), "decay" (one number per head) or "selective" (from the key
            of each token).
        lion_feature_map: φ, a name of `LionConfig.feature_map`.
        lion_window: tokens on each side that softmax reads; those beyond are in the linear sum. 0: all tokens are in
            the linear sum.
        lion_exact_length: texts of at most so many real tokens are computed by the encoder's own attention; images
            of at most so many patches, prefix tokens such as CLS included.
        lion_positions: "cyclic" reads a table of positions again where a text is longer; `None` refuses such texts.
        lion_position_table: the name of that table within the base model and its first position; `None` without one.
    """

    lion_layers: dict | None = None
    lion_mixer: Literal["lit", "decay", "selective"] = "lit"
    lion_feature_map: str = "hedgehog"
    lion_window: int = 64
    lion_exact_length: int = 0
    lion_positions: Literal["cyclic"] | None = None
    lion_position_table: list | tuple | None = None

    def validate_lion(self):
        if self.lion_feature_map not in FEATURE_MAPS or self.lion_feature_map == "identity":
            names = ", ".join(repr(name) for name in FEATURE_MAPS if name != "identity")
            raise ValueError(f"`feature_map` is {self.lion_feature_map!r}; give a positive one: {names}.")
        for name in ("lion_window", "lion_exact_length"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name.removeprefix('lion_')}` is {getattr(self, name)}; give 0 or more tokens.")
