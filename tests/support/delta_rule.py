# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""SPEC §14 token by token, and inputs for it."""

from functools import partial

import torch
from attention_forms import extreme_decays
from torch.nn import functional as F

from modeling_lion.attention.decay_mask import LogDecay
from modeling_lion.attention.delta import delta_attention
from modeling_lion.attention.numerics import accumulation_dtype


def delta_rule(
    query, key, value, forward, backward, beta, *, normalization="rms", cu_seqlens=None, is_real=None, tokens=None
):
    """
    The recurrence of SPEC §14 in two loops, over heads and over tokens; in float64, or in float32 for narrower inputs.
    Tokens that are not real, `(batch, length)`, or not among `tokens` do not exist: their outputs are 0.
    """
    if is_real is not None:  # padding differs between rows
        options = {"normalization": normalization, "cu_seqlens": cu_seqlens}
        tensors = [x.split(1) for x in (query, key, value, forward, backward, beta)]
        rows = [
            delta_rule(*row, tokens=real.nonzero(), **options) for *row, real in zip(*tensors, is_real, strict=True)
        ]
        return torch.cat(rows)
    dtype = accumulation_dtype(value.dtype)
    query, key, value, beta = (x.to(dtype) for x in (query, key, value, beta))
    heads, length = query.shape[1:3]
    borders = [0, length] if cu_seqlens is None else cu_seqlens.tolist()
    tokens = range(length) if tokens is None else tokens.flatten().tolist()
    outputs = [[torch.zeros_like(value[:, 0, 0])] * length for _ in range(heads)]
    for h in range(heads):
        for first, end in zip(borders, borders[1:], strict=False):
            own = [i for i in tokens if first <= i < end]
            state, cost = None, (forward if h % 2 == 0 else backward)[:, h, :, None, None].to(dtype).exp()
            previous = None
            for i in own if h % 2 == 0 else own[::-1]:
                k, v, write = key[:, h, i, :, None], value[:, h, i, None], beta[:, h, i, None, None]
                if previous is None:
                    state = write * k * v
                else:
                    state = cost[:, previous] * (state - write * k * (k.mT @ state)) + write * k * v
                outputs[h][i] = (query[:, h, i, None] @ state).squeeze(1)
                previous = i
    y = torch.stack([torch.stack(row, 1) for row in outputs], 1)
    return y * (y.square().mean(-1, keepdim=True) + 1e-5).rsqrt() if normalization == "rms" else y


def delta_inputs(
    length, *, dtype=torch.float64, seed=0, batch=2, heads=3, dims=(5, 6), extreme=None, largest=1.0, same_keys=False
):
    """
    Query, key and value in `dtype`, then both log decays and β in the accumulation dtype; keys have length 1.
    `extreme`: a kind of log decays (`extreme_decays`). `largest`: of β, which is 0 and that here and there.
    `same_keys`: all keys of a sequence nearly agree.
    """
    generator = torch.Generator().manual_seed(seed)
    rand = lambda *shape: torch.rand(*shape, generator=generator, dtype=torch.float64)
    randn = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    query, key = F.normalize(randn(2, batch, heads, length, dims[0]), dim=-1)
    if same_keys:
        key = F.normalize(key[:, :, :1] + 0.01 * key, dim=-1)
    value = randn(batch, heads, length, dims[1])
    wide = accumulation_dtype(dtype)
    shape = batch, heads, length
    forward, backward = torch.log(0.02 + 0.98 * rand(2, *shape)).to(wide)
    if extreme is not None:
        forward = extreme_decays(extreme, shape, wide)
        backward = forward.flip(2)
    beta, kind = largest * rand(*shape), rand(*shape)
    beta = torch.where(kind < 0.1, 0, torch.where(kind > 0.9, largest, beta)).to(wide)
    return query.to(dtype), key.to(dtype), value.to(dtype), forward, backward, beta


def with_tensors(attention):
    """`delta_attention`, in some form, of six tensors: returns the output alone."""

    def form(query, key, value, forward, backward, beta, **options):
        return attention(query, key, value, LogDecay(forward, backward), beta, **options)[0]

    return form


DELTA_FORMS = {
    name: with_tensors(partial(delta_attention, form=name)) for name in ("eager", "parallel", "chunk", "rnn")
}
