from .image_processing_lion import IMAGE_PROCESSORS, lion_image_processor
from .tokenization_lion import LionTokenizer


__all__ = ["IMAGE_PROCESSORS", "LionTokenizer", "lion_image_processor"]
