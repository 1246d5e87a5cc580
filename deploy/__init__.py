# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The command `lion` (cli.py) and its larger parts. This package imports the others, and none of them imports it.

    export/     `lion export`: graphs for ONNX Runtime and OpenVINO
    serve/      `lion serve`: encoders, classifiers and rerankers over HTTP
    app/        `lion app`: a page in the browser, and search by meaning
"""

from importlib import import_module


# Imported at first use: `lion --help` should not wait for torch.
_MODULES = {
    "build_app": ".app.page",
    "launch_app": ".app.page",
    "export_checkpoint": ".export.export_checkpoint",
    "ExportedModel": ".export.exported",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name], __name__), name)
