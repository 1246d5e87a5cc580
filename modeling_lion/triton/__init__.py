# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Triton kernels for NVIDIA GPUs. Importing this package registers them, and does not import triton."""

from . import launch  # noqa: F401
