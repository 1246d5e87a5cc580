# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Graphs for tests of what comes behind tracing, which takes most of an export."""

import pytest
from transformers import PreTrainedModel


_TRACED: dict = {}  # the graphs of this process, as ONNX protocol buffers


@pytest.fixture
def traced_once(monkeypatch):
    """Equal models, with equal forms of attention, are traced once in all tests of this process that ask for it."""
    from deploy_lion.export import export_checkpoint as module  # conftest.py imports this file for all tests

    trace = module.trace

    def trace_once(model: PreTrainedModel):
        import onnx_ir

        implementation = model.config._attn_implementation
        sums = tuple((name, float(x.double().sum())) for name, x in model.state_dict().items())
        key = type(model).__name__, implementation, model.config.to_json_string(), sums
        if key not in _TRACED:
            _TRACED[key] = onnx_ir.to_proto(trace(model))
        return onnx_ir.from_proto(_TRACED[key])

    monkeypatch.setattr(module, "trace", trace_once)
