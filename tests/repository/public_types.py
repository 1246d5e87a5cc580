# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What a user's type checker sees of the public functions. `make lint` checks this file; nothing runs it."""

from typing import Any

from typing_extensions import assert_type

from configuration_lion import lion_preset, published_fields
from modeling_lion import (
    AttentionReport,
    EncodedPassages,
    LionConfig,
    LionForMaskedLM,
    LionForSequenceClassification,
    LionModel,
    encode_passages,
    linearize,
    register_feature_map,
    register_mixer,
)
from modeling_lion.mixers.linear import LinearMixer


@register_mixer
class Constant(LinearMixer):
    name = "constant"
    fields = {"constant_decay": -0.1}


@register_feature_map
def square(x: Any) -> Any:
    return x * x


mixer: type[Constant] = Constant
config = lion_preset("lion-text-base", num_labels=3)
assert_type(config, LionConfig)
assert_type(config.hidden_size, int)
assert_type(config.num_key_heads, int | None)
assert_type(config.has_decays, bool)
assert_type(config.context_length, int)
assert_type(config.longest_text, int | None)
assert_type(config.patch_grid, tuple[int, int])
assert_type(config.base_model_tp_plan, dict[str, str])
assert_type(published_fields("image"), dict)
model = LionModel(config)
reports: list[AttentionReport | None] = model.attention_report([0])
head, classifier = LionForMaskedLM(config), LionForSequenceClassification(config)
passages: EncodedPassages = encode_passages("folder", ["text"])
encoder: Any = linearize(model, layers="global", feature_map="square")
