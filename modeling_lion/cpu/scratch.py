# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Shared code of the hand-written kernels for the CPU: slices that stay in cache, scratch memory, registration.

On a CPU, elementwise operations on tensors larger than the cache, and the first use of every page of memory, cost more
than the matrix products of linear attention. So these kernels compute one slice of the (batch, head) pairs after the
other, and write intermediate results into the same scratch memory. autograd cannot do that, so gradients are also
hand-written. "bh" is the number of (batch, head) pairs of a slice.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from transformers.utils import logging

from ..attention.custom_operator import attention_operator
from ..attention.numerics import accumulation_dtype, has_fast_bfloat16, has_native_product, inverse_denominator
from ..attention.plain import run_plain


# The most elements in the queries of a sequence for which sequences are copied and computed together (`side_by_side`),
# with and without decays. Measured with batches of 8 to 128, some of 2048, and 4 to 12 heads of width 16 to 64 (EPYC
# without AVX-512, one thread): up to this size, forward and backward take 0.04 to 0.95 of the time without copies,
# less for larger batches (two of 70 cases 1.07 and 1.15); above, 0.6 to 2. Copies take as much memory as the inputs.
SHORT_WITH_DECAY, SHORT_WITHOUT_DECAY = 9 * 2**11, 2**13
logger = logging.get_logger(__name__)


class Scratch:
    """
    Reusable memory by name, and matrix products in it. `scratch("scores", 4, 64, 64)` is uninitialised memory, which
    may hold data of an earlier call with that name.

    Attributes:
        dtype: the dtype of sums, decays, denominators and states (`accumulation_dtype`).
        operand_dtype: the dtype of operands of matrix products: bfloat16 for bfloat16 inputs if this CPU
            multiplies it natively, which takes a third to a quarter of the time of float32; otherwise `dtype`.
    """

    def __init__(self, like: Tensor):
        self.like, self.dtype = like, accumulation_dtype(like.dtype)
        self.is_mixed = like.dtype == torch.bfloat16 and has_fast_bfloat16()
        self.operand_dtype = like.dtype if self.is_mixed else self.dtype
        self.memory: dict[tuple, Tensor] = {}
        self.views: dict[tuple, Tensor] = {}

    def __call__(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        dtype = dtype or self.dtype
        view = self.views.get((name, shape, dtype))
        if view is None:
            size = math.prod(shape)
            memory = self.memory.get((name, dtype))
            if memory is None or memory.numel() < size:
                memory = self.memory[name, dtype] = self.like.new_empty(size, dtype=dtype)
                self.views.clear()
            view = self.views[name, shape, dtype] = memory[:size].view(shape)
        return view

    def release(self) -> None:
        """Release the memory, so that the next operations of a layer find it in cache."""
        self.memory.clear()
        self.views.clear()

    def operand(self, name: str, x: Tensor) -> Tensor:
        """`x`, or a copy in the operand dtype; contiguous for bfloat16, which saves more time than it costs."""
        if x.dtype == self.operand_dtype and (not self.is_mixed or x.is_contiguous()):
            return x
        if x.stride(-1) != 1 and x.stride(-2) == 1:
            return self.operand(name, x.transpose(-1, -2)).transpose(-1, -2)
        return self(name, *x.shape, dtype=self.operand_dtype).copy_(x)

    def wide(self, name: str, x: Tensor) -> Tensor:
        """`x`, or a copy in the scratch dtype, for computations that need all digits."""
        return x if x.dtype == self.dtype else self(name, *x.shape).copy_(x)

    def operands(self, *tensors: Tensor) -> Sequence[Tensor]:
        if not self.is_mixed and tensors[0].dtype == self.dtype:
            return tensors
        return [self.operand(name, x) for name, x in zip("qkv", tensors, strict=True)]

    def product(self, first: Tensor, second: Tensor, out: Tensor, adds: bool = False) -> Tensor:
        """The product of `(bh, l, m)` and `(bh, m, n)` in `out`, or added to `out`."""
        if first.dtype != self.operand_dtype:
            first = self.operand("first operand", first)
        if second.dtype != self.operand_dtype:
            second = self.operand("second operand", second)
        if out.dtype == first.dtype:
            return out.baddbmm_(first, second) if adds else torch.bmm(first, second, out=out)
        narrow = torch.bmm(first, second, out=self("product", *out.shape, dtype=first.dtype))
        return out.add_(narrow) if adds else out.copy_(narrow)

    def target(self, name: str, out: Tensor, is_sum: bool = False) -> Tensor:
        """
        Memory for `out`: itself if a matrix product, or with `is_sum` a sum of several, can write there; see
        `deliver`.
        """
        dtype = self.dtype if is_sum else self.operand_dtype
        is_possible = out.dtype == dtype and (self.is_mixed or out.is_contiguous())
        return out if is_possible else self(name, *out.shape, dtype=dtype)

    def deliver(self, targets: Sequence[Tensor], outs: Sequence[Tensor]) -> None:
        for x, out in zip(targets, outs, strict=True):
            if x is not out:
                out.copy_(x)


def pairs_per_slice(wanted: int, *tensors: Tensor) -> int:
    """
    The number of (batch, head) pairs of `(b, h, ...)` in a slice, about `wanted`. A slice has some heads of one
    sequence, or all heads of several sequences if these are adjacent in the memory of all tensors. (With an odd number
    of heads, a slice has one sequence at most, since the directions of heads alternate within a slice.)
    """
    batch, heads = tensors[0].shape[:2]
    if heads % 2 and batch > 1:
        wanted = min(wanted, heads)
    if wanted >= 2 * heads and all(batch == 1 or heads == 1 or x.stride(0) == heads * x.stride(1) for x in tensors):
        return wanted // max(heads, 1) * heads
    return -(-heads // -(-heads // max(1, min(wanted, heads))))


def side_by_side(log_decay: Tensor | None, query: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """
    These tensors, or, for sequences so short that small operators for each one cost more than copies, contiguous
    copies. In these, the heads of several sequences are adjacent, as `pairs_per_slice` requires.
    """
    (batch, heads, length, dim), tensors = query.shape, (query, *others)
    if batch == 1 or heads % 2 or query.stride(0) == heads * query.stride(1):
        return tensors
    longest = SHORT_WITHOUT_DECAY if log_decay is None else SHORT_WITH_DECAY
    return tuple(x.contiguous() for x in tensors) if heads * length * dim <= longest else tensors


def laid_out_as(like: Tensor, x: Tensor) -> Tensor:
    """`x`, or a copy, with the strides of `torch.empty_like(like)`; `like` has the same shape."""
    is_same = x.stride() == torch.empty_like(like, device="meta").stride()
    return x if is_same else torch.empty_like(like, dtype=x.dtype).copy_(x)


def slices_of_all(pairs: int, *tensors: Tensor) -> list[Sequence[Tensor]]:
    """The slices `(bh, ...)` of tensors `(b, h, ...)`, as views; `pairs` comes from `pairs_per_slice`."""
    batch, heads = tensors[0].shape[:2]
    if pairs >= batch * heads:
        return [[x.flatten(0, 1) for x in tensors]]
    if pairs > heads or batch == 1:
        return list(zip(*[x.flatten(0, 1).split(pairs) for x in tensors], strict=True))
    by_sequence = zip(*tensors, strict=True)
    return [part for some in by_sequence for part in zip(*[x.split(pairs) for x in some], strict=True)]


def first_head(s: int, pairs: int, heads: int) -> int:
    return s % -(-heads // pairs) * pairs


def allocate_outputs(scratch: Scratch, query: Tensor, value: Tensor, division: str) -> tuple[Tensor, Tensor]:
    """Memory for outputs and denominators. Warns once about a dtype that is slow on this CPU."""
    if query.dtype != scratch.dtype and not has_native_product(query.dtype):
        logger.warning_once(
            f"This CPU has no matrix product in {query.dtype}: LION's kernels compute in float32, as fast as for "
            "float32 inputs. Linear layers do not: load the model with dtype=torch.float32 for speed."
        )
    # With bfloat16 operands, a wider output would not make gradients more exact.
    is_narrow = scratch.is_mixed and division != "deferred"
    output = torch.empty_like(value, dtype=value.dtype if is_narrow else scratch.dtype)
    return output, query.new_empty(query.shape[:3], dtype=scratch.dtype)


def finish(output: Tensor, numerator: Tensor, denominator: Tensor, division: str, head_dim: int) -> None:
    """
    Divide numerators, `(bh, length, e)`, by denominators, `(bh, length)`, and write them to `output`; or turn
    gradients of outputs into those of sums.
    """
    if division != "deferred":
        # A tensor in both cases: with a Python number, a bfloat16 product would be rounded before it is stored.
        scale = inverse_denominator(denominator) if division == "sum" else denominator.new_full((1, 1), head_dim**-0.5)
        torch.mul(numerator, scale.unsqueeze(-1), out=output)
    elif numerator is not output:
        output.copy_(numerator)


def rounded(output: Tensor, denominator: Tensor, value: Tensor, division: str, *more: Tensor) -> tuple[Tensor, ...]:
    """The results of an operator: the output like the values, denominators, and the wider output if there is one."""
    if output.stride() != value.stride():  # `side_by_side` changes the layout
        output = laid_out_as(value, output)
    if output.dtype == value.dtype or division == "deferred":
        return output, denominator, denominator.new_empty(0), *more
    return output.to(value.dtype), denominator, output, *more


def output_gradients(
    grad: Tensor,
    grad_denominator: Tensor | None,
    output: Tensor,
    denominator: Tensor,
    division: str,
    chunks: tuple[int, int],
    scratch: Scratch,
) -> tuple[Tensor, Tensor | None]:
    """
    The gradients n and d of numerators and denominators, in chunks, `(bh * n, chunk, e)` and `(bh * n, chunk, 1)`,
    padded with zeros, from those of the operator, `(bh, length, ...)`. For "sum" they are n_i = dy_i / den_i and
    d_i = -n_i · y_i; for "none" d is `None`. `chunks` are the number n and the size of chunks.
    """
    bh, length, dim = grad.shape
    is_padded = chunks[0] * chunks[1] > length
    n = scratch("n", bh, chunks[0] * chunks[1], dim)
    real = n[:, :length] if is_padded else n
    finish(real, grad, denominator, division, scratch.like.shape[-1])
    if is_padded:
        n[:, length:] = 0
    if division == "none":
        return n.view(-1, chunks[1], dim), None
    if scratch.is_mixed:  # round n first, since n_i · v_j + d_i cancels where v_j is near y_i
        n.copy_(scratch.operand("n", n))
    d = scratch("d", *n.shape[:-1])
    if is_padded:
        d[:, length:] = 0
    if division == "deferred":
        d[:, :length] = grad_denominator
    else:
        product = torch.mul(real, output, out=scratch("product", *real.shape))
        torch.sum(product, -1, out=d[:, :length]).neg_()
    return n.view(-1, chunks[1], dim), d.view(-1, chunks[1], 1)


def cpu_operator(
    name: str, compute: Callable, compute_gradients: Callable, plain: Callable, allocate_more: Callable | None = None
) -> Callable:
    """
    The operator `lion::<name>` with a hand-written forward and backward for the CPU (`attention_operator`); `compute`
    returns the result of `rounded`. `plain` is the body (attention/plain.py) that computes the same. `allocate_more`
    allocates one more tensor that `compute` returns, from query, key, value and the forward log decay.
    """

    def gradients_laid_out(grad, grad_denominator, query, key, value, forward, backward, output, *others, **plan):
        inputs = query, key, value
        *copies, grad, output = side_by_side(forward, *inputs, grad, output)
        *gradients, d_forward, d_backward = compute_gradients(
            grad, grad_denominator, *copies, forward, backward, output, *others, **plan
        )
        return *map(laid_out_as, inputs, gradients), d_forward, d_backward

    def allocate_saved(query, key, value, forward, backward, chunk_size, division, head_directions):
        dtype = accumulation_dtype(query.dtype)
        has_wider = value.dtype != dtype and division != "deferred" and not Scratch(query).is_mixed
        wider = torch.empty_like(value, dtype=dtype) if has_wider else value.new_empty(0, dtype=dtype)
        more = () if allocate_more is None else (allocate_more(query, key, value, forward),)
        return wider, *more

    num_saved = 1 if allocate_more is None else 2
    plain = partial(run_plain, plain)
    return attention_operator(name, compute, gradients_laid_out, plain, allocate_saved, num_saved, is_direct=True)
