# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The feature maps against SPEC §1 in float64, and their gradients."""

import pytest
import torch
from conftest import TINY

from configuration_lion.registry import FEATURE_MAPS
from modeling_lion import LionConfig, LionModel
from modeling_lion.mixers.feature_map import Hedgehog, elu, plain_silu_norm, silu_norm
from modeling_lion.sequence.layout import Layout


FORMULAS = {
    "silu_norm": lambda x: torch.nn.functional.normalize(x * torch.sigmoid(x) + 0.5, dim=-1),
    "elu": lambda x: torch.where(x > 0, x, torch.expm1(x)) + 1,
    "identity": lambda x: x,
    "relu": lambda x: x.clamp(min=0) + 0.001,
    "silu": lambda x: x * torch.sigmoid(x),
}


def some_inputs(dtype: torch.dtype) -> torch.Tensor:
    """Heads `(2, 3, 5, 8)` with values from 1e-3 to 100 of either sign."""
    generator = torch.Generator().manual_seed(0)
    sign, size = torch.rand(2, 2, 3, 5, 8, generator=generator, dtype=torch.float64)
    return (torch.sign(sign - 0.5) * 10 ** (5 * size - 3)).to(dtype)


FUNCTIONS = {name: x.function for name, x in FEATURE_MAPS.items() if not x.is_learnt}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_maps_are_those_of_the_specification(name, dtype):
    x = some_inputs(dtype)
    expected, naive = FORMULAS[name](x.double()), FORMULAS[name](x).double()
    result = FUNCTIONS[name](x)
    assert result.dtype == dtype and result.isfinite().all()
    floor = 4 * torch.finfo(dtype).eps * expected.abs().max()
    assert (result.double() - expected).abs().max() <= max(2 * (naive - expected).abs().max(), floor)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    x = torch.randn(2, 3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(FUNCTIONS[name], x)
    assert torch.autograd.gradgradcheck(FUNCTIONS[name], x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradient_of_silu_norm_in_narrow_dtypes(dtype):
    gradients = {}
    x, weights = some_inputs(dtype), torch.randn(2, 3, 5, 8).to(dtype)
    for name, function, wide in (
        ("result", silu_norm, dtype),
        ("naive", plain_silu_norm, dtype),
        ("exact", plain_silu_norm, torch.float64),
    ):
        leaf = x.detach().clone().to(wide).requires_grad_()
        function(leaf).backward(weights.to(wide))
        gradients[name] = leaf.grad.double()
    error, naive = ((gradients[name] - gradients["exact"]).abs().max() for name in ("result", "naive"))
    assert error <= 2 * naive + torch.finfo(dtype).eps * gradients["exact"].abs().max()


def test_elu_keeps_small_values():
    x = torch.tensor([-80.0, -20.0])
    torch.testing.assert_close(elu(x), x.exp(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_large_values_are_finite(name):
    x = torch.tensor([[-3e4, 3e4, 0.0, 1.0]], dtype=torch.float16).requires_grad_()
    result = FUNCTIONS[name](x.float())
    result.sum().backward()
    assert result.isfinite().all() and x.grad.isfinite().all()


def test_function_transforms_and_compilers_see_through():
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(silu_norm)(x), silu_norm(x))
    expected = torch.autograd.functional.jacobian(silu_norm, x)
    torch.testing.assert_close(torch.func.jacrev(silu_norm)(x), expected)
    compiled = torch.compile(silu_norm, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), silu_norm(x))


def test_learnt_features():
    """SPEC §12: softmax(±W x) per head, W is 1 at the start; those of queries and keys are learnt apart."""
    config = LionConfig(**(TINY | {"feature_map": "hedgehog", "conv_kernel": 0}))
    mixer = LionModel(config).layers[0].attention.mixer
    x = torch.randn(2, 7, 2, 8)
    for features in (mixer.feature_map, mixer.key_feature_map):
        assert isinstance(features, Hedgehog) and features.weight.requires_grad
        torch.testing.assert_close(features(x), torch.cat((x.softmax(-1), (-x).softmax(-1)), dim=-1))
    with torch.no_grad():
        mixer.feature_map.weight.copy_(torch.randn(2, 8, 8))
    projected = torch.stack([x[:, :, h] @ mixer.feature_map.weight[h] for h in range(2)], dim=2)
    expected = torch.cat((projected.softmax(-1), (-projected).softmax(-1)), dim=-1)
    torch.testing.assert_close(mixer.feature_map(x), expected)
    hidden_states = torch.randn(2, 7, 16)
    query, key, *_ = mixer(hidden_states, Layout()).inputs
    query_heads, key_heads = (proj(hidden_states).unflatten(-1, (2, 8)) for proj in (mixer.q_proj, mixer.k_proj))
    torch.testing.assert_close(query.transpose(1, 2), mixer.feature_map(query_heads))
    torch.testing.assert_close(key.transpose(1, 2), torch.cat((key_heads.softmax(-1), (-key_heads).softmax(-1)), -1))


@pytest.mark.parametrize("kernel", ["eager", "parallel", "chunk", "rnn"])
def test_without_a_division_wide_features_keep_the_scale_of_the_head(kernel):
    """SPEC §1: s = D^-½ with the dimension of the head, not the 2 D of learnt features."""
    torch.manual_seed(0)
    fields = {"feature_map": "hedgehog", "normalization": "none", "conv_kernel": 0, "mixer_type": "lit"}
    model = LionModel._from_config(LionConfig(**(TINY | fields)), attn_implementation=kernel).double().eval()
    attention, found = model.layers[0].attention, []
    attention.o_proj.register_forward_hook(lambda module, args, output: found.append(args[0]))
    hidden, mixer = torch.randn(2, 7, 16, dtype=torch.float64), attention.mixer
    attention(hidden, Layout())
    query, key, value = (f(hidden).unflatten(-1, (2, 8)) for f in (mixer.q_proj, mixer.k_proj, mixer.v_proj))
    query, key, value = (x.transpose(1, 2) for x in (mixer.feature_map(query), mixer.key_feature_map(key), value))
    weights = query @ key.mT * 8**-0.5
    both = torch.ones(7, 7, dtype=torch.float64)
    masks = torch.stack([both.tril(), both.triu()]) if model.config.head_directions == "alternate" else both
    torch.testing.assert_close(found[0], (weights * masks @ value).transpose(1, 2).flatten(2))
