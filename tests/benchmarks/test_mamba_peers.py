# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Two Mamba-2 and Vim as peers: both directions, with padding, and with weights of transformers' beginnings."""

import importlib
from contextlib import nullcontext

import pytest
import torch

from modeling_lion import LionConfig, LionForSequenceClassification, LionModel


CONFIG = LionConfig(
    vocab_size=50,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    chunk_size=8,
    norm_position="pre",
)


@pytest.fixture
def peers():
    return importlib.import_module("peers.mamba")


@pytest.fixture(params=["two Mamba-2", "Vim"])
def model(request, peers):
    torch.manual_seed(0)
    return peers.use_mamba(LionModel(CONFIG), request.param).double().eval()


def test_read_from_the_end(model):
    """The text backwards, with the two directions exchanged, gives the same results backwards."""
    text = torch.randint(1, 50, (2, 21), generator=torch.manual_seed(0))
    expected = model(text).last_hidden_state
    assert (expected[:, :1] - model(text[:, :1]).last_hidden_state).abs().max() > 1e-3  # the first sees what follows
    for layer in model.layers:
        mamba = layer.attention
        mamba.mixer, mamba.reverse_mixer = mamba.reverse_mixer, mamba.mixer
    torch.testing.assert_close(model(text.flip(1)).last_hidden_state.flip(1), expected)


@pytest.mark.parametrize("left", [0, 3, 7])
def test_padding_changes_nothing(model, left):
    text = torch.randint(1, 50, (1, 13), generator=torch.manual_seed(0))
    mask = torch.nn.functional.pad(torch.ones_like(text), (left, 7 - left))
    padded = model(torch.nn.functional.pad(text, (left, 7 - left), value=9), attention_mask=mask).last_hidden_state
    torch.testing.assert_close(padded[:, left : left + 13], model(text).last_hidden_state, rtol=1e-6, atol=1e-6)


def test_gradient_reaches_every_weight(peers):
    for name in peers.MAMBA_PEERS:
        model = peers.use_mamba(LionForSequenceClassification(CONFIG), name)
        text = torch.randint(1, 50, (2, 9), generator=torch.manual_seed(0))
        model(text, labels=torch.tensor([0, 1])).loss.backward()
        without = [name for name, weight in model.named_parameters() if weight.grad is None]
        assert not without
        assert not any("attention" in name and "q_proj" in name for name, _ in model.named_parameters())


@pytest.mark.parametrize("length", [1, 13, 64, 200])
@pytest.mark.parametrize(("peer", "heads"), [("two Mamba-2", 2), ("two Mamba-2", 3), ("Vim", 2)])
def test_scan_equals_that_of_transformers(peers, peer, heads, length):
    """Results and gradients; the references of transformers compute in float32."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16 * heads, "num_attention_heads": heads, "head_directions": "both"}
    config = LionConfig(**CONFIG.to_dict() | sizes)
    mixer = peers.MAMBA_PEERS[peer](config, 1)[0].double()
    hidden_states = torch.randn(2, length, config.hidden_size, dtype=torch.float64, requires_grad=True)
    results = []
    for scan in (nullcontext(), peers.fast_scan(hidden_states.device)):
        with scan:
            output = mixer(hidden_states)
        results.append([output, *torch.autograd.grad(output.square().sum(), [hidden_states, *mixer.parameters()])])
    assert any(not torch.equal(*pair) for pair in zip(*results, strict=True)) or length == 1
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [1, 2, 13, 64, 200])
def test_inference_of_one_sequence_equals_that_of_several(peers, length):
    """Vim's scan in chunks, in float64, beside its loop."""
    torch.manual_seed(0)
    mixer = peers.vim_mixers(CONFIG, 1)[0].double()
    hidden_states = torch.randn(2, length, CONFIG.hidden_size, dtype=torch.float64)
    size = CONFIG.hidden_size * mixer.ssm_state_size
    with torch.no_grad(), peers.fast_scan(hidden_states.device), pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "SMALL_STEP", size)
        several, *single = mixer(hidden_states), *(mixer(x[None]) for x in hidden_states)
    assert length < 64 or not torch.equal(torch.cat(single), several)
    torch.testing.assert_close(torch.cat(single), several, rtol=1e-12, atol=1e-12)
