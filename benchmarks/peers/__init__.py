# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Models that LION is compared with, and the trials of each contestant."""
