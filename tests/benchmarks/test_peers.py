# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Hydra, to compare with: the matrix of its paper, and the contract of a mixer. Initial decays of the listing."""

import pytest
import torch
from peers import gla, hydra, listed_decays, neighbours  # noqa: F401 (which register mixers)
from torch.nn import functional as F

from modeling_lion import LionConfig, LionForSequenceClassification, LionModel


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
CONFIG = LionConfig(mixer_type="hydra", hydra_state=5, vocab_size=50, norm_position="pre", **SIZES)


def dense(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> torch.Tensor:
    """The matrix of SS, entry by entry: of row i and column j ≤ i, C_iᵀ a_{j+1} ⋯ a_i B_j; `A` is `(length,)`."""
    length = len(A)
    matrix = torch.zeros(length, length, dtype=A.dtype)
    for i in range(length):
        for j in range(i + 1):
            matrix[i, j] = C[i] @ B[j] * A[j + 1 : i + 1].prod()
    return matrix


@pytest.mark.parametrize("length", [1, 2, 17, 70])
def test_the_matrix_is_quasiseparable(length, equal):
    """QS(X) = shift(SS(X)) + flip(shift(SS(flip(X)))) + D X, with a dense SS, and every gradient."""
    heads, dim, state = 3, 4, 5
    x = torch.randn(1, length, heads, dim, dtype=torch.float64)
    B, C = torch.randn(2, 1, length, 2, state, dtype=torch.float64)
    step = torch.rand(1, length, 2, heads, dtype=torch.float64)
    diagonal = torch.randn(1, length, heads, dtype=torch.float64)
    inputs = [y.requires_grad_() for y in (x, B, C, step, -step.log1p(), diagonal)]
    found = hydra.quasiseparable(*inputs)
    shift = torch.eye(length, dtype=torch.float64).roll(1, 0)
    shift[0] = 0
    rows = []
    for h in range(heads):
        a = inputs[4][0, :, :, h].exp()
        matrix = torch.diag(inputs[5][0, :, h])
        matrix = matrix + shift @ dense(a[:, 0], B[0, :, 0], C[0, :, 0]) * step[0, :, 0, h]
        backward = (dense(*(y.flip(0) for y in (a[:, 1], B[0, :, 1], C[0, :, 1])))).flip(0, 1)
        matrix = matrix + shift.T @ backward * step[0, :, 1, h]
        rows.append(matrix @ x[0, :, h])
    expected = torch.stack(rows, 1)[None]
    equal(found, expected)
    weights = torch.randn_like(expected)
    gradients = [torch.autograd.grad((y * weights).sum(), inputs, allow_unused=length == 1) for y in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        equal(*(torch.zeros(()).double() if y is None or length == 1 and not y.any() else y for y in (one, other)))


def test_what_is_shared_and_what_is_not():
    """Of a token, x, z, A and the bias of Δ are those of both directions; B, C and Δ are projected for each."""
    mixer = LionModel(CONFIG).layers[0].attention.mixer
    assert mixer.in_proj.out_features == 2 * 32 + 2 * 2 * 5 and mixer.decay_step.out_features == 2 * 2
    assert len(mixer.decay_step.log_rate) == len(mixer.decay_step.step_bias) == 2
    torch.testing.assert_close(F.softplus(mixer.decay_step.step_bias), torch.tensor([0.001, 0.1]))
    assert (mixer.decay_step.log_rate == 0).all() and (mixer.diagonal.bias == 1).all()
    assert 0.5 < mixer.in_proj.weight.std() * 32**0.5 < 1.5


def test_padded_and_packed_texts_equal_texts_alone(equal):
    model = LionModel(CONFIG).double().eval()
    ids = torch.randint(1, 50, (1, 30))
    mask = torch.ones(1, 30)
    mask[0, [0, 1, 7, 29]] = 0
    alone = model(ids[mask.bool()][None]).last_hidden_state[0]
    equal(model(ids, mask).last_hidden_state[mask.bool()], alone)
    positions = torch.cat((torch.arange(11), torch.arange(19)))[None]
    packed = model(ids, position_ids=positions).last_hidden_state
    equal(packed[:, 11:], model(ids[:, 11:]).last_hidden_state)


@pytest.mark.parametrize("name", ["hydra", "gla", "neighbours"])
def test_gradient_reaches_every_weight_and_half_precision_works(name):
    config = LionConfig(mixer_type=name, vocab_size=50, **SIZES)
    model = LionForSequenceClassification(config)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.randint(1, 50, (2, 9)), labels=torch.tensor([0, 1])).loss
    loss.backward()
    assert not [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]


@pytest.mark.parametrize("mixer", ["decay", "selective"])
def test_models_with_listed_decays_differ_in_initial_values_only(mixer, equal):
    sizes = SIZES | {"hidden_size": 256, "num_attention_heads": 64}
    listed, ours = (LionModel(LionConfig(mixer_type=x, vocab_size=50, **sizes)) for x in (f"{mixer}_listed", mixer))
    if mixer == "decay":
        logits = torch.cat([layer.attention.mixer.decay.bias for layer in listed.layers])  # 128 numbers
        assert abs(logits.mean()) < 4 / 128**0.5 and abs(logits.std() - 1) < 4 / 256**0.5
    else:
        gate, bound = listed.layers[0].attention.mixer.decay_proj, 256**-0.5
        assert 0.99 * bound < gate.weight.abs().max() <= bound and 0.8 * bound < gate.bias.abs().max() <= bound
    listed.load_state_dict(ours.state_dict())
    ids = torch.randint(1, 50, (1, 20))
    equal(listed.double().eval()(ids).last_hidden_state, ours.double().eval()(ids).last_hidden_state)
