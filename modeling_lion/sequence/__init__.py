# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Layouts of tokens: padded, packed, the patches of an image, a segment of a longer text; and their positions."""
