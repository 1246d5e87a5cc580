# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Softmax attention within a sliding window, in each of its forms, against the definition in float64: outputs and all
gradients, padding, packing, and what compilers and function transforms make of it.

A form may be off by at most twice what the definition is off in float32 (in units of float64 for float64), and by the
rounding of the result to the dtype of the inputs.
"""

from functools import partial

import pytest
import torch
from attention_forms import DTYPES, outputs_and_gradients, weights_of_loss
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from window_forms import FORMS, SCALING, make_inputs, only, sliding_attention

from modeling_lion.attention import softmax_window as attention_sliding
from modeling_lion.attention import softmax_window_plain
from modeling_lion.attention.numerics import accumulation_dtype
from modeling_lion.cpu import softmax_window as cpu_sliding
from modeling_lion.cpu.scratch import Scratch


WINDOWS = [0, 3, 64, 500]


def definition(query, key, value, *, sliding_window, scaling=SCALING, is_real=None, cu_seqlens=None, first_query=0):
    borders = [0, key.shape[2]] if cu_seqlens is None else cu_seqlens.tolist()
    sequence = [number for number, start in enumerate(borders[:-1]) for _ in range(start, borders[number + 1])]
    rows = [list(range(key.shape[2]))]  # what a window counts: tokens, padding left out, but not beside a halo
    if is_real is not None and query.shape[2] == key.shape[2]:
        rows = (is_real.cumsum(1) - is_real.long()).tolist()
    seen = [
        [
            [abs(row[i] - row[j]) <= sliding_window and sequence[i] == sequence[j] for j in range(key.shape[2])]
            for i in range(first_query, first_query + query.shape[2])
        ]
        for row in rows
    ]
    seen = torch.tensor(seen)[:, None]
    if is_real is not None:
        seen = seen & is_real[:, None, None] & is_real[:, None, first_query : first_query + query.shape[2], None]
    scores = scaling * query @ key.transpose(-1, -2)
    weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1) * seen
    return (weights @ value).transpose(1, 2)


def references(*inputs, **options) -> list[tuple[Tensor, float]]:
    """What is right, in float64, and how far off each result may be."""
    dtype = inputs[2].dtype
    narrow = torch.bfloat16 if Scratch(inputs[2]).is_mixed else torch.float32  # of products, or of everything
    exact, *near = (
        outputs_and_gradients(definition, *inputs, dtype=dtype, **options)
        for dtype in (torch.float64, torch.float32, narrow)
    )
    eps = torch.finfo(accumulation_dtype(dtype)).eps
    unit = eps / torch.finfo(torch.float32).eps
    found = []
    for right, *narrow in zip(exact, *near, strict=True):
        error, size = max((x.double() - right).abs().max() for x in narrow) * unit, right.abs().max()
        found.append((right, float(max(2 * error, 64 * eps * max(1, size)) + torch.finfo(dtype).eps * size)))
    return found


def assert_as_good_as_definition(form, *inputs, **options):
    expected = references(*inputs, **options)
    with only(form) as attention:
        results = outputs_and_gradients(attention, *inputs, **options)
    for name, result, (right, tolerance) in zip("yqkv", results, expected, strict=True):
        assert result.shape == right.shape and result.dtype == inputs[2].dtype, name
        assert result.isfinite().all(), name
        error = (result.double() - right).abs().max()
        assert error <= tolerance, f"{name} is off by {error:.2e}, allowed are {tolerance:.2e}"


@pytest.mark.axes(form=FORMS, length=[1, 2, 17, 64, 65, 197], window=WINDOWS, dtype=DTYPES, batch=[1, 3])
def test_agrees_with_the_definition(form, length, window, dtype, batch):
    assert_as_good_as_definition(form, *make_inputs(length, dtype=dtype, batch=batch), sliding_window=window)


@pytest.mark.axes(form=FORMS, halo=[(5, 0), (0, 9), (3, 3), (150, 1)], window=WINDOWS, queries=[1, 30, 130])
def test_keys_beyond_the_queries(form, halo, window, queries):
    before, behind = halo
    inputs = make_inputs(queries, before + queries + behind)
    assert_as_good_as_definition(form, *inputs, sliding_window=window, first_query=before)


LENGTH = 150
TOKEN = torch.arange(LENGTH)
PADDINGS = {
    "left": TOKEN >= 67,
    "right": TOKEN < 80,
    "interior": (TOKEN < 5) | (TOKEN > 141),
    "every other": TOKEN % 2 == 0,
    "all": TOKEN < 0,
    "none": TOKEN >= 0,
}


@pytest.mark.axes(form=FORMS, padding=PADDINGS, other=["none", "right", "interior"], window=[3, 64, 500])
def test_padding_is_not_seen(form, padding, other, window):
    is_real = torch.stack((PADDINGS[padding], PADDINGS[other]))
    assert_as_good_as_definition(form, *make_inputs(LENGTH), sliding_window=window, is_real=is_real)


@pytest.mark.axes(form=FORMS, padding=PADDINGS, window=[3, 64, 500], dtype=[torch.float64, torch.float32])
def test_what_is_in_padded_tokens_does_not_matter(form, padding, window, dtype):
    is_real = PADDINGS[padding].expand(2, -1)
    inputs = make_inputs(LENGTH, dtype=dtype)
    hidden = ~is_real[:, None, :, None]

    def results(garbage):
        filled = [x.masked_fill(hidden, garbage).requires_grad_() for x in inputs]
        with only(form) as attention:
            output = attention(*filled, sliding_window=window, is_real=is_real)
        weights = weights_of_loss(output, output) * is_real[..., None, None]
        d_query, *others = torch.autograd.grad(output, filled, weights)
        assert all((x.masked_select(hidden) == 0).all() for x in others)
        return [output.transpose(1, 2).masked_fill(hidden, 0), d_query.masked_fill(hidden, 0), *others]

    for result, expected in zip(results(1e6), results(0.0), strict=True):
        assert torch.equal(result, expected)


@pytest.mark.axes(form=FORMS, dtype=[torch.float64, torch.bfloat16])
def test_queries_that_see_nothing_get_zero(form, dtype):
    is_real = torch.stack((TOKEN < 20, TOKEN < 0))  # token 23 is the last one that sees something
    with only(form) as attention:
        results = outputs_and_gradients(
            attention, *make_inputs(LENGTH, dtype=dtype), sliding_window=4, is_real=is_real
        )
    assert all(x.isfinite().all() for x in results)
    output, d_query, d_key, d_value = results
    assert (output[0, :20] != 0).all() and all(
        (x[0, 24:] == 0).all() and (x[1] == 0).all() for x in (output, d_query.transpose(1, 2))
    )
    assert all((x[1] == 0).all() and (x[0, :, 20:] == 0).all() for x in (d_key, d_value))


@pytest.mark.axes(
    form=FORMS,
    lengths=[(1,), (3, 1, 20), (17, 140, 5), (1,) * 9, (7,) * 12, (64, 66)],
    window=[3, 64, 500],
    dtype=[torch.float64, torch.float32],
)
def test_packed_sequences_are_apart(form, lengths, window, dtype):
    inputs = make_inputs(sum(lengths), dtype=dtype)
    borders = torch.tensor([0, *lengths]).cumsum(0).int()
    assert_as_good_as_definition(form, *inputs, sliding_window=window, cu_seqlens=borders)
    with only(form) as attention:
        packed = attention(*inputs, sliding_window=window, cu_seqlens=borders)
    parts = zip(*(x.split(lengths, dim=2) for x in inputs), strict=True)
    one_by_one = [sliding_attention(*part, sliding_window=window, scaling=SCALING) for part in parts]
    torch.testing.assert_close(packed, torch.cat(one_by_one, dim=1))


@pytest.mark.axes(elements=[1, 1500, 20_000], window=[1, 64, 300])
def test_tiles_do_not_matter(elements, window, monkeypatch):
    monkeypatch.setattr(cpu_sliding, "TILE_ELEMENTS", elements)
    is_real = torch.stack((TOKEN >= 0, PADDINGS["right"]))
    inputs = make_inputs(LENGTH, heads=5, dtype=torch.float32)
    assert_as_good_as_definition("by hand", *inputs, sliding_window=window, is_real=is_real)


@pytest.mark.parametrize("form", FORMS)
def test_gradcheck(form):
    is_real = torch.tensor([[True] * 4 + [False] * 5 + [True] * 3])
    inputs = [x.requires_grad_() for x in make_inputs(9, 12, batch=1, heads=1)]
    options = {"sliding_window": 2, "is_real": is_real, "cu_seqlens": torch.tensor([0, 3, 12]), "first_query": 2}
    with only(form) as attention:
        assert torch.autograd.gradcheck(partial(attention, **options), inputs)


@pytest.mark.parametrize("form", FORMS)
def test_large_scores(form):
    """Whose exponentials overflow; their own rounding, which the softmax enlarges, is what is left."""
    query, key, value = make_inputs(LENGTH, dtype=torch.float32)
    inputs = 8 * query, 8 * key, value
    expected = outputs_and_gradients(definition, *inputs, dtype=torch.float64, sliding_window=5)
    with only(form) as attention:
        results = outputs_and_gradients(attention, *inputs, sliding_window=5)
    for result, right in zip(results, expected, strict=True):
        torch.testing.assert_close(result.double(), right, rtol=1e-3, atol=1e-3)


def test_nothing_but_the_inputs_is_saved():
    inputs = [x.requires_grad_() for x in make_inputs(2000, dtype=torch.float32)]
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        sliding_attention(*inputs, sliding_window=64, scaling=SCALING)
    assert sorted(x.data_ptr() for x in saved) == sorted(x.data_ptr() for x in inputs)


def test_inference_leaves_nothing_behind():
    """What is kept for the next call serves training, too."""
    cpu_sliding.usual_bias.cache_clear()
    inputs = make_inputs(400)
    with torch.inference_mode():
        sliding_attention(*inputs, sliding_window=64, scaling=SCALING)
    assert_as_good_as_definition("by hand", *inputs, sliding_window=64)


def test_which_form(monkeypatch):
    """The dense one for short sequences, never for long ones nor in a graph for every length."""
    used = []
    for name in ("dense_body", "block_body"):
        body = getattr(attention_sliding, name)
        monkeypatch.setattr(attention_sliding, name, lambda *args, _n=name, _b=body: used.append(_n) or _b(*args))
    attention = partial(sliding_attention, sliding_window=64, scaling=SCALING)
    attention(*make_inputs(192, heads=12))
    attention(*make_inputs(197, heads=12))
    torch.func.vmap(attention)(*(x.unsqueeze(0) for x in make_inputs(400, heads=12)))
    assert used == ["dense_body", "block_body"]


@pytest.mark.slow
@pytest.mark.parametrize(("window", "hidden"), [(3, True), (64, False)])
def test_compiles_to_one_graph_for_every_length(window, hidden):
    torch.compiler.reset()
    attention = partial(sliding_attention, sliding_window=window, scaling=SCALING)
    compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)

    def of_any_length(*inputs, **options):
        for x in inputs:
            torch._dynamo.mark_dynamic(x, 2)
        if hidden:
            torch._dynamo.mark_dynamic(options["is_real"], 1)
        return compiled(*inputs, **options)

    for length in (400, 97, 130, 801):
        inputs = make_inputs(length, dtype=torch.float32)
        options = {"is_real": torch.rand(2, length) < 0.7, "cu_seqlens": torch.tensor([0, 40, length])}
        options = options if hidden else {}
        with torch.compiler.set_stance("default" if length == 400 else "fail_on_recompile"):
            results = outputs_and_gradients(of_any_length, *inputs, **options)
        for result, right in zip(results, outputs_and_gradients(attention, *inputs, **options), strict=True):
            torch.testing.assert_close(result, right)


class Attention(torch.nn.Module):
    def __init__(self, sliding_window):
        super().__init__()
        self.attention = partial(sliding_attention, sliding_window=sliding_window, scaling=SCALING)

    def forward(self, query, key, value, is_real=None):
        return self.attention(query, key, value, is_real=is_real)


@pytest.mark.slow
@pytest.mark.parametrize(("window", "hidden"), [(1, False), (64, True), (500, True)])
def test_exports_to_one_graph_for_every_length(window, hidden):
    module = Attention(window).eval()
    make = lambda length: (*make_inputs(length, dtype=torch.float32), *([torch.rand(2, length) < 0.7] * hidden))
    length = torch.export.Dim("length", min=2)
    dynamic_shapes = ({2: length},) * 3 + ({1: length},) * hidden
    program = torch.export.export(module, make(200), dynamic_shapes=dynamic_shapes)
    for some in (2, 63, 64, 65, 700):
        inputs = make(some)
        torch.testing.assert_close(program.module()(*inputs), module(*inputs))


@pytest.mark.parametrize("length", [9, 300])
def test_function_transforms(length):
    attention = partial(sliding_attention, sliding_window=3, scaling=SCALING)
    inputs = make_inputs(length)
    batched = torch.func.vmap(attention)(*(torch.stack((x, 2 * x)) for x in inputs))
    torch.testing.assert_close(batched[1], attention(*(2 * x for x in inputs)))

    _, *gradients = outputs_and_gradients(attention, *inputs)
    loss = lambda *xs: (attention(*xs) * weights_of_loss(batched[0], inputs[2])).sum()
    for found, right in zip(torch.func.grad(loss, argnums=(0, 1, 2))(*inputs), gradients, strict=True):
        torch.testing.assert_close(found, right)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # of torch.func.jvp itself
def test_forward_derivative():
    attention = partial(sliding_attention, sliding_window=3, scaling=SCALING)
    inputs, tangents = make_inputs(70), make_inputs(70, seed=1)
    step = 1e-6
    ahead, behind = (attention(*(x + s * t for x, t in zip(inputs, tangents, strict=True))) for s in (step, -step))
    _, found = torch.func.jvp(attention, tuple(inputs), tuple(tangents))
    torch.testing.assert_close(found, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(2, 8, 5)}, r"query must be \(batch, heads, queries, head_dim\)"),
        ({"query": torch.zeros(2, 3, 8, 4)}, r"got \(2, 3, 8, 4\), \(2, 3, 8, 5\)"),
        ({"value": torch.zeros(2, 3, 9, 5)}, r"\(2, 3, 9, 5\)"),
        ({"value": torch.zeros(2, 3, 8, 5, dtype=torch.float64)}, "torch.float32, torch.float64"),
        ({"sliding_window": -1}, "sliding_window is -1; give at least 0"),
        ({"first_query": 1}, "Queries 1 to 9 are not among the 8 keys"),
        ({"first_query": -1}, "Queries -1 to 7 are not among the 8 keys"),
        ({"is_real": torch.ones(2, 9, dtype=torch.bool)}, r"is_real must be \(batch, keys\) = \(2, 8\), bool"),
        ({"is_real": torch.ones(2, 8)}, r"got \(2, 8\), torch.float32"),
        ({"cu_seqlens": torch.tensor([0, 4])}, r"cu_seqlens must rise from 0 to the length 8; got \[0, 4\]"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    arguments = {name: torch.zeros(2, 3, 8, 5) for name in ("query", "key", "value")}
    with pytest.raises(ValueError, match=message):
        sliding_attention(**(arguments | {"sliding_window": 2, "scaling": SCALING} | change))


@st.composite
def problems(draw):
    """Inputs with anything in them that the arguments allow."""
    queries, before, behind = draw(st.integers(1, 150)), draw(st.integers(0, 80)), draw(st.integers(0, 80))
    keys = before + queries + behind
    batch, heads = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    seed = draw(st.integers(0, 1000))
    dtype = draw(st.sampled_from(DTYPES))
    inputs = make_inputs(queries, keys, dtype=dtype, batch=batch, heads=heads, seed=seed)
    is_real = torch.rand(batch, keys, generator=torch.Generator().manual_seed(seed)) < draw(st.floats(0, 1))
    borders = sorted(draw(st.sets(st.integers(1, keys - 1), max_size=5))) if keys > 1 else []
    options = {
        "sliding_window": draw(st.integers(0, 100)),
        "is_real": draw(st.sampled_from([None, is_real])),
        "cu_seqlens": draw(st.sampled_from([None, torch.tensor([0, *borders, keys])])),
        "first_query": before,
    }
    return draw(st.sampled_from(FORMS)), inputs, options


@settings(max_examples=25, deadline=None, derandomize=True)
@given(problems())
def test_any_problem(problem):
    form, inputs, options = problem
    assert_as_good_as_definition(form, *inputs, **options)


def definition_with_sums(*inputs, **options):
    """The output with the logarithms of the denominators as one more channel; 0 where nothing is seen."""
    query, key, value = inputs
    first, count = options.get("first_query", 0), query.shape[2]
    # What a query gives the key that is the token itself, exp(s) / Σ, is read by values that are unit vectors.
    unit = torch.eye(key.shape[2], dtype=key.dtype).expand(*key.shape[:2], -1, -1)
    weight = definition(query, key, unit, **options).transpose(1, 2).diagonal(first, -2, -1)
    score = SCALING * (query * key[:, :, first : first + count]).sum(-1)
    sees = weight > 0
    log_sum = torch.where(sees, score - torch.where(sees, weight, 1).log(), 0)
    return torch.cat((definition(*inputs, **options), log_sum.transpose(1, 2).unsqueeze(-1)), dim=-1)


@pytest.mark.axes(
    form=FORMS, padding=PADDINGS, window=[3, 64, 500], is_segment=[False, True], dtype=[torch.float64, torch.float32]
)
def test_sums_of_the_window(form, padding, window, is_segment, dtype):
    """Together with the output, and their gradients."""
    options = {"is_real": torch.stack((PADDINGS[padding], PADDINGS["right"])), "sliding_window": window}
    options |= {"cu_seqlens": torch.tensor([0, 30, 31, 100, LENGTH])}
    inputs = make_inputs(LENGTH, dtype=dtype)
    if is_segment:
        inputs, options = make_inputs(100, LENGTH, dtype=dtype), options | {"first_query": 20}

    def with_sums(*inputs, **options):
        output, log_sum = attention(*inputs, with_log_sum=True, **options)
        sees = log_sum > -torch.inf
        assert ((output == 0).all(-1).transpose(1, 2) == ~sees).all()
        log_sum = torch.where(sees, log_sum, 0).transpose(1, 2).unsqueeze(-1)
        return torch.cat((output, log_sum), dim=-1)

    exact, near = (
        outputs_and_gradients(definition_with_sums, *inputs, dtype=kind, **options)
        for kind in (torch.float64, torch.float32)
    )
    with only(form) as attention:
        results = outputs_and_gradients(with_sums, *inputs, **options)
    eps = torch.finfo(dtype).eps
    for result, right, narrow in zip(results, exact, near, strict=True):
        error = (narrow.double() - right).abs().max() * eps / torch.finfo(torch.float32).eps
        tolerance = max(2 * error, 64 * eps * max(1, right.abs().max()))
        assert (result.double() - right).abs().max() <= tolerance


@pytest.mark.axes(padding=PADDINGS, window=WINDOWS, is_segment=[False, True], dtype=DTYPES)
def test_sums_of_the_dense_form_without_gradients(padding, window, is_segment, dtype):
    """torch's fused attention computes them."""
    options = {"is_real": torch.stack((PADDINGS[padding], PADDINGS["right"])), "sliding_window": window}
    inputs = make_inputs(LENGTH, dtype=dtype)
    if is_segment:
        inputs, options = make_inputs(100, LENGTH, dtype=dtype), options | {"first_query": 20}
    narrow = torch.bfloat16 if Scratch(inputs[2]).is_mixed else torch.float32
    right, near = (
        definition_with_sums(*(x.to(kind) for x in inputs), **options).double() for kind in (torch.float64, narrow)
    )
    with torch.no_grad(), only("dense") as attention:
        assert softmax_window_plain.has_fused_sums(*inputs)
        output, log_sum = attention(*inputs, with_log_sum=True, **options)
    assert output.dtype == dtype and log_sum.dtype == accumulation_dtype(dtype)
    log_sum = log_sum.masked_fill(log_sum == -torch.inf, 0).transpose(1, 2).unsqueeze(-1)
    result = torch.cat((output.double(), log_sum.double()), dim=-1)
    eps, size = torch.finfo(accumulation_dtype(dtype)).eps, max(1, right.abs().max())
    error = (near - right).abs().max() * eps / torch.finfo(torch.float32).eps
    assert (result - right).abs().max() <= max(2 * error, 64 * eps * size) + torch.finfo(dtype).eps * size
