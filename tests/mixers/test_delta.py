# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The mixer "delta" (SPEC §14): what it computes in a model, what its configuration takes, and its parts."""

from functools import partial

import pytest
import torch
from conftest import TINY, TINY_IMAGE
from delta_rule import delta_rule
from huggingface_hub.errors import StrictDataclassError
from torch.nn import functional as F

from configuration_lion import LionConfig, lion_preset
from modeling_lion import LionModel
from modeling_lion.attention.decay_mask import NO_DECAY
from modeling_lion.attention.delta import delta_attention
from modeling_lion.mixers.delta import plain_unit_length, unit_length
from modeling_lion.sequence.layout import Layout
from modeling_lion.sequence.scans import ImageLayout, scan_orders


LENGTH = 11


def first_attention(kernel="chunk", **fields):
    config = LionConfig(**TINY | {"mixer_type": "delta"} | fields)
    model = LionModel._from_config(config, attn_implementation=kernel).double().eval()
    attention, found = model.layers[0].attention, []
    attention.o_proj.register_forward_hook(lambda module, args, output: found.append(args[0]))
    return attention, found


def literal_inputs(mixer, hidden, largest=1.0):
    """What SPEC §14 takes, from the weights: SiLU, then length 1; sigmoid of both gates."""
    heads = lambda x: x.unflatten(-1, (-1, 8)).transpose(1, 2)
    unit = lambda x: F.silu(heads(x)) / (F.silu(heads(x)).square().sum(-1, keepdim=True) + 1e-6).sqrt()
    gate = lambda layer: (hidden @ layer.weight.T + layer.bias).transpose(1, 2)
    log_decay, beta = F.logsigmoid(gate(mixer.decay_proj)), largest * torch.sigmoid(gate(mixer.decay_beta))
    return unit(mixer.q_proj(hidden)), unit(mixer.k_proj(hidden)), heads(mixer.v_proj(hidden)), log_decay, beta


@pytest.mark.parametrize("kernel", ["eager", "parallel", "chunk", "rnn"])
@pytest.mark.parametrize("fields", [{}, {"normalization": "none"}, {"largest_beta": 2.0}], ids=str)
def test_a_layer_is_what_the_definition_says(fields, kernel, equal):
    attention, found = first_attention(kernel, conv_kernel=0, **fields)
    mixer, hidden = attention.mixer, torch.randn(2, LENGTH, 16, dtype=torch.float64, requires_grad=True)
    attention(hidden, Layout())
    query, key, value, decay, beta = literal_inputs(mixer, hidden, fields.get("largest_beta", 1.0))
    options = {"normalization": fields.get("normalization", "rms")}
    expected = delta_rule(query, key, value, decay, decay, beta, **options).transpose(1, 2).flatten(2)
    equal(found[0], expected)
    weights = [hidden, *(p for name, p in mixer.named_parameters() if "conv" not in name)]
    grad = torch.randn_like(expected)
    gradients = (torch.autograd.grad(x, weights, grad, retain_graph=True) for x in (found[0], expected))
    for actual, right in zip(*gradients, strict=True):
        equal(actual, right)


@pytest.mark.parametrize("normalization", ["rms", "none"])
@pytest.mark.parametrize("feature_map", ["silu", "relu", "hedgehog"])
def test_queries_and_keys_have_length_1(feature_map, normalization):
    """Also with features that are wider than the head: SPEC §14 has no s."""
    attention, _ = first_attention(feature_map=feature_map, normalization=normalization)
    query, key, *_ = attention.mixer(torch.randn(2, LENGTH, 16, dtype=torch.float64), Layout()).inputs
    for x in (query, key):
        torch.testing.assert_close(x.norm(dim=-1), torch.ones_like(x[..., 0]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("kernel", ["eager", "chunk", "rnn"])
@pytest.mark.parametrize("normalization", ["rms", "none"])
def test_two_scans_of_an_image_have_a_mean(kernel, normalization, equal):
    """Each along its curve with its own gates; the mean of both is normalised, and weights times values are it."""
    fields = TINY_IMAGE | {"modality": "image", "patch_order": "snake", "conv_kernel": 0}
    attention, found = first_attention(kernel, normalization=normalization, **fields)
    scans = scan_orders("snake", 3, 4)
    hidden = torch.randn(2, 13, 16, dtype=torch.float64)
    _, weights = attention(hidden, ImageLayout(scans=scans), output_attentions=True)
    query, key, value, decay, beta = literal_inputs(attention.mixer, hidden)
    decay = torch.cat((torch.zeros_like(decay[..., :1]), decay[..., 1:]), dim=-1)  # the CLS token does not decay
    mean = 0
    for order, own_decay, own_beta in zip(scans, decay.split(2, 1), beta.split(2, 1), strict=True):
        tensors = (x[:, :, order] for x in (query, key, value, own_decay, own_decay, own_beta))
        mean = mean + delta_rule(*tensors, normalization="none")[:, :, order.argsort()] / 2
    if normalization == "rms":
        mean = mean * (mean.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    equal(found[-1], mean.transpose(1, 2).flatten(2))
    equal((weights @ value).transpose(1, 2).flatten(2), found[-1])


@pytest.mark.parametrize("name", ["lion-text-base", "lion-image-small"])
def test_the_whole_recipe_comes_with_the_name(name):
    config = lion_preset(name, mixer_type="delta")
    found = config.feature_map, config.normalization, config.head_directions, config.conv_kernel, config.largest_beta
    assert found == ("silu", "rms", "alternate", 3, 1.0)
    assert LionConfig.from_dict(config.to_dict()).to_diff_dict() == config.to_diff_dict()
    assert lion_preset(name).feature_map == "relu" and lion_preset(name).normalization == "sum"
    given = lion_preset(name, mixer_type="delta", feature_map="identity", normalization="none")
    assert (given.feature_map, given.normalization) == ("identity", "none")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"head_directions": "both"}, "`head_directions` is 'both' with `mixer_type` 'delta', .* give 'alternate'"),
        ({"num_attention_heads": 1}, "`head_directions` is 'both' .* give 'alternate', and an even `num_attention_h"),
        ({"normalization": "sum"}, "`normalization` is 'sum' with `mixer_type` 'delta', .*; give 'rms' or 'none'"),
        ({"mixer_type": "lit", "normalization": "rms"}, "`normalization` is 'rms' .* 'lit', .*; give 'sum' or 'none'"),
    ],
)
def test_what_it_does_not_have_is_refused(fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        LionConfig(**TINY | {"mixer_type": "delta"} | fields)


@pytest.mark.parametrize("largest", [0, -1, 2.1, float("nan"), "2", None])
def test_beta_is_at_most_2(largest):
    with pytest.raises(StrictDataclassError, match="`largest_beta` is .*; give a number above 0, at most 2"):
        LionConfig(**TINY, mixer_type="delta", largest_beta=largest)


def test_softmax_layers_do_not_ask_for_its_fields():
    LionConfig(**TINY, mixer_type="delta", layer_types=["full_attention"] * 2, head_directions="both", conv_kernel=0)


def test_length_1(equal):
    """With its gradients, also of a vector of 0, and differentiated twice."""
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    x[0, 0] = 0
    expected = x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    equal(unit_length(x), expected)
    x.requires_grad_()
    grad = torch.randn_like(x)
    for function in (unit_length, plain_unit_length):
        equal(function(x), expected)
        equal(torch.autograd.grad(function(x), x, grad)[0], torch.autograd.grad(plain_unit_length(x), x, grad)[0])
    assert torch.autograd.gradcheck(unit_length, x) and torch.autograd.gradgradcheck(unit_length, x)
    for dtype in (torch.float16, torch.bfloat16):  # where squares would overflow, or lose their digits
        wide = 1000 * torch.randn(7, 8)
        error = unit_length(wide.to(dtype)).double() - F.normalize(wide.to(dtype).double(), dim=-1)
        assert error.abs().max() <= torch.finfo(dtype).eps
        assert unit_length(torch.randn(2000, 32).to(dtype)).double().norm(dim=-1).max() <= 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_states_do_not_grow_in_half_precision(dtype):
    """One key again and again, with β = 2: it reflects the state, and a key longer than 1 would stretch it."""
    torch.manual_seed(0)
    keys = unit_length(torch.randn(2000, 64).to(dtype))
    key = keys[keys.double().norm(dim=-1).argmax()].expand(1, 2, 4096, 64)
    value, beta = torch.randn(1, 2, 4096, 64).to(dtype), torch.full((1, 2, 4096), 2.0)
    rule = partial(delta_attention, normalization="none")
    found = rule(key, key, value, NO_DECAY, beta)[0].double()
    exact = F.normalize(key.double(), dim=-1)
    expected = rule(exact, exact, value.double(), NO_DECAY, beta)[0]
    assert found.norm() < 1.1 * expected.norm()


@pytest.mark.parametrize("mixer", ["decay", "selective", "delta"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_decays_of_new_models_in_half_precision_are_float32(mixer, dtype):
    torch.manual_seed(0)
    config = LionConfig(**TINY | {"mixer_type": mixer})
    model, whole = LionModel._from_config(config, dtype=dtype), LionModel(config)
    dtypes = {name: x.dtype for name, x in model.named_parameters()}
    assert {x for name, x in dtypes.items() if ".decay" in name} == {torch.float32}
    assert {x for name, x in dtypes.items() if ".decay" not in name} == {dtype} and model.dtype == dtype
    assert whole.dtype == torch.float32
    assert model(torch.tensor([[5, 6, 7]])).last_hidden_state.isfinite().all()
    before = {name: x.detach().clone() for name, x in whole.named_parameters() if ".decay" in name}
    converted = dict(whole.to(dtype).named_parameters())
    assert {name: x.dtype for name, x in converted.items()} == dtypes
    assert all(torch.equal(converted[name], x) for name, x in before.items())


@pytest.mark.parametrize("mixer", ["decay", "selective", "delta"])
def test_gradients_of_decays_are_converted_as_the_decays(mixer):
    """A step of an optimizer between backward and a conversion is one after it, too."""
    model = LionModel(LionConfig(**TINY | {"mixer_type": mixer}))
    model(torch.tensor([[5, 6, 7]])).last_hidden_state.square().sum().backward()
    before = {name: x.grad.clone() for name, x in model.named_parameters() if ".decay" in name}
    for name, x in model.bfloat16().named_parameters():
        assert x.grad is None or x.grad.dtype == x.dtype
        assert name not in before or torch.equal(x.grad, before[name])
    torch.optim.AdamW(model.parameters(), 1e-3).step()
    assert all(x.isfinite().all() for x in model.parameters())
