# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""A mixer of one's own, as a file for `--mixers`."""

import importlib
import sys

import pytest

from configuration_lion.registry import MIXERS


NAME = "half_of_ones_own"
SOURCE = f"""
import torch
from modeling_lion import register_mixer
from modeling_lion.mixers.linear import LinearMixer

@register_mixer
class HalfMixer(LinearMixer):
    name = "{NAME}"

    def log_decay(self, hidden_states):
        return torch.full((self.config.num_attention_heads,), -0.7)
"""


@pytest.fixture
def forget_mixers():
    """A function that makes mixers unknown again which were added since."""
    trainings = importlib.import_module("trainings")
    tables = (MIXERS, trainings.MODELS, trainings.OWN_MIXERS, trainings.OWN_FILES)
    before, path = [dict(table) for table in tables], [*sys.path]

    def forget() -> None:
        for table, names in zip(tables, before, strict=True):
            table.clear()
            table.update(names)
        sys.modules.pop(NAME, None)
        sys.path[:] = path

    yield forget
    forget()


@pytest.fixture
def own_mixer(forget_mixers, tmp_path):
    """The file of a mixer that has its name."""
    path = tmp_path / f"{NAME}.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path
