# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What transformers' common tests are run on (tests/tools/common_tests.py): a class of tests for each mixer, kernel and
recommended preset, as a model of transformers has one.
"""

import unittest

import torch
from tests.test_configuration_common import ConfigTester
from tests.test_modeling_common import ModelTesterMixin, floats_tensor, ids_tensor, random_attention_mask
from transformers.models.auto import modeling_auto

import modeling_lion
from configuration_lion import AUTO_MODELS, PRESETS, lion_preset
from modeling_lion import LionConfig, LionModel


LINEAR, KERNELS = ("lit", "decay", "selective"), ("parallel", "chunk", "rnn")
HYBRID = ["linear_attention", "sliding_attention"]
ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
MAPPINGS = {
    "AutoModel": "MODEL_MAPPING_NAMES",
    "AutoModelForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "AutoModelForMultipleChoice": "MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES",
    "AutoModelForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
    "AutoModelForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "AutoModelForTokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    "AutoBackbone": "MODEL_FOR_BACKBONE_MAPPING_NAMES",
    "AutoModelForImageClassification": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "AutoModelForMaskedImageModeling": "MODEL_FOR_MASKED_IMAGE_MODELING_MAPPING_NAMES",
    "AutoModelForSemanticSegmentation": "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
}
# As if LION were in transformers: the tests look up there which labels a model takes.
for models in AUTO_MODELS.values():
    for auto, name in models.items():
        if auto in MAPPINGS:
            getattr(modeling_auto, MAPPINGS[auto])["lion"] = name


def cases() -> dict[str, LionConfig]:
    """Configurations by name."""
    found = {}
    for modality in ("text", "image"):
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
        sizes |= {"vocab_size": 99} if modality == "text" else {"image_size": 16, "patch_size": 4}
        sizes |= {"modality": modality, "max_position_embeddings": 64, "num_labels": 3, "chunk_size": 4}
        for mixer in (*LINEAR, "softmax", "luna"):
            found[f"{modality} {mixer}"] = LionConfig(mixer_type=mixer, **sizes)
        found[f"{modality} hybrid"] = LionConfig(layer_types=HYBRID, sliding_window=3, **sizes)
        for kernel in KERNELS:
            found[f"{modality} {kernel}"] = LionConfig(attn_implementation=kernel, **sizes)
        if modality == "text":
            for mixer in (*LINEAR, "softmax"):
                found[f"rotary {mixer}"] = LionConfig(mixer_type=mixer, rope_parameters=dict(ROPE), **sizes)
            by_type = dict.fromkeys(HYBRID, ROPE)
            found["rotary hybrid"] = LionConfig(layer_types=HYBRID, sliding_window=3, rope_parameters=by_type, **sizes)
        for name in PRESETS:
            fields = {k: v for k, v in sizes.items() if k != "modality"} | {"intermediate_size": 36}
            if PRESETS[name]["modality"] == modality and name.startswith(f"lion-{modality}"):
                found[name] = lion_preset(name, **fields)
    return found


class ModelTester:
    """Inputs of one configuration, under the names that the common tests ask for."""

    def __init__(self, parent: unittest.TestCase, config: LionConfig):
        self.parent, self.config = parent, config
        self.batch_size, self.is_training, self.num_choices = 5, True, 4
        self.hidden_size, self.num_labels = config.hidden_size, 3
        self.num_hidden_layers, self.num_attention_heads = config.num_hidden_layers, config.num_attention_heads
        self.is_text = config.modality == "text"
        self.image_size, self.patch_size = config.image_size, config.patch_size
        self.seq_length = self.encoder_seq_length = 7 if self.is_text else config.context_length
        self.key_length = config.luna_length if config.mixer_type == "luna" else self.seq_length

    def prepare_config_and_inputs_for_common(self):
        config = LionConfig.from_dict(self.config.to_dict())
        config._attn_implementation = self.config._attn_implementation
        if not self.is_text:
            return config, {"pixel_values": floats_tensor([self.batch_size, 3, *config.image_shape])}
        shape = [self.batch_size, self.seq_length]
        return config, {"input_ids": ids_tensor(shape, 99), "attention_mask": random_attention_mask(shape)}


class LionTests(ModelTesterMixin):
    """The common tests of one configuration."""

    config: LionConfig
    # Pixels have no embeddings of a vocabulary, and one size.
    test_resize_embeddings = test_resize_position_embeddings = False

    def setUp(self):
        self.model_tester = ModelTester(self, self.config)
        has_rope = self.config.rope_parameters is not None
        if "_rope_" in self._testMethodName and not has_rope:
            self.skipTest("This configuration has no rotary positions.")
        if self._testMethodName == "test_model_rope_scaling_frequencies" and self.config.layer_types is not None:
            self.skipTest("Each type of layers has a module of rotary positions of its own.")

    def test_config(self):
        ConfigTester(
            self, config_class=LionConfig, hidden_size=32, num_attention_heads=4, has_text_modality=True
        ).run_common_tests()


class LionImageTests(LionTests):
    """Without what asks for a vocabulary, as in the tests of transformers' encoders of images."""

    def setUp(self):
        super().setUp()
        if "inputs_embeds" in self._testMethodName or "input_require_grads" in self._testMethodName:
            self.skipTest("Images have no embeddings of tokens.")

    def test_model_get_set_embeddings(self):
        model = LionModel(self.config)
        assert isinstance(model.get_input_embeddings(), torch.nn.Conv2d)


for case, config in cases().items():
    found = dict.fromkeys(AUTO_MODELS[config.modality].values())
    fields = {
        "config": config,
        "all_model_classes": tuple(getattr(modeling_lion, name) for name in found if name != "LionBackbone"),
        "test_resize_embeddings": config.modality == "text",
    }
    tests = LionTests if config.modality == "text" else LionImageTests
    name = "".join(part.capitalize() for part in case.replace("-", " ").split()) + "Test"
    globals()[name] = type(name, (tests, unittest.TestCase), fields)
