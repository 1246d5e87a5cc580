# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Publish, check and convert LION checkpoints.

    publish/    `lion bundle` and `lion upload`: complete repositories for the Hub, model cards
    convert/    `lion convert`: encoders of transformers, and the checkpoints of the paper's authors
    verify.py   `lion verify`: how well the kernels agree on a checkpoint
"""

from importlib import import_module


# Imported at first use: a name of one module should not wait for the libraries of another.
_MODULES = {
    "Bundle": ".publish.bundle",
    "create_bundle": ".publish.bundle",
    "load_in_clean_process": ".publish.clean_process",
    "convert_checkpoint": ".convert.convert_checkpoint",
    "convert_encoder": ".convert.encoder",
    "convert_original_state_dict": ".convert.original",
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
