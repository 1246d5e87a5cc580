# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Make the image processor for a LION configuration: ViT's, with the right size and number of channels."""

from transformers import BaseImageProcessor, SegformerImageProcessorPil, ViTImageProcessorPil
from transformers.utils import is_torchvision_available, is_vision_available

from configuration_lion import LionConfig
from configuration_lion.checks import height_width

from .image_processing_grayscale import LionGrayscaleImageProcessorPil


# Classes by backend. Empty without Pillow, which texts do not need: then transformers' classes raise ImportErrors.
IMAGE_PROCESSORS = {}
if is_vision_available():
    IMAGE_PROCESSORS = {"pil": ViTImageProcessorPil, "grayscale": LionGrayscaleImageProcessorPil}
    if is_torchvision_available():
        from transformers import ViTImageProcessor

        IMAGE_PROCESSORS["torchvision"] = ViTImageProcessor


def lion_image_processor(config: LionConfig, segmentation: bool = False, **kwargs) -> BaseImageProcessor:
    """
    Make an image processor that resizes, rescales and normalises images for a model with this configuration.

    Args:
        config: its `image_size` and `num_channels` are used. Images are converted to RGB for 3 channels and to grey
            for 1; for any other number they must already have that many channels.
        segmentation: for `LionForSemanticSegmentation`: the processor also takes `segmentation_maps`, and converts
            outputs of the model to maps (`post_process_semantic_segmentation`, which pipelines call).
        kwargs: arguments of `ViTImageProcessor`, for example `image_mean` and `image_std`; they replace the defaults.

    Returns:
        transformers' image processor of ViT, with torchvision if it is installed and with PIL otherwise; for one
        channel `LionGrayscaleImageProcessorPil`; for segmentation transformers' image processor of Segformer.

    Raises:
        ImportError: if Pillow is not installed.
        ValueError: for segmentation of grey images, which transformers does not support.
    """
    if segmentation and config.num_channels == 1:
        raise ValueError("`num_channels` is 1: processors for segmentation make RGB images; set `num_channels=3`.")
    height, width = height_width(config.image_size)
    defaults = {
        "size": {"height": height, "width": width},
        "image_mean": [0.5] * config.num_channels,
        "image_std": [0.5] * config.num_channels,
        "do_convert_rgb": config.num_channels == 3,
    }
    if segmentation:
        processor_class = SegformerImageProcessorPil
    elif config.num_channels == 1:
        processor_class = LionGrayscaleImageProcessorPil
    else:
        processor_class = IMAGE_PROCESSORS.get("torchvision", ViTImageProcessorPil)
    return processor_class(**(defaults | kwargs))
