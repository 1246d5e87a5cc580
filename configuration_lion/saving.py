# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Saves a configuration with the code that loads it and an `auto_map` that names the classes in that code."""

import os
from collections.abc import Callable
from typing import ClassVar

from .checks import ConfigPart
from .registry import find_feature_map, find_mixer


# The model class of each Auto class, by modality. config.json stores them as `auto_map`, for processes without this
# package. If several Auto classes have the same model class, the last one is its default.
AUTO_MODELS = {
    "text": {
        "AutoModelForPreTraining": "LionForMaskedLM",
        "AutoModelForTextEncoding": "LionModel",
        "AutoModel": "LionModel",
        "AutoModelForMaskedLM": "LionForMaskedLM",
        "AutoModelForMultipleChoice": "LionForMultipleChoice",
        "AutoModelForQuestionAnswering": "LionForQuestionAnswering",
        "AutoModelForSequenceClassification": "LionForSequenceClassification",
        "AutoModelForTokenClassification": "LionForTokenClassification",
    },
    "image": {
        "AutoBackbone": "LionBackbone",
        "AutoModel": "LionModel",
        "AutoModelForImageClassification": "LionForImageClassification",
        "AutoModelForMaskedImageModeling": "LionForMaskedImageModeling",
        "AutoModelForSemanticSegmentation": "LionForSemanticSegmentation",
    },
}


class SavedWithCode(ConfigPart):
    # Writes the code of the model into a folder; `None` in code that was itself loaded from such a folder.
    write_code: ClassVar[Callable | None] = None

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs):
        """`PreTrainedConfig.save_pretrained`, with an `auto_map` for this modality and the code that it names."""
        ours = {"AutoConfig": "configuration_lion.LionConfig"}
        ours |= {name: f"modeling_lion.{model}" for name, model in AUTO_MODELS[self.modality].items()}
        given = getattr(self, "auto_map", {})
        if self.write_code is not None:
            parts = find_mixer(self.mixer_type), find_feature_map(self.feature_map).function
            ours = self.write_code(save_directory, parts, ours)
            given = {k: v for k, v in given.items() if v.split(".")[-1] != ours.get(k, "").split(".")[-1]}
        # Keep other entries. "user/repo--modeling_lion.X", of a download, now refers to the code that is saved here.
        if auto_map := ours | {k: v for k, v in given.items() if v.split("--")[-1] != ours.get(k)}:
            self.auto_map = auto_map
        super().save_pretrained(save_directory, **kwargs)
