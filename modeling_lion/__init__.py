"""LION for transformers. Importing this package makes the Auto classes know LION."""

from tokenization_lion import IMAGE_PROCESSORS, LionTokenizer, lion_image_processor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForMaskedImageModeling,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

# transformers 5.17 without torchvision exports a placeholder under the short name; the class itself needs none.
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from configuration_lion import LionConfig, lion_preset

from .modeling_lion import (
    LionForImageClassification,
    LionForMaskedImageModeling,
    LionForMaskedLM,
    LionForMultipleChoice,
    LionForQuestionAnswering,
    LionForSequenceClassification,
    LionForTokenClassification,
    LionModel,
    LionPreTrainedModel,
)


AutoConfig.register("lion", LionConfig, exist_ok=True)
AutoTokenizer.register(LionConfig, tokenizer_class=LionTokenizer, exist_ok=True)
if IMAGE_PROCESSORS:
    AutoImageProcessor.register(LionConfig, image_processor_classes=IMAGE_PROCESSORS, exist_ok=True)
for auto_class, model_class in {
    AutoModel: LionModel,
    AutoModelForImageClassification: LionForImageClassification,
    AutoModelForMaskedImageModeling: LionForMaskedImageModeling,
    AutoModelForMaskedLM: LionForMaskedLM,
    AutoModelForMultipleChoice: LionForMultipleChoice,
    AutoModelForQuestionAnswering: LionForQuestionAnswering,
    AutoModelForSequenceClassification: LionForSequenceClassification,
    AutoModelForTokenClassification: LionForTokenClassification,
}.items():
    auto_class.register(LionConfig, model_class, exist_ok=True)

__all__ = [
    "LionConfig",
    "LionForImageClassification",
    "LionForMaskedImageModeling",
    "LionForMaskedLM",
    "LionForMultipleChoice",
    "LionForQuestionAnswering",
    "LionForSequenceClassification",
    "LionForTokenClassification",
    "LionModel",
    "LionPreTrainedModel",
    "LionTokenizer",
    "lion_image_processor",
    "lion_preset",
]
