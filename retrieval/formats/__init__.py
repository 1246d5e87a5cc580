# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Readers of files for search: each takes the bytes of a file and yields its sections, with the places where they are.

The libraries that they need come with the extra `files`, and are imported when the first file of a format is read.
"""
