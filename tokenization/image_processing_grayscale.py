# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The image processor of models with one channel. It has a file of its own, which is published with such models."""

import os

import numpy as np
from transformers import ViTImageProcessorPil


class LionGrayscaleImageProcessorPil(ViTImageProcessorPil):
    """
    ViT's image processor for models with one channel. It accepts the same images, also with colour, palettes and
    transparency, and computes the luminance (ITU-R BT.601, like PIL's `convert("L")`).
    """

    write_code = None  # writes the code that loads this class; `None` if that code was loaded from beside the weights

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs):
        """`ImageProcessingMixin.save_pretrained`. The installed package also writes the code that `auto_map` names."""
        if self.write_code is not None:
            self.write_code(save_directory)
            self.auto_map = {"AutoImageProcessor": f"modeling_lion.{type(self).__name__}"}
        return super().save_pretrained(save_directory, **kwargs)

    def process_image(self, image, do_convert_rgb: bool | None = None, **kwargs) -> np.ndarray:
        """Convert an image to an array `(1, height, width)` of the same dtype."""
        image = super().process_image(image, do_convert_rgb=True, **kwargs)
        if len(image) == 1:  # transformers 5.17 does not convert grey arrays
            return image
        red, green, blue = image
        gray = 0.299 * red + 0.587 * green + 0.114 * blue
        gray = np.rint(gray) if np.issubdtype(red.dtype, np.integer) else gray
        return gray.astype(red.dtype)[None]
