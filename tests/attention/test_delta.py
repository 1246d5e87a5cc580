# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The gated delta rule in every form against the recurrence of SPEC §14 in float64, outputs and all gradients.

A form may be off by at most twice what the recurrence is off in the accumulation dtype, or by a few units in the last
place where that happens to be next to nothing.
"""

import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from attention_forms import DTYPES, EXTREMES, PADDINGS, outputs_and_gradients
from delta_rule import DELTA_FORMS as FORMS
from delta_rule import delta_inputs, delta_rule, with_tensors
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_lion.attention import delta
from modeling_lion.attention.decay_mask import LogDecay
from modeling_lion.attention.delta import delta_attention
from modeling_lion.attention.numerics import accumulation_dtype
from modeling_lion.cpu import delta as cpu_delta


NAMES = ["output", "d query", "d key", "d value", "d forward", "d backward", "d beta"]


def references(*inputs, **options):
    """What is right, in float64, and how far off each result may be."""
    exact = outputs_and_gradients(delta_rule, *inputs, dtype=torch.float64, **options)
    near = outputs_and_gradients(delta_rule, *inputs, dtype=torch.float32, **options)
    # float64 is checked against itself: both sides err as float32 does, in smaller units.
    eps = torch.finfo(accumulation_dtype(inputs[2].dtype)).eps
    unit, units = (16 * eps / torch.finfo(torch.float32).eps, 4096) if eps < 1e-10 else (1, 64)
    tolerances = []
    for right, x, source in zip(exact, near, [inputs[2], *inputs], strict=True):
        size = right.abs().amax().item() if right.numel() else 0
        error = (x.double() - right).abs().amax().item() * unit if right.numel() else 0
        tolerances.append(max(2 * error, units * eps * max(1, size)) + torch.finfo(source.dtype).eps * size)
    return exact, tolerances


def assert_right(form, *inputs, expected=None, chunk_size=64, times=1, **options):
    expected = expected or references(*inputs, **options)
    options.pop("is_real", None)
    found = outputs_and_gradients(form, *inputs, chunk_size=chunk_size, **options)
    dtype = inputs[2].dtype
    for name, result, exact, tolerance in zip(NAMES, found, *expected, strict=True):
        assert result.dtype == (dtype if name in NAMES[:4] else accumulation_dtype(dtype)), name
        assert result.isfinite().all(), name
        error = (result.double() - exact).abs().amax()
        assert error <= times * tolerance, f"{name} is off by {error:.2e}, allowed are {times * tolerance:.2e}"


@pytest.mark.axes(length=[1, 2, 17, 65, 130], dtype=DTYPES, normalization=["rms", "none"])
def test_forms_agree_with_the_recurrence(length, dtype, normalization):
    inputs = delta_inputs(length, dtype=dtype)
    expected = references(*inputs, normalization=normalization)
    for name, form in FORMS.items():
        for chunk_size in [1, 3, 16, 64, length + 1] if name == "chunk" else [64]:
            assert_right(form, *inputs, expected=expected, normalization=normalization, chunk_size=chunk_size)


@pytest.mark.axes(dims=[(16, 64), (64, 16), (1, 3)], heads=[1, 2, 4], batch=[1, 5])
def test_sizes(dims, heads, batch):
    """Keys that are wider or narrower than values; one head, which reads forward; some rows."""
    inputs = delta_inputs(70, dtype=torch.float32, dims=dims, heads=heads, batch=batch)
    assert_right(FORMS["chunk"], *inputs, chunk_size=32)


@pytest.mark.parametrize("name", FORMS)
def test_a_long_sequence_of_the_same_key(name):
    """
    Each token corrects what all others wrote, and β = 2 reflects: digits are lost in every order of computation, some
    in this and some in that. (From powers of A, with numbers of 1e17, nothing would be left.)
    """
    for largest in (1.0, 2.0):
        inputs = delta_inputs(150, dtype=torch.float32, heads=2, batch=1, largest=largest, same_keys=True)
        no_decay = inputs[3] * 1e-4
        assert_right(FORMS[name], *inputs[:3], no_decay, no_decay, inputs[5], times=4)


@pytest.mark.axes(kind=EXTREMES, name=FORMS, dtype=[torch.float64, torch.float32, torch.bfloat16])
def test_extreme_decays(kind, name, dtype):
    inputs = delta_inputs(70, dtype=dtype, extreme=kind)
    for chunk_size in [1, 16, 64] if name == "chunk" else [64]:
        assert_right(FORMS[name], *inputs, chunk_size=chunk_size)
    gradients = outputs_and_gradients(FORMS[name], *inputs)[4:6]
    assert all((d[x == -torch.inf] == 0).all() for d, x in zip(gradients, inputs[3:5], strict=True))


def flash_contract(q, k, v, g, beta, scale):
    """
    What the documentation of `fla.ops.gated_delta_rule.chunk_gated_delta_rule` says it returns: `(batch, length,
    heads, dim)`, with a state that decays, then corrects itself. Like its kernel, it takes no float32.
    """
    assert q.dtype == k.dtype == v.dtype and q.dtype in (torch.float16, torch.bfloat16)
    assert g.dtype == beta.dtype == torch.float32
    state, outputs = 0.0, []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None, None]
        key = k[:, t].float().unsqueeze(-1)
        missing = v[:, t].float() - (state * key).sum(-2)
        state = state + key * (beta[:, t].unsqueeze(-1) * missing).unsqueeze(-2)
        outputs.append((state * (scale * q[:, t].float().unsqueeze(-1))).sum(-2))
    return torch.stack(outputs, 1).to(q.dtype), None


@pytest.mark.axes(length=[1, 17, 66], dtype=[torch.bfloat16, torch.float16])
def test_flash_linear_attention_gets_its_own_convention(monkeypatch, length, dtype):
    """On a GPU, its kernel computes; here, its contract does. Outputs and all gradients, before they are divided."""
    library = SimpleNamespace(chunk_gated_delta_rule=flash_contract)
    monkeypatch.setitem(sys.modules, "fla.ops.gated_delta_rule", library)
    monkeypatch.setattr(delta, "has_flash_delta", lambda query: True)
    inputs = delta_inputs(length, dtype=dtype)
    assert_right(with_tensors(delta_attention), *inputs, normalization="none")
    library.chunk_gated_delta_rule = None
    for name in FORMS:  # these are ours
        assert_right(FORMS[name], *inputs, normalization="none")


def test_flash_linear_attention_is_chosen_for_half_precision_on_a_gpu(monkeypatch):
    monkeypatch.setattr(delta, "is_flash_linear_attention_available", lambda: True)
    for device, dtype, dim, expected in [
        ("cuda", torch.bfloat16, 64, True),
        ("cuda", torch.float16, 256, True),
        ("cuda", torch.float32, 64, False),
        ("cuda", torch.bfloat16, 512, False),
        ("cpu", torch.bfloat16, 64, False),
    ]:
        query = SimpleNamespace(device=torch.device(device), dtype=dtype, shape=(1, 2, 3, dim))
        assert delta.has_flash_delta(query) is expected
    monkeypatch.setattr(delta, "is_flash_linear_attention_available", lambda: False)
    query = SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16, shape=(1, 2, 3, 64))
    assert not delta.has_flash_delta(query)


@pytest.mark.axes(padding=PADDINGS, name=FORMS)
def test_padding_is_absence(padding, name):
    """Key 0 and log decay 0; β has no effect."""
    inputs = delta_inputs(40)
    is_real = torch.tensor(PADDINGS[padding]).expand(2, -1)

    def padded(query, key, value, forward, backward, beta, **options):
        forward, backward = (torch.where(is_real.unsqueeze(1), x, 0) for x in (forward, backward))
        key = key * is_real[:, None, :, None]
        output = FORMS[name](query, key, value, forward, backward, beta, **options)
        assert output.isfinite().all()
        return output * is_real[:, None, :, None]

    assert_right(padded, *inputs, is_real=is_real, chunk_size=16)


@pytest.mark.axes(
    lengths=[(1,), (3, 1, 20), (17, 40, 5), (1,) * 9, (7,) * 12, (64, 66)],
    name=FORMS,
    dtype=[torch.float64, torch.float32],
)
def test_packed_sequences_are_apart(lengths, dtype, name):
    inputs = delta_inputs(sum(lengths), dtype=dtype)
    borders = torch.tensor([0, *lengths]).cumsum(0).int()
    assert_right(FORMS[name], *inputs, cu_seqlens=borders, chunk_size=32)


@pytest.mark.parametrize("name", FORMS)
def test_one_decay_for_both_directions_per_head_or_none(name):
    """What other mixers give: one tensor, `(heads,)` or `(batch, heads, length)`; and no decay, and β = 1."""
    query, key, value, per_token, _, beta = delta_inputs(40)
    per_head = per_token[0, :, 0]
    for decay in (per_token, per_head, None):
        expanded = torch.zeros_like(beta) if decay is None else decay
        expanded = decay.view(1, -1, 1).expand_as(beta) if decay is per_head else expanded
        for b in (beta, None):
            found, weights = delta_attention(query, key, value, LogDecay(decay, decay), b, form=name, chunk_size=16)
            assert (weights is None) == (name != "eager")
            right = delta_rule(query, key, value, expanded, expanded, torch.ones_like(beta) if b is None else b)
            torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-12)


def test_the_gradient_of_a_decay_per_head_is_the_sum_over_tokens():
    query, key, value, forward, backward, beta = delta_inputs(70)
    per_head = [x[0, :, 0].clone().requires_grad_() for x in (forward, backward)]
    per_token = [x.detach().view(1, -1, 1).expand_as(beta).contiguous().requires_grad_() for x in per_head]
    for decays in (per_head, per_token):
        delta_attention(query, key, value, LogDecay(*decays), beta)[0].square().sum().backward()
    for head, token in zip(per_head, per_token, strict=True):
        torch.testing.assert_close(head.grad, token.grad.sum((0, 2)))


@pytest.mark.parametrize("normalization", ["rms", "none"])
def test_weights_multiply_values(normalization):
    query, key, value, forward, backward, beta = delta_inputs(33)
    options = {"form": "eager", "normalization": normalization, "cu_seqlens": torch.tensor([0, 20, 33])}
    output, weights = delta_attention(query, key, value, LogDecay(forward, backward), beta, **options)
    torch.testing.assert_close(weights @ value, output)
    assert (weights[:, ::2].triu(1) == 0).all() and (weights[:, 1::2].tril(-1) == 0).all()
    assert (weights[:, :, :20, 20:] == 0).all() and (weights[:, :, 20:, :20] == 0).all()
    assert (weights < 0).any()


def test_a_pair_is_looked_up_and_overwritten():
    """What the rule is for: with orthogonal keys and β = 1 a query has the value that its key was last given."""
    key = torch.eye(4, dtype=torch.float64)[[0, 1, 2, 0, 3, 1]].expand(1, 2, 6, 4)
    value = torch.randn(1, 2, 6, 3, dtype=torch.float64)
    output = delta_attention(key, key, value, form="chunk", normalization="none", chunk_size=2)[0]
    torch.testing.assert_close(output, value)
    query = key[:, :, :1].expand(1, 2, 6, 4)
    forward, backward = delta_attention(query, key, value, form="chunk", normalization="none")[0].unbind(1)
    torch.testing.assert_close(forward[0], value[0, 0, [0, 0, 0, 3, 3, 3]])
    torch.testing.assert_close(backward[0, :4], value[0, 1, [0, 3, 3, 3]])
    assert (backward[0, 4:] == 0).all()


@pytest.mark.axes(name=FORMS, normalization=["rms", "none"])
def test_gradcheck(name, normalization):
    inputs = [x.clone().requires_grad_() for x in delta_inputs(3, batch=1, heads=2, dims=(2, 3), seed=1)]
    function = partial(FORMS[name], normalization=normalization, chunk_size=2)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("name", FORMS)
def test_no_tokens_have_an_empty_result(name):
    inputs = delta_inputs(0)
    output, *gradients = outputs_and_gradients(FORMS[name], *inputs)
    assert output.shape == inputs[2].shape and [x.shape for x in gradients] == [x.shape for x in inputs]


@pytest.mark.axes(pairs=[2, 5], heads=[3, 4, 7], dtype=[torch.float32, torch.bfloat16])
def test_slices_do_not_matter(pairs, heads, dtype, monkeypatch):
    """Some heads of a row at a time, or all heads of some rows."""
    monkeypatch.setattr(cpu_delta, "PAIRS_AT_ONCE", pairs)
    assert_right(FORMS["chunk"], *delta_inputs(40, heads=heads, batch=3, dtype=dtype), chunk_size=16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_wide_and_not_normalised(dtype):
    inputs = delta_inputs(70, dtype=dtype)
    query, key, value, forward, backward, beta = inputs
    right = delta_rule(*inputs, normalization="none")
    for name in FORMS:
        options = {"form": name, "returns_sums": True, "chunk_size": 16}
        sums, weights = delta_attention(query, key, value, LogDecay(forward, backward), beta, **options)
        assert sums.dtype == torch.float32
        torch.testing.assert_close(sums, right)
        if name == "eager":
            torch.testing.assert_close(weights @ value.float(), right)


@pytest.mark.axes(dtype=[torch.float32, torch.bfloat16], division=["rms", "none", "deferred"], heads=[2, 3])
def test_gradients_have_the_memory_that_compilers_expect(division, heads, dtype):
    """Else torch.compile fails in training."""
    query, key, value, forward, backward, beta = delta_inputs(41, heads=heads, dtype=dtype)
    query, key, value = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (query, key, value))
    for decays in ((forward, backward), (forward[0, :, 0].contiguous(), backward[0, :, 0].contiguous())):
        inputs, options = (query, key, value, *decays, beta), (16, division, "alternate")
        operator, tests = torch.ops.lion.delta_chunk.default, ("test_schema", "test_faketensor")
        torch.library.opcheck(operator, (*inputs, *options), test_utils=tests)
        output, denominator, *saved = operator(*inputs, *options)
        output = output if saved[0].dim() == 1 else saved[0]
        gradients = (output, None, *inputs, output, denominator, saved[1:], *options, True)
        torch.library.opcheck(torch.ops.lion.delta_chunk_backward.default, gradients, test_utils=tests)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": torch.zeros(2, 2, 8, 4)}, r"got \(2, 2, 8, 5\), \(2, 2, 8, 4\)"),
        ({"beta": torch.zeros(2, 2)}, r"beta must be None or \(batch, heads, length\) = \(2, 2, 8\); got \(2, 2\)"),
        ({"log_decay": LogDecay(torch.zeros(8))}, r"forward log_decay must be None, \(heads,\) = \(2,\)"),
        ({"normalization": "sum"}, 'normalization is \'sum\'; give "rms" or "none"'),
        ({"head_directions": "both"}, "head_directions is 'both'; give \"alternate\""),
        ({"form": "sdpa"}, "form is 'sdpa'"),
        ({"cu_seqlens": torch.tensor([0, 4])}, r"cu_seqlens must rise from 0 to the length 8; got \[0, 4\]"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    arguments = {name: torch.zeros(2, 2, 8, 5) for name in ("query", "key", "value")}
    with pytest.raises(ValueError, match=message):
        delta_attention(**(arguments | change))


@st.composite
def problems(draw):
    """Inputs with anything in them that SPEC §4, §5 and §14 allow."""
    length, batch, heads = draw(st.integers(1, 90)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    seed = draw(st.integers(0, 1000))
    *tensors, forward, backward, beta = delta_inputs(
        length,
        dtype=draw(st.sampled_from(DTYPES)),
        seed=seed,
        batch=batch,
        heads=heads,
        extreme=draw(st.sampled_from([None, *EXTREMES])),
        largest=draw(st.sampled_from([1.0, 2.0])),
        same_keys=draw(st.booleans()),
    )
    is_real = None
    if draw(st.booleans()):
        is_real = torch.rand(batch, length, generator=torch.Generator().manual_seed(seed)) < draw(st.floats(0, 1))
    borders = sorted(draw(st.sets(st.integers(1, length - 1), max_size=5))) if length > 1 else []
    options = {
        "cu_seqlens": draw(st.sampled_from([None, torch.tensor([0, *borders, length])])),
        "normalization": draw(st.sampled_from(["rms", "none"])),
        "chunk_size": draw(st.integers(1, length + 2)),
    }
    return (*tensors, forward, backward, beta), is_real, options


@pytest.mark.slow
@given(problems(), st.sampled_from(sorted(FORMS)))
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_anything_allowed(problem, name):
    inputs, is_real, options = problem

    def form(query, key, value, forward, backward, beta, **options):
        if is_real is None:
            return FORMS[name](query, key, value, forward, backward, beta, **options)
        forward, backward = (torch.where(is_real.unsqueeze(1), x, 0) for x in (forward, backward))
        real = is_real[:, None, :, None].to(key.dtype)
        return FORMS[name](query, key * real, value, forward, backward, beta, **options) * real

    assert_right(form, *inputs, is_real=is_real, **options)
