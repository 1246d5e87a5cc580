# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""LION inside transformers' own encoders (SPEC §13): one call, attention functions by name, and classes that load."""
