# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What modules.json of an exported encoder names: sentence-transformers with a runtime's graph in place of the model.

Its own `backend="onnx"` goes by way of optimum, whose releases (optimum-onnx 0.1.0, optimum-intel 2.2.0) want
transformers older than 5.6.
"""

from sentence_transformers.base.modules import Transformer

from .export.exported import ExportedModel


class ExportedTransformer(Transformer):
    """The first module of an encoder: it tokenizes as `Transformer` does, and the runtime computes."""

    def _load_model(self, model_name_or_path, transformer_task, config, backend, is_peft_model, **kwargs):
        return ExportedModel(model_name_or_path)
