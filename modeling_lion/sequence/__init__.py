# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Layouts of tokens: padded or packed texts, the patches of an image, segments of a longer text; and positions."""
