# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Import this before transformers, which imports bitsandbytes where that is installed. On some CPUs it then warns of a
missing kernel for 4-bit weights, which these scripts do not have.
"""

import logging


logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
