# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Heads inside encoders: some rows of their weights, one branch alone, and features of a learnt size."""

import pytest
import torch
from transformers import BertConfig

from modeling_lion.linearized import branch
from modeling_lion.linearized.branch import LinearBranch, bounded_exp
from modeling_lion.linearized.config import LinearizedConfig
from modeling_lion.sequence import tiles
from modeling_lion.tokens import Tokens


HEADS, DIM, LENGTH = 2, 4, 20


def make_head(window: int = 3, mixer: str = "lit", feature_map: str = "hedgehog") -> LinearBranch:
    """With random weights, in float64."""
    torch.manual_seed(0)
    fields = {"lion_window": window, "lion_mixer": mixer, "lion_feature_map": feature_map}
    config = type("Config", (LinearizedConfig, BertConfig), {})(**fields)
    head = LinearBranch(config, HEADS, DIM).double()
    head.start()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return head


def make_inputs(batch: int = 2) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    return torch.randn(3, batch, HEADS, LENGTH, DIM, dtype=torch.float64).unbind()


@pytest.mark.parametrize("mixer", ["lit", "decay", "selective", "delta"])
@pytest.mark.parametrize("window", [0, 3])
def test_rows_of_some_tokens_are_those_of_all(mixer, window):
    head, (query, key, value) = make_head(window, mixer), make_inputs()
    is_real = torch.ones(2, LENGTH, dtype=torch.bool)
    is_real[0, 15:] = False
    some = torch.tensor([7, 0, 14])
    for tokens in (Tokens(), Tokens(is_real)):
        output, _ = head(query, key, value, tokens, output_attentions=True)
        rows = head.output_of_tokens(query, key, value, tokens, None, some)
        torch.testing.assert_close(rows, output[:, some])


@pytest.mark.parametrize("feature_map", ["hedgehog", "scaled_hedgehog"])
def test_features_in_tiles(feature_map, monkeypatch):
    """Inference of many tokens makes features tile by tile; with gradients they are made at once."""
    monkeypatch.setattr(tiles, "TILE_TOKENS", 6)
    head, inputs = make_head(feature_map=feature_map), make_inputs(batch=3)
    is_real = torch.ones(3, LENGTH, dtype=torch.bool)
    is_real[1, 15:] = False
    expected, _ = head(*inputs, Tokens(is_real))
    cuts = []
    monkeypatch.setattr(branch, "in_tiles", lambda *args: cuts.append(args) or tiles.in_tiles(*args))
    with torch.no_grad():
        output, _ = head(*inputs, Tokens(is_real))
    assert cuts
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("form", ["auto", "parallel", "chunk"])
def test_one_branch_alone(form):
    """Softmax in the window, and the linear sum beyond it, by their definitions."""
    head, (query, key, value) = make_head(), make_inputs()
    position = torch.arange(LENGTH)
    is_near = (position[:, None] - position).abs() <= head.window
    scores = (query @ key.transpose(-1, -2) * DIM**-0.5).masked_fill(~is_near, -torch.inf)
    head.branches = "window"
    output, _ = head(query, key, value, form=form)
    torch.testing.assert_close(output, (scores.softmax(-1) @ value).transpose(1, 2))
    head.branches = "linear"
    output, _ = head(query, key, value, form=form)
    features = [f(x.transpose(1, 2)).transpose(1, 2) for f, x in ((head.query_map, query), (head.key_map, key))]
    far = (features[0] @ features[1].transpose(-1, -2)).masked_fill(is_near, 0)
    torch.testing.assert_close(output, (far / far.sum(-1, keepdim=True) @ value).transpose(1, 2))


@pytest.mark.parametrize("form", ["parallel", "chunk"])
def test_the_delta_rule_alone_reads_all_tokens(form):
    head, alone = make_head(mixer="delta"), make_head(window=0, mixer="delta")
    alone.load_state_dict({name: x for name, x in head.state_dict().items() if not name.startswith("gate")})
    inputs = make_inputs()
    head.branches = "linear"
    expected, _ = alone(*inputs, form=form)
    torch.testing.assert_close(head(*inputs, form=form)[0], expected)
    head.branches = "window"
    plain = make_head()
    plain.branches = "window"
    torch.testing.assert_close(head(*inputs, form=form)[0], plain(*inputs, form=form)[0])


@pytest.mark.parametrize("form", ["parallel", "chunk"])
def test_the_gate_leaves_either_branch(form):
    """Gates far beyond what exp can hold."""
    head, inputs, found = make_head(), make_inputs(), {}
    torch.nn.init.zeros_(head.gate)
    for amount, name in ((1e4, "linear"), (-1e4, "window")):
        head.branches = name
        torch.nn.init.zeros_(head.gate_bias)
        expected, _ = head(*inputs, form=form)
        head.branches = "both"
        torch.nn.init.constant_(head.gate_bias, amount)
        found[name], _ = head(*inputs, form=form)
        torch.testing.assert_close(found[name], expected)
        head.zero_grad()
        found[name].sum().backward()
        assert (head.gate_bias.grad.abs() < 1e-12).all() and all(x.grad.isfinite().all() for x in head.parameters())
    assert not torch.allclose(*found.values())


def test_gradients_of_the_weights():
    """With scores whose differences exp cannot hold in float32, and with padding."""
    is_real = torch.ones(2, LENGTH, dtype=torch.bool)
    is_real[0, 15:] = is_real[1, :4] = False
    wanted = torch.randn(2, HEADS, LENGTH, LENGTH, dtype=torch.float64) * is_real[:, None, :, None]
    found = []
    for dtype in (torch.float32, torch.float64):
        head, inputs = make_head().to(dtype), [(8 * x).to(dtype).requires_grad_() for x in make_inputs()]
        weights = head(*inputs, Tokens(is_real), output_attentions=True)[1]
        found.append(torch.autograd.grad(weights, [*inputs[:2], head.gate, head.gate_bias], wanted.to(dtype)))
    for actual, right in zip(*found, strict=True):
        torch.testing.assert_close(actual.double(), right, rtol=1e-4, atol=1e-4 * right.abs().max().item())


def test_a_token_without_far_ones_keeps_its_window():
    head, (query, key, value) = make_head(window=LENGTH), make_inputs()
    both, _ = head(query, key, value)
    head.branches = "linear"
    torch.testing.assert_close(head(query, key, value)[0], both)


def test_features_have_a_learnt_size():
    """New keys have that of Hedgehog; others e^(w·k) times it, and queries the mean that their softmax divides by."""
    head, (query, key, _) = make_head(feature_map="scaled_hedgehog"), make_inputs()
    query, key = (x.transpose(1, 2) for x in (query, key))
    scores = torch.einsum("blhd,hde->blhe", query, head.query_map.weight)
    expected = torch.cat((scores, -scores), -1).exp()
    found = head.query_map(query)
    sizes = expected.mean(-1)
    torch.testing.assert_close(found.sum(-1) / 2, bounded_exp(sizes.log()))
    torch.testing.assert_close(found[..., :DIM] / found[..., :DIM].sum(-1, keepdim=True), scores.softmax(-1))
    sizes = torch.einsum("blhd,hd->blh", key, head.key_map.size)
    torch.testing.assert_close(head.key_map(key).sum(-1) / 2, bounded_exp(sizes))
    head.start()
    torch.testing.assert_close(head.key_map(key).sum(-1), torch.full((2, LENGTH, HEADS), 2.0, dtype=torch.float64))


def test_bounded_exp():
    x = torch.linspace(-5, 1, 20, dtype=torch.float64)
    torch.testing.assert_close(bounded_exp(x), x.exp(), rtol=0.06, atol=0)
    assert bounded_exp(torch.tensor(1e4)) <= 56 and bounded_exp(torch.tensor(0.0)) == pytest.approx(1)
