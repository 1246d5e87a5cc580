# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Rotary positions (SPEC §12): what they are, and that padding, packing, segments and dtypes leave them alone."""

import pytest
import torch
from conftest import TINY
from fuzzing import ModelProblem
from transformers import AutoModel, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from modeling_lion import LionConfig, LionForMaskedLM, LionModel
from modeling_lion.sequence.layout import Layout
from modeling_lion.sequence.rotary import LionRotaryEmbedding, rotary_tables, rotate
from modeling_lion.tokens import Tokens


ROPE = {"rope_theta": 100.0}
LINEAR_MIXERS = ["lit", "decay", "selective"]
MIXERS = [*LINEAR_MIXERS, "softmax"]
PARAMETERS = {
    "default": ROPE,
    "partial": {"partial_rotary_factor": 0.5},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 6},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 12,
    },
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.5},
}
# Frequencies that depend on the length of a text: those of 3 tokens, and of more.
BY_LENGTH = {
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.5, 2.0, 3.0],
        "long_factor": [1.0, 4.0, 9.0, 16.0],
        "factor": 8.0,
        "original_max_position_embeddings": 3,
    },
}


def make_model(mixer: str, rope_parameters: dict = ROPE, model_class=LionModel, **fields) -> LionModel:
    config = LionConfig(mixer_type=mixer, rope_parameters=rope_parameters, **(TINY | fields))
    return model_class(config).double().eval()


def inputs_of_attention(model: LionModel, **inputs) -> list[tuple[torch.Tensor, dict]]:
    """What the attention of each layer gets."""
    seen = []
    for layer in model.layers:
        layer.attention.register_forward_pre_hook(
            lambda _, args, kwargs: seen.append((args, kwargs)), with_kwargs=True
        )
    model(**inputs)
    return seen


def rotated(x: torch.Tensor, positions: torch.Tensor, inv_freq: torch.Tensor) -> torch.Tensor:
    """`(batch, length, heads, head_dim)`: channels c and c + rotary_dim / 2 are a complex number, which is rotated."""
    pairs = len(inv_freq)
    angles = positions[:, :, None, None] * inv_freq.double()
    z = torch.complex(x[..., :pairs], x[..., pairs : 2 * pairs]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((z.real, z.imag, x[..., 2 * pairs :]), dim=-1)


@pytest.mark.parametrize("name", PARAMETERS)
def test_tables_are_those_of_the_library(name):
    """Where transformers has them: its Llama rotates all channels."""
    config = make_model("selective", PARAMETERS[name]).config.rope_config("linear_attention")
    ours = LionRotaryEmbedding(config)
    positions = torch.tensor([[0, 1, 2, 17, 23]])
    cos, sin = ours(torch.zeros(1), positions)
    assert cos.dtype == sin.dtype == torch.float32
    rotary_dim = config.head_dim // 2 if name == "partial" else config.head_dim
    assert cos.shape == sin.shape == (1, 5, rotary_dim)
    sizes = {"hidden_size": 16, "num_attention_heads": 16 // rotary_dim, "max_position_embeddings": 24}
    parameters = {k: v for k, v in PARAMETERS[name].items() if name != "partial"} | {
        "rope_theta": PARAMETERS[name].get("rope_theta", 10000.0)
    }
    theirs = LlamaRotaryEmbedding(LlamaConfig(**sizes, rope_parameters=parameters))
    # Their angles are float32: the largest is below 32, half an ulp of which is 2^-20.
    for table, expected in zip((cos, sin), theirs(torch.zeros(1), positions), strict=True):
        torch.testing.assert_close(table, expected, rtol=0, atol=2**-20 + torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("name", BY_LENGTH)
def test_tables_of_each_length_are_those_of_the_library(name):
    """Compared with a new model: transformers keeps the tables of the longest text that it has seen."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "max_position_embeddings": 3}
    lengths = [1, 3, 4, 9]
    ours = make_model("selective", BY_LENGTH[name], max_position_embeddings=3).rotary_embeddings["linear_attention"]
    positions = torch.arange(9).expand(4, -1)
    tables = ours(torch.zeros(1), positions, torch.tensor(lengths)[:, None])
    for n, *row in zip(lengths, *tables, strict=True):
        theirs = LlamaRotaryEmbedding(LlamaConfig(**sizes, rope_parameters={"rope_theta": 10000.0} | BY_LENGTH[name]))
        for table, expected in zip(row, theirs(torch.zeros(1), torch.arange(n)[None]), strict=True):
            torch.testing.assert_close(table[:n], expected[0], rtol=0, atol=1e-6)
    assert (tables[0][1] - tables[0][3]).abs().max() > 0.1


def test_softmax_attention_is_that_of_the_library(equal):
    model = make_model("softmax")
    input_ids = torch.randint(1, 40, (2, 9))
    ((hidden_states, *_), _), *_ = inputs_of_attention(model, input_ids=input_ids)
    mixer = model.layers[0].attention.mixer
    positions = Layout(Tokens(position_ids=torch.arange(9)[None]))
    tables = rotary_tables(model.rotary_embeddings, hidden_states, positions)["full_attention"]
    query, key, value = (mixer.split_heads(p(hidden_states)) for p in (mixer.q_proj, mixer.k_proj, mixer.v_proj))
    query, key = apply_rotary_pos_emb(query, key, *tables)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    actual = torch.nn.functional.scaled_dot_product_attention(
        *mixer(hidden_states, Layout(rotary_tables={"full_attention": tables})).inputs
    )
    equal(actual, expected)
    # And the tables are what they are called.
    x = torch.randn(2, 9, 2, 8, dtype=torch.float64)
    inv_freq = 1 / 100 ** (torch.arange(4, dtype=torch.float32) / 4)
    equal(rotate(x, -x, tables, 2)[0], rotated(x, torch.arange(9)[None].double(), inv_freq))
    equal(rotate(x.transpose(1, 2), x.transpose(1, 2), tables, 1)[1].transpose(1, 2), rotate(x, x, tables, 2)[1])


@pytest.mark.parametrize("normalization", ["sum", "none"])
@pytest.mark.parametrize("mixer_type", LINEAR_MIXERS)
def test_linear_attention_is_that_of_the_specification(mixer_type, normalization, equal):
    """A literal loop over SPEC §1-2, with queries and keys that are rotated before φ."""
    fields = {"feature_map": "silu_norm" if normalization == "sum" else "identity", "normalization": normalization}
    fields |= {"head_directions": "both", "conv_kernel": 0}
    model = make_model(mixer_type, PARAMETERS["partial"], **fields)
    length, positions = 6, torch.tensor([[3, 4, 5, 6, 7, 9]])
    inputs = {"input_ids": torch.randint(1, 40, (1, length)), "position_ids": positions}
    ((hidden_states, *_), _), *_ = inputs_of_attention(model, **inputs)
    attention = model.layers[0].attention
    mixer = attention.mixer
    inv_freq = model.rotary_embeddings["linear_attention"].inv_freq
    assert len(inv_freq) == 2  # of the 4 pairs of channels
    query, key, value = (p(hidden_states).view(1, length, 2, 8) for p in (mixer.q_proj, mixer.k_proj, mixer.v_proj))
    query, key = (mixer.feature_map(rotated(x, positions.double(), inv_freq))[0] for x in (query, key))
    log_decay = mixer.log_decay(hidden_states)
    decay = torch.ones(2, length, 8, dtype=torch.float64)
    if log_decay is not None:  # (heads,), (1, heads, length) or (1, heads, length, 8)
        shape = (2, 1, 1) if log_decay.dim() == 1 else (2, length, -1)
        decay = decay * log_decay.exp().reshape(shape)
    expected = torch.zeros(length, 2, 8, dtype=torch.float64)
    for head in range(2):
        for i in range(length):
            scores = []
            for j in range(length):
                way = range(j, i) if i > j else range(i + 1, j + 1)
                mask = torch.stack([torch.ones(8).double(), *(decay[head, k] for k in way)]).prod(0)
                scores.append((query[i, head] * key[j, head] * mask).sum())
            scores = torch.stack(scores)
            weights = scores / scores.sum() if normalization == "sum" else scores * 8**-0.5
            expected[i, head] = weights @ value[0, :, head]
    layout = Layout(Tokens(position_ids=positions))
    layout.rotary_tables = rotary_tables(model.rotary_embeddings, hidden_states, layout)
    actual, *_ = attention(hidden_states, layout)
    equal(actual, attention.o_proj(expected.flatten(1))[None])


@pytest.mark.parametrize("mixer_type", MIXERS)
def test_what_a_shift_changes(mixer_type, equal):
    """
    Scores of rotated queries and keys know distances only, unless a map comes between. Order is known to all.
    """
    input_ids, shifted = torch.randint(1, 40, (2, 9)), torch.arange(5, 14)[None]
    for feature_map, normalization in (("identity", "none"), ("silu_norm", "sum")):
        model = make_model(mixer_type, feature_map=feature_map, normalization=normalization)
        assert model.config.position_embedding_type == "none"
        expected = model(input_ids).last_hidden_state
        equal(model(input_ids, position_ids=torch.arange(9)[None]).last_hidden_state, expected)
        actual = model(input_ids, position_ids=shifted).last_hidden_state
        if mixer_type == "softmax" or feature_map == "identity":
            equal(actual, expected)
        else:
            assert not torch.allclose(actual, expected)
        other = model(input_ids, position_ids=torch.arange(9).flip(0)[None]).last_hidden_state
        assert not torch.allclose(other, expected)
        assert model(torch.randint(1, 40, (1, 60))).last_hidden_state.isfinite().all()  # no table ends


@pytest.mark.parametrize("layout", ["left", "interior", "packed", "packed and padded"])
@pytest.mark.parametrize(
    ("mixer_type", "kind"), [("selective", None), ("softmax", None), ("selective", "dynamic"), ("softmax", "longrope")]
)
def test_padding_and_packing_change_nothing(mixer_type, kind, layout):
    """SPEC §4: hidden states and gradients are those of the sequences one by one."""
    fields = {"rope_parameters": BY_LENGTH.get(kind, ROPE), "max_position_embeddings": 3, "mixer_type": mixer_type}
    ModelProblem(fields, "auto", [5, 2, 6], layout, 0.0, borders_given=True, autocast=False, seed=0).check()


@pytest.mark.axes(
    positions=[None, "given"], kind=["yarn", "dynamic", "longrope"], mixer_type=[*LINEAR_MIXERS, "delta"]
)
def test_segments_go_on_counting(mixer_type, kind, positions, equal):
    model = make_model(mixer_type, (PARAMETERS | BY_LENGTH)[kind], max_position_embeddings=12)
    inputs = {"input_ids": torch.randint(1, 40, (2, 30)), "attention_mask": torch.ones(2, 30, dtype=torch.long)}
    inputs["attention_mask"][0, 7:19] = 0
    if positions:
        inputs["position_ids"] = torch.arange(30).mul(2).expand(2, -1)
    with torch.no_grad():
        expected = model(**inputs)
    real = inputs["attention_mask"].bool()
    for segment_length in (7, 16):
        actual = model.encode_long(**inputs, segment_length=segment_length, show_progress=False)
        equal(actual.last_hidden_state[real], expected.last_hidden_state[real])


def test_wrong_positions_are_refused():
    model, input_ids = make_model("selective"), torch.randint(1, 40, (2, 9))
    with pytest.raises(ValueError, match=r"`position_ids` must be .* = \(2, 9\), or one row; got \(1, 8\)"):
        model(input_ids, position_ids=torch.arange(8)[None])
    with pytest.raises(ValueError, match="`position_ids` must be integers; got torch.float32"):
        model(input_ids, position_ids=torch.arange(9.0)[None])


def test_both_kinds_of_positions(equal):
    """Absolute ones may be added, and count as rotary ones do."""
    model = make_model("decay", position_embedding_type="absolute")
    input_ids = torch.randint(1, 40, (1, 9))
    mask = torch.tensor([[0, 1, 1, 0, 1, 1, 1, 0, 0]])
    expected = model(input_ids[mask.bool()][None]).last_hidden_state
    equal(model(input_ids, attention_mask=mask).last_hidden_state[mask.bool()][None], expected)
    encoded = model.encode_long(input_ids, mask, segment_length=4, show_progress=False).last_hidden_state
    equal(encoded[mask.bool()][None], expected)


def test_tables_are_made_once_for_all_layers(monkeypatch):
    calls = []
    forward = LionRotaryEmbedding.forward
    monkeypatch.setattr(LionRotaryEmbedding, "forward", lambda self, *args: calls.append(1) or forward(self, *args))
    model = make_model("selective", num_hidden_layers=4)
    seen = inputs_of_attention(model, input_ids=torch.randint(1, 40, (2, 9)))
    assert len(calls) == 1 and len(seen) == 4
    tables = [layout.rotary_tables["linear_attention"] for (_, layout, *_), _ in seen]
    assert all(x is tables[0] for x in tables)
    assert all(x.shape == (1, 9, 8) and x.dtype == torch.float64 for x in tables[0])


def test_a_layer_takes_the_parameters_of_its_type(equal):
    by_type = {"linear_attention": ROPE, "full_attention": {"rope_theta": 7.0}, "sliding_attention": None}
    for mixer, own in (("selective", ROPE), ("softmax", {"rope_theta": 7.0})):
        model, flat = make_model(mixer, by_type), make_model(mixer, own)
        flat.load_state_dict(model.state_dict())
        input_ids = torch.randint(1, 40, (2, 9))
        equal(model(input_ids).last_hidden_state, flat(input_ids).last_hidden_state)
    model = make_model("lit", {"linear_attention": None})
    assert not model.rotary_embeddings
    input_ids = torch.randint(1, 40, (1, 6))
    shifted = model(input_ids, position_ids=torch.tensor([[0, 3, 2, 1, 5, 4]])).last_hidden_state
    equal(shifted, model(input_ids).last_hidden_state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_loaded_models_have_the_frequencies(dtype, tmp_path):
    """They are not saved, and a model is loaded by way of the meta device, where they are nothing."""
    model = make_model("lit", PARAMETERS["llama3"], LionForMaskedLM).float()
    inv_freq = model.lion.rotary_embeddings["linear_attention"].inv_freq
    model.save_pretrained(tmp_path)
    assert not any("inv_freq" in name for name in model.state_dict())
    input_ids = torch.randint(1, 40, (2, 9))
    models = [LionForMaskedLM.from_pretrained(tmp_path, dtype=dtype), model.to(dtype)]
    for other in models:
        found = other.lion.rotary_embeddings["linear_attention"].inv_freq
        assert found.dtype == torch.float32 and torch.equal(found, inv_freq)
        assert other.config.rope_parameters == LionConfig.from_pretrained(tmp_path).rope_parameters
    assert torch.equal(*(m(input_ids).logits for m in models))
    encoder, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["unexpected_keys"]
    assert torch.equal(encoder.rotary_embeddings["linear_attention"].inv_freq, inv_freq)
    with torch.device("meta"):
        empty = LionForMaskedLM(model.config)
    empty.to_empty(device="cpu").init_weights()
    assert torch.equal(empty.lion.rotary_embeddings["linear_attention"].inv_freq, inv_freq)


def test_far_positions_keep_their_digits():
    """In float32 the angle of the millionth token would be off by hundredths."""
    model = make_model("lit")
    positions = torch.arange(10**6, 10**6 + 50)[None]
    layout = Layout(Tokens(position_ids=positions))
    exact = rotary_tables(model.rotary_embeddings, torch.zeros(1).double(), layout)["linear_attention"]
    tables = rotary_tables(model.float().rotary_embeddings, torch.zeros(1), layout)["linear_attention"]
    for table, truth in zip(tables, exact, strict=True):
        assert truth.dtype == torch.float64
        assert (table - truth).abs().max() <= torch.finfo(torch.float32).eps


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_queries_and_keys_are_rotated_in_float32(dtype):
    """Their error is that of rounding the result, also under autocast."""
    layout = Layout(Tokens(position_ids=torch.arange(500)[None]))
    tables = rotary_tables(make_model("lit").float().rotary_embeddings, torch.zeros(1), layout)["linear_attention"]
    x = torch.randn(2, 500, 2, 8, dtype=dtype)
    with torch.autocast("cpu", dtype=dtype):
        query, key = rotate(x, x, tables, 2)
    exact, _ = rotate(x.double(), x.double(), [table.double() for table in tables], 2)
    assert query.dtype == key.dtype == dtype
    assert (query - exact).abs().max() <= torch.finfo(dtype).eps * exact.abs().max()


def test_a_dict_of_the_caller_stays_as_it_is():
    given = {"linear_attention": {"rope_type": "yarn", "factor": 2.0}}
    LionConfig(rope_parameters=given, max_position_embeddings=77)
    assert given == {"linear_attention": {"rope_type": "yarn", "factor": 2.0}}
    config = LionConfig(rope_parameters=given)
    assert config.rope_parameters["linear_attention"]["original_max_position_embeddings"] == 512
    assert LionConfig(rope_parameters={}).rope_parameters == {"rope_type": "default", "rope_theta": 10000.0}
