# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What mixes tokens in a layer: linear mixers, softmax, Luna, and the parts that they share."""
