# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Queries and keys that several heads share, `num_key_heads`, against SPEC §1 and §12 in float64."""

import pytest
import torch
from attention_forms import naive
from conftest import TINY
from huggingface_hub.errors import StrictDataclassError

from modeling_lion import LionConfig, LionForMaskedLM, LionModel
from modeling_lion.mixers.feature_map import relu
from modeling_lion.sequence.layout import Layout


FOUR = TINY | {"num_attention_heads": 4, "feature_map": "relu"}
LENGTH = 23


def make_model(num_key_heads: int | None, kernel: str | None = None, **fields) -> LionModel:
    torch.manual_seed(0)
    config = LionConfig(**(FOUR | {"num_key_heads": num_key_heads} | fields))
    return LionModel._from_config(config, attn_implementation=kernel).double().eval()


def make_inputs(padding: str) -> dict[str, torch.Tensor]:
    inputs = {"input_ids": torch.randint(1, 40, (2, LENGTH), generator=torch.Generator().manual_seed(1))}
    if padding == "packed":
        inputs["position_ids"] = torch.cat([torch.arange(n) for n in (9, 1, 13)]).expand(2, -1)
    elif padding != "none":
        inputs["attention_mask"] = torch.ones(2, LENGTH, dtype=torch.long)
        hidden = {"left": slice(0, 7), "right": slice(17, None), "interior": slice(5, 12)}[padding]
        inputs["attention_mask"][0, hidden] = 0
    return inputs


@pytest.mark.axes(
    kernel=["eager", "parallel", "chunk", "rnn"],
    num_key_heads=[1, 2, 4],
    mixer=["lit", "decay", "selective"],
    normalization=["sum", "none"],
)
def test_a_layer_is_what_the_definition_says(num_key_heads, mixer, normalization, kernel, equal):
    """Head h of the values has the queries and keys of head h // (heads per key), which are as wide as several."""
    fields = {"mixer_type": mixer, "conv_kernel": 0, "normalization": normalization}
    attention, found = make_model(num_key_heads, kernel, **fields).layers[0].attention, []
    attention.o_proj.register_forward_hook(lambda module, args, output: found.append(args[0]))
    hidden = torch.randn(2, LENGTH, 16, dtype=torch.float64, requires_grad=True)
    attention(hidden, Layout())
    layer = attention.mixer
    wide = lambda x: relu(x.unflatten(-1, (num_key_heads, 16 // num_key_heads)))
    query, key = wide(layer.q_proj(hidden)), wide(layer.k_proj(hidden))
    query, key = (torch.stack([x[:, :, h * num_key_heads // 4] for h in range(4)], dim=1) for x in (query, key))
    value = layer.v_proj(hidden).unflatten(-1, (4, 4)).transpose(1, 2)
    options = {"normalization": normalization, "head_directions": "alternate"}
    expected = naive(query, key, value, layer.log_decay(hidden), **options)[0].transpose(1, 2).flatten(2)
    equal(found[0], expected)
    grad = torch.randn_like(expected)
    for actual, right in zip(
        torch.autograd.grad(found[0], (hidden, layer.q_proj.weight, layer.k_proj.weight), grad),
        torch.autograd.grad(expected, (hidden, layer.q_proj.weight, layer.k_proj.weight), grad),
        strict=True,
    ):
        equal(actual, right)


@pytest.mark.axes(
    padding=["none", "left", "right", "interior", "packed"],
    feature_map=["relu", "hedgehog"],
    layers=["linear", "hybrid"],
)
def test_every_form_and_segments_are_the_full_form(padding, feature_map, layers, equal):
    fields = {"feature_map": feature_map}
    if layers == "hybrid":
        fields |= {"layer_types": ["linear_attention", "sliding_attention"], "sliding_window": 3}
    inputs, model = make_inputs(padding), make_model(2, "eager", **fields)
    real = inputs.get("attention_mask", torch.ones(2, LENGTH)).bool()
    expected = model(**inputs).last_hidden_state[real]
    for kernel in ("parallel", "chunk", "rnn", "auto"):
        model.set_attn_implementation(kernel)
        equal(model(**inputs).last_hidden_state[real], expected)
    if padding != "packed":
        equal(model.encode_long(**inputs, segment_length=7).last_hidden_state[real], expected)


def test_the_weights_have_the_same_shapes(tmp_path, equal):
    shared, own = make_model(1), make_model(None)
    assert shared.config.key_dim == 16 and own.config.key_dim == own.config.head_dim == 4
    weights, same = shared.state_dict(), own.state_dict()
    assert weights.keys() == same.keys() and all(torch.equal(weights[name], x) for name, x in same.items())
    inputs = make_inputs("left")
    output = shared(**inputs).last_hidden_state
    assert not torch.allclose(output, own(**inputs).last_hidden_state)
    shared.save_pretrained(tmp_path)
    equal(LionModel.from_pretrained(tmp_path, dtype=torch.float64)(**inputs).last_hidden_state, output)
    equal(make_model(4)(**inputs).last_hidden_state, own(**inputs).last_hidden_state)


def test_learnt_features_have_weights_for_each_key_head():
    for count in (1, 2, 4):
        mixer = make_model(count, feature_map="hedgehog").layers[0].attention.mixer
        assert mixer.feature_map.weight.shape == (count, 16 // count, 16 // count)


@pytest.mark.parametrize("num_key_heads", [1, 2])
def test_states_are_wider_and_weights_are_reported(num_key_heads, equal):
    """The weights with every kernel, and rows of them in the report."""
    model, inputs = make_model(num_key_heads, "chunk"), make_inputs("right")
    hidden = torch.randn(2, LENGTH, 16, dtype=torch.float64)
    query, key, value, _ = model.layers[0].attention.mixer(hidden, Layout()).inputs
    assert query.shape == key.shape == (2, 4, LENGTH, 16 // num_key_heads) and value.shape == (2, 4, LENGTH, 4)
    weights = model(**inputs, output_attentions=True).attentions[0]
    model.set_attn_implementation("eager")
    equal(weights, model(**inputs, output_attentions=True).attentions[0])
    equal(model.attention_report([0, 9], **inputs)[0].attention, weights[:, :, [0, 9]])


def test_every_parameter_has_a_gradient():
    model = LionForMaskedLM(LionConfig(**FOUR, num_key_heads=1)).double()
    inputs = make_inputs("interior")
    model(**inputs, labels=inputs["input_ids"]).loss.backward()
    assert all(x.grad is not None and x.grad.abs().sum() > 0 for x in model.lion.layers.parameters())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_key_heads": 0}, "`num_key_heads` is 0; give at least 1"),
        ({"num_key_heads": 3}, "`num_key_heads` is 3 with `num_attention_heads` 4; give a divisor"),
        ({"num_key_heads": 8}, "`num_key_heads` is 8 with `num_attention_heads` 4; give a divisor"),
        ({"num_key_heads": 2, "mixer_type": "softmax"}, "`num_key_heads` is 2, and no layer is linear"),
        ({"num_key_heads": 2, "rope_parameters": {}}, "`num_key_heads` is 2 with `rope_parameters` of linear"),
    ],
)
def test_what_does_not_go_together_is_refused(fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        LionConfig(**(FOUR | fields))


def test_as_many_key_heads_as_heads_go_with_everything():
    assert LionConfig(**FOUR, rope_parameters={}, num_key_heads=4).key_dim == 4
