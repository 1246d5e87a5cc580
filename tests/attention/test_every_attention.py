# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What holds for every attention function in every form: dtypes, memory, gradients, transforms and compilers."""

from functools import partial
from itertools import product

import pytest
import torch
from attention_forms import FORMS, make_inputs, outputs_and_gradients
from delta_rule import DELTA_FORMS, delta_inputs
from window_forms import FORMS as WINDOW_FORMS
from window_forms import make_inputs as window_inputs
from window_forms import only


def linear_inputs(mixer, length, **options):
    return [x for x in make_inputs(mixer, length, **options) if x is not None]


def in_window(form, *inputs):
    with only(form) as attention:
        return attention(*inputs, sliding_window=9)


# Of each attention in each form: inputs of a length, the function of them, and a length of several blocks.
CASES = {
    f"{mixer}, {name}": (partial(linear_inputs, mixer), lambda *x, form=form: form(*x, chunk_size=16)[0], 40)
    for mixer, (name, form) in product(("lit", "decay", "selective"), FORMS.items())
}
CASES |= {f"delta, {name}": (delta_inputs, partial(form, chunk_size=16), 40) for name, form in DELTA_FORMS.items()}
CASES |= {f"window, {name}": (window_inputs, partial(in_window, name), 150) for name in WINDOW_FORMS}
EVERY = pytest.mark.parametrize(("make", "form", "length"), CASES.values(), ids=CASES)
COMPILED = [case for case in CASES if case.endswith((", parallel", ", chunk")) and case != "delta, parallel"]


@EVERY
def test_autocast_does_not_narrow(make, form, length):
    inputs = make(length, dtype=torch.float32)
    results = (outputs_and_gradients(form, *inputs, autocast=autocast) for autocast in (True, False))
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize("heads", [3, 4])  # short sequences are computed at once if the number of heads is even
@EVERY
def test_strides_do_not_matter(make, form, length, heads):
    inputs = make(length, heads=heads)
    fused = torch.cat(inputs[:3], dim=-1).split([x.shape[-1] for x in inputs[:3]], dim=-1)
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) if x.dim() > 1 else x for x in inputs]
    spread = [torch.stack((x, x), dim=-1)[..., 0] for x in inputs]
    expected = outputs_and_gradients(form, *inputs)
    for variant in (turned, spread, [x.contiguous() for x in inputs], [*fused, *inputs[3:]]):
        for result, right in zip(outputs_and_gradients(form, *variant), expected, strict=True):
            torch.testing.assert_close(result, right, rtol=1e-11, atol=1e-12)


@EVERY
def test_gradients_only_where_asked(make, form, length):
    expected = outputs_and_gradients(form, *make(length))[1:]
    for wanted, right in enumerate(expected):
        inputs = make(length)
        inputs[wanted].requires_grad_()
        output = form(*inputs)
        output.backward(torch.randn(output.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
        torch.testing.assert_close(inputs[wanted].grad, right, rtol=1e-11, atol=1e-12)
        assert [x.grad is None for x in inputs].count(False) == 1


@EVERY
def test_function_transforms(make, form, length):
    inputs = tuple(make(9, batch=1, heads=2))
    expected = torch.autograd.functional.jacobian(form, inputs)
    for one, right in zip(torch.func.jacrev(form, tuple(range(len(inputs))))(*inputs), expected, strict=True):
        torch.testing.assert_close(one, right)
    batches = (torch.stack((x, x / 2)) for x in inputs[:3])
    batched = torch.func.vmap(lambda *x: form(*x, *inputs[3:]))(*batches)
    torch.testing.assert_close(batched[1], form(*(x / 2 for x in inputs[:3]), *inputs[3:]))


@EVERY
def test_an_empty_batch_has_an_empty_result(make, form, length):
    inputs = make(length, batch=0)
    output, *gradients = outputs_and_gradients(form, *inputs)
    assert output.numel() == 0 and output.shape[-1] == inputs[2].shape[-1]
    assert [x.shape for x in gradients] == [x.shape for x in inputs] and all((x == 0).all() for x in gradients)


@pytest.mark.parametrize("case", COMPILED)
def test_compiles_to_one_graph_for_every_length(case):
    make, form, _ = CASES[case]
    torch.compiler.reset()
    compiled = torch.compile(form, backend="aot_eager", fullgraph=True, dynamic=True)
    for length in (40, 97, 130):
        inputs = make(length, dtype=torch.float32)
        expected = outputs_and_gradients(form, *inputs)
        with torch.compiler.set_stance("default" if length == 40 else "fail_on_recompile"):
            results = outputs_and_gradients(compiled, *inputs)
        for result, right in zip(results, expected, strict=True):
            torch.testing.assert_close(result, right)
