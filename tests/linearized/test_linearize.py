# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What `linearize` keeps, chooses and refuses, and what its models do with texts of every kind."""

import copy
import gc
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
import transformers
from conftest import script_environment
from encoders import ENCODERS, IMAGE, TEXT
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers import (
    AttentionMaskInterface,
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    ViTConfig,
)
from transformers.modeling_utils import AttentionInterface
from transformers.models.bert.modeling_bert import BertLayer

import modeling_lion
from configuration_lion.registry import FEATURE_MAPS, FeatureMap
from modeling_lion import LionConfig, LionForImageClassification, linearize
from modeling_lion.linearized import attention_functions, model_inputs
from modeling_lion.linearized.config import parts_of


BY_NAME = {str(x): x for x in ENCODERS}
BERT = TEXT | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
IDS = torch.arange(3, 23).view(1, -1)


def linear(name: str = "BertModel", dtype: torch.dtype = torch.float64, **options):
    """With random weights of LION's own, windows of 2 tokens, and no text that is exact."""
    encoder = BY_NAME[name]
    return encoder.linear(encoder.model(dtype), **{"window": 2, "exact_length": 0} | options)


def hidden(model, ids=IDS, **inputs):
    return model(input_ids=ids, **inputs).last_hidden_state


# What stays.


def test_the_model_itself_is_changed_and_keeps_what_it_had():
    model = BertForMaskedLM(BertConfig(**BERT)).to(torch.bfloat16).train()
    model.bert.embeddings.requires_grad_(False)
    before = {name: (weight, weight.requires_grad) for name, weight in model.named_parameters()}
    head, buffers = model.cls, dict(model.named_buffers())
    model.bert.encoder.layer[0].eval()
    seen = []
    model.cls.register_forward_hook(lambda *args: seen.append(1))
    assert linearize(model) is model
    seen.clear()
    assert (type(model).__name__, model.config.model_type) == ("LionBertForMaskedLM", "lion-bert")
    assert model.cls is head
    for name, (weight, needs_grad) in before.items():
        assert model.get_parameter(name) is weight
        assert weight.requires_grad == needs_grad
    assert all(model.get_buffer(name) is buffer for name, buffer in buffers.items())
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert all(weight.dtype == torch.bfloat16 for weight in model.parameters())
    new = set(dict(model.named_parameters())) - set(before)
    assert new
    assert all(".lion." in name and model.get_parameter(name).requires_grad for name in new)
    first, second = (layer.attention.self.lion for layer in model.bert.encoder.layer)
    assert (first.training, second.training) == (False, True)
    model(IDS)
    assert seen == [1]


@pytest.mark.parametrize("name", ["BertModel", "ModernBertModel", "SiglipModel"])
def test_the_configuration_given_stays_as_it_was(name):
    """With its parts, such as that of the texts of a SigLIP; and another model that is made from it has softmax."""
    encoder = BY_NAME[name]
    config = encoder.config()
    model = encoder.model_class(config)
    kinds = [(type(part), [*vars(part)]) for part in parts_of(config)]
    as_dict, forms = config.to_dict(), [part._attn_implementation for part in parts_of(config)]
    encoder.linear(model, exact_length=0)
    assert config.to_dict() == as_dict
    assert [part._attn_implementation for part in parts_of(config)] == forms
    assert [(type(part), [*vars(part)]) for part in parts_of(config)] == kinds
    shared = {id(part) for part in parts_of(config)}
    assert not [x for x in model.modules() for value in vars(x).values() if id(value) in shared]
    assert {id(x.config) for x in model.modules() if getattr(x, "config", None) == model.config} == {id(model.config)}
    assert type(model.config).__name__ == f"Lion{type(config).__name__}"
    assert model.config.architectures == [f"Lion{encoder.model_class.__name__}"]
    other = encoder.model_class(config)
    assert type(other) is encoder.model_class and not [x for x in other.modules() if hasattr(x, "lion")]
    assert other.config._attn_implementation == "sdpa"


def test_decays_stay_float32():
    for mixer in ("decay", "selective", "delta"):
        model = linear(dtype=torch.bfloat16, mixer=mixer)
        decays = [weight for name, weight in model.named_parameters() if ".decay." in name]
        assert decays
        assert all(weight.dtype == torch.float32 for weight in decays)
    assert {x.dtype for name, x in linear(mixer="delta").half().named_parameters() if ".decay." in name} == {
        torch.float32
    }


def test_tied_weights_are_tied_after_loading(tmp_path):
    linearize(BertForMaskedLM(BertConfig(**BERT))).save_pretrained(tmp_path)
    model, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(model).__name__ == "LionBertForMaskedLM"
    assert not any(info.values())
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    half = AutoModelForMaskedLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half(IDS).logits.dtype == torch.bfloat16


def test_trained_from_scratch():
    """LION in the place of attention in a new model, as in the paper."""
    config = BertConfig(**BERT)
    model = linearize(transformers.AutoModel.from_config(config), window=0, exact_length=0, mixer="decay")
    again = transformers.AutoModel.from_config(model.config)
    assert type(again) is type(model)
    assert again.state_dict().keys() == model.state_dict().keys()
    decays = [x.attention.self.lion.decay.bias for x in again.encoder.layer]
    assert all(torch.equal(bias, decays[0]) and bias.isfinite().all() for bias in decays)
    assert type(model._from_config(model.config)) is type(model)
    hidden(again.train()).sum().backward()
    assert all(bias.grad.abs().sum() > 0 for bias in decays)


def test_initial_weights_imitate_softmax():
    """New heads start as their source's scaling says, in the class that loads as in the one that is made."""
    made = linearize(BertModel(BertConfig(**BERT)), exact_length=0)
    again = transformers.AutoModel.from_config(made.config)
    for x, y in zip(made.encoder.layer, again.encoder.layer, strict=True):
        x, y = x.attention.self.lion, y.attention.self.lion
        torch.testing.assert_close(x.query_map.weight, torch.eye(8).expand(2, 8, 8) * 8**-0.25)
        assert all(torch.equal(a, b) for a, b in zip(x.parameters(), y.parameters(), strict=True))


# What is chosen.


@pytest.mark.parametrize(
    ("name", "layers", "chosen"),
    [
        ("BertModel", "all", [True, True]),
        ("BertModel", "alternate", [True, False]),
        ("BertModel", [1], [False, True]),
        ("BertModel", "global", [True, True]),
        ("ModernBertModel", "global", [True, False, True]),
        ("EmbeddingGemma2TextModel", "global", [False, True, True]),
        ("ModernBertModel", "all", [True, True, True]),
    ],
)
def test_layers(name, layers, chosen, equal):
    """Other layers keep softmax, in their windows of 3 tokens, also in long texts and beside padding."""
    if not BY_NAME[name].is_there:
        pytest.skip(f"transformers {transformers.__version__} has no {name}.")
    model = linear(name, layers=layers)
    assert [sizes is not None for sizes in model.config.lion_layers.values()] == chosen
    calls = []

    def record(module, query, key, value, *args, **kwargs):
        output = attention_functions.linearized_attention(module, query, key, value, *args, **kwargs)
        calls.append((query, key, value, kwargs["scaling"], kwargs.get("sliding_window"), output[0]))
        return output

    AttentionInterface.register("lion_recorded", record)
    AttentionMaskInterface.register("lion_recorded", attention_functions.linearized_mask)
    model.set_attn_implementation("lion_recorded")
    real = torch.arange(20) < torch.tensor([[20], [12]])
    hidden(model, IDS.expand(2, -1), attention_mask=real.long())
    place = torch.arange(20)
    for (query, key, value, scaling, window, output), is_linear in zip(calls, chosen, strict=True):
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
        near = (place[:, None] - place).abs() <= (20 if window is None else 3)
        scores = (query @ key.mT * scaling).masked_fill(~(near & real[:, None, None]), -torch.inf)
        expected = (scores.softmax(-1).nan_to_num() @ value).transpose(1, 2)
        if is_linear:
            assert not torch.allclose(output[real], expected[real])
        else:
            equal(output[real].detach(), expected[real].detach())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 64),
        ({"max_position_embeddings": 1024}, 512),
        ({"max_position_embeddings": 1024, "exact_length": 100}, 100),
    ],
)
def test_default_of_exact_length(options, expected):
    given = {name: options.pop(name) for name in ("exact_length",) if name in options}
    model = linearize(BertModel(BertConfig(**BERT | options)), **given)
    assert model.config.lion_exact_length == expected


def test_default_of_exact_length_for_images_and_audio():
    assert linearize(BY_NAME["ViTModel"].model()).config.lion_exact_length == 17
    assert linearize(BY_NAME["Wav2Vec2Model"].model()).config.lion_exact_length == 512
    assert linearize(BY_NAME["WhisperEncoder"].model()).config.lion_exact_length == 20


# Positions.


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("BertModel", 0),
        ("RobertaModel", 1),
        ("XLMRobertaModel", 1),
        ("DistilBertModel", 0),
        ("AlbertModel", 0),
        ("ElectraModel", 0),
    ],
)
def test_cyclic_positions(name, first, tmp_path, equal):
    """Behind its end, a table is read from its start on: as if positions had been given so."""
    size = 64 - first
    ids = torch.randint(3, 40, (2, size + 30))
    model = linear(name, positions="cyclic", exact_length=10)
    assert model.config.lion_position_table[1] == first
    output = hidden(model, ids)
    encoder = BY_NAME[name]
    longer = encoder.model(max_position_embeddings=first + 2 * size)
    table = model.config.lion_position_table[0]
    weights = model.state_dict()
    rows = weights[f"{table}.weight"]
    weights[f"{table}.weight"] = torch.cat((rows, rows[first:]))
    encoder.linear(longer, window=2, exact_length=10).load_state_dict(weights)
    equal(output, hidden(longer, ids))
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModel.from_pretrained(tmp_path, dtype=torch.float64)
    equal(hidden(loaded, ids), output)


def test_longer_texts_than_the_table_are_refused():
    for name, size in (("BertModel", 64), ("RobertaModel", 63), ("BartEncoder", 64)):
        model = linear(name)
        hidden(model, torch.full((1, size), 5))
        with pytest.raises(ValueError, match=f"has {size + 1} tokens, and the table of positions"):
            hidden(model, torch.full((1, size + 1), 5))
    with pytest.raises(ValueError, match="leave `positions` out"):
        linear("BartEncoder", positions="cyclic")
    hidden(linear("NomicBertModel"), torch.full((1, 100), 5))  # rotations have no end


@pytest.mark.parametrize(
    ("name", "longest"),
    [("BertModel", 64), ("RobertaModel", 63), ("DistilBertModel", 64), ("ModernBertModel", None), ("BartEncoder", 64)],
)
def test_the_longest_text_of_an_encoder_that_is_not_linear(name, longest):
    """Tables that count from behind their `padding_idx`, as RoBERTa's, have fewer positions than rows."""
    model = BY_NAME[name].model().eval()
    assert model_inputs.longest_text(model) == longest
    assert model_inputs.longest_text(nn.Sequential(model)) == longest  # in a wrapper, as of an adapter
    if name == "RobertaModel":
        assert model_inputs.longest_text(nn.Sequential(linear(name))) == longest
    with torch.no_grad():
        assert model(torch.full((1, longest or 100), 5)).last_hidden_state.isfinite().all()
        if longest is not None:
            with pytest.raises((IndexError, RuntimeError)):
                model(torch.full((1, longest + 1), 5))


def test_default_positions_grow_with_the_text(monkeypatch, equal):
    model = linear(positions="cyclic")
    ids = torch.randint(3, 40, (1, 200))
    expected = hidden(model, ids)
    for name in ("position_ids", "token_type_ids"):
        getattr(model.embeddings, name).resize_(1, 100)
    monkeypatch.setattr("modeling_lion.linearized.model_inputs.BUFFERED_POSITIONS", 100)
    equal(hidden(model, ids), expected)
    assert model.embeddings.position_ids.shape[1] == 400


# Texts of every kind.


@pytest.mark.axes(name=["BertModel", "EuroBertModel", "ModernBertModel"], exact_length=[0, 6], rows=[1, 2])
def test_packed_sequences_are_each_on_their_own(name, exact_length, rows, equal):
    model = linear(name, exact_length=exact_length)
    ids = torch.randint(3, 40, (rows, 20))
    cuts = [0, 5, 13, 20]
    alone = [hidden(model, ids[:, a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]
    positions = torch.cat([torch.arange(b - a) for a, b in zip(cuts, cuts[1:], strict=False)]).expand(rows, -1)
    equal(hidden(model, ids, position_ids=positions), torch.cat(alone, 1))
    borders = torch.tensor(cuts, dtype=torch.int32)
    equal(hidden(model, ids, position_ids=positions, cu_seq_lens_q=borders), torch.cat(alone, 1))


def test_packed_sequences_by_place_and_beside_padding(equal):
    """However positions are given, and whatever is behind or before the sequences."""
    model = linear(exact_length=6)
    ids = torch.randint(3, 40, (1, 20))
    cuts = [0, 5, 13, 20]
    alone = torch.cat([hidden(model, ids[:, a:b]) for a, b in zip(cuts, cuts[1:], strict=False)], 1)
    positions = torch.cat([torch.arange(b - a) for a, b in zip(cuts, cuts[1:], strict=False)]).view(1, -1)
    equal(model(ids, None, None, positions).last_hidden_state, alone)
    padding = torch.zeros(1, 4, dtype=torch.int64)
    for before, after in ((0, 4), (4, 0)):
        mask = torch.ones(1, 24, dtype=torch.int64)
        mask[:, :before], mask[:, 24 - after :] = 0, 0
        padded = [torch.cat((padding[:, :before], x, padding[:, :after]), 1) for x in (ids, positions)]
        output = hidden(model, padded[0], position_ids=padded[1], attention_mask=mask)
        equal(output[:, before : 24 - after], alone)
        borders = torch.tensor([0, *(before + cut for cut in cuts[1:-1]), 24], dtype=torch.int32)
        output = hidden(model, padded[0], position_ids=padded[1], cu_seq_lens_q=borders, attention_mask=mask)
        equal(output[:, before : 24 - after], alone)


@pytest.mark.parametrize("fields", [{"lion_mixer": "lit"}, {"lion_feature_map": "relu"}, {"lion_window": 0}])
@pytest.mark.parametrize("loader", [transformers.AutoModel, AutoModelForMaskedLM])
def test_weights_of_other_branches_are_refused(loader, fields, tmp_path):
    linearize(BertForMaskedLM(BertConfig(**BERT)), mixer="selective", window=4).save_pretrained(tmp_path)
    loader.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"of another `lion_mixer` than .*\.lion\..*configuration that they were"):
        loader.from_pretrained(tmp_path, **fields)


def test_graphs_ignore_no_packing():
    graph = torch.compile(linear(exact_length=6), backend="eager", fullgraph=True)
    numbers, positions = torch.tensor([[0] * 5 + [1] * 7]), torch.tensor([[*range(5), *range(7)]])
    for given in ({"seq_idx": numbers}, {"position_ids": positions}):
        with pytest.raises(Exception, match="cu_seq_lens_q"):
            graph(IDS[:1, :12], **given)


@pytest.mark.parametrize("first", [0, 1])
def test_packed_differently_in_different_rows(first, equal):
    model = linear("RobertaModel" if first else "BertModel", exact_length=6)
    ids = torch.randint(3, 40, (2, 20))
    cuts = [0, 5, 13, 20], [0, 9, 20]
    spans = [list(zip(row, row[1:], strict=False)) for row in cuts]
    alone = [torch.cat([hidden(model, ids[n : n + 1, a:b]) for a, b in row], 1) for n, row in enumerate(spans)]
    positions = torch.stack([torch.cat([first + torch.arange(b - a) for a, b in row]) for row in spans])
    equal(hidden(model, ids, position_ids=positions), torch.cat(alone))


@pytest.mark.parametrize(
    "positions",
    [[0] * 20, [*range(20)][::-1], [n // 2 for n in range(20)], [*range(10), *range(5), *range(5)]],
    ids=str,
)
@pytest.mark.parametrize("exact_length", [20, 6])
def test_other_positions_are_no_packing(positions, exact_length, equal):
    """All equal, falling, each twice; the last ones are packed."""
    model = linear(exact_length=exact_length, dtype=torch.float64)
    positions = torch.tensor([positions])
    if exact_length == 20 and positions[0, :10].tolist() != list(range(10)):
        expected = hidden(model, position_ids=positions)
        model.set_attn_implementation("sdpa")
        assert torch.equal(hidden(model, position_ids=positions), expected)
    words = model.embeddings.position_embeddings
    model.set_attn_implementation("lion")
    output = hidden(model, position_ids=positions)
    is_one = positions[0, :10].tolist() != list(range(10))
    seen_by_last = hidden(model, IDS.index_fill(1, torch.tensor([0]), 30), position_ids=positions)
    assert torch.equal(output[0, -1], seen_by_last[0, -1]) != is_one
    assert words is model.embeddings.position_embeddings


def test_short_rows_beside_long_ones_cost_what_they_cost_alone(monkeypatch):
    """They are computed without the columns in which all of them are padded, whatever side that is on."""
    model = linear("ModernBertModel", exact_length=6, dtype=torch.float32)
    mask = torch.ones(4, 20, dtype=torch.long)
    ids = IDS.expand(4, -1).clone()
    mask[1, 4:], mask[2, 6:], mask[3, :15] = 0, 0, 0
    computed = []
    projection = model.layers[0].attn.Wqkv
    monkeypatch.setattr(
        projection, "forward", lambda x: computed.append(x.shape) or type(projection).forward(projection, x)
    )
    output = model(ids, attention_mask=mask, output_hidden_states=True)
    assert computed == [(3, 20, 16), (1, 20, 16)]  # one is padded on the left
    computed.clear()
    some = torch.tensor([0, 1, 2])
    output = model(ids[some], attention_mask=mask[some], output_hidden_states=True, return_dict=False)
    assert computed == [(2, 6, 16), (1, 20, 16)]
    alone = model(ids[1:3, :6], attention_mask=mask[1:3, :6], output_hidden_states=True, return_dict=False)
    long = model(ids[:1], attention_mask=mask[:1], output_hidden_states=True, return_dict=False)
    asked = model(ids[some], attention_mask=mask[some], return_dict=None)  # as the configuration says
    assert torch.equal(asked.last_hidden_state, output[0])
    for found, short, whole in zip((output[0], *output[1]), (alone[0], *alone[1]), (long[0], *long[1]), strict=True):
        assert torch.equal(found[1:3, :6], short) and torch.equal(found[:1], whole)
        assert (found[1:3, 6:] == 0).all()


def test_packed_sequences_of_very_different_lengths(equal):
    model = linear(exact_length=6)
    ids = torch.randint(3, 40, (1, 60))
    cuts = [0, 1, 2, 35, 37, 40, 60]
    alone = [hidden(model, ids[:, a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]
    borders = torch.tensor([0, 1, *cuts[1:]], dtype=torch.int32)  # one of them is empty
    positions = torch.cat([torch.arange(b - a) for a, b in zip(cuts, cuts[1:], strict=False)]).view(1, -1)
    equal(hidden(model, ids, position_ids=positions, cu_seq_lens_q=borders), torch.cat(alone, 1))


@pytest.mark.axes(layers=["all", "global"], exact_length=[4, 15, 30])
def test_packed_sequences_keep_a_window_that_only_the_mask_has(layers, exact_length, equal):
    """As in EmbeddingGemma, whose modules do not say how many tokens they see."""
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1}
    sizes |= {"head_dim": 8, "vocab_size": 40, "num_hidden_layers": 2, "sliding_window": 5}
    kinds = {"layer_types": ["sliding_attention", "full_attention"], "use_bidirectional_attention": True}
    torch.manual_seed(0)
    model = transformers.Gemma3TextModel(transformers.Gemma3TextConfig(**sizes, **kinds)).double().eval()
    model = linearize(model, window=2, exact_length=exact_length, layers=layers)
    ids = torch.randint(3, 40, (1, 30))
    positions = torch.cat((torch.arange(18), torch.arange(12))).view(1, -1)
    alone = torch.cat((hidden(model, ids[:, :18]), hidden(model, ids[:, 18:])), 1)
    equal(hidden(model, ids, position_ids=positions), alone)


@pytest.mark.parametrize("borders", [[0, 5], [3, 20], [0, 9, 21], [0, 9, 7, 20]], ids=str)
def test_borders_that_do_not_fit_are_refused(borders):
    with pytest.raises(ValueError, match="cu_seqlens must rise from 0 to the length 20"):
        hidden(linear(), cu_seq_lens_q=torch.tensor(borders, dtype=torch.int32))


@pytest.mark.parametrize("form", attention_functions.LINEARIZED_FORMS)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_shortest_texts(form, length, equal):
    """With a window that reaches over the text, linear attention is softmax."""
    model = linear("EuroBertModel")
    model.set_attn_implementation(form)
    output = hidden(model, IDS[:, :length])
    model.set_attn_implementation("sdpa")
    equal(output, hidden(model, IDS[:, :length]))


@pytest.mark.parametrize("exact_length", [0, 7, 100])
def test_attention_weights_are_those_of_the_output(exact_length, equal):
    model = linear("EuroBertModel", exact_length=exact_length)
    mask = torch.ones(2, 20, dtype=torch.int64)
    mask[1, 7:] = 0
    values = []
    for layer in model.layers:
        layer.self_attn.v_proj.register_forward_hook(lambda module, args, output: values.append(output))
        layer.self_attn.o_proj.register_forward_pre_hook(lambda module, args: values.append(args[0]))
    plain = hidden(model, IDS.expand(2, -1), attention_mask=mask)
    values.clear()
    output = model(input_ids=IDS.expand(2, -1), attention_mask=mask, output_attentions=True)
    real = mask.bool()
    torch.testing.assert_close(output.last_hidden_state[real], plain[real], rtol=1e-6, atol=1e-6)
    for layer, weights in enumerate(output.attentions):
        value, mixed = values[2 * layer : 2 * layer + 2]
        value = value.unflatten(-1, (-1, 4)).transpose(1, 2).repeat_interleave(2, dim=1)
        made = (weights.double() @ value).transpose(1, 2).flatten(2)
        torch.testing.assert_close(made[real], mixed[real], rtol=1e-6, atol=1e-6)
        assert (weights[1, :, :, 7:] == 0).all()
        torch.testing.assert_close(weights.sum(-1)[0], torch.ones_like(weights[0, ..., 0]))


def test_a_mask_that_hides_pairs_is_refused_where_windows_are_kept():
    model = linear("ModernBertModel", layers=[])
    causal = torch.ones(20, 20, dtype=torch.bool).tril().view(1, 1, 20, 20)
    with pytest.raises(ValueError, match="neither padding nor packing"):
        hidden(model, attention_mask=causal)


def test_a_model_does_not_outlive_its_last_name():
    alive = weakref.ref(linear())
    gc.collect()
    assert alive() is None


def test_a_mask_that_hides_pairs_is_refused():
    model = linear("BertModel", exact_length=10)
    mask = torch.ones(1, 1, 20, 20, dtype=torch.bool).tril()
    with pytest.raises(ValueError, match="neither padding nor packing"):
        hidden(model, attention_mask=mask)
    short = hidden(model, IDS[:, :10], attention_mask=mask[:, :, :10, :10])
    model.set_attn_implementation("sdpa")
    assert torch.equal(short, hidden(model, IDS[:, :10], attention_mask=mask[:, :, :10, :10]))


def test_a_mask_of_blocks_is_packing(equal):
    model = linear("NomicBertModel")
    block = torch.tensor([0] * 8 + [1] * 12)
    mask = (block[:, None] == block)[None, None]
    positions = torch.cat((torch.arange(8), torch.arange(12)))[None]
    expected = torch.cat((hidden(model, IDS[:, :8]), hidden(model, IDS[:, 8:])), 1)
    equal(hidden(model, attention_mask=mask, position_ids=positions), expected)
    added = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, torch.finfo(torch.float64).min)
    equal(hidden(model, attention_mask=added, position_ids=positions), expected)


# Precision, gradients, graphs.


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_autocast", [False, True], ids=["weights", "autocast"])
def test_half_precision(dtype, is_autocast):
    """At most three times as far from float64 as the encoder's own attention is in the same precision."""
    errors = {}
    for name in ("lion", "sdpa"):
        model = linear("EuroBertModel", mixer="selective")
        model.set_attn_implementation(name)
        exact = hidden(model)
        model = model.float() if is_autocast else model.to(dtype)
        with torch.autocast("cpu", dtype, enabled=is_autocast):
            output = hidden(model)
        assert is_autocast or output.dtype == dtype
        errors[name] = (output - exact).norm() / exact.norm()
    assert 0 < errors["lion"] < 3 * errors["sdpa"]


@pytest.mark.parametrize("mixer", ["lit", "selective", "delta"])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing(use_reentrant, mixer, equal):
    model = linear("BertModel", exact_length=6, mixer=mixer).train()
    without_dropout = [m for m in model.modules() if isinstance(m, nn.Dropout)]
    for module in without_dropout:
        module.p = 0.0
    for layer in model.encoder.layer:
        layer.attention.self.dropout.p = 0.0
    mask = torch.ones(2, 20, dtype=torch.int64)
    mask[1, 5:] = 0

    def gradients():
        model.zero_grad()
        hidden(model, IDS.expand(2, -1), attention_mask=mask)[mask.bool()].pow(2).sum().backward()
        return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}

    expected = gradients()
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": use_reentrant})
    actual = gradients()
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        equal(actual[name], gradient, name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_compiled_for_every_length(equal):
    """A graph for every length is compiled once more for those up to the exact length, which stay softmax."""
    model = linear("NomicBertModel", exact_length=12)
    graph = torch.compile(model, dynamic=True, backend="eager", fullgraph=True)
    ids = torch.randint(3, 40, (2, 30))
    with torch.no_grad():
        long = hidden(model, ids)
        equal(hidden(graph, ids), long)
        fixed = torch.compile(model, dynamic=False, backend="eager", fullgraph=True)
        equal(hidden(fixed, ids[:, :12]), hidden(model, ids[:, :12]))
        for length in (11, 5, 12, 13, 25):
            equal(hidden(graph, ids[:, :length]), hidden(model, ids[:, :length]))
        mask = torch.ones_like(ids)
        mask[1, :7] = 0
        padded = hidden(graph, ids, attention_mask=mask)
        equal(padded[0], long[0])
        equal(padded[1, 7:], hidden(model, ids[1:, 7:])[0], "padding in front")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_exported(equal):
    model = linear("NomicBertModel", exact_length=12)
    ids = torch.randint(3, 40, (2, 30))
    mask = torch.ones_like(ids)
    length = torch.export.Dim("length", min=4, max=50)
    shapes = {"input_ids": {1: length}, "attention_mask": {1: length}}
    exported = torch.export.export(
        model, (), {"input_ids": ids, "attention_mask": mask}, dynamic_shapes=shapes, strict=False
    ).module()
    with torch.no_grad():
        equal(hidden(exported, ids, attention_mask=mask), hidden(model, ids))
        in_front = mask.clone()
        in_front[1, :7] = 0
        equal(hidden(exported, ids, attention_mask=in_front)[1, 7:], hidden(model, ids[1:, 7:])[0], "padding in front")
        short = hidden(exported, ids[:, :11], attention_mask=mask[:, :11])
        model.config.lion_exact_length = 0
        equal(short, hidden(model, ids[:, :11]))


# The paper's model.


@pytest.mark.parametrize("feature_map", ["elu", "silu_norm"])
@pytest.mark.parametrize("mixer", ["lit", "decay"])
def test_a_linear_vit_is_the_models_of_the_paper(mixer, feature_map, equal):
    """`LionForImageClassification` and ViT compute the same from the same weights."""
    fields = IMAGE | {"num_labels": 5, "qkv_bias": True, "layer_norm_eps": 1e-6, "hidden_act": "gelu"}
    fields |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = LionConfig(
        modality="image",
        mixer_type=mixer,
        feature_map=feature_map,
        normalization="sum",
        attention_layer_norm=False,
        position_embedding_type="absolute",
        norm_position="pre",
        pooling="cls",
        conv_kernel=0,
        head_directions="both",
        use_gated_mlp=False,
        **fields,
    )
    ours = LionForImageClassification(config).double().eval()
    theirs = transformers.ViTForImageClassification(ViTConfig(**fields)).double().eval()
    linearize(theirs, mixer=mixer, feature_map=feature_map, window=0, exact_length=0)
    names = {
        "vit.layernorm.": "lion.norm.",
        "vit.": "lion.",
        "patch_embeddings.projection.": "patch_embeddings.",
        "attention.lion.": "attention.mixer.",
        "layernorm_before": "attention_norm",
        "layernorm_after": "mlp_norm",
        "mlp.fc1": "mlp.up_proj",
        "mlp.fc2": "mlp.down_proj",
    }
    names |= {f"attention.{x}_proj": f"attention.mixer.{x}_proj" for x in "qkv"}
    weights = {}
    for name, weight in theirs.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        weights[name] = weight + 0.2 * torch.randn_like(weight)
    ours.load_state_dict(weights)
    theirs.load_state_dict(dict(zip(theirs.state_dict(), weights.values(), strict=True)))
    pixels = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    equal(theirs(pixels).logits, ours(pixels).logits)
    for form, own in (("lion_parallel", "parallel"), ("lion_chunk", "chunk"), ("lion_rnn", "rnn")):
        theirs.set_attn_implementation(form)
        ours.set_attn_implementation(own)
        equal(theirs(pixels).logits, ours(pixels).logits)


# Refusals, and the process.


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"layers": "some"}, '"all", "global", "alternate" or indices'),
        ({"layers": None}, '"all", "global", "alternate" or indices'),
        ({"layers": ["0"]}, '"all", "global", "alternate" or indices'),
        ({"layers": [2]}, "the model has layers 0 to 1"),
        ({"mixer": "luna"}, "'luna': it is not linear attention with decays.*'lit', 'decay', 'selective', 'delta'"),
        ({"mixer": "lunar"}, "'lunar'; give one of 'lit', 'decay', 'selective', 'delta', or import the file"),
        ({"feature_map": "identity"}, "give a positive one"),
        ({"window": -1}, "`window` is -1"),
        ({"exact_length": -1}, "`exact_length` is -1"),
        ({"positions": "absolute"}, "lion_positions.*absolute"),
    ],
)
def test_wrong_arguments(options, reason):
    model = BertModel(BertConfig(**BERT))
    with pytest.raises(ValueError, match=reason):
        linearize(model, **options)
    assert type(model) is BertModel
    assert not hasattr(model.config, "lion_layers")


class OddFeatures(nn.Module):
    def __init__(self, num_heads: int, head_dim: int):
        raise ValueError(f"`head_dim` is {head_dim}; OddFeatures takes odd ones.")


def test_features_that_refuse_a_size_leave_the_model_unchanged(monkeypatch):
    monkeypatch.setitem(FEATURE_MAPS, "odd", FeatureMap(OddFeatures, True, True))
    model = BertModel(BertConfig(**BERT))
    with pytest.raises(ValueError, match="takes odd ones"):
        linearize(model, feature_map="odd")
    assert type(model) is BertModel and type(model.config) is BertConfig
    linearize(model)


def test_models_may_become_linear_in_several_threads():
    # Made before, since transformers guards the functions of torch.nn.init for the whole process meanwhile.
    encoders = [BertModel(BertConfig(**BERT)) for _ in range(12)]
    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(linearize, encoders))
    assert all(len(model.config.lion_layers) == 2 for model in models)


@pytest.mark.filterwarnings("ignore")
def test_processes_that_share_weights_make_equal_numbers_of_calls(monkeypatch):
    """With FSDP, a process that calls its layers twice, for short and for long rows, would wait for the others."""
    calls = []
    monkeypatch.setattr(model_inputs, "forward_by_length", lambda *args: calls.append(args))
    model, mask = linear(exact_length=6), torch.ones(2, 20, dtype=torch.long)
    mask[0, 4:] = 0
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        policy = ModuleWrapPolicy({BertLayer})
        sharded = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
        assert hidden(sharded, IDS.expand(2, -1), attention_mask=mask).shape == (2, 20, 16)
    finally:
        dist.destroy_process_group()
    assert not calls


def test_what_is_no_encoder():
    with pytest.raises(TypeError, match="takes a model of transformers"):
        linearize(nn.Linear(2, 2))
    model = linear()
    with pytest.raises(ValueError, match="is linear already"):
        linearize(model)
    plain = BertModel(BertConfig(**BERT))
    plain.set_attn_implementation("lion")
    with pytest.raises(ValueError, match="has no part `lion`"):
        plain(IDS)


def test_an_input_that_cannot_be_guessed():
    encoder = BY_NAME["Siglip2VisionModel"]
    with pytest.raises(ValueError, match="example_inputs"):
        linearize(encoder.model())


def test_copies_are_independent(equal):
    model = linear("BertModel")
    other = copy.deepcopy(model)
    other.config.lion_exact_length = 100
    with torch.no_grad():
        other.encoder.layer[0].attention.self.lion.gate_bias.add_(1)
    assert model.config.lion_exact_length == 0
    other.config.lion_exact_length = 0
    assert not torch.allclose(hidden(model), hidden(other))


OTHER_PROCESS = """
import sys
from pathlib import Path
from transformers import AutoModel
folders = [Path(x) for x in sys.argv[1:]]
for folder in folders:
    try:
        AutoModel.from_pretrained(folder)
    except ValueError as error:
        assert "trust_remote_code=True" in str(error), error
    else:
        raise AssertionError(f"{folder} was loaded, as softmax")
import modeling_lion
imported = {x for x in sys.modules if x.startswith("transformers.models.") and ".modeling_" in x}
own = "transformers.models.phi.modeling_phi"  # of LionModel's own rotations
assert imported <= {"transformers.models.auto.modeling_auto", own}, imported
import torch
for folder in folders:
    model = AutoModel.from_pretrained(folder).eval()
    torch.save((type(model).__name__, model(**torch.load(folder / "inputs.pt"))[0]), folder / "output.pt")
"""


@pytest.mark.slow
def test_in_a_process_of_its_own(tmp_path):
    """
    Before the package is imported, transformers asks to trust the code of a linear encoder. The package imports no
    model of transformers; with it, the encoder is what it was.
    """
    expected = {}
    for name in ("ModernBertModel", "WhisperEncoder"):
        model, folder = linear(name, torch.float32), tmp_path / name
        inputs = BY_NAME[name].inputs(model.config, dtype=torch.float32)
        model.save_pretrained(folder)
        torch.save(inputs, folder / "inputs.pt")
        expected[folder] = type(model).__name__, model(**inputs)[0].detach()
    command = [sys.executable, "-c", OTHER_PROCESS, *map(str, expected)]
    result = subprocess.run(command, capture_output=True, text=True, env=script_environment())
    assert result.returncode == 0, result.stderr
    for folder, (class_name, output) in expected.items():
        found_name, found = torch.load(folder / "output.pt")
        assert found_name == class_name
        torch.testing.assert_close(found, output)


def test_names_of_classes():
    assert modeling_lion.LionBertModel is type(linear())
    assert modeling_lion.LionBertConfig.model_type == "lion-bert"
    with pytest.raises(AttributeError):
        modeling_lion.LionNothingModel  # noqa: B018
