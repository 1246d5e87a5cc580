# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Hand-written kernels for the CPU. Importing this package registers them (attention/kernels.py)."""

from . import chunk, delta, far_sums, parallel, softmax_window  # noqa: F401
