# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The private name of transformers that a configuration uses; modeling_lion/private_apis.py has all others."""

from transformers import GenerationConfig


def default_generation_parameters() -> list[str]:
    """
    The names of generation arguments, which transformers accepts in a configuration although they are not fields.
    Without this function, LionConfig would refuse them like other unknown names.
    """
    function = getattr(GenerationConfig, "_get_default_generation_params", dict)
    return list(function())
