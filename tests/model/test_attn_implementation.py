# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Choosing a kernel: at load, from a config, dynamically; what is refused; and that other models are left alone."""

import json

import pytest
import torch
from attention_forms import our_frames
from conftest import LINEAR_MIXERS, WITH_WEIGHTS
from transformers import AutoModelForMaskedLM, BertConfig, BertModel

from modeling_lion import LionForMaskedLM
from modeling_lion.mixers.linear import LinearMixer


CHOICES = ["auto", "parallel", "chunk", "rnn", "eager"]
REFUSED = ["sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "paged|eager", "lion", ""]


@pytest.fixture
def masked_lm(find_case):
    return find_case("LionForMaskedLM")


@pytest.fixture
def calls(monkeypatch):
    """The names of the kernels that were called."""
    names = []

    def counted(name, function):
        def call(*args, **kwargs):
            names.append(name)
            return function(*args, **kwargs)

        return call

    for name, function in LinearMixer.forms.items():
        monkeypatch.setitem(LinearMixer.forms, name, counted(name, function))
    return names


@pytest.mark.parametrize("choice", [None, "rnn", "eager"])  # the others: in the tests below
@pytest.mark.parametrize("way", ["from_config", "config", "set", "from_pretrained", "auto class", "reload"])
def test_every_way_to_choose(way, choice, masked_lm, calls, tmp_path):
    config = masked_lm.config()
    if way == "from_config":
        model = AutoModelForMaskedLM.from_config(config, attn_implementation=choice)
    elif way == "config":
        config._attn_implementation = choice
        model = LionForMaskedLM(config)
    elif way == "set":
        model = LionForMaskedLM(config)
        model.set_attn_implementation(choice or "auto")
    else:
        saved = LionForMaskedLM._from_config(config, attn_implementation="rnn" if way == "reload" else None)
        saved.save_pretrained(tmp_path)
        loader = AutoModelForMaskedLM if way == "auto class" else LionForMaskedLM
        model = loader.from_pretrained(tmp_path, attn_implementation=choice)
    chosen = choice or "auto"
    assert model.config._attn_implementation == model.lion.config._attn_implementation == chosen
    model(**masked_lm.inputs(config))
    assert calls == [chosen] * 2  # one per layer


@pytest.mark.parametrize("mixer", ["lit", "decay", "selective"])
def test_switching_back_and_forth(mixer, masked_lm, calls, equal):
    model = masked_lm.model(mixer)
    inputs = masked_lm.inputs(model.config)
    expected = model(**inputs).logits
    for choice in CHOICES * 2:
        model.set_attn_implementation(choice)
        calls.clear()
        equal(model(**inputs).logits, expected)
        assert set(calls) == {choice}


@pytest.mark.parametrize(
    ("way", "name"),
    [("set", name) for name in REFUSED] + [(way, "sdpa") for way in ("from_config", "config", "from_pretrained")],
)
def test_other_names_are_refused(way, name, masked_lm, tmp_path):
    config = masked_lm.config()
    model = LionForMaskedLM(masked_lm.config())
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError) as error:
        if way == "from_config":
            LionForMaskedLM._from_config(config, attn_implementation=name)
        elif way == "config":
            config._attn_implementation = name
            LionForMaskedLM(config)
        elif way == "set":
            model.set_attn_implementation(name)
        else:
            LionForMaskedLM.from_pretrained(tmp_path, attn_implementation=name)
    assert repr(name) in str(error.value)
    for kernel in CHOICES:
        assert f'"{kernel}"' in str(error.value)
    assert model.config._attn_implementation == "auto"


def test_the_choice_is_not_saved(masked_lm, kernel, tmp_path):
    masked_lm.model(kernel=kernel).save_pretrained(tmp_path)
    saved = (tmp_path / "config.json").read_text()
    assert "attn_implementation" not in saved
    assert kernel not in json.loads(saved).values()


def test_one_kernel_saves_what_another_loads(mixer, kernel, kernels_of, masked_lm, tmp_path, equal):
    model = masked_lm.model(mixer, kernel)
    model.save_pretrained(tmp_path)
    inputs = masked_lm.inputs(model.config)
    expected = model(**inputs).logits
    for other in kernels_of(mixer):
        loaded = LionForMaskedLM.from_pretrained(tmp_path, attn_implementation=other, dtype=torch.float64)
        equal(loaded(**inputs).logits, expected)


def test_weights_from_kernels_that_have_none(encoder, mixer, kernel, log, equal):
    model = encoder.model(mixer, "eager")
    if mixer not in WITH_WEIGHTS:
        with pytest.raises(ValueError, match=f"The mixer '{mixer}' has no attention weights"):
            model(**encoder.inputs(model.config), output_attentions=True)
        return
    inputs = encoder.inputs(model.config)
    expected = model(**inputs, output_attentions=True)
    model.set_attn_implementation(kernel)
    log.clear()
    outputs = [model(**inputs, output_attentions=True) for _ in range(2)][-1]
    told = [f'"{kernel}"', "in a window"] if mixer == "hybrid" else [f'"{kernel}"']
    for message, word in zip(log, told, strict=True):
        assert word in message and "attention weights" in message
    equal(outputs.last_hidden_state, expected.last_hidden_state)
    for weights, other in zip(outputs.attentions, expected.attentions, strict=True):
        equal(weights, other)
        if mixer != "delta":  # whose weights have either sign
            equal(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_config_output_attentions(encoder, kernel):
    config = encoder.config()
    config.output_attentions = True
    model = encoder.model_class._from_config(config, attn_implementation=kernel)
    inputs = encoder.inputs(config, torch.float32)
    assert len(model(**inputs).attentions) == 2
    assert "attentions" not in model(**inputs, output_attentions=False)
    assert encoder.config(output_attentions=True).output_attentions is True


def test_auto_shows_weights_without_computing_twice(encoder, log, calls):
    model = encoder.model(kernel="auto")
    log.clear()
    assert len(model(**encoder.inputs(model.config), output_attentions=True).attentions) == 2
    assert calls == ["eager", "eager"] and log == []


def test_other_models_are_left_alone():
    config = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    for name in ("parallel", "chunk", "rnn", "auto"):
        with pytest.raises(ValueError, match=f'attn_implementation="{name}"` is not supported'):
            BertModel._from_config(config, attn_implementation=name)
    model = BertModel._from_config(config, attn_implementation="sdpa").eval()
    input_ids = torch.tensor([[1, 2, 3]])
    expected = model(input_ids).last_hidden_state
    model.set_attn_implementation("eager")
    torch.testing.assert_close(model(input_ids).last_hidden_state, expected)


@pytest.mark.parametrize(
    ("mixer", "kernel"),
    [
        *((mixer, form) for mixer in ("selective",) for form in CHOICES[:4]),
        ("lit", "chunk"),
        ("decay", "chunk"),
        ("sliding", None),
    ],
)
def test_the_first_product_is_few_frames_away(mixer, kernel, masked_lm, monkeypatch):
    """From `LionForMaskedLM.forward` to the first product of the attention, of our code on a CPU: at most eight."""
    fields = {"mixer_type": mixer} if mixer in LINEAR_MIXERS else {}
    if mixer == "sliding":  # many tokens: the dense form of few is computed by torch
        fields = {"layer_types": ["sliding_attention"] * 2, "sliding_window": 3}
    config = masked_lm.config(position_embedding_type="none", **fields)
    model = LionForMaskedLM._from_config(config, attn_implementation=kernel)
    frames = []

    def counted(product):
        return lambda *args, **kwargs: frames.append(our_frames()) or product(*args, **kwargs)

    for owner, name in ((torch, "bmm"), (torch, "baddbmm"), (torch.Tensor, "__matmul__")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    model(torch.randint(1, 40, (1, 1000)))
    assert frames and frames[0] <= 8
