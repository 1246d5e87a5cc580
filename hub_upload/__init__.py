# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Publish, check, export and convert LION checkpoints: the functions of the command `lion` (cli.py).

Each of its sub-commands is a file: bundle.py, upload.py, verify.py, export.py, convert.py and app.py. The file
original.py reads the checkpoints of the paper's authors, warm_start.py those of the softmax encoders in
warm_start_families.py; exported.py runs exported graphs; space.py makes a Space of the page of app.py.
"""

from importlib import import_module


# Imported when first asked for: `lion --help` should not wait for torch.
_MODULES = {
    "Bundle": ".bundle",
    "build_app": ".app",
    "create_bundle": ".bundle",
    "launch_app": ".app",
    "load_in_clean_process": ".clean_process",
    "convert_checkpoint": ".convert",
    "convert_original_state_dict": ".original",
    "export_checkpoint": ".export",
    "ExportedModel": ".exported",
    "infer_config": ".original",
    "numerics_report": ".verify",
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
