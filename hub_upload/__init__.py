# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Publish a LION checkpoint, check it, and make one of what exists: the command `lion`, as functions."""

from importlib import import_module


# Imported when first asked for: `lion --help` should not wait for torch.
_MODULES = {
    "Bundle": ".bundle",
    "create_bundle": ".bundle",
    "load_in_clean_process": ".clean_process",
    "convert_checkpoint": ".convert",
    "convert_original_state_dict": ".published_weights",
    "infer_config": ".published_config",
    "numerics_report": ".numerics",
    "UploadError": ".upload",
    "push_folder": ".upload",
    "upload_checkpoint": ".upload",
    "Verification": ".verify",
    "verify_checkpoint": ".verify",
    "warm_start_from_softmax": ".warm_start",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name], __name__), name)
