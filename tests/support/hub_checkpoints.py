# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Small checkpoints, as users save them, for the tests of hub_upload."""

from pathlib import Path

import torch
import transformers
from transformers import BertConfig, PreTrainedModel, ViTConfig, ViTImageProcessorPil

import modeling_lion
from configuration_lion.presets import lion_preset
from modeling_lion import LionConfig, LionForImageClassification, LionForMaskedLM, LionTokenizer, lion_image_processor


TEXTS = ["The lion sleeps in the shade.", "A lion roars at night.", "It hunts at dawn, with its pride."] * 5
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
SMALL |= {"chunk_size": 16, "initializer_range": 0.2}


# A preset of each recipe that users are told to take. Shrunk, the recipe's other sizes are the same model
# (test_sizes_of_a_recipe_differ_in_nothing_else).
RECOMMENDED = ["lion-text-base", "lion-image-base"]
IMAGE_PRESETS = ["lion-image-base"]


def text_tokenizer() -> LionTokenizer:
    return LionTokenizer.train_from_iterator(TEXTS, vocab_size=80, model_max_length=128)


def text_checkpoint(folder: Path, class_name: str = "LionForMaskedLM", **fields) -> Path:
    """A text model and its tokenizer, saved with `save_pretrained`."""
    torch.manual_seed(0)
    tokenizer = text_tokenizer()
    config = LionConfig(**({"vocab_size": len(tokenizer), "max_position_embeddings": 128} | SMALL | fields))
    getattr(modeling_lion, class_name)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def image_checkpoint(folder: Path, class_name: str = "LionForImageClassification", **fields) -> Path:
    """An image model and its processor."""
    torch.manual_seed(0)
    labels = {0: "cat", 1: "lion", 2: "zebra"}
    image = {"modality": "image", "image_size": (24, 32), "patch_size": 8, "patch_order": "snake", "id2label": labels}
    config = LionConfig(**(SMALL | image | fields))
    getattr(modeling_lion, class_name)(config).save_pretrained(folder)
    lion_image_processor(config, segmentation=class_name == "LionForSemanticSegmentation").save_pretrained(folder)
    return folder


def linear_encoder(name: str = "BertForMaskedLM", *, options: dict | None = None, **fields) -> PreTrainedModel:
    """
    A BERT or ViT of transformers, by the name of its class, that became linear beyond 24 tokens, or 8 patches.

    Args:
        options: of `linearize`, besides those here.
        fields: of the configuration.
    """
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    sizes |= {"initializer_range": 0.2}
    if name.startswith("ViT"):
        image = {"image_size": (24, 32), "patch_size": 8, "id2label": {0: "cat", 1: "lion", 2: "zebra"}}
        config, lion = ViTConfig(**sizes | image | fields), {"exact_length": 8, "window": 2}
    else:
        text = {"vocab_size": len(text_tokenizer()), "max_position_embeddings": 64}
        config = BertConfig(**sizes | text | fields)
        lion = {"exact_length": 24, "window": 8, "mixer": "selective", "positions": "cyclic"}
    model = getattr(transformers, name)(config).eval()
    return modeling_lion.linearize(model, **lion | (options or {}))


def linear_checkpoint(folder: Path, name: str = "BertForMaskedLM", **options) -> Path:
    """A `linear_encoder` and what prepares its inputs."""
    model = linear_encoder(name, **options)
    model.save_pretrained(folder)
    if name.startswith("ViT"):
        height, width = model.config.image_size
        ViTImageProcessorPil(size={"height": height, "width": width}).save_pretrained(folder)
    else:
        tokenizer = text_tokenizer()
        tokenizer.model_max_length = 10**9
        tokenizer.save_pretrained(folder)
    return folder


def preset_checkpoint(folder: Path, name: str, **fields) -> Path:
    """A recommended preset, shrunk, with what prepares its inputs."""
    if name in IMAGE_PRESETS:
        labels = {0: "cat", 1: "lion", 2: "zebra"}
        config = lion_preset(
            name, **SMALL | {"initializer_range": 0.02, "image_size": 64, "id2label": labels} | fields
        )
        model_class, processor = LionForImageClassification, lion_image_processor(config)
    else:
        model_class, processor = LionForMaskedLM, text_tokenizer()
        processor.model_max_length = 10**9
        sizes = {"initializer_range": 0.02, "vocab_size": len(processor)}
        config = lion_preset(name, **SMALL | sizes | fields)
    torch.manual_seed(0)
    model_class(config).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
