# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The private name of transformers that a configuration needs; modeling_lion/private_apis.py has the others."""

from transformers import GenerationConfig


def default_generation_parameters() -> list[str]:
    """
    Arguments of generation, which transformers allows in a configuration although they are not fields. Without the
    function they would be refused like other unknown names.
    """
    function = getattr(GenerationConfig, "_get_default_generation_params", dict)
    return list(function())
