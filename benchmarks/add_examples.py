# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Importing this makes the scripts of examples/, and what they share, importable: benchmarks run some of them."""

import sys
from pathlib import Path


EXAMPLES = str(Path(__file__).resolve().parents[1] / "examples")
if EXAMPLES not in sys.path:
    sys.path.insert(1, EXAMPLES)  # behind the folder of the script
