# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""LION inside transformers' own encoders (SPEC §13): `linearize`, attention functions by name, model classes."""
