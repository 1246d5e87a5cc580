# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The first module of an exported encoder in modules.json: a `Transformer` of sentence-transformers that runs a graph
instead of the model.

sentence-transformers' own `backend="onnx"` needs optimum, whose releases require an older transformers (optimum-onnx
0.1.0 below 4.58, optimum-intel 2.2.0 below 5.6).
"""

from sentence_transformers.base.modules import Transformer

from .exported import ExportedModel


class ExportedTransformer(Transformer):
    """The first module of an encoder: tokenizes like `Transformer`, and computes with the runtime."""

    def _load_model(self, model_name_or_path, transformer_task, config, backend, is_peft_model, **kwargs):
        return ExportedModel(model_name_or_path)
