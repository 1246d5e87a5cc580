# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The tables and pictures of the pages. Every module of this package is imported, and registers its own."""

import importlib
import pkgutil


for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
