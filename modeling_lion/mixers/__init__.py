# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Mixers, the part of a layer that mixes tokens: one file for each, and files of their parts."""
