# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Training of LION: packed batches, and a Trainer for them."""
