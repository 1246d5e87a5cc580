# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Publish, check, export and convert LION checkpoints: the functions of the command `lion` (cli.py).

    publish/    `lion bundle` and `lion upload`: complete repositories for the Hub, model cards
    convert/    `lion convert`: encoders of transformers, and the checkpoints of the paper's authors
    export/     `lion export`: graphs for ONNX Runtime and OpenVINO
    app/        `lion app`: a page in the browser, and search by meaning
    verify.py   `lion verify`: how well the kernels agree on a checkpoint
"""

from importlib import import_module


# Imported when first asked for: `lion --help` should not wait for torch.
_MODULES = {
    "Bundle": ".publish.bundle",
    "build_app": ".app.page",
    "create_bundle": ".publish.bundle",
    "launch_app": ".app.page",
    "load_in_clean_process": ".publish.clean_process",
    "convert_checkpoint": ".convert.convert_checkpoint",
    "convert_encoder": ".convert.in_place",
    "convert_original_state_dict": ".convert.original",
    "export_checkpoint": ".export.export_checkpoint",
    "ExportedModel": ".export.exported",
    "infer_config": ".convert.original",
    "numerics_report": ".verify",
    "UploadError": ".publish.upload",
    "push_folder": ".publish.upload",
    "upload_checkpoint": ".publish.upload",
    "Verification": ".verify",
    "verify_checkpoint": ".verify",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name], __name__), name)
