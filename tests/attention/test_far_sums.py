# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The sums over the tokens outside of a window, and softmax within it, beside what SPEC §13 says, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from modeling_lion.attention.far_sums import far_sums
from modeling_lion.attention.softmax_window import sliding_attention
from modeling_lion.cpu.far_sums import far_sums_without_decay
from modeling_lion.cpu.softmax_window import usual_bias
from modeling_lion.tokens import Tokens


FORMS = ("auto", "parallel", "rnn")


def naive(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor | None, window: int) -> tuple[Tensor, Tensor]:
    """Numerators and denominators, from the whole matrix."""
    length = query.shape[2]
    scores = query @ key.transpose(-1, -2)
    token = torch.arange(length)
    if log_decay is not None:
        each = log_decay.view(1, -1, 1).expand(-1, -1, length) if log_decay.dim() == 1 else log_decay
        mask = torch.ones_like(scores)
        for i in range(length):
            for j in range(length):
                steps = each[..., j:i] if j < i else each[..., i + 1 : j + 1]
                mask[:, :, i, j] = steps.sum(-1).exp()
        scores = scores * mask
    scores = scores * ((token[:, None] - token).abs() > window)
    return scores @ value, scores.sum(-1, keepdim=True)


def make_inputs(length: int, dtype: torch.dtype = torch.float64, heads: int = 2) -> list[Tensor]:
    shape = (2, length, heads)
    query, key = (torch.rand(*shape, 6, dtype=dtype).transpose(1, 2).requires_grad_() for _ in range(2))
    return [query, key, torch.randn(*shape, 3, dtype=dtype).transpose(1, 2).requires_grad_()]


@pytest.mark.axes(
    form=FORMS,
    mixer=["lit", "decay", "selective"],
    sizes=[(1, 1), (2, 1), (9, 1), (40, 3), (33, 40), (70, 32)],
)
def test_sums_and_gradients(form, mixer, sizes):
    length, window = sizes
    inputs = make_inputs(length)
    log_decay = {
        "lit": None,
        "decay": -torch.rand(2, dtype=torch.float64),
        "selective": -3 * torch.rand(2, 2, length, dtype=torch.float64) ** 4,
    }[mixer]
    if log_decay is not None:
        inputs.append(log_decay.requires_grad_())
    found = far_sums(*inputs[:3], log_decay, window, form=form)
    wanted = naive(*inputs[:3], log_decay, window)
    assert_close_with_gradients(found, wanted, inputs)


def assert_close_with_gradients(found: tuple, wanted: tuple, inputs: list[Tensor]) -> None:
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)
    grads = [torch.randn_like(y) for y in wanted]
    either = (torch.autograd.grad(x, inputs, grads, allow_unused=True) for x in (found, wanted))
    for x, y in zip(*either, strict=True):
        torch.testing.assert_close(torch.zeros_like(y) if x is None else x, y, rtol=1e-9, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(length=st.integers(1, 1400), window=st.integers(1, 200), seed=st.integers(0, 9))
def test_blocks_and_segments_meet(length, window, seed):
    """Borders of blocks, of segments and of windows coincide in every way."""
    torch.manual_seed(seed)
    inputs = [x.detach() for x in make_inputs(length, heads=1)]
    numerator, denominator = far_sums_without_decay(*inputs, window)
    wanted = naive(*inputs, None, window)
    torch.testing.assert_close(numerator, wanted[0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(denominator.unsqueeze(-1), wanted[1], rtol=1e-10, atol=1e-10)


def test_second_derivatives():
    inputs = [x.detach()[..., :3].requires_grad_() for x in make_inputs(5, heads=1)]
    assert torch.autograd.gradgradcheck(lambda *x: far_sums_without_decay(*x, 1), inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding(dtype):
    """No worse than twice the error of the same sums from the whole matrix, in the same dtype."""
    inputs = [x.detach() for x in make_inputs(700, dtype)]
    wanted, same = naive(*(x.double() for x in inputs), None, 64), naive(*inputs, None, 64)
    found = far_sums(*inputs, None, 64)
    for x, y, z in zip(found, same, wanted, strict=True):
        assert x.dtype == torch.float32
        assert (x - z).abs().max() <= 2 * (y - z).abs().max()


@settings(max_examples=40, deadline=None)
@given(
    length=st.integers(1, 300),
    window=st.integers(0, 70),
    padded=st.lists(st.integers(0, 299), max_size=3),
    seed=st.integers(0, 9),
)
def test_whole_windows_beside_padding(length, window, padded, seed):
    """Blocks that torch's fused attention takes, and those that it does not, give one result."""
    torch.manual_seed(seed)
    query, key, value = (torch.randn(1, 2, length, 4, dtype=torch.float64) for _ in range(3))
    is_real = torch.ones(1, length, dtype=torch.bool)
    is_real[:, [x for x in padded if x < length]] = False
    place = is_real.cumsum(1)[0]
    seen = ((place[:, None] - place).abs() <= window) & is_real[0] & is_real[0][:, None]
    scores = (query @ key.transpose(-1, -2)).masked_fill(~seen, -torch.inf)
    wanted = scores.softmax(-1).nan_to_num() @ value
    found, log_sum = sliding_attention(
        query, key, value, sliding_window=window, scaling=1.0, tokens=Tokens(is_real).with_order(), with_log_sum=True
    )
    torch.testing.assert_close(found.transpose(1, 2), wanted, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(log_sum, scores.logsumexp(-1), rtol=1e-10, atol=1e-10)


def test_a_window_wider_than_the_text_has_no_mask_of_its_width():
    usual_bias.cache_clear()
    query, key, value = (torch.randn(1, 2, 90, 4).requires_grad_() for _ in range(3))
    found = sliding_attention(query, key, value, sliding_window=10**9, scaling=0.5)
    wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=0.5)
    torch.testing.assert_close(found.transpose(1, 2), wanted)
