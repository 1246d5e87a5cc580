# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The image processor: every kind of image at the configured size, and saved folders that the Auto classes resolve."""

import numpy as np
import pytest
import torch
from PIL import Image
from tokenization_lion import lion_image_processor
from tokenization_lion.image_processing_grayscale import LionGrayscaleImageProcessorPil
from transformers import ViTImageProcessorPil
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from modeling_lion import LionConfig, LionForImageClassification


def image_config(**fields):
    fields = {"image_size": 16, "patch_size": 8, "num_channels": 3} | fields
    return LionConfig(
        modality="image",
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        **fields,
    )


def images(height=20, width=30):
    rgb = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    color = Image.fromarray(rgb)
    transparent = color.copy()
    transparent.putalpha(128)
    return {
        "RGB": color,
        "L": color.convert("L"),
        "RGBA": transparent,
        "P": color.convert("P"),
        "LA": transparent.convert("LA"),
        "1": color.convert("1"),
        "array, channels last": rgb,
        "array, channels first": rgb.transpose(2, 0, 1).copy(),
        "tensor": torch.from_numpy(rgb.transpose(2, 0, 1).copy()),
    }


@pytest.mark.axes(num_channels=[1, 3], image_size=[16, (8, 24)])
def test_every_kind_of_image_fits_the_model(num_channels, image_size):
    config = image_config(image_size=image_size, num_channels=num_channels)
    processor, model = lion_image_processor(config), LionForImageClassification(config)
    for kind, image in images().items():
        pixel_values = processor(image, return_tensors="pt")["pixel_values"]
        shape = (1, num_channels, *config.image_shape)
        assert pixel_values.shape == shape and pixel_values.dtype == torch.float32, kind
        assert pixel_values.abs().max() <= 1 and pixel_values.max() - pixel_values.min() > 0.2, kind
        assert model(pixel_values).logits.isfinite().all(), kind


def test_three_channels_give_the_pixels_of_vit():
    vit = ViTImageProcessorPil(
        size={"height": 16, "width": 16}, image_mean=[0.5] * 3, image_std=[0.5] * 3, do_convert_rgb=True
    )
    batch = list(images().values())[:6]
    ours = lion_image_processor(image_config())(batch, return_tensors="pt")["pixel_values"]
    assert torch.equal(ours, vit(batch, return_tensors="pt")["pixel_values"])


@pytest.mark.parametrize("kind", ["RGB", "L", "P", "1", "array, channels last", "array, channels first", "tensor"])
def test_one_channel_is_the_luminance(kind):
    image = images()[kind]
    processor = lion_image_processor(image_config(num_channels=1), do_resize=False, do_normalize=False)
    gray = processor(image, return_tensors="pt")["pixel_values"][0, 0] * 255
    color = image if isinstance(image, Image.Image) else images()["RGB"]
    expected = torch.from_numpy(np.array(color.convert("RGB").convert("L")).astype(np.float32))
    assert (gray - expected).abs().max() < 1.01  # PIL's own weights are 16-bit integers: one grey level
    if kind == "L":
        torch.testing.assert_close(gray, expected)


@pytest.mark.parametrize("shape", [(20, 30, 1), (1, 20, 30)])
def test_arrays_of_one_channel_stay_as_they_are(shape):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    processor = lion_image_processor(image_config(num_channels=1), do_resize=False, do_normalize=False)
    gray = processor(array, return_tensors="pt")["pixel_values"] * 255
    torch.testing.assert_close(gray, torch.from_numpy(array).float().view(1, 1, 20, 30))


def test_arguments_replace_the_defaults():
    processor = lion_image_processor(image_config(), image_mean=[0.1, 0.2, 0.3], do_rescale=False)
    assert list(processor.image_mean) == [0.1, 0.2, 0.3] and not processor.do_rescale


@pytest.mark.parametrize("with_config", [True, False])
@pytest.mark.parametrize("num_channels", [1, 3])
def test_auto_image_processor_resolves_a_saved_folder(tmp_path, num_channels, with_config):
    config = image_config(image_size=(8, 24), num_channels=num_channels)
    processor = lion_image_processor(config)
    processor.save_pretrained(tmp_path)
    assert (tmp_path / "preprocessor_config.json").exists()
    if with_config:
        config.save_pretrained(tmp_path)
    loaded = AutoImageProcessor.from_pretrained(tmp_path)
    assert type(loaded) is type(processor)
    assert isinstance(loaded, LionGrayscaleImageProcessorPil) == (num_channels == 1)
    batch = list(images().values())
    expected = processor(batch, return_tensors="pt")["pixel_values"]
    assert torch.equal(loaded(batch, return_tensors="pt")["pixel_values"], expected)
