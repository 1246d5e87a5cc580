# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Softmax within a window inside the heads of linear layers, and learnt features, against SPEC §12 in float64."""

from functools import partial

import pytest
import torch
from conftest import TINY, TINY_IMAGE
from huggingface_hub.errors import StrictDataclassError
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from modeling_lion import LionConfig, LionModel
from modeling_lion.attention.decay_mask import LogDecay
from modeling_lion.attention.lion_attention import lion_attention
from modeling_lion.attention.reference import reference_attention
from modeling_lion.attention.softmax_window import dense_window_mask, sliding_attention
from modeling_lion.mixers.feature_map import Hedgehog
from modeling_lion.mixers.local_window import LocalWindow
from modeling_lion.sequence.layout import Layout


FORMS = ["parallel", "chunk", "rnn"]
LENGTH, HEADS, HEAD_DIM = 41, 2, 4


def make_inputs(dtype=torch.float64, length=LENGTH, seed=0, scale=1.0) -> list[Tensor]:
    """Raw query, key, value and gate, `(batch, length, heads, ...)`, features of both, and log decays."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(2, length, HEADS, HEAD_DIM)] * 3 + [(2, length, HEADS)] + [(2, length, HEADS, 2 * HEAD_DIM)] * 2
    query, key, value, gate, *features = (
        torch.randn(shape, generator=generator, dtype=torch.float64) * scale for shape in shapes
    )
    features = [x.exp() / 4 for x in features]
    log_decay = -torch.rand(2, HEADS, length, generator=generator, dtype=torch.float64)
    return [x.to(dtype) for x in (query, key, value, gate, *features, log_decay)]


def definition(query, key, value, gate, query_features, key_features, log_decay, window, is_real, cu_seqlens):
    """SPEC §12 as it is written, all keys of all queries at once; and the weights."""
    seen = dense_window_mask(query, window, is_real, cu_seqlens)
    scores = query.transpose(1, 2) @ key.permute(0, 2, 3, 1) / HEAD_DIM**0.5
    near = torch.where(seen, scores, -torch.inf).exp()
    _, linear = reference_attention(
        *(x.transpose(1, 2) for x in (query_features, key_features, value)),
        LogDecay(log_decay, log_decay),
        returns_sums=True,
        cu_seqlens=cu_seqlens,
    )
    weights = near + gate.transpose(1, 2).unsqueeze(-1).exp() * linear
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total > 0, total, 1)
    return weights @ value.transpose(1, 2), weights


def compute(form, query, key, value, gate, query_features, key_features, log_decay, window, is_real, cu_seqlens):
    sums, weights = lion_attention(
        *(x.transpose(1, 2) for x in (query_features, key_features, value)),
        LogDecay(log_decay, log_decay),
        form=form,
        returns_sums=True,
        chunk_size=8,
        cu_seqlens=cu_seqlens,
    )
    return LocalWindow(query, key, value, gate, is_real, 0, window, cu_seqlens).join(sums, weights)


def output_and_gradients(attention, inputs, dtype, *options, padded=None):
    inputs = [x.to(dtype).requires_grad_() for x in inputs]
    output, _ = attention(*inputs, *options)
    generator = torch.Generator().manual_seed(1)
    wanted = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(dtype)
    if padded is not None:  # what a padded query gives is nobody's
        wanted, output = wanted.masked_fill(padded, 0), output.masked_fill(padded, 0)
    return [output.detach(), *torch.autograd.grad(output, inputs, wanted, materialize_grads=True)]


def check(form, dtype, window, is_real=None, cu_seqlens=None, seed=0, **sizes):
    inputs = make_inputs(dtype, seed=seed, **sizes)
    padded = None
    if is_real is not None:  # as a mixer does it
        padded = ~is_real[:, None, :, None]
        inputs[5] = inputs[5] * is_real[..., None, None]
        inputs[6] = torch.where(is_real[:, None], inputs[6], 0)
    options = (window, is_real, cu_seqlens)
    exact, near = (
        output_and_gradients(definition, inputs, kind, *options, padded=padded)
        for kind in (torch.float64, torch.float32)
    )
    results = output_and_gradients(lambda *x: compute(form, *x), inputs, dtype, *options, padded=padded)
    eps = torch.finfo(dtype).eps
    for result, right, narrow in zip(results, exact, near, strict=True):
        error = (narrow.double() - right).abs().max() * eps / torch.finfo(torch.float32).eps
        assert (result.double() - right).abs().max() <= max(2 * error, 512 * eps * max(1, right.abs().max()))


@pytest.mark.axes(form=[*FORMS, "eager"], window=[1, 5, 100], dtype=[torch.float64, torch.float32])
def test_agrees_with_the_definition(form, window, dtype):
    check(form, dtype, window)


@settings(max_examples=12, deadline=None)
@given(
    form=st.sampled_from(FORMS),
    length=st.integers(1, 90),
    window=st.integers(1, 60),
    real=st.lists(st.booleans(), min_size=90, max_size=90),
    cut=st.integers(1, 89),
    scale=st.sampled_from([0.1, 1.0, 3.0]),
)
def test_any_length_window_padding_and_packing(form, length, window, real, cut, scale):
    is_real = torch.tensor([real[:length], [True] * length])
    borders = torch.tensor([0, cut, length]) if cut < length else None
    check(form, torch.float64, window, is_real, borders, seed=length, length=length, scale=scale)


def test_gradients_of_the_weights():
    """With scores whose differences exp cannot hold in float32, and with padding."""
    query, key, value, gate, *rest = make_inputs(scale=6)
    is_real = torch.ones(2, LENGTH, dtype=torch.bool)
    is_real[0, 30:] = is_real[1, :4] = False
    wanted = torch.randn(2, HEADS, LENGTH, LENGTH, dtype=torch.float64) * is_real[:, None, :, None]
    found = {}
    for dtype in (torch.float64, torch.float32):
        attention = definition if dtype == torch.float64 else partial(compute, "eager")
        raw = [x.to(dtype).requires_grad_() for x in (query, key, gate)]
        others = [x.to(dtype) for x in rest]
        _, weights = attention(*raw[:2], value.to(dtype), raw[2], *others, 5, is_real, None)
        found[dtype] = torch.autograd.grad(weights, raw, wanted.to(dtype))
    for actual, right in zip(found[torch.float32], found[torch.float64], strict=True):
        torch.testing.assert_close(actual.double(), right, rtol=1e-4, atol=1e-4 * right.abs().max().item())


@pytest.mark.parametrize("form", FORMS)
def test_the_gate_leaves_either_part(form):
    """Gates far beyond what exp can hold: only the linear sum, or only the window."""
    query, key, value, gate, *rest = make_inputs()
    both = [x.transpose(1, 2) for x in (query, key, value)]
    near = sliding_attention(*both, sliding_window=5, scaling=HEAD_DIM**-0.5).transpose(1, 2)
    decay = LogDecay(rest[2], rest[2])
    linear, _ = lion_attention(*(x.transpose(1, 2) for x in (rest[0], rest[1], value)), decay, form=form)
    for amount, expected in ((1e4, linear), (-1e4, near)):
        gates = torch.full_like(gate, amount).requires_grad_()
        output, _ = compute(form, query, key, value, gates, *rest, 5, None, None)
        torch.testing.assert_close(output, expected)
        output.sum().backward()
        assert (gates.grad == 0).all()


def make_model(**fields) -> LionModel:
    fields = {"feature_map": "hedgehog", "local_window": 3, "chunk_size": 8} | fields
    model = LionModel(LionConfig(**(TINY | fields))).double().eval()
    for name, parameter in model.named_parameters():
        if "gate" in name or "feature_map" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    return model


ROPE = {"rope_parameters": {"rope_theta": 50.0}}
MODELS = {
    "selective": {},
    "lit, rotary": {"mixer_type": "lit", "position_embedding_type": "none"} | ROPE,
    "decay, one-directional, convolution": {"mixer_type": "decay", "head_directions": "alternate", "conv_kernel": 5},
    "elu": {"feature_map": "elu"},
    "with a full layer": {"layer_types": ["linear_attention", "full_attention"]},
}


@pytest.mark.parametrize("name", MODELS)
def test_every_form_and_its_weights(name):
    model = make_model(**MODELS[name])
    input_ids, mask = torch.randint(1, 40, (2, 37)), torch.ones(2, 37, dtype=torch.long)
    mask[0, 30:] = mask[1, :5] = 0
    real, results = mask.bool(), {}
    for form in ("eager", *FORMS):
        model.set_attn_implementation(form)
        results[form] = model(input_ids, attention_mask=mask, output_attentions=True)
    first = model.layers[0].attention
    value = first.mixer.v_proj(model.layers[0].normed(model.embeddings(input_ids, None, mask.cumsum(1) - 1)))
    for form in FORMS:
        states, right = (results[x].last_hidden_state[real] for x in (form, "eager"))
        torch.testing.assert_close(states, right)
        for weights, others in zip(results[form].attentions, results["eager"].attentions, strict=True):
            torch.testing.assert_close(weights.transpose(1, 2)[real], others.transpose(1, 2)[real])
            torch.testing.assert_close(weights.sum(-1).transpose(1, 2)[real], torch.ones(int(real.sum()), 2).double())
    for weights in results["eager"].attentions:
        weights.retain_grad()
    results["eager"].last_hidden_state.flatten()[0].backward()
    assert all(weights.grad is not None and weights.grad.any() for weights in results["eager"].attentions)
    if not first.config.conv_kernel:  # the weights make the output
        mixed = results["eager"].attentions[0] @ first.mixer.split_heads(value)
        found = []
        first.o_proj.register_forward_hook(lambda module, args, output: found.append(args[0]))
        model(input_ids, attention_mask=mask)
        torch.testing.assert_close(mixed.transpose(1, 2).flatten(2)[real], found[0][real])


@pytest.mark.parametrize("name", MODELS)
def test_padding_and_packing(name):
    """Wherever padding is, between tokens, too, unless there is a convolution."""
    model = make_model(**MODELS[name])
    rows = [torch.randint(1, 40, (1, n)) for n in (13, 1, 9)]
    alone = [model(row).last_hidden_state for row in rows]
    packed, borders = torch.cat(rows, dim=1), torch.tensor([0, 13, 14, 23])
    expected = torch.cat(alone, dim=1)
    torch.testing.assert_close(model(packed, cu_seq_lens_q=borders).last_hidden_state, expected)
    padded, mask = torch.randint(1, 40, (1, 29)), torch.zeros(1, 29, dtype=torch.long)
    places = torch.arange(13) + 7 if model.config.conv_kernel else torch.arange(13) * 2 + 1
    padded[0, places], mask[0, places] = rows[0], 1
    torch.testing.assert_close(model(padded, attention_mask=mask).last_hidden_state[:, places], alone[0])


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in MODELS if "full" not in name])
def test_long_texts_in_segments(name):
    model = make_model(**MODELS[name])
    input_ids, mask = torch.randint(1, 40, (2, 60)), torch.ones(2, 60, dtype=torch.long)
    for padded in (slice(45, None), slice(7, 30)):
        mask[0, padded] = 0
        expected = model(input_ids, attention_mask=mask).last_hidden_state[mask.bool()]
        for segment_length in (64, 17, 2):
            actual = model.encode_long(input_ids, mask, segment_length=segment_length, show_progress=False)
            torch.testing.assert_close(actual.last_hidden_state[mask.bool()], expected)


@pytest.mark.parametrize("patch_order", ["raster", "snake"])
def test_images(patch_order):
    """The window is along the rows, whatever the scan."""
    model = make_model(modality="image", patch_order=patch_order, **TINY_IMAGE)
    pixels = torch.randn(2, 3, 6, 8, dtype=torch.float64)
    model.set_attn_implementation("eager")
    expected = model(pixel_values=pixels, output_attentions=True)
    for form in FORMS:
        model.set_attn_implementation(form)
        torch.testing.assert_close(model(pixel_values=pixels).last_hidden_state, expected.last_hidden_state)


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


def test_cyclic_positions(tmp_path):
    """The table begins again behind its end, so that no text is too long."""
    fields = {"position_embedding_type": "cyclic", "max_position_embeddings": 16}
    model = make_model(**fields)
    table = model.embeddings.position_embeddings
    assert table.num_embeddings == 16 and model.config.longest_text is None
    input_ids = torch.randint(1, 40, (1, 50))
    given = model(input_ids, position_ids=torch.arange(50)[None] % 16, cu_seq_lens_q=torch.tensor([0, 50]))
    torch.testing.assert_close(model(input_ids).last_hidden_state, given.last_hidden_state)
    with pytest.raises(ValueError, match="`position_ids` holds -1, outside 0 to 15"):
        model(input_ids, position_ids=torch.full((1, 50), -1))
    absolute = make_model(**(fields | {"position_embedding_type": "absolute"}))
    absolute.load_state_dict(model.state_dict())
    short = input_ids[:, :16]
    torch.testing.assert_close(absolute(short).last_hidden_state, model(short).last_hidden_state)
    model.save_pretrained(tmp_path)
    again = LionModel.from_pretrained(tmp_path, dtype=torch.float64).eval()
    torch.testing.assert_close(again(input_ids).last_hidden_state, model(input_ids).last_hidden_state)


def test_weights_without_the_window(tmp_path):
    make_model(local_window=0).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="another mixer .*`local_window` than 4.*window_gate"):
        LionModel.from_pretrained(tmp_path, local_window=4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"local_window": -1}, "`local_window` is -1; give at least 0"),
        (
            {"local_window": 4, "mixer_type": "softmax"},
            "`local_window` is 4, and no layer is linear.*`sliding_window`",
        ),
        ({"local_window": 4, "normalization": "none"}, "`local_window` is 4 with `normalization` 'none'"),
        ({"position_embedding_type": "cyclic", "modality": "image"}, "'cyclic' with `modality` 'image'"),
    ],
)
def test_fields_that_do_not_fit(fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        LionConfig(**(TINY | fields))
