# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The mask against SPEC §2 written out as products, token by token."""

import math

import pytest
import torch

from modeling_lion.attention.decay_mask import (
    LogDecay,
    decay_mask,
    finite_log_decay,
    log_decay_floor,
    over_tokens,
)


def literal_mask(log_decay: list[float], borders: tuple[int, ...] = ()) -> torch.Tensor:
    """SPEC §2 for one head, edge view: the step j→j+1 costs λ_j, j+1→j costs λ_{j+1}, and 0 across a border."""
    decay = [math.exp(a) for a in log_decay]
    length = len(decay)
    sequence = [sum(border <= t for border in borders) for t in range(length)]

    def element(i: int, j: int) -> float:
        if sequence[i] != sequence[j]:
            return 0.0
        return math.prod(decay[j:i]) if i > j else math.prod(decay[i + 1 : j + 1])

    return torch.tensor([[element(i, j) for j in range(length)] for i in range(length)], dtype=torch.float64)


def some_decays(kind: str, length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    random = -torch.rand(length, generator=generator, dtype=torch.float64)
    return {
        "random": random,
        "slow": random / 100,
        "fast": random * 20,
        "one": torch.zeros(length, dtype=torch.float64),
        "zero": torch.full((length,), -torch.inf, dtype=torch.float64),
        "zeros and ones": torch.where(random < -0.9, -torch.inf, 0.0),
        "all kinds": torch.where(random < -0.9, -torch.inf, torch.where(random < -0.6, 0.0, random)),
    }[kind]


def mask_of(log_decay: torch.Tensor, dtype: torch.dtype, cu_seqlens: torch.Tensor | None = None) -> torch.Tensor:
    like = torch.zeros(1, 1, len(log_decay), 1, dtype=dtype)
    log_decay = log_decay[None, None]
    return decay_mask(*finite_log_decay(LogDecay(log_decay, log_decay), like, cu_seqlens))[0, 0]


KINDS = ["random", "slow", "fast", "one", "zero", "zeros and ones", "all kinds"]


@pytest.mark.parametrize("length", [1, 64, 65, 130])
@pytest.mark.parametrize("kind", KINDS)
def test_mask_is_the_product_of_the_decays(kind, length):
    log_decay = some_decays(kind, length)
    expected = literal_mask(log_decay.tolist())
    torch.testing.assert_close(mask_of(log_decay, torch.float64), expected, rtol=1e-11, atol=1e-300)
    # A sum of n log decays that is rounded n times is off by at most n/2 ulp of its largest part.
    rounding = (
        torch.finfo(torch.float32).eps * 64 * (1 + log_decay.clamp(min=log_decay_floor(torch.float32)).abs().max())
    )
    single = mask_of(log_decay.float().double(), torch.float32).double()
    expected = literal_mask(log_decay.float().tolist())
    assert (single - expected).abs().max() <= rounding
    assert (single[expected == 0] == 0).all()


@pytest.mark.parametrize("borders", [(1,), (5,), (64,), (1, 2, 3), (40, 64, 65, 129), tuple(range(1, 140))])
def test_nothing_crosses_the_border_between_packed_sequences(borders):
    length = 140
    log_decay = some_decays("random", length)
    cu_seqlens = torch.tensor([0, *borders, length])
    expected = literal_mask(log_decay.tolist(), borders)
    for dtype in (torch.float32, torch.float64):
        mask = mask_of(log_decay, dtype, cu_seqlens).double()
        # What a border leaves of the digits of a float32 sum; the mask has more of them.
        rounding = torch.finfo(dtype).eps * 64 * -log_decay_floor(dtype)
        assert (mask - expected).abs().max() <= rounding
        assert (mask[expected == 0] == 0).all()


def test_the_directions_have_decays_of_their_own():
    """SPEC §11: the step j→j+1 costs the forward decay of j, j→j-1 its backward one; one of them may be None."""
    forward, backward = some_decays("all kinds", 70), some_decays("random", 70)
    none = torch.zeros(70, dtype=torch.float64)
    below, above = (literal_mask(x.tolist()) for x in (forward, backward))
    for pair, expected in (
        ((forward, backward), below.tril() + above.triu(1)),
        ((forward, None), below.tril() + torch.ones(70, 70).triu(1)),
        ((None, backward), torch.ones(70, 70).tril() + above.triu(1)),
        ((none, none - torch.inf), torch.ones(70, 70).tril()),
    ):
        log_decay = LogDecay(*(x if x is None else x[None, None] for x in pair))
        found = decay_mask(*finite_log_decay(log_decay, torch.zeros(1, 1, 70, 1, dtype=torch.float64)))[0, 0]
        torch.testing.assert_close(found, expected.double(), rtol=1e-11, atol=1e-300)
    like = torch.zeros(1, 2, 3, 1)
    per_head = LogDecay(torch.tensor([-0.1, -1.0]), torch.tensor([-2.0, -torch.inf]))
    mask = decay_mask(*over_tokens(finite_log_decay(per_head, like), like))[0]
    never = -torch.inf
    expected = [[[0.0, -2, -4], [-0.1, 0, -2], [-0.2, -0.1, 0]], [[0.0, never, never], [-1, 0, never], [-2, -1, 0]]]
    torch.testing.assert_close(mask, torch.tensor(expected).exp())


@pytest.mark.parametrize("length", [3000])
def test_far_and_near_are_equally_precise_in_long_sequences(length):
    log_decay = torch.full((length,), -0.3, dtype=torch.float64)
    distance = (torch.arange(length)[:, None] - torch.arange(length)).abs()
    expected = torch.exp(-0.3 * distance.double())
    single = mask_of(log_decay, torch.float32)
    # Without chunks, sums would reach 900 here, and the first off-diagonal would be off by 3e-5.
    assert ((single.double() - expected)[distance <= 8]).abs().max() < 4e-6


def test_fixed_decays_give_a_toeplitz_mask_per_head():
    like = torch.zeros(2, 3, 70, 4, dtype=torch.float64)
    decay = torch.tensor([0.1, 0.9, 1.0], dtype=torch.float64)
    log_decay = finite_log_decay(LogDecay(decay.log(), decay.log()), like)
    mask = decay_mask(*over_tokens(log_decay, like))
    distance = (torch.arange(70)[:, None] - torch.arange(70)).abs()
    torch.testing.assert_close(mask, (decay[:, None, None] ** distance)[None])


def test_no_decay_needs_no_mask():
    assert finite_log_decay(LogDecay(), torch.zeros(2, 3, 70, 4)) == LogDecay(None, None)
    packed = finite_log_decay(LogDecay(), torch.zeros(2, 3, 5, 4), torch.tensor([0, 2, 5]))
    same_sequence = torch.tensor([0, 0, 1, 1, 1])
    assert torch.equal(decay_mask(*packed)[0, 0], (same_sequence[:, None] == same_sequence).float())


def test_gradient_of_the_mask():
    log_decay = some_decays("all kinds", 70).clamp(min=-3).requires_grad_()
    weights = torch.randn(70, 70, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (weights * mask_of(log_decay, torch.float64)).sum().backward()
    # d M_ij / d a_k = M_ij for every token k whose decay is lost between j and i.
    parts = weights * literal_mask(log_decay.tolist())
    expected = torch.stack([parts[k + 1 :, : k + 1].sum() + parts[:k, k:].sum() for k in range(70)])
    torch.testing.assert_close(log_decay.grad, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_decay_floor_stands_for_minus_infinity(dtype):
    zero = torch.tensor(log_decay_floor(dtype), dtype=dtype)
    assert zero.exp() == 0
    assert (zero * 1e6 - zero * 1e6).exp() == 1
