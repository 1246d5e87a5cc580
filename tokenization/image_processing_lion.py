# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The image processor of a LION configuration: the library's ViT one, at the right size and number of channels."""

import numpy as np
from transformers import ViTImageProcessorPil
from transformers.utils import is_torchvision_available, is_vision_available

from configuration_lion import LionConfig


class LionGrayscaleImageProcessorPil(ViTImageProcessorPil):
    """
    ViT's image processor for models of one channel. It takes what the ViT one takes, colour, palettes and transparency
    included, and computes the luminance (ITU-R BT.601, as PIL's `convert("L")`).
    """

    def process_image(self, image, do_convert_rgb: bool | None = None, **kwargs) -> np.ndarray:
        """An image to an array `(1, height, width)` of the same dtype."""
        image = super().process_image(image, do_convert_rgb=True, **kwargs)
        if len(image) == 1:  # transformers 5.17 leaves grey arrays grey
            return image
        red, green, blue = image
        gray = 0.299 * red + 0.587 * green + 0.114 * blue
        gray = np.rint(gray) if np.issubdtype(red.dtype, np.integer) else gray
        return gray.astype(red.dtype)[None]


# By backend. Empty without Pillow, which text does not need: the classes are then placeholders that ask for it.
IMAGE_PROCESSORS = {}
if is_vision_available():
    IMAGE_PROCESSORS = {"pil": ViTImageProcessorPil, "grayscale": LionGrayscaleImageProcessorPil}
    if is_torchvision_available():
        from transformers import ViTImageProcessor

        IMAGE_PROCESSORS["torchvision"] = ViTImageProcessor


def lion_image_processor(config: LionConfig, **kwargs) -> ViTImageProcessorPil:
    """
    An image processor that resizes, rescales and normalises images for a model with this configuration.

    Args:
        config: gives `image_size` and `num_channels`. Images become RGB for 3 channels and grey for 1; for any other
            number they must have that many channels.
        kwargs: arguments of `ViTImageProcessor`, for example `image_mean` and `image_std`; they replace the defaults.

    Returns:
        The library's ViT image processor, on torchvision where that is installed and on PIL otherwise; for one
        channel, `LionGrayscaleImageProcessorPil`.

    Raises:
        ImportError: if Pillow is not installed.
    """
    height, width = config.image_shape
    defaults = {
        "size": {"height": height, "width": width},
        "image_mean": [0.5] * config.num_channels,
        "image_std": [0.5] * config.num_channels,
        "do_convert_rgb": config.num_channels == 3,
    }
    if config.num_channels == 1:
        processor_class = LionGrayscaleImageProcessorPil
    else:
        processor_class = IMAGE_PROCESSORS.get("torchvision", ViTImageProcessorPil)
    return processor_class(**(defaults | kwargs))
