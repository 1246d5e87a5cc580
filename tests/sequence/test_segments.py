# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`encode_long` computes what `forward` computes, segment by segment."""

import pytest
import torch
from transformers import logging

from modeling_lion import LionConfig, LionModel
from modeling_lion import modeling_lion as modeling
from modeling_lion.sequence import segments


LENGTH = 90


def make_model(mixer_type: str, **kwargs) -> LionModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48}
    config = LionConfig(mixer_type=mixer_type, vocab_size=50, chunk_size=16, **(sizes | kwargs))
    return LionModel(config).double().eval()


def make_inputs(padding: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    inputs = {
        "input_ids": torch.randint(0, 50, (2, LENGTH)),
        "token_type_ids": torch.randint(0, 2, (2, LENGTH)),
    }
    if padding != "none":
        mask = torch.ones(2, LENGTH, dtype=torch.long)
        mask[0, {"left": slice(0, 30), "right": slice(70, None), "interior": slice(25, 60)}[padding]] = 0
        inputs["attention_mask"] = mask
    return inputs


@pytest.mark.axes(
    padding=["none", "left", "right", "interior"],
    norm_position=["pre", "post"],
    mixer_type=["lit", "decay", "selective", "delta"],
)
def test_equals_forward(mixer_type, norm_position, padding):
    directions = "alternate" if norm_position == "pre" or mixer_type == "delta" else "both"
    model = make_model(mixer_type, norm_position=norm_position, head_directions=directions)
    inputs = make_inputs(padding)
    with torch.no_grad():
        expected = model(**inputs)
    for segment_length in (1000, LENGTH, 32, 7):
        actual = model.encode_long(**inputs, segment_length=segment_length, show_progress=False)
        torch.testing.assert_close(actual.pooler_output, expected.pooler_output)
        real = inputs.get("attention_mask", torch.ones(2, LENGTH)).bool()
        torch.testing.assert_close(actual.last_hidden_state[real], expected.last_hidden_state[real])


@pytest.mark.parametrize("kernel", ["parallel", "chunk", "rnn"])
def test_every_kernel_and_recipe(kernel):
    model, inputs = make_model("selective", feature_map="identity", normalization="none"), make_inputs("left")
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state
    model.set_attn_implementation(kernel)
    actual = model.encode_long(**inputs, segment_length=20, show_progress=False).last_hidden_state
    torch.testing.assert_close(actual, expected)


@pytest.mark.axes(padding=["none", "left", "right", "interior"], norm_position=["pre", "post"], conv_kernel=[1, 3, 19])
def test_a_short_convolution_sees_the_neighbouring_segments(conv_kernel, norm_position, padding):
    """19 taps reach nine tokens on each side, over several short segments."""
    model = make_model("selective", norm_position=norm_position, conv_kernel=conv_kernel)
    inputs = make_inputs(padding)
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state
    real = inputs.get("attention_mask", torch.ones(2, LENGTH)).bool()
    for segment_length in (1000, 32, 7, 2):
        actual = model.encode_long(**inputs, segment_length=segment_length, show_progress=False).last_hidden_state
        torch.testing.assert_close(actual[real], expected[real])


def test_bfloat16_is_as_exact_as_forward():
    reference, inputs = make_model("selective"), make_inputs("interior")
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = reference(**inputs).last_hidden_state
        model = reference.bfloat16()
        error = (model(**inputs).last_hidden_state - expected)[real].abs().max()
    actual = model.encode_long(**inputs, segment_length=20, show_progress=False).last_hidden_state
    assert actual.dtype == torch.bfloat16
    assert (actual - expected)[real].abs().max() <= 2 * error


def test_progress_is_shown(capsys):
    logging.enable_progress_bar()
    make_model("decay").encode_long(make_inputs("none")["input_ids"], segment_length=30)
    assert "12/12" in capsys.readouterr().err  # 2 layers, 2 passes, 3 segments


def test_refusals():
    model, inputs = make_model("decay"), make_inputs("none")
    with pytest.raises(ValueError, match="`segment_length` is 0"):
        model.encode_long(**inputs, segment_length=0)
    with pytest.raises(ValueError, match="`token_type_ids` must be"):
        model.encode_long(inputs["input_ids"], token_type_ids=torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="model.eval"):
        model.train().encode_long(inputs["input_ids"])
    model.eval()
    with pytest.raises(ValueError, match="`attention_mask` must be"):
        model.encode_long(inputs["input_ids"], attention_mask=torch.ones(2, 3))
    with pytest.raises(ValueError, match="`position_ids` start again"):
        model.encode_long(inputs["input_ids"][:1], position_ids=torch.arange(LENGTH).view(1, -1) % 40)
    image = LionModel(LionConfig(modality="image", image_size=32, num_hidden_layers=1))
    with pytest.raises(ValueError, match="reads text"):
        image.encode_long(inputs["input_ids"])


@pytest.fixture
def long_from_40(monkeypatch):
    """A text of 41 tokens is a long one; the lengths of those that were read in segments."""
    seen = []
    original = modeling.encode_in_segments
    monkeypatch.setattr(segments, "LONG_TEXT", 40)
    monkeypatch.setattr(segments, "TOKENS_IN_ONE_PASS", 80)
    monkeypatch.setattr(
        modeling, "encode_in_segments", lambda *args: seen.append(args[1].shape[1]) or original(*args[:-2], 16, False)
    )
    return seen


@pytest.mark.parametrize("padding", ["none", "left", "interior"])
@pytest.mark.parametrize("fields", [{}, {"mixer_type": "decay", "conv_kernel": 0}], ids=str)
def test_forward_reads_long_texts_in_segments(fields, padding, long_from_40):
    model, inputs = make_model(**({"mixer_type": "selective"} | fields)), make_inputs(padding)
    expected = model(**inputs)  # with gradients
    assert long_from_40 == []
    with torch.no_grad():
        actual = model(**inputs)
        model(**{name: x[:, :40] for name, x in inputs.items()})
    assert long_from_40 == [LENGTH]
    torch.testing.assert_close(actual.pooler_output, expected.pooler_output)
    real = inputs.get("attention_mask", torch.ones(2, LENGTH)).bool()
    torch.testing.assert_close(actual.last_hidden_state[real], expected.last_hidden_state[real])


@torch.no_grad()
def test_forward_of_long_texts_is_one_pass_where_more_is_asked(long_from_40):
    model, inputs = make_model("selective"), make_inputs("none")
    assert len(model(**inputs, output_hidden_states=True).hidden_states) == 3
    assert len(make_model("selective")(**inputs, output_attentions=True).attentions) == 2
    make_model("softmax")(**inputs)
    packed = torch.arange(LENGTH).fmod(50).expand(2, -1)
    make_model("selective")(**inputs, position_ids=packed)
    seen = []
    hooked = make_model("selective")
    hooked.layers[1].register_forward_hook(lambda layer, args, output: seen.append(output.shape))
    hooked(**inputs)
    assert seen == [(2, LENGTH, 32)]
    make_model("selective").train()(**inputs)
    assert long_from_40 == []
    positions = torch.arange(LENGTH).unsqueeze(0)  # for all rows
    make_model("selective")(**inputs | {"token_type_ids": torch.zeros_like(positions)}, position_ids=positions)
    assert long_from_40 == [LENGTH]


@torch.no_grad()
def test_hidden_states_that_were_asked_for_once_do_not_matter(long_from_40):
    """transformers leaves its hooks on the layers."""
    model, inputs = make_model("selective"), make_inputs("none")
    model(input_ids=inputs["input_ids"][:, :8], output_hidden_states=True)
    model(**inputs)
    assert long_from_40 == [LENGTH]
