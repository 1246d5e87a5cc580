# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Every encoder of transformers that becomes linear computes what SPEC §13 says, and below its length what it did."""

import copy
import inspect
import math
import pickle

import pytest
import torch
import transformers
from delta_rule import delta_rule
from encoders import ENCODERS, REFUSED, Encoder, text, wave
from torch import Tensor, nn
from transformers import AttentionMaskInterface, AutoModel, PreTrainedModel
from transformers.modeling_utils import AttentionInterface

import modeling_lion
from modeling_lion.linearized.attention_functions import LINEARIZED_FORMS


SPEC_13 = "spec_13"
# One of each kind; the others are marked slow.
QUICK = ("DistilBertModel", "EuroBertModel", "ModernBertModel", "RobertaModel", "SplinterModel", "ViTModel")
QUICK += ("PixtralVisionModel", "SiglipModel", "Wav2Vec2Model", "WhisperEncoder")
MIXED = ("EuroBertModel", "ViTModel")
WINDOW = 2


def each(encoders: list[Encoder], quick: tuple[str, ...] = QUICK) -> pytest.MarkDecorator:
    params = [
        pytest.param(x, marks=[] if str(x) in quick else pytest.mark.slow, id=str(x)) for x in encoders if x.is_there
    ]
    return pytest.mark.parametrize("encoder", params)


def bounded_exp(x: Tensor) -> Tensor:
    return (1 + math.e**4) / (1 + (4 - x).exp())


def features(weight: Tensor, x: Tensor) -> Tensor:
    """W x and -W x, of which the softmax is taken, `(batch, heads, length, 2, d)`."""
    scores = torch.einsum("bhld,hde->bhle", x, weight)
    return torch.stack((scores, -scores), -2)


def query_features(head, query: Tensor) -> Tensor:
    """Learnt softmax features; scaled ones times the bounded mean of what they divide by."""
    scores = features(head.query_map.weight, query)
    if head.config.lion_feature_map == "hedgehog":
        return scores.softmax(-1).flatten(-2)
    return scores.softmax(-1).flatten(-2) * bounded_exp(scores.exp().mean((-2, -1)).log()).unsqueeze(-1)


def key_features(head, key: Tensor) -> Tensor:
    """Learnt softmax features; scaled ones times the bounded exp(w·k)."""
    if head.config.lion_feature_map == "hedgehog":
        return features(head.key_map.weight, key).softmax(-1).flatten(-2)
    size = torch.einsum("hd,bhjd->bhj", head.key_map.size, key)
    return features(head.key_map.weight, key).softmax(-1).flatten(-2) * bounded_exp(size).unsqueeze(-1)


def spec_14(head, query: Tensor, key: Tensor, value: Tensor, real: Tensor) -> Tensor:
    """The recurrences of SPEC §14 in both directions, with gates made of keys."""
    unit = lambda x: x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    gate = lambda weight, bias: torch.einsum("hd,bhjd->bhj", weight, key) + bias[:, None]
    decays, beta = gate(head.decay.weight, head.decay.bias), gate(head.decay.beta_weight, head.decay.beta_bias)
    decays = torch.nn.functional.logsigmoid(decays)
    inputs = unit(query_features(head, query)), unit(key_features(head, key)), value, decays, decays, beta.sigmoid()
    twice = [x.repeat_interleave(2, 1) for x in inputs]
    return delta_rule(*twice, normalization="none", is_real=real == 1).unflatten(1, (-1, 2)).sum(2)


def spec_13(module, query, key, value, attention_mask=None, scaling=None, **kwargs) -> tuple[Tensor, Tensor]:
    """SPEC §13 as it is written, with all pairs of tokens, in float64; an attention function of transformers."""
    head = module.lion
    length, dim = query.shape[2:]
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    real = query.new_ones(len(query), length)
    if attention_mask is not None:
        real = attention_mask.to(query.dtype)
        if attention_mask.dim() == 4:
            real = (attention_mask[:, 0, 0] == 0).expand(len(query), -1).to(query.dtype)
    decays = query.new_ones(*query.shape[:3])
    if head.config.lion_mixer == "delta":
        place = real.cumsum(-1)
        near = (place[:, None, :, None] - place[:, None, None, :]).abs() <= head.config.lion_window
        scores = query @ key.mT * (dim**-0.5 if scaling is None else scaling)
        near = (scores.masked_fill(~near | (real == 0)[:, None, None], -1e9)).softmax(-1) @ value
        share = (torch.einsum("hd,bhid->bhi", head.gate, query) + head.gate_bias[:, None]).sigmoid()[..., None]
        return ((1 - share) * near + share * spec_14(head, query, key, value, real)).transpose(1, 2), None
    if head.config.lion_mixer == "decay":
        decays = decays * head.decay.bias.sigmoid()[None, :, None]
    elif head.config.lion_mixer == "selective":
        decays = (torch.einsum("hd,bhjd->bhj", head.decay.weight, key) + head.decay.bias[:, None]).sigmoid()
    decays = torch.where(real[:, None] == 1, decays, 1)
    rows = []
    for i in range(length):
        row = [decays[..., j:i].prod(-1) if i >= j else decays[..., i + 1 : j + 1].prod(-1) for j in range(length)]
        rows.append(torch.stack(row, -1))
    weights = query_features(head, query) @ key_features(head, key).mT * torch.stack(rows, -2)
    if head.config.lion_window > 0:
        place = real.cumsum(-1)
        near = (place[:, None, :, None] - place[:, None, None, :]).abs() <= head.config.lion_window
        gate = torch.einsum("hd,bhid->bhi", head.gate, query) + head.gate_bias[:, None]
        scores = query @ key.mT * (dim**-0.5 if scaling is None else scaling)
        weights = torch.where(near, scores.exp(), gate.exp()[..., None] * weights)
    weights = weights * real[:, None, None, :]
    weights = weights / weights.sum(-1, keepdim=True)
    return (weights @ value).transpose(1, 2), weights


def spec_13_mask(*args, attention_mask=None, **kwargs) -> Tensor | None:
    return attention_mask


AttentionInterface.register(SPEC_13, spec_13)
AttentionMaskInterface.register(SPEC_13, spec_13_mask)


def output_of(model: PreTrainedModel, inputs: dict) -> Tensor:
    """The first tensor of its output."""
    values = (y for x in model(**inputs).values() for y in (x if isinstance(x, tuple) else (x,)))
    return next(x for x in values if isinstance(x, Tensor))


def padded(encoder: Encoder, inputs: dict, length: int) -> dict:
    """The inputs, of which the second row has `length` tokens and then padding."""
    (name, x), *others = inputs.items()
    mask = torch.ones(x.shape, dtype=torch.int64)
    mask[1, length * (8 if encoder.make_inputs is wave else 1) :] = 0
    return {name: x * mask} | dict(others) | {"attention_mask": mask}


def without_dropout(model: PreTrainedModel) -> None:
    for module in model.modules():
        rates = [name for name, value in vars(module).items() if "drop" in name and isinstance(value, float)]
        for name in [*rates, *(["p"] if isinstance(module, nn.Dropout) else [])]:
            setattr(module, name, 0.0)


def own_attention(model: PreTrainedModel) -> str:
    """The name by which the encoder computes what it did."""
    return "sdpa" if model._supports_sdpa else "eager"


def derivatives(model: PreTrainedModel, inputs: dict, real: Tensor | None) -> dict[str, Tensor]:
    """The output, and the gradients of an uneven sum of it by all weights and by an input of numbers."""
    inputs = {k: v.clone().requires_grad_() if v.is_floating_point() else v for k, v in tensors(inputs).items()} | {
        k: v for k, v in inputs.items() if not isinstance(v, Tensor)
    }
    output = output_of(model, inputs)
    seen = output if real is None or output.dim() < 3 else output[real]
    (seen * torch.linspace(-1, 1, seen.numel(), dtype=seen.dtype).view_as(seen)).sum().backward()
    grads = {k: v.grad for k, v in tensors(inputs).items() if v.grad is not None}
    grads |= {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return {"output": seen.detach()} | {f"gradient of {name}": grad for name, grad in grads.items()}


def tensors(inputs: dict) -> dict[str, Tensor]:
    return {k: v for k, v in inputs.items() if isinstance(v, Tensor)}


def check_equals_the_specification(encoder: Encoder, equal, **options) -> None:
    model = encoder.linear(encoder.model(), window=WINDOW, exact_length=0, **options)
    inputs = encoder.inputs(model.config)
    real = None
    if encoder.can_pad:
        inputs = padded(encoder, inputs, 7)
        real = torch.arange(12) < torch.tensor([[12], [7]])
    model.set_attn_implementation(SPEC_13)
    if str(encoder) == "PixtralVisionModel":  # packs images in a row
        inputs = {"pixel_values": inputs["pixel_values"][:1]}
    expected = derivatives(model, inputs, real)
    assert any(".lion." in name for name in expected)
    for form in LINEARIZED_FORMS:
        model.set_attn_implementation(form)
        actual = derivatives(model, inputs, real)
        assert actual.keys() == expected.keys()
        for name in (name for name, value in expected.items() if value.numel()):
            equal(actual[name], expected[name], f"{form}: {name}")


@each(ENCODERS)
def test_equals_the_specification(encoder, equal):
    check_equals_the_specification(encoder, equal)


@pytest.mark.parametrize("encoder", [x for x in ENCODERS if str(x) in MIXED], ids=str)
@pytest.mark.parametrize(
    "options",
    [{"mixer": "decay"}, {"mixer": "selective"}, {"mixer": "delta"}, {"feature_map": "scaled_hedgehog"}],
    ids=str,
)
def test_mixers_equal_the_specification(encoder, options, equal):
    check_equals_the_specification(encoder, equal, **options)


@each([x for x in ENCODERS if str(x) in QUICK])
def test_up_to_its_length_an_encoder_in_inference_is_what_it_was(encoder):
    check_is_what_it_was(encoder, is_training=False)


@each(ENCODERS)
def test_up_to_its_length_an_encoder_in_training_is_what_it_was(encoder):
    check_is_what_it_was(encoder, is_training=True)


@pytest.mark.parametrize("encoder", [x for x in ENCODERS if str(x) in MIXED], ids=str)
def test_up_to_its_length_an_encoder_with_the_delta_rule_is_what_it_was(encoder):
    check_is_what_it_was(encoder, is_training=False, mixer="delta")


def check_is_what_it_was(encoder: Encoder, is_training: bool, **options) -> None:
    """To the bit: alone, beside longer rows, and with its own attention again."""
    model = encoder.model(torch.float32)
    inputs = encoder.inputs(model.config, dtype=torch.float32)
    if encoder.can_pad:
        inputs = padded(encoder, inputs, 7)

    def run(inputs):
        torch.manual_seed(2)
        with torch.set_grad_enabled(is_training):
            return output_of(model, inputs).detach()

    model.train(is_training)
    expected = run(inputs)
    encoder.linear(model, window=WINDOW, exact_length=100, **options)
    assert model.training == is_training
    assert torch.equal(run(inputs), expected)
    model.set_attn_implementation(own_attention(model))
    assert torch.equal(run(inputs), expected)
    without_dropout(model)
    expected = run(inputs)
    model.set_attn_implementation("lion")
    model.config.lion_exact_length = 7
    linear = run(inputs)
    if not encoder.can_pad:
        assert not torch.equal(linear, expected)
    elif encoder.make_inputs is text:
        model.set_attn_implementation(own_attention(model))
        alone = run({name: x[1:, :7] for name, x in inputs.items()})
        assert torch.equal(linear[1:, : alone.shape[1]], alone)
        assert not torch.allclose(linear[0], expected[0])


@each([x for x in ENCODERS if x.can_pad])
def test_padding(encoder, equal):
    """At either end and between tokens, a row is what it is alone."""
    model = encoder.linear(encoder.model(), window=WINDOW, exact_length=0)
    inputs = encoder.inputs(model.config)
    if encoder.make_inputs is wave:
        alone = output_of(model, {"input_values": inputs["input_values"][1:, : 7 * 8]})
        equal(output_of(model, padded(encoder, inputs, 7))[1:, :7], alone)
        return
    ids = inputs["input_ids"]
    alone = output_of(model, {"input_ids": ids[1:, :7]})
    places = {"right": [*range(7)]}
    has_ids = "position_ids" in inspect.signature(model.forward).parameters
    if has_ids:
        places |= {"left": [*range(5, 12)], "inner": [1, 2, 3, 6, 7, 10, 11]}
    for where, place in places.items():
        mask = torch.zeros(2, 12, dtype=torch.int64)
        mask[0], mask[1, place] = 1, 1
        row = torch.zeros_like(ids)
        row[0], row[1, place] = ids[0], ids[1, :7]
        inputs = {"input_ids": row, "attention_mask": mask}
        if has_ids and (model.config.lion_position_table is not None or where == "right"):
            first = (model.config.lion_position_table or ("", 0))[1]
            inputs["position_ids"] = (mask.cumsum(1) - 1 + first).clamp(min=0) * mask
        output = output_of(model, inputs)
        equal(output[1:] if output.dim() == 2 else output[1:, place], alone, where)


@each(ENCODERS)
def test_saved_and_loaded(encoder, tmp_path):
    """AutoModel, pickle and copy.deepcopy give the same model."""
    model = encoder.linear(encoder.model(torch.float32), window=WINDOW, exact_length=0)
    inputs = encoder.inputs(model.config, dtype=torch.float32)
    again = [copy.deepcopy(model)]
    if encoder.can_pickle:
        again.append(pickle.loads(pickle.dumps(model)))
    expected = output_of(model, inputs)
    model.save_pretrained(tmp_path)
    loaded, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    for other in (loaded, *again):
        assert type(other) is type(model)
        weights = other.state_dict()
        assert [name for name, weight in model.state_dict().items() if not torch.equal(weight, weights[name])] == []
        assert other.config.to_dict().items() >= {"lion_window": WINDOW}.items()
        torch.testing.assert_close(output_of(other.eval(), inputs), expected)


@pytest.mark.parametrize(
    "encoder", [x for x in ENCODERS if x.is_there and str(x) in ("BertModel", "ViTModel")], ids=str
)
def test_heads(encoder, tmp_path):
    check_heads(encoder, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_heads(tmp_path):
    for encoder in ENCODERS:
        if encoder.is_there:
            check_heads(encoder, tmp_path / str(encoder))


def check_heads(encoder: Encoder, folder) -> None:
    """Each is loaded by its Auto class, with all weights."""
    for head, auto_class in encoder.heads().items():
        try:
            model = encoder.linear(encoder.model(torch.float32, model_class=head), window=WINDOW)
        except (TypeError, ValueError):  # which heads these are is in the table on docs/compatibility.md
            continue
        model.save_pretrained(folder / head.__name__)
        loaded, info = getattr(transformers, auto_class).from_pretrained(
            folder / head.__name__, output_loading_info=True
        )
        assert type(loaded) is type(model)
        assert not any(info.values()), (head, info)
        weights = loaded.state_dict()
        assert [name for name, weight in model.state_dict().items() if not torch.equal(weight, weights[name])] == []


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # DeBERTa in older releases
@each(REFUSED, quick=tuple(str(x) for x in {x.why_refused: x for x in REFUSED if x.is_there}.values()))
def test_refused(encoder):
    """With the reason, and nothing has changed."""
    model = encoder.model(torch.float32)
    state = lambda: (type(model), type(model.config), model.config.to_dict(), model.config._attn_implementation)
    before, names = state(), list(model.state_dict())
    with pytest.raises(ValueError, match=encoder.why_refused):
        modeling_lion.linearize(model)
    assert state() == before
    assert list(model.state_dict()) == names
