# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Training of LION: packed batches with a Trainer for them, distillation, and what the scripts in examples/ share."""
