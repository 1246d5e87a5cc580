# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The mask against SPEC §2 written out as products, token by token."""

import math

import pytest
import torch

from modeling_lion.decay_mask import block_sums, decay_mask, log_zero, step_decays


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
    return decay_mask(*step_decays(log_decay[None, None], like, cu_seqlens))[0, 0]


KINDS = ["random", "slow", "fast", "one", "zero", "zeros and ones", "all kinds"]


@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 65, 130, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_mask_is_the_product_of_the_decays(kind, length):
    log_decay = some_decays(kind, length)
    expected = literal_mask(log_decay.tolist())
    torch.testing.assert_close(mask_of(log_decay, torch.float64), expected, rtol=1e-11, atol=1e-300)
    # A sum of n log decays that is rounded n times is off by at most n/2 ulp of its largest part.
    rounding = torch.finfo(torch.float32).eps * 64 * (1 + log_decay.clamp(min=log_zero(torch.float32)).abs().max())
    single = mask_of(log_decay.float().double(), torch.float32).double()
    expected = literal_mask(log_decay.float().tolist())
    assert (single - expected).abs().max() <= rounding
    assert (single[expected == 0] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("borders", [(1,), (5,), (64,), (1, 2, 3), (40, 64, 65, 129), tuple(range(1, 140))])
def test_nothing_crosses_the_border_between_packed_sequences(borders, dtype):
    length = 140
    log_decay = some_decays("random", length)
    cu_seqlens = torch.tensor([0, *borders, length])
    expected = literal_mask(log_decay.tolist(), borders)
    mask = mask_of(log_decay, dtype, cu_seqlens).double()
    # Sums inside a block of 64 may hold several borders at -log_zero each: digits are lost there, and only there.
    rounding = torch.finfo(dtype).eps * 64 * -log_zero(dtype)
    assert (mask - expected).abs().max() <= rounding
    assert (mask[expected == 0] == 0).all()


@pytest.mark.parametrize("length", [3000])
def test_far_and_near_are_equally_precise_in_long_sequences(length):
    log_decay = torch.full((length,), -0.25, dtype=torch.float64)
    distance = (torch.arange(length)[:, None] - torch.arange(length)).abs()
    expected = torch.exp(-0.25 * distance.double())
    single = mask_of(log_decay, torch.float32)
    # Without blocks, sums would reach 750 here, and the first off-diagonal would be off by 3e-5.
    assert ((single.double() - expected)[distance <= 8]).abs().max() < 4e-6


def test_fixed_decays_give_a_toeplitz_mask_per_head():
    like = torch.zeros(2, 3, 70, 4, dtype=torch.float64)
    decay = torch.tensor([0.1, 0.9, 1.0], dtype=torch.float64)
    mask = decay_mask(*step_decays(decay.log(), like))
    distance = (torch.arange(70)[:, None] - torch.arange(70)).abs()
    torch.testing.assert_close(mask, (decay[:, None, None] ** distance)[None])


def test_no_decay_is_a_mask_of_ones():
    assert torch.equal(decay_mask(*step_decays(None, torch.zeros(2, 3, 70, 4))), torch.ones(1, 1, 70, 70))


def test_gradient_of_the_mask():
    log_decay = some_decays("all kinds", 70).clamp(min=-3).requires_grad_()
    weights = torch.randn(70, 70, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (weights * mask_of(log_decay, torch.float64)).sum().backward()
    # d M_ij / d a_k = M_ij for every token k whose decay is lost between j and i.
    parts = weights * literal_mask(log_decay.tolist())
    expected = torch.stack([parts[k + 1 :, : k + 1].sum() + parts[:k, k:].sum() for k in range(70)])
    torch.testing.assert_close(log_decay.grad, expected)


def test_block_sums():
    right, left = -torch.rand(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    from_start, to_end, from_end, to_start = block_sums(right, left)
    for t in range(7):
        torch.testing.assert_close(from_start[t], right[:t].sum())
        torch.testing.assert_close(to_end[t], right[t:].sum())
        torch.testing.assert_close(from_end[t], left[t + 1 :].sum())
        torch.testing.assert_close(to_start[t], left[: t + 1].sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_zero_stands_for_minus_infinity(dtype):
    zero = torch.tensor(log_zero(dtype), dtype=dtype)
    assert zero.exp() == 0
    assert (zero * 1e6 - zero * 1e6).exp() == 1
