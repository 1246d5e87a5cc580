# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The configuration, as modeling_lion.py imports it. In a repository on the Hub the configuration's own file takes this
one's place: saving a model copies the files of modeling_lion first and then, over this one, the configuration's.
"""

from configuration_lion import LionConfig


__all__ = ["LionConfig"]
