# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Models whose layers are of several types: linear attention, softmax in a window, softmax over all tokens."""

import pytest
import torch
from conftest import TINY, TINY_IMAGE
from fuzzing import ModelProblem
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from modeling_lion import LionConfig, LionModel
from modeling_lion.mixers.selective import SelectiveMixer
from modeling_lion.mixers.softmax import SlidingMixer, SoftmaxMixer


LINEAR, SLIDING, FULL = "linear_attention", "sliding_attention", "full_attention"
PATTERN = [SLIDING, LINEAR, FULL]
ROPE = {LINEAR: None, SLIDING: {"rope_theta": 50.0}, FULL: {"rope_theta": 400.0}}
LENGTH = 90


def make_model(layer_types=PATTERN, implementation=None, **fields) -> LionModel:
    fields = {"mixer_type": "selective", "layer_types": layer_types} | fields
    if SLIDING in layer_types:
        fields.setdefault("sliding_window", 5)
    config = LionConfig(**(TINY | {"num_hidden_layers": len(layer_types)} | fields))
    return LionModel._from_config(config, attn_implementation=implementation).double().eval()


def by_definition(layer, hidden_states, window, is_real):
    """SPEC §12 for one layer of softmax without rotary positions: softmax over the real tokens in the window."""
    mixer, length = layer.attention.mixer, hidden_states.shape[1]
    states = hidden_states if layer.is_pre_norm is False else layer.attention_norm(hidden_states)
    query, key, value = (
        projection(states).unflatten(-1, (2, 8)).transpose(1, 2)
        for projection in (mixer.q_proj, mixer.k_proj, mixer.v_proj)
    )
    position = torch.arange(length)
    seen = ((position[:, None] - position).abs() <= window) & is_real[:, None]
    scores = (query @ key.transpose(-1, -2) / 8**0.5).masked_fill(~seen[:, None], -torch.inf)
    output = (scores.softmax(-1).nan_to_num() @ value).transpose(1, 2).flatten(2)
    return layer.attention.o_proj(output)


def test_every_layer_is_of_its_type():
    model = make_model()
    assert [type(layer.attention.mixer) for layer in model.layers] == [SlidingMixer, SelectiveMixer, SoftmaxMixer]
    assert make_model([FULL, FULL], mixer_type="softmax").config.has_linear_layers is False
    assert make_model([LINEAR]).config.has_softmax_layers is False
    assert LionConfig().layer_types is None and LionConfig().sliding_window is None
    assert LionConfig(num_hidden_layers=1, layer_types=[SLIDING]).sliding_window == 64


@pytest.mark.parametrize("window", [1, 4, 200])
@pytest.mark.parametrize("implementation", [None, "eager"])
def test_softmax_in_a_window(window, implementation, equal):
    model = make_model([SLIDING], implementation, sliding_window=window)
    layer, found = model.layers[0], []
    layer.attention.o_proj.register_forward_hook(lambda module, args, output: found.append((args, output)))
    hidden, is_real = torch.randn(2, 23, 16, dtype=torch.float64), torch.ones(2, 23, dtype=torch.bool)
    is_real[0, 17:] = False
    model(inputs_embeds=hidden, attention_mask=is_real.long())
    embedded = model.embeddings(inputs_embeds=hidden, position_ids=torch.arange(23)[None])
    equal(found[0][1][is_real], by_definition(layer, embedded, window, is_real)[is_real])


def test_a_window_hides_what_is_outside():
    model = make_model([SLIDING, SLIDING], sliding_window=4)
    embeds = torch.randn(1, 24, 16, dtype=torch.float64, requires_grad=True)
    model(inputs_embeds=embeds).last_hidden_state[0, 12, 0].backward()
    reached = embeds.grad[0].abs().sum(-1).nonzero().flatten()
    assert reached.tolist() == list(range(4, 21))  # 8 tokens on each side, after two layers


@pytest.mark.parametrize("kernel", ["parallel", "chunk", "rnn", "auto", "sdpa"])
def test_names_of_either_kind(kernel, equal):
    """A kernel of linear attention leaves softmax to transformers' default, and the other way round."""
    inputs = {"input_ids": torch.randint(1, 40, (2, 23)), "attention_mask": torch.ones(2, 23)}
    inputs["attention_mask"][0, :6] = 0
    model = make_model(implementation="eager", rope_parameters=ROPE)
    expected = model(**inputs, output_attentions=True)
    model.set_attn_implementation(kernel)
    assert model.config._attn_implementation == kernel
    actual = model(**inputs, output_attentions=True)
    real = inputs["attention_mask"].bool()
    equal(actual.last_hidden_state[real], expected.last_hidden_state[real])
    for weights, right in zip(actual.attentions, expected.attentions, strict=True):
        equal(weights.transpose(1, 2)[real], right.transpose(1, 2)[real])


def test_the_librarys_functions_are_told_the_window(monkeypatch, equal):
    calls = []

    def function(module, query, key, value, attention_mask, **kwargs):
        calls.append((attention_mask, kwargs["sliding_window"]))
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)

    monkeypatch.setitem(AttentionInterface._global_mapping, "mine", function)
    monkeypatch.setitem(AttentionMaskInterface._global_mapping, "mine", sdpa_mask)
    model, input_ids = make_model(), torch.randint(1, 40, (1, 23))
    expected = model(input_ids).last_hidden_state
    model.set_attn_implementation("mine")
    equal(model(input_ids).last_hidden_state, expected)
    (mask, window), (no_mask, no_window) = calls
    assert window == 6 and mask[0, 0, 10].nonzero().flatten().tolist() == list(range(5, 16))
    assert no_mask is None and no_window is None


@pytest.mark.parametrize("layout", ["left", "packed"])
def test_rotary_positions_by_type(layout):
    """Each type has its own; in packed rows every sequence counts from 0."""
    model, row = make_model(rope_parameters=ROPE), torch.randint(1, 40, (1, 12))
    other = make_model(rope_parameters=ROPE | {SLIDING: {"rope_theta": 51.0}})
    other.load_state_dict(model.state_dict())
    assert not torch.allclose(other(row).last_hidden_state, model(row).last_hidden_state)
    fields = {"mixer_type": "selective", "layer_types": PATTERN, "num_hidden_layers": 3, "sliding_window": 5}
    fields |= {"rope_parameters": ROPE}
    ModelProblem(fields, "auto", [7, 1, 12], layout, 0.0, borders_given=True, autocast=False, seed=0).check()


@pytest.mark.parametrize("padding", [slice(0, 0), slice(0, 30), slice(70, None)])
@pytest.mark.parametrize("window", [3, 20])
def test_long_texts_in_segments(window, padding):
    """A window reaches over several of the shorter segments."""
    rope = {LINEAR: None, SLIDING: {"rope_theta": 50.0}}
    fields = {"rope_parameters": rope, "conv_kernel": 5, "norm_position": "pre"}
    model = make_model([SLIDING, LINEAR, SLIDING], sliding_window=window, **fields)
    input_ids, mask = torch.randint(1, 40, (2, LENGTH)), torch.ones(2, LENGTH, dtype=torch.long)
    mask[0, padding] = 0
    with torch.no_grad():
        expected = model(input_ids, attention_mask=mask)
    for segment_length in (1000, 32, 7, 2):
        actual = model.encode_long(input_ids, mask, segment_length=segment_length, show_progress=False)
        for name in ("pooler_output", "last_hidden_state"):
            value, right = getattr(actual, name), getattr(expected, name)
            real = mask.bool() if name == "last_hidden_state" else slice(None)
            torch.testing.assert_close(value[real], right[real])


def test_full_attention_has_no_segments():
    with pytest.raises(ValueError, match="see all tokens at once .`layer_types` has 'full_attention'.*call the model"):
        make_model().encode_long(torch.ones(1, 9, dtype=torch.long))
    with pytest.raises(ValueError, match="some layers need more .`layer_types` has 'full_attention'"):
        make_model().set_sequence_parallel("a group")


def test_reports_are_of_linear_layers():
    reports = make_model().attention_report([2], input_ids=torch.randint(1, 40, (1, 9)))
    assert [report is None for report in reports] == [True, False, True]
    with pytest.raises(ValueError, match="linear"):
        make_model([SLIDING, FULL]).attention_report([2], input_ids=torch.randint(1, 40, (1, 9)))


def test_windows_of_images_follow_the_rows(equal):
    fields = TINY | TINY_IMAGE | {"num_hidden_layers": 1, "sliding_window": 2}
    config = LionConfig(modality="image", layer_types=[SLIDING], **fields)
    model = LionModel(config).double().eval()
    pixels = torch.randn(1, 3, 6, 8, dtype=torch.float64, requires_grad=True)
    model(pixel_values=pixels).last_hidden_state[0, 6, 0].backward()  # the second patch of the second row of four
    patches = pixels.grad.abs().sum(1)[0].unflatten(0, (3, 2)).unflatten(2, (4, 2)).sum((1, 3)).flatten()
    assert patches.nonzero().flatten().tolist() == [3, 4, 5, 6, 7]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer_types", "packs", "fields"),
    [([LINEAR], False, {"feature_map": "hedgehog"}), ([SLIDING], True, {})],
)
@torch.no_grad()
def test_compiles_as_one_graph(layer_types, packs, fields, equal):
    """One graph for all lengths; test_modeling_lion.py has the gradients."""
    model = make_model(layer_types, rope_parameters=ROPE, **fields)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=True)
    for length in (15, 23):
        inputs = {"input_ids": torch.randint(1, 40, (2, length))}
        if packs:
            inputs |= {"cu_seq_lens_q": torch.tensor([0, 5, length])}
            inputs |= {"position_ids": torch.cat((torch.arange(5), torch.arange(length - 5))).unsqueeze(0)}
        else:
            inputs["attention_mask"] = torch.ones(2, length)
            inputs["attention_mask"][0, : length // 2] = 0
        real = inputs.get("attention_mask", torch.ones(2, length)).bool()
        equal(compiled(**inputs).last_hidden_state[real], model(**inputs).last_hidden_state[real])
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch gives them
@torch.no_grad()
def test_flex_attention():
    model, input_ids = make_model(rope_parameters=ROPE).float(), torch.randint(1, 40, (2, 23))
    mask = torch.ones(2, 23)
    mask[0, 3:9] = 0
    expected = model(input_ids, attention_mask=mask).last_hidden_state[mask.bool()]
    model.set_attn_implementation("flex_attention")
    actual = model(input_ids, attention_mask=mask).last_hidden_state[mask.bool()]
    torch.testing.assert_close(actual, expected)
