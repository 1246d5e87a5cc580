# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The choice of a kernel, and that a choice changes nothing but the time."""

import pytest
import torch

from modeling_lion.kernel_auto import auto_attention, fastest_kernel
from modeling_lion.kernel_chunk import chunk_attention
from modeling_lion.kernel_naive import naive_attention
from modeling_lion.kernel_parallel import parallel_attention


@pytest.mark.parametrize("length", [1, 128, 197, 512, 16384])
@pytest.mark.parametrize("decay", [None, torch.zeros(2), torch.zeros(1, 2, 1)], ids=["lit", "decay", "selective"])
def test_full_form_for_short_inputs_that_decay(decay, length):
    expected = parallel_attention if decay is not None and length <= 197 else chunk_attention
    assert fastest_kernel(torch.empty(1, 2, length, 64), decay, chunk_size=64) is expected


def test_wider_heads_make_states_dearer():
    choices = [fastest_kernel(torch.empty(1, 2, 256, dim), torch.zeros(2), 64) for dim in (32, 64, 128)]
    assert choices == [chunk_attention, chunk_attention, parallel_attention]


@pytest.mark.parametrize("length", [20, 80])
def test_results_are_those_of_the_naive_form(length):
    query, key, value = torch.rand(3, 2, 3, length, 4, dtype=torch.float64)
    log_decay = -torch.rand(2, 3, length, dtype=torch.float64)
    output, weights = auto_attention(query, key, value, log_decay, chunk_size=16)
    assert weights is None
    torch.testing.assert_close(output, naive_attention(query, key, value, log_decay)[0])
