# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion convert`: checkpoints of the paper's authors, and warm starts from softmax encoders."""
