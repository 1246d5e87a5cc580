# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Initial weights of the peers."""

import importlib

import pytest
import torch


@pytest.fixture
def trainings():
    return importlib.import_module("trainings")


@pytest.mark.parametrize("name", ["LION-S", "two Mamba-2", "Vim", "Hydra"])
def test_peers_may_start_as_their_authors_have_them(trainings, name):
    data = trainings.Data(trainings.LionForMaskedLM, {"vocab_size": 99}, {}, None)
    config = trainings.LionConfig(**trainings.sizes(192, 1, 4) | data.config | trainings.MODELS[name])
    model = trainings.make_model(name, config, data)
    before = {key: weight.clone() for key, weight in model.named_parameters()}
    trainings.use_fan_in(model)
    changed = {key: weight for key, weight in model.named_parameters() if not torch.equal(weight, before[key])}
    assert bool(changed) == (name in trainings.MAMBA_PEERS) and all("attention" in key for key in changed)
    for weight in changed.values():
        std = (3 * weight.shape[1]) ** -0.5
        # The standard error of a standard deviation of n numbers is at most std / sqrt(2 n).
        assert abs(weight.std() / std - 1) < 4 * (2 * weight.numel()) ** -0.5
