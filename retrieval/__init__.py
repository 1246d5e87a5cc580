# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Search and serve with encoders of texts: the commands `lion search`, `lion serve` and `lion embed`."""
