# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Search and embed texts with sentence encoders: `encode_passages`, `lion search` and `lion embed`."""
