# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What each head is for: its Auto class, and the task of the library and of the Hub."""

from configuration_lion import AUTO_MODELS
from modeling_lion import LionPreTrainedModel


# By Auto class: what the head does, in words, and the Hub's `pipeline_tag`, by modality.
TASKS = {
    "AutoModel": ("", {"text": "feature-extraction", "image": "image-feature-extraction"}),
    "AutoModelForMaskedLM": ("masked language modeling", {"text": "fill-mask"}),
    "AutoModelForSequenceClassification": ("classifying texts", {"text": "text-classification"}),
    "AutoModelForTokenClassification": ("classifying tokens", {"text": "token-classification"}),
    "AutoModelForQuestionAnswering": ("finding answers in a text", {"text": "question-answering"}),
    "AutoModelForMultipleChoice": ("multiple choice", {"text": "multiple-choice"}),
    "AutoModelForImageClassification": ("classifying images", {"image": "image-classification"}),
    "AutoModelForMaskedImageModeling": ("masked image modeling", {"image": "image-feature-extraction"}),
}
WITHOUT_PIPELINE = {  # in the library
    "AutoModelForQuestionAnswering",
    "AutoModelForMultipleChoice",
    "AutoModelForMaskedImageModeling",
}


def auto_class_of(model: LionPreTrainedModel) -> str:
    """The name of the Auto class that makes a model of this class."""
    names = {model_name: auto_class for auto_class, model_name in AUTO_MODELS[model.config.modality].items()}
    return names[type(model).__name__]


def pipeline_tag(model: LionPreTrainedModel) -> str:
    """The task of the model, as the Hub calls it."""
    return TASKS[auto_class_of(model)][1][model.config.modality]


def pipeline_of(model: LionPreTrainedModel) -> str | None:
    """The task of the library's `pipeline` for the model; `None` without one."""
    return None if auto_class_of(model) in WITHOUT_PIPELINE else pipeline_tag(model)
