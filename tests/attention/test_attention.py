# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Every kernel against the naive form in float64: outputs and all gradients, and what SPEC §4 and §5 promise.

A kernel may be off by at most twice what the naive form is off when it computes as wide as SPEC §5 asks and rounds
the result to the dtype of the inputs, or by a few units in the last place where that happens to be next to nothing.
"""

from functools import partial

import pytest
import torch
from attention_forms import (
    BATCH,
    DTYPES,
    EVERY_FORM,
    EXTREMES,
    FORMS,
    HEADS,
    PADDINGS,
    VALUE_DIM,
    auto,
    extreme_decays,
    form_of,
    make_inputs,
    naive,
    outputs_and_gradients,
    pairs,
)

from modeling_lion.attention.decay_mask import LogDecay, finite_log_decay
from modeling_lion.attention.lion_attention import fastest_form, lion_attention
from modeling_lion.attention.numerics import accumulation_dtype
from modeling_lion.attention.reference import reference_attention
from modeling_lion.cpu import chunk as cpu_chunk
from modeling_lion.cpu import parallel as cpu_parallel
from modeling_lion.cpu import scratch as cpu_common


MIXERS = ["lit", "decay", "selective"]


def assert_as_good_as_naive(kernel, *inputs, expected=None, reference=naive, **kwargs):
    """Compare outputs and gradients of a kernel with those of a reference, in float64 and as wide as SPEC §5 asks."""
    dtype = inputs[2].dtype
    expected = expected or references(*inputs, reference=reference, **kwargs)
    for name, result, exact, tolerance in zip(
        ["output", "d query", "d key", "d value", "d log_decay", "d backward log_decay"],
        outputs_and_gradients(kernel, *inputs, **kwargs),
        *expected,
        strict=False,
    ):
        assert result.dtype == (accumulation_dtype(dtype) if name.endswith("log_decay") else dtype), name
        assert result.isfinite().all(), name
        error = (result.double() - exact).abs().max()
        assert error <= tolerance, f"{name} is off by {error:.2e}, allowed are {tolerance:.2e}"


def references(*inputs, reference=naive, **kwargs):
    """What is right, in float64, and how far off each result may be."""
    exact = outputs_and_gradients(reference, *inputs, dtype=torch.float64, **kwargs)
    narrow = outputs_and_gradients(reference, *inputs, dtype=torch.float32, **kwargs)
    # Kernels may multiply as narrow as the inputs are, where this CPU does: as good as the naive form in bfloat16.
    scratch = cpu_common.Scratch(inputs[2])
    narrower = outputs_and_gradients(reference, *inputs, **kwargs) if scratch.is_mixed else narrow
    # float64 is checked against itself: both sides err as float32 does, in smaller units.
    eps = torch.finfo(accumulation_dtype(inputs[2].dtype)).eps
    unit = 16 * eps / torch.finfo(torch.float32).eps if eps < 1e-10 else 1
    # But sums of log decays have more digits than float32, and not more than float64.
    steps = [x.where(x > -700, 0) for x in inputs[3:] if x is not None]
    of_sums = max((float(x.sum(-1).abs().max()) for x in steps), default=0.0) * eps if unit < 1 else 0.0
    tolerances = []
    for right, *near, source in zip(exact, narrow, narrower, [inputs[2], *inputs], strict=False):
        error = max((x.double() - right).abs().max() for x in near) * unit
        size = right.abs().max()
        # What is added up is of size 1 here, even where it adds up to nothing.
        least = max(64 * eps + of_sums, 4 * torch.finfo(scratch.operand_dtype).eps * scratch.is_mixed) * max(1, size)
        tolerances.append(max(2 * error, least) + torch.finfo(source.dtype).eps * size)
    return exact, tolerances


@pytest.mark.axes(length=[1, 2, 17, 65, 130], mixer=MIXERS, dtype=DTYPES, normalization=["sum", "none"])
def test_kernels_agree_with_the_naive_form(length, mixer, normalization, dtype):
    inputs = make_inputs(mixer, length, dtype=dtype)
    expected = references(*inputs, normalization=normalization)
    for name, kernel in FORMS.items():
        for chunk_size in [1, 3, 16, 64, length + 1] if name == "chunk" else [64]:
            assert_as_good_as_naive(
                kernel, *inputs, expected=expected, normalization=normalization, chunk_size=chunk_size
            )


@pytest.mark.parametrize("mixer", MIXERS)
def test_long_sequence(mixer):
    """Long enough for the kernels to work in several slices. And chunks that are long cost no digits."""
    inputs = make_inputs(mixer, 700, dtype=torch.float32, batch=3, heads=4)
    expected = references(*inputs)
    for form in FORMS.values():
        assert_as_good_as_naive(form, *inputs, expected=expected)
    assert_as_good_as_naive(FORMS["chunk"], *inputs, expected=expected, chunk_size=700)


@pytest.mark.axes(form=["parallel", "chunk"], mixer=MIXERS)
def test_slices_of_several_sequences(form, mixer):
    """Even numbers of heads, as models have: then a slice may hold all heads of several sequences."""
    inputs = make_inputs(mixer, 17, dtype=torch.float32, batch=3, heads=2)
    assert_as_good_as_naive(FORMS[form], *inputs, expected=references(*inputs))


@pytest.mark.slow
@pytest.mark.axes(form=["parallel", "chunk"], head_directions=["both", "alternate"])
def test_the_gradient_of_a_fixed_decay_keeps_its_digits(form, head_directions):
    """A sum over all pairs, in which the far ones weigh most and much cancels: one chain of sums loses a digit."""
    errors = {"ours": [], "naive": []}
    for seed in range(4):
        *inputs, _ = make_inputs("decay", 600, dtype=torch.float32, seed=seed, batch=1, heads=4)
        log_decay = -(0.5 ** torch.linspace(1, 9, 4))
        exact, ours, plain = (
            outputs_and_gradients(kernel, *inputs, log_decay, dtype=dtype, head_directions=head_directions)[-1]
            for kernel, dtype in ((naive, torch.float64), (FORMS[form], None), (naive, None))
        )
        errors["ours"].append(ours - exact)
        errors["naive"].append(plain - exact)
    ours, allowed = (torch.stack(x).square().mean().sqrt() for x in errors.values())
    assert ours <= 2 * allowed


@pytest.mark.axes(form=["parallel", "chunk"], mixer=MIXERS, dtype=DTYPES, length=[200, 210])
def test_slices_do_not_matter(form, mixer, length, dtype, monkeypatch):
    """Slices of a few heads, then parts of one head's sequence: what long sequences have."""
    inputs = make_inputs(mixer, length, dtype=dtype)
    expected = references(*inputs)
    for elements in (3, 300, 15_000, 1_000_000):
        monkeypatch.setattr(cpu_parallel, "MATRIX_TILE_ELEMENTS", elements)
        monkeypatch.setattr(cpu_chunk, "TOKENS_AT_ONCE", elements // 10)
        assert_as_good_as_naive(FORMS[form], *inputs, expected=expected, chunk_size=16)


@pytest.mark.axes(padding=PADDINGS, mixer=MIXERS, form=FORMS)
def test_padding_is_absence(padding, mixer, form):
    query, key, value, log_decay = make_inputs(mixer, 40)
    log_decay = log_decay[None, :, None].repeat(BATCH, 1, 40) if mixer == "decay" else log_decay
    is_real = torch.tensor(PADDINGS[padding])

    def padded(query, key, value, log_decay=None, **kwargs):
        if log_decay is not None:
            log_decay = torch.where(is_real if log_decay.dim() == 3 else is_real[:, None], log_decay, 0)
        output, _ = FORMS[form](query, key * is_real[:, None], value, log_decay, chunk_size=16, **kwargs)
        assert output.isfinite().all()
        return output * is_real[:, None], None

    def absent(query, key, value, log_decay=None, **kwargs):
        query, key, value = (x[:, :, is_real] for x in (query, key, value))
        output = torch.zeros(*value.shape[:2], 40, VALUE_DIM, dtype=value.dtype)
        if is_real.any():
            log_decay = None if log_decay is None else log_decay[:, :, is_real]
            output = output.masked_scatter(is_real[:, None], naive(query, key, value, log_decay)[0])
        else:
            output = output + 0 * value.sum()
        return output, None

    results = outputs_and_gradients(padded, query, key, value, log_decay)
    if is_real.any():
        for result, expected in zip(results, outputs_and_gradients(absent, query, key, value, log_decay), strict=True):
            torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-12)
    else:
        assert all((x == 0).all() for x in results)


@pytest.mark.axes(
    lengths=[(1,), (3, 1, 20), (17, 40, 5), (1,) * 9, (7,) * 12, (64, 66)],
    mixer=MIXERS,
    form=EVERY_FORM,
    dtype=[torch.float64, torch.float32],
)
def test_packed_sequences_are_apart(lengths, dtype, mixer, form):
    """As exactly as one by one, however many there are."""
    inputs = make_inputs(mixer, sum(lengths), dtype=dtype)
    borders = torch.tensor([0, *lengths]).cumsum(0).int()

    def one_by_one(query, key, value, log_decay=None, **kwargs):
        parts = [x.split(lengths, dim=2) for x in (query, key, value)]
        is_fixed = log_decay is None or log_decay.dim() == 1
        decays = [log_decay] * len(lengths) if is_fixed else log_decay.split(lengths, dim=2)
        outputs = [naive(*part)[0] for part in zip(*parts, decays, strict=True)]
        return torch.cat(outputs, dim=2), None

    packed = lambda *xs, **kwargs: EVERY_FORM[form](*xs, cu_seqlens=borders, chunk_size=32, **kwargs)
    assert_as_good_as_naive(packed, *inputs, reference=one_by_one)


@pytest.mark.axes(
    kind=EXTREMES,
    mixer=["decay", "selective"],
    form=FORMS,
    dtype=[torch.float64, torch.float32, torch.bfloat16],
)
def test_extreme_decays(kind, mixer, dtype, form):
    query, key, value, log_decay = make_inputs(mixer, 70, dtype=dtype)
    log_decay = extreme_decays(kind, log_decay.shape, log_decay.dtype)
    for chunk_size in [1, 16, 64] if form == "chunk" else [64]:
        assert_as_good_as_naive(FORMS[form], query, key, value, log_decay, chunk_size=chunk_size)
    gradient = outputs_and_gradients(FORMS[form], query, key, value, log_decay)[-1]
    assert (gradient[log_decay == -torch.inf] == 0).all()


def step_by_step(query, key, value, log_decay):
    """SPEC §1 and §2, with every log M_ij a sum of its own steps: no difference of sums, which would lose digits."""
    length = query.shape[2]
    log_mask = torch.zeros(*log_decay.shape, length, dtype=log_decay.dtype)
    for i in range(1, length):
        log_mask[..., i, :i] = log_mask[..., i - 1, :i] + log_decay[..., i - 1, None]
    for i in reversed(range(length - 1)):
        log_mask[..., i, i + 1 :] = log_mask[..., i + 1, i + 1 :] + log_decay[..., i + 1, None]
    scores = query @ key.transpose(-1, -2) * log_mask.exp()
    return scores @ value / scores.sum(-1, keepdim=True)


@pytest.mark.axes(form=EVERY_FORM, length=[64, 200], kind=["to -60", "of every size"])
def test_steep_decays_cost_no_digits(form, length, kind):
    """Sums of log decays are large here: those that are subtracted from each other have to have more digits."""
    query, key, value, log_decay = make_inputs("selective", length, dtype=torch.float32)
    random = torch.rand(log_decay.shape, generator=torch.Generator().manual_seed(2))
    inputs = query, key, value, -60 * (random if kind == "to -60" else 10 ** (-5 * random))
    exact = step_by_step(*(x.double() for x in inputs))
    near = (step_by_step(*inputs) - exact).abs().max()
    assert (EVERY_FORM[form](*inputs)[0] - exact).abs().max() <= max(2 * near, 16 * torch.finfo().eps)


@pytest.mark.axes(mixer=MIXERS, form=EVERY_FORM, dtype=[torch.float64, torch.float32, torch.float16])
def test_zero_denominators_give_zero(mixer, dtype, form):
    query, key, value, log_decay = make_inputs(mixer, 20, dtype=dtype)
    query[0, 0, 3] = 0  # one query that sees nothing
    key[1, 1] = 0  # one head where there is nothing to see
    results = outputs_and_gradients(EVERY_FORM[form], query, key, value, log_decay, chunk_size=8)
    assert all(x.isfinite().all() for x in results)
    output, d_query, d_key, d_value = results[:4]
    assert (output[0, 0, 3] == 0).all() and (d_query[0, 0, 3] == 0).all()
    assert all((x[1, 1] == 0).all() for x in (output, d_query, d_key, d_value))
    if mixer == "selective":
        assert (results[4][1, 1] == 0).all()


@pytest.mark.parametrize("kernel", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("mixer", MIXERS)
def test_signed_scores_without_normalization(mixer, kernel):
    inputs = make_inputs(mixer, 33, dtype=torch.float32, positive=False)
    assert_as_good_as_naive(kernel, *inputs, normalization="none", chunk_size=8)


def test_slices_that_are_computed_in_place(monkeypatch):
    """Single numbers of one projection: their memory is contiguous, whatever their strides say."""
    monkeypatch.setattr(cpu_chunk, "TOKENS_AT_ONCE", 1)
    query, key, value = (x.view(2, 1, 2, 1).transpose(1, 2) for x in torch.rand(2, 1, 6).split(2, dim=-1))
    assert_as_good_as_naive(FORMS["chunk"], query, key, value, torch.tensor([-0.5, -1.0]), chunk_size=1)


@pytest.mark.axes(mixer=MIXERS, form=FORMS, normalization=["sum", "none"])
def test_gradcheck(mixer, normalization, form):
    inputs = [x for x in make_inputs(mixer, 6, batch=1, heads=1, dims=(2, 3)) if x is not None]
    inputs = [x.requires_grad_() for x in inputs]
    function = lambda *xs: FORMS[form](*xs, normalization=normalization, chunk_size=3)[0]
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("kernel", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("mixer", MIXERS)
def test_gradients_that_are_differentiated_are_the_same(mixer, kernel):
    """`create_graph=True` takes another path; both directions often share one tensor of log decays."""
    for normalization, directions in (("sum", "both"), ("none", "alternate")):
        inputs = [x.requires_grad_() for x in make_inputs(mixer, 9) if x is not None]
        output = kernel(*inputs, normalization=normalization, chunk_size=4, head_directions=directions)[0]
        expected = torch.autograd.grad(output.square().sum(), inputs, retain_graph=True)
        found = torch.autograd.grad(output.square().sum(), inputs, create_graph=True)
        for gradient, right in zip(found, expected, strict=True):
            torch.testing.assert_close(gradient, right)


@pytest.mark.axes(
    mixer=MIXERS, name=["parallel", "chunk"], dtype=[torch.float32, torch.bfloat16], is_short=[False, True]
)
def test_gradients_have_the_memory_that_compilers_expect(is_short, mixer, name, dtype):
    """Else torch.compile fails in training. Lengths are padded inside, packed or not, or short."""
    query, key, value, log_decay = make_inputs(mixer, 101, dtype=dtype)
    pairs = [(LogDecay(log_decay, log_decay), "both")]
    if is_short:
        query, key, value, log_decay = make_inputs(mixer, 11, dtype=dtype, heads=4)
        query, key, value = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (query, key, value))
        pairs = [(LogDecay(log_decay, log_decay), "alternate")]
    elif mixer != "lit":
        packed = finite_log_decay(pairs[0][0], query, torch.tensor([0, 40, 101]))
        pairs += [(packed, "both"), (pairs[0][0], "alternate")]
    for pair, directions in pairs:
        for division in ("sum", "deferred"):
            inputs, options = (query, key, value, *pair), (16, division, directions)
            operator = getattr(torch.ops.lion, name).default
            torch.library.opcheck(operator, (*inputs, *options), test_utils=("test_schema", "test_faketensor"))
            output, denominator, _, *saved = operator(*inputs, *options)
            grad_denominator = denominator if division == "deferred" else None
            gradients = (output, grad_denominator, *inputs, output, denominator, saved, *options, mixer != "lit")
            torch.library.opcheck(
                getattr(torch.ops.lion, f"{name}_backward").default,
                gradients,
                test_utils=("test_schema", "test_faketensor"),
            )


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [FORMS["parallel"], FORMS["chunk"]], ids=["parallel", "chunk"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_exports_to_plain_operators(mixer, kernel):
    class Module(torch.nn.Module):
        def forward(self, *inputs):
            return kernel(*inputs, chunk_size=16)[0]

    inputs = tuple(x for x in make_inputs(mixer, 40, dtype=torch.float32) if x is not None)
    program = torch.export.export(Module(), inputs)
    assert not [n for n in program.graph.nodes if str(n.target).startswith("lion")]
    torch.testing.assert_close(program.module()(*inputs), Module()(*inputs))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(2, 3, 8)}, r"query and key must be \(batch, heads, length, head_dim\)"),
        ({"key": torch.zeros(2, 3, 8, 4)}, r"got \(2, 3, 8, 5\), \(2, 3, 8, 4\)"),
        ({"value": torch.zeros(2, 3, 9, 5)}, r"\(2, 3, 9, 5\)"),
        ({"key": torch.zeros(2, 3, 8, 5, dtype=torch.float64)}, "torch.float32, torch.float64"),
        ({"value": torch.zeros(2, 3, 8, 5, dtype=torch.float64)}, "torch.float32, torch.float64"),
        ({"log_decay": torch.zeros(8)}, r"forward log_decay must be None, \(heads,\) = \(3,\)"),
        ({"log_decay": torch.zeros(2, 3, 1)}, r"got \(2, 3, 1\)"),
        ({"normalization": "softmax"}, 'normalization is \'softmax\'; give "sum" or "none"'),
        ({"chunk_size": 0}, "chunk_size is 0; give at least 1"),
        ({"cu_seqlens": torch.tensor([0, 4])}, r"cu_seqlens must rise from 0 to the length 8; got \[0, 4\]"),
        ({"cu_seqlens": torch.tensor([0, 4, 4, 8])}, "cu_seqlens must rise"),
        ({"cu_seqlens": torch.tensor([1, 8])}, "cu_seqlens must rise"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    arguments = {name: torch.zeros(2, 3, 8, 5) for name in ("query", "key", "value")}
    with pytest.raises(ValueError, match=message):
        auto(**(arguments | change))


def test_slow_dtypes_are_named_once(monkeypatch):
    said = []
    monkeypatch.setattr(cpu_common.logger, "warning_once", said.append)
    inputs = make_inputs("decay", 8, dtype=torch.bfloat16)
    for features, expected in (({"avx512_bf16": True}, 0), ({"avx512_bf16": False}, 1)):
        capabilities = {"architecture": "x86_64", **features}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found, raising=False)
        FORMS["parallel"](*inputs)
        assert len(said) == expected
    assert "torch.bfloat16" in said[0] and "dtype=torch.float32" in said[0]
    FORMS["chunk"](*make_inputs("decay", 8, dtype=torch.float32))
    assert len(said) == 1


@pytest.mark.axes(
    form=["parallel", "chunk"], mixer=MIXERS[:3], head_directions=["both", "alternate"], normalization=["sum", "none"]
)
def test_products_in_bfloat16(form, mixer, head_directions, normalization, monkeypatch):
    """Whether this CPU has them or not: as good as the naive form in bfloat16, and without them as in float32."""
    inputs = make_inputs(mixer, 140, dtype=torch.bfloat16, heads=4, dims=(48, 40))
    options = {"head_directions": head_directions, "normalization": normalization}
    exact = outputs_and_gradients(naive, *inputs, dtype=torch.float64, **options)
    near = outputs_and_gradients(naive, *inputs, **options)
    found = {}
    for is_fast in (True, False):
        monkeypatch.setattr(cpu_common, "has_fast_bfloat16", lambda answer=is_fast: answer)
        found[is_fast] = outputs_and_gradients(FORMS[form], *inputs, **options)
        assert_as_good_as_naive(FORMS[form], *inputs, **options)
    for result, wide, narrow, right in zip(found[True], found[False], near, exact, strict=True):
        assert not torch.equal(result, wide)
        assert (result.double() - right).norm() <= 2 * (narrow.double() - right).norm()


ONE_DIRECTION = {
    "one direction": "selective",
    "one direction, fixed": "decay",
    "one direction, nothing else decays": "lit",
}
PAIRS = ["fixed", "per token", "both kinds", "forward decays only", "backward decays only"]
PAIRS += ["one direction", "one direction, fixed", "one direction, nothing else decays"]


@pytest.mark.axes(length=[2, 140], kind=PAIRS, dtype=[torch.float64, torch.float32])
def test_the_directions_may_differ(length, kind, dtype):
    """A pair of log decays (SPEC §11), with gradients of each of them, packed or not."""
    inputs = make_inputs("lit", length, dtype=dtype)[:3]
    log_decay = pairs(kind, length, dtype)
    is_given = [x is not None for x in log_decay]
    inputs = (*inputs, *(x for x in log_decay if x is not None))

    def with_pair(attention, query, key, value, *log_decays, **options):
        found = iter(log_decays)
        pair = LogDecay(*(next(found) if given else None for given in is_given))
        return attention(query, key, value, pair, **options)

    reference = partial(with_pair, reference_attention)
    for cu_seqlens in (None, torch.tensor([0, 1, length])):
        expected = references(*inputs, reference=reference, cu_seqlens=cu_seqlens)
        for name in FORMS:
            form = partial(with_pair, lion_attention, form=name)
            assert_as_good_as_naive(form, *inputs, expected=expected, cu_seqlens=cu_seqlens, chunk_size=16)


@pytest.mark.axes(
    size=[(1, 1), (2, 2), (40, 3), (140, 4), (140, 5)], kind=ONE_DIRECTION, dtype=[torch.float64, torch.float32]
)
def test_alternating_directions(size, kind, dtype):
    """
    SPEC §11: `head_directions` masks the steps that a pair with log 0 masks, for any number of heads, packed or not,
    with gradients of 0 for the masked steps.
    """
    length, heads = size
    inputs = make_inputs(ONE_DIRECTION[kind], length, heads=heads, dtype=dtype)
    *inputs, log_decay = inputs
    if log_decay is not None:
        inputs.append(log_decay)
    is_forward = torch.arange(heads) % 2 == 0

    def masked(query, key, value, log_decay=None, **options):
        log_decay = query.new_zeros(heads) if log_decay is None else log_decay
        is_open = is_forward if log_decay.dim() == 1 else is_forward[:, None]
        pair = LogDecay(torch.where(is_open, log_decay, -torch.inf), torch.where(is_open, -torch.inf, log_decay))
        return reference_attention(query, key, value, pair, **options)

    for cu_seqlens in (None, torch.tensor([0, 1, length])) if length > 1 else (None,):
        expected = references(*inputs, reference=masked, cu_seqlens=cu_seqlens)
        for name in (*FORMS, "auto", "eager"):
            form = form_of(name, head_directions="alternate")
            assert_as_good_as_naive(form, *inputs, expected=expected, cu_seqlens=cu_seqlens, chunk_size=16)


@pytest.mark.parametrize("form", ["parallel", "chunk"])
def test_alternating_directions_of_heads_one_by_one(form, monkeypatch):
    """Long sequences are computed a head at a time: every slice must know which one it is."""
    query, key, value, log_decay = make_inputs("selective", 70, heads=3)
    expected = lion_attention(
        query, key, value, LogDecay(log_decay, log_decay), form="rnn", head_directions="alternate"
    )
    monkeypatch.setattr(cpu_chunk, "TOKENS_AT_ONCE", 32)
    monkeypatch.setattr(cpu_parallel, "MATRIX_TILE_ELEMENTS", 32 * 70)
    found = lion_attention(query, key, value, LogDecay(log_decay, log_decay), form=form, head_directions="alternate")
    torch.testing.assert_close(found, expected)


def test_one_way_heads_see_one_side():
    """SPEC §11 written out: even heads read what is before a token, odd heads what is behind it, both the token."""
    query, key, value = make_inputs("lit", 9)[:3]
    log_decay = pairs("one direction", 9)
    position = torch.arange(9)
    for name in FORMS:
        weights = torch.autograd.functional.jacobian(
            lambda v, name=name: lion_attention(query, key, v, log_decay, form=name)[0][0, :, :, 0].sum(0), value
        )[:, 0, :, :, 0]  # (queries, heads, keys)
        seen = weights != 0
        for head in range(HEADS):
            one_side = position[:, None] >= position if head % 2 == 0 else position[:, None] <= position
            assert torch.equal(seen[:, head], one_side), (name, head)


@pytest.mark.axes(mixer=MIXERS, form=FORMS, dtype=[torch.float64, torch.float32, torch.bfloat16])
def test_numerators_and_denominators(mixer, form, dtype):
    """With gradients of both, of the one, and of the other."""
    inputs = make_inputs(mixer, 70, dtype=dtype)
    inputs = [x for x in inputs if x is not None]
    weights = torch.randn(2, BATCH, HEADS, 70, VALUE_DIM, generator=torch.Generator().manual_seed(1))

    def results(form, inputs, use):
        inputs = [x.detach().requires_grad_() for x in inputs]
        (numerator, denominator), _ = form(*inputs, returns_sums=True, chunk_size=16)
        loss = sum((x * w).sum() for x, w, used in zip((numerator, denominator), weights, use, strict=True) if used)
        found = torch.autograd.grad(loss, inputs, allow_unused=True)
        return (
            numerator,
            denominator,
            *(torch.zeros_like(x) if d is None else d for d, x in zip(found, inputs, strict=True)),
        )

    is_mixed = cpu_common.Scratch(inputs[2]).is_mixed
    for use in ((True, True), (True, False), (False, True)):
        exact = results(naive, [x.double() for x in inputs], use)
        near = results(naive, inputs, use) if is_mixed else exact
        found = results(FORMS[form], inputs, use)
        assert found[0].dtype == found[1].dtype == accumulation_dtype(dtype)
        for result, right, narrow in zip(found, exact, near, strict=True):
            least = 64 * torch.finfo(result.dtype).eps * max(1, right.abs().max())
            assert (result.double() - right).abs().max() <= max(2 * (narrow.double() - right).abs().max(), least)


def test_full_form_for_short_inputs_that_decay():
    """Wider heads make states dearer, heads of one direction have fewer, and one state serves all without decays."""
    empty = lambda length, dim: torch.empty(1, 2, length, dim)
    choose = lambda length, dim, decay, *directions: fastest_form(
        *(empty(length, dim),) * 2, decay is not None, 64, "cpu", *directions
    )
    assert [choose(n, 64, torch.zeros(2)) for n in (1, 128, 512, 16384)] == ["parallel"] * 2 + ["chunk"] * 2
    assert [choose(256, dim, torch.zeros(1, 2, 1)) for dim in (32, 128)] == ["chunk", "parallel"]
    assert [choose(n, 64, torch.zeros(2), "alternate") for n in (128, 197)] == ["parallel", "chunk"]
    assert choose(1, 64, None) == "chunk"
    wide = [fastest_form(empty(n, 768), empty(n, 64), True, 64, "cpu", "alternate") for n in (128, 400)]
    assert wide == ["parallel", "chunk"]  # keys that heads share


@pytest.mark.parametrize("batch", [2, 2048])
def test_short_sequences_are_computed_together(batch):
    """In batches of every size, with and without decays, and not if they are long or adjacent in memory already."""
    scattered = lambda *shape: torch.empty(shape).transpose(1, 2)
    is_copied = lambda x, log_decay: cpu_common.side_by_side(log_decay, x)[0] is not x
    short, decays = scattered(batch, 16, 4, 16), torch.zeros(4)
    assert is_copied(short, decays) and is_copied(short, None)
    assert not is_copied(scattered(batch, 512, 4, 16), decays) and not is_copied(short.contiguous(), decays)
