# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Image models whose outputs are maps, all Auto classes, and LION as the encoder of other models."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from conftest import WITH_WEIGHTS, with_masks
from PIL import Image
from tokenization_lion import lion_image_processor
from transformers import (
    AutoBackbone,
    AutoModel,
    AutoModelForSemanticSegmentation,
    BertConfig,
    BertLMHeadModel,
    EncoderDecoderModel,
    GPT2Config,
    GPT2LMHeadModel,
    UperNetConfig,
    UperNetForSemanticSegmentation,
    VisionEncoderDecoderModel,
    pipeline,
)
from transformers.models.auto.image_processing_auto import AutoImageProcessor

import modeling_lion
from configuration_lion import AUTO_MODELS
from modeling_lion import (
    LionBackbone,
    LionConfig,
    LionForImageClassification,
    LionForMaskedImageModeling,
    LionForSemanticSegmentation,
    LionModel,
)


@pytest.fixture
def image_config(find_case):
    return lambda mixer="selective", **fields: find_case("LionModel", "image").config(mixer, **fields)


# Backbones


def test_feature_maps_are_the_hidden_states_without_the_cls_token(image_config, mixer, tmp_path, equal):
    classifier = LionForImageClassification(image_config(mixer)).double().eval()
    classifier.save_pretrained(tmp_path)
    images = torch.randn(2, 3, 6, 8, dtype=torch.float64)
    states = classifier(images, output_hidden_states=True).hidden_states
    for chosen, indices in (
        ({"out_features": ["stem", "stage2"]}, [0, 2]),
        ({"out_indices": (1, 2)}, [1, 2]),
        ({}, [2]),
    ):
        model, info = LionBackbone.from_pretrained(tmp_path, **chosen, dtype=torch.float64, output_loading_info=True)
        assert not info["missing_keys"]
        assert model.out_indices == indices and model.channels == [16] * len(indices)
        output = model(images)
        assert output.hidden_states is None and len(model(images, output_hidden_states=True).hidden_states) == 3
        assert len(output.feature_maps) == len(indices)
        for found, index in zip(output.feature_maps, indices, strict=True):
            equal(found, states[index][:, 1:].unflatten(1, (3, 4)).permute(0, 3, 1, 2))
        model.save_pretrained(tmp_path / "again")
        again = LionBackbone.from_pretrained(tmp_path / "again", dtype=torch.float64)
        assert again.out_features == model.out_features
        equal(again(images).feature_maps[-1], output.feature_maps[-1])
    assert not AutoModel.from_pretrained(tmp_path / "again", output_loading_info=True)[1]["missing_keys"]
    has_weights = mixer in WITH_WEIGHTS
    larger = model(torch.randn(2, 3, 12, 10, dtype=torch.float64), output_attentions=has_weights)
    assert larger.feature_maps[0].shape == (2, 16, 6, 5) and len(larger.attentions or ()) == 2 * has_weights


def test_a_backbone_says_what_it_cannot_give(image_config, find_case):
    with pytest.raises(ValueError, match="out_features must be a subset of stage_names.*'stem', 'stage1', 'stage2'"):
        image_config(out_features=["stage9"])
    with pytest.raises(ValueError, match="LionBackbone takes `modality` 'image'"):
        LionBackbone(find_case("LionModel", "text").config())


@pytest.mark.slow
def test_other_models_take_lion_as_their_backbone(image_config, tmp_path):
    config = image_config(out_indices=[0, 1, 2])
    assert type(AutoBackbone.from_config(config)) is LionBackbone
    config = UperNetConfig(backbone_config=config, hidden_size=8, pool_scales=[1, 2], num_labels=3)
    config.auxiliary_in_channels = 16
    model = UperNetForSemanticSegmentation(config).eval()
    output = model(torch.randn(2, 3, 6, 8), labels=torch.randint(3, (2, 6, 8)))
    assert output.logits.shape == (2, 3, 6, 8) and output.loss.isfinite()
    model.save_pretrained(tmp_path)
    loaded = UperNetForSemanticSegmentation.from_pretrained(tmp_path)
    images = torch.randn(2, 3, 6, 8)
    assert type(loaded.backbone) is LionBackbone and torch.equal(loaded(images).logits, model(images).logits)


# Semantic segmentation


def test_segmentation_loss_is_that_of_the_pixels_that_count(image_config, equal):
    model = LionForSemanticSegmentation(image_config()).double().eval()
    images, labels = torch.randn(3, 3, 6, 8, dtype=torch.float64), torch.randint(3, (3, 9, 11))
    labels[0], labels[1, :4] = 255, 255
    output = model(images, labels=labels)
    assert output.logits.shape == (3, 3, 3, 4)  # of patches
    logits = torch.nn.functional.interpolate(output.logits.float(), (9, 11), mode="bilinear")
    counts = labels != 255
    expected = torch.nn.functional.cross_entropy(logits.permute(0, 2, 3, 1)[counts], labels[counts])
    torch.testing.assert_close(output.loss, expected)
    assert model(images, labels=torch.full((3, 6, 8), 255)).loss == 0
    model.config.semantic_loss_ignore_index = 7
    for wrong, message in (
        (labels, "`labels` holds 255, outside 0 to 2.*semantic_loss_ignore_index"),
        (labels[0], r"must be \(batch, height, width\).*got \(9, 11\)"),
    ):
        with pytest.raises(ValueError, match=message):
            model(images, labels=wrong)
    with pytest.raises(ValueError, match="`num_labels` is 1"):
        LionForSemanticSegmentation(image_config(num_labels=1))


@with_masks
def test_segmentation_learns_and_serves(image_config, tmp_path):
    """Black and white halves: from maps of the processor to a pipeline that finds them, at the size of the image."""
    torch.manual_seed(0)
    config = image_config(
        num_labels=2, id2label={0: "black", 1: "white"}, image_size=16, patch_size=4, initializer_range=0.1
    )
    LionForImageClassification(config).save_pretrained(tmp_path)
    model = AutoModelForSemanticSegmentation.from_pretrained(tmp_path)
    assert type(model) is LionForSemanticSegmentation
    processor = lion_image_processor(config, segmentation=True)
    images, maps = [], []
    for row in range(8):
        pixels = np.zeros((32, 32), dtype=np.uint8)
        pixels[:, 16:] = 1
        pixels = np.rot90(pixels, row % 4)
        maps.append(Image.fromarray(np.ascontiguousarray(pixels)))
        images.append(Image.fromarray(np.ascontiguousarray(pixels) * 255).convert("RGB"))
    inputs = processor(images, segmentation_maps=maps, return_tensors="pt")
    assert inputs["labels"].shape == (8, 16, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        model(**inputs).loss.backward()
        optimizer.step()
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    assert type(AutoImageProcessor.from_pretrained(tmp_path)) is type(processor)
    segment = pipeline("image-segmentation", model=str(tmp_path))
    answers = {answer["label"]: np.asarray(answer["mask"]) for answer in segment(images[1])}
    assert answers.keys() == {"black", "white"} and answers["white"].shape == (32, 32)
    assert ((answers["white"] > 0) == np.asarray(maps[1]).astype(bool)).mean() > 0.9
    with pytest.raises(ValueError, match="`num_channels` is 1"):
        lion_image_processor(image_config(num_channels=1), segmentation=True)


# Auto classes


@pytest.mark.parametrize(("modality", "auto_class"), [(m, a) for m, names in AUTO_MODELS.items() for a in names])
def test_every_auto_class_makes_its_model(modality, auto_class, find_case):
    config = find_case("LionModel", modality).config()
    model = getattr(transformers, auto_class).from_config(config)
    assert type(model).__name__ == AUTO_MODELS[modality][auto_class]


@pytest.mark.slow
def test_the_auto_map_serves_all_auto_classes_where_the_package_is_not(image_config, tmp_path):
    folders = []
    for class_name in ("LionForImageClassification", "LionBackbone"):
        folders.append(str(tmp_path / class_name))
        getattr(modeling_lion, class_name)(image_config(out_indices=[1, 2])).save_pretrained(folders[-1])
        auto_map = json.loads((tmp_path / class_name / "config.json").read_text())["auto_map"]
        assert auto_map == {"AutoConfig": "configuration_lion.LionConfig"} | {
            name: f"modeling_lion.{model_name}" for name, model_name in AUTO_MODELS["image"].items()
        }
    others = [name for name in AUTO_MODELS["image"] if name != "AutoBackbone"]
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['modeling_lion', 'configuration_lion', 'tokenization_lion']))\n"
        "import torch, transformers\n"
        f"for folder in {folders}:\n"
        "    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)\n"
        "    backbone = transformers.AutoBackbone.from_config(config, trust_remote_code=True)\n"
        "    print(type(backbone).__name__, len(backbone(torch.zeros(1, 3, 6, 8)).feature_maps))\n"
        f"    for name in {others}:\n"
        "        model = getattr(transformers, name).from_pretrained(folder, trust_remote_code=True)\n"
        "        print(name, type(model).__name__, model.set_attn_implementation('chunk'))\n"
    )
    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_MODULES_CACHE": str(tmp_path / "modules")}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-3000:]
    expected = ["LionBackbone 2", *(f"{name} {AUTO_MODELS['image'][name]} None" for name in others)]
    assert result.stdout.splitlines() == 2 * expected


# Encoders of composite models


def make_decoder(kind: str, hidden_size: int):
    if kind == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=40, n_embd=hidden_size, n_layer=2, n_head=2, n_positions=32, add_cross_attention=True
            )
        )
    sizes = {"vocab_size": 40, "hidden_size": hidden_size, "num_hidden_layers": 2, "num_attention_heads": 2}
    return BertLMHeadModel(BertConfig(**sizes, intermediate_size=24, is_decoder=True, add_cross_attention=True))


@pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces a better way to train:FutureWarning")
@pytest.mark.axes(kind=["bert", "gpt2"], width=[16, 32], mixer=["decay", "selective", "softmax"])
def test_lion_reads_and_another_model_writes(encoder, mixer, kind, width, tmp_path):
    """Loss, gradients, beam search, and all again from the saved folder; with a projection between two widths."""
    lion = LionModel(encoder.config(mixer), add_pooling_layer=False)
    composite = EncoderDecoderModel if encoder.modality == "text" else VisionEncoderDecoderModel
    model = composite(encoder=lion, decoder=make_decoder(kind, width))
    ids = {"decoder_start_token_id": 1, "pad_token_id": 0}
    for name, value in ids.items():
        setattr(model.config, name, value)
    model.generation_config.update(**ids, bos_token_id=1, eos_token_id=2)
    inputs = encoder.inputs(lion.config, torch.float32)
    if encoder.modality == "text":
        del inputs["token_type_ids"]
        inputs["attention_mask"] = (torch.arange(9) < torch.tensor([[9], [6], [1]])).long()
    labels = torch.randint(3, 40, (3, 5))
    model.train()(**inputs, labels=labels).loss.backward()
    assert lion.layers[0].mlp.up_proj.weight.grad.abs().sum() > 0
    model.eval().save_pretrained(tmp_path / "whole")
    loaded = composite.from_pretrained(tmp_path / "whole")
    assert type(loaded.encoder) is LionModel
    with torch.no_grad():
        assert torch.equal(loaded(**inputs, labels=labels).logits, model(**inputs, labels=labels).logits)
    options = {"max_new_tokens": 6, "num_beams": 2, "do_sample": False}
    assert torch.equal(loaded.generate(**inputs, **options), model.generate(**inputs, **options))
    half = composite.from_pretrained(tmp_path / "whole", dtype=torch.bfloat16)
    dtypes = {parameter.dtype for name, parameter in half.named_parameters() if ".decay" in name}
    assert dtypes <= {torch.float32} and half.dtype == torch.bfloat16
    lion.save_pretrained(tmp_path / "encoder")
    model.decoder.save_pretrained(tmp_path / "decoder")
    pair = composite.from_encoder_decoder_pretrained(tmp_path / "encoder", tmp_path / "decoder")
    assert type(pair.encoder) is LionModel and type(pair.decoder) is type(model.decoder)


def test_a_configuration_without_maps_says_nothing_of_them():
    config = LionConfig()
    assert config.out_features is None and config.out_indices is None


def test_pixels_may_be_given_by_position(find_case):
    """As a ViT takes them."""
    model = find_case("LionModel", "image").model("selective").eval()
    pixels = torch.randn(2, model.config.num_channels, *model.config.image_shape, dtype=model.dtype)
    assert torch.equal(model(pixels).last_hidden_state, model(pixel_values=pixels).last_hidden_state)


@pytest.mark.parametrize("use_cls_token", [False, True])
@pytest.mark.parametrize("positions", ["none", "absolute"])
def test_all_combinations_of_cls_token_and_positions(image_config, use_cls_token, positions, tmp_path):
    """Also without either, where the embeddings have no weights but those of the patches."""
    config = image_config(use_cls_token=use_cls_token, position_embedding_type=positions, pooling="mean")
    pretrained = LionForMaskedImageModeling(config).eval()
    pretrained.save_pretrained(tmp_path)
    model, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    images = torch.randn(2, 3, 6, 8)
    assert torch.equal(model(images).last_hidden_state, pretrained.lion(images).last_hidden_state)
    assert LionForImageClassification(config)(images).logits.shape[0] == 2


def test_the_loss_of_masked_images_is_finite_in_float16(image_config):
    """Its sums over all pixels are beyond float16."""
    model = LionForMaskedImageModeling(image_config()).eval()
    images = 200 * torch.randn(64, 3, 6, 8)
    mask = torch.ones(64, math.prod(model.config.patch_grid), dtype=torch.bool)
    expected = model(images, bool_masked_pos=mask).loss
    loss = model.half()(images.half(), bool_masked_pos=mask).loss
    torch.testing.assert_close(loss, expected, rtol=1e-2, atol=0)
