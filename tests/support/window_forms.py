# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Softmax attention within a window in each of its forms, and inputs for it."""

from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import Tensor

from modeling_lion.attention import softmax_window as attention_sliding
from modeling_lion.attention.softmax_window import sliding_attention as attention_of_tokens
from modeling_lion.tokens import Tokens


FORMS = ["dense", "blocks", "by hand"]
HEADS, HEAD_DIM, SCALING = 3, 5, 0.7


def sliding_attention(query, key, value, *, is_real=None, cu_seqlens=None, **options):
    """The function that is tested; beside a halo, padded tokens count."""
    tokens = Tokens(is_real, cu_seqlens)
    if query.shape[2] == key.shape[2] and is_real is not None and is_real.dtype == torch.bool:
        tokens = tokens.with_order()
    return attention_of_tokens(query, key, value, tokens=tokens, **options)


@contextmanager
def only(form):
    """`sliding_attention` in one of its forms, whatever the length."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_sliding, "is_dense_fastest", lambda *args: form == "dense")
        if form != "by hand":
            patch.setattr(attention_sliding, "kernel_for", lambda *args: None)
        yield partial(sliding_attention, scaling=SCALING)


def make_inputs(queries, keys=None, *, dtype=torch.float64, batch=2, heads=HEADS, seed=0) -> list[Tensor]:
    """Query, key and value as a model has them, `(batch, heads, length, head_dim)` of transposed memory."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(batch, length, heads, HEAD_DIM, generator=generator, dtype=torch.float64).to(dtype).transpose(1, 2)
        for length in (queries, keys or queries, keys or queries)
    ]
