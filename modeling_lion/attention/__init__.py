# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Bidirectional linear attention and softmax within a window: functions, their forms, and the decay mask."""
