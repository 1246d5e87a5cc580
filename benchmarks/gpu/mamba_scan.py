# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
`SelectiveScan` of peers/mamba.py in two Triton kernels, for a GPU without mamba-ssm: a program walks along one
sequence with the state of some channels in registers. The states are kept for the gradients, in float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx, once_differentiable


CHANNELS = 32


@triton.jit
def place_of(t, b, block, batch, SIZE: tl.constexpr, STATE: tl.constexpr, CHANNELS: tl.constexpr):
    """Offsets of one token: channels, numbers of B and C, and the state `(STATE, CHANNELS)`; and which exist."""
    channel, n = block * CHANNELS + tl.arange(0, CHANNELS), tl.arange(0, STATE)
    row = tl.cast(t, tl.int64) * batch + b
    state = (row * STATE + n[:, None]) * SIZE + channel[None, :]
    return row * SIZE + channel, (tl.cast(t, tl.int64) * STATE + n) * batch + b, state, channel < SIZE


@triton.jit
def scan_kernel(
    u, dt, A, B, C, output, states, length, batch,
    SIZE: tl.constexpr, STATE: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    b, block = tl.program_id(0), tl.program_id(1)
    channel, n = block * CHANNELS + tl.arange(0, CHANNELS), tl.arange(0, STATE)
    inside = channel < SIZE
    a = tl.load(A + n[:, None] * SIZE + channel[None, :], mask=inside[None, :], other=0.0)
    state = tl.zeros([STATE, CHANNELS], tl.float32)
    for t in range(length):
        at, of_state, whole, inside = place_of(t, b, block, batch, SIZE, STATE, CHANNELS)
        step = tl.load(dt + at, mask=inside, other=0.0)
        given = tl.load(u + at, mask=inside, other=0.0) * step
        state = tl.exp(step[None, :] * a) * state + given[None, :] * tl.load(B + of_state)[:, None]
        tl.store(states + whole, state, mask=inside[None, :])
        tl.store(output + at, tl.sum(state * tl.load(C + of_state)[:, None], 0), mask=inside)


@triton.jit
def scan_gradient_kernel(
    u, dt, A, B, C, states, d_output, d_u, d_dt, d_A, d_B, d_C, length, batch,
    SIZE: tl.constexpr, STATE: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """`d_A` `(batch, STATE, SIZE)`; `d_B` and `d_C` `(blocks of channels, length, STATE, batch)`, to be summed."""
    b, block = tl.program_id(0), tl.program_id(1)
    channel, n = block * CHANNELS + tl.arange(0, CHANNELS), tl.arange(0, STATE)
    inside = channel < SIZE
    of_a = n[:, None] * SIZE + channel[None, :]
    a = tl.load(A + of_a, mask=inside[None, :], other=0.0)
    shares = tl.cast(block, tl.int64) * length * STATE * batch
    grad, grad_a = tl.zeros([STATE, CHANNELS], tl.float32), tl.zeros([STATE, CHANNELS], tl.float32)
    for back in range(length):
        t = length - 1 - back
        at, of_state, whole, inside = place_of(t, b, block, batch, SIZE, STATE, CHANNELS)
        step, value = tl.load(dt + at, mask=inside, other=0.0), tl.load(u + at, mask=inside, other=0.0)
        dy = tl.load(d_output + at, mask=inside, other=0.0)
        state = tl.load(states + whole, mask=inside[None, :], other=0.0)
        before = tl.load(states + whole - batch * STATE * SIZE, mask=inside[None, :] & (t > 0), other=0.0)
        grad += dy[None, :] * tl.load(C + of_state)[:, None]
        tl.store(d_C + shares + of_state, tl.sum(dy[None, :] * state, 1))
        tl.store(d_B + shares + of_state, tl.sum((step * value)[None, :] * grad, 1))
        of_input = tl.sum(tl.load(B + of_state)[:, None] * grad, 0)
        grad *= tl.exp(step[None, :] * a)
        of_exponent = grad * before
        grad_a += of_exponent * step[None, :]
        tl.store(d_u + at, of_input * step, mask=inside)
        tl.store(d_dt + at, tl.sum(of_exponent * a, 0) + of_input * value, mask=inside)
    tl.store(d_A + tl.cast(b, tl.int64) * STATE * SIZE + of_a, grad_a, mask=inside[None, :])


class TritonSelectiveScan(Function):
    """Shapes as in `SelectiveScan`, float32; the number of states is a power of 2."""

    @staticmethod
    def forward(ctx: FunctionCtx, u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        inputs = [x.contiguous() for x in (u, dt, A, B, C)]
        (length, batch, size), state = u.shape, len(A)
        output, states = torch.empty_like(inputs[0]), u.new_empty(length, batch, state, size)
        grid = batch, triton.cdiv(size, CHANNELS)
        scan_kernel[grid](
            *inputs, output, states, length, batch, SIZE=size, STATE=state, CHANNELS=CHANNELS, num_warps=1
        )
        ctx.save_for_backward(*inputs, states)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_output: Tensor) -> tuple[Tensor, ...]:
        *inputs, states = ctx.saved_tensors
        length, batch, state, size = states.shape
        blocks = triton.cdiv(size, CHANNELS)
        d_u, d_dt = (torch.empty_like(x) for x in inputs[:2])
        d_A = states.new_empty(batch, state, size)
        d_B, d_C = (states.new_empty(blocks, length, state, batch) for _ in range(2))
        scan_gradient_kernel[batch, blocks](
            *inputs, states, grad_output.contiguous(), d_u, d_dt, d_A, d_B, d_C, length, batch,
            SIZE=size, STATE=state, CHANNELS=CHANNELS, num_warps=1,
        )  # fmt: skip
        return d_u, d_dt, d_A.sum(0), d_B.sum(0), d_C.sum(0)
