# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Bidirectional linear attention, the delta rule and softmax within a window; their forms, and the decay mask."""
