# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What the hand-written kernels for the CPU share: slices that stay in cache, one scratch memory for all of them, and
how they become operators.

On a CPU, elementwise work on tensors that exceed the cache, and the first touch of every fresh page of memory, cost
more than the matrix products of linear attention. So these kernels take a slice of the (batch, head) pairs at a time
and write whatever is in between into the same scratch memory again and again. autograd can't do that: hence the
gradients by hand. "bh" counts the (batch, head) pairs of a slice.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers.utils import logging

from ..attention.custom_operator import attention_operator
from ..attention.numerics import accumulation_dtype, has_fast_bfloat16, has_native_product, is_zero_denominator


# Numbers in the queries of a sequence, with and without decays, and bytes in all of them. Measured with 2 to 12 heads
# of 16 to 64 (AMD EPYC 9005, and an EPYC without AVX-512, one thread): forward and backward take .25 to .96 of the
# time below these limits. Above them that is .6 to 1.2, depending on the batch; forward alone still gains at times.
# Copies of more bytes than that are first touched in every call.
SHORT_WITH_DECAY, SHORT_WITHOUT_DECAY, FEW_BYTES = 3 * 2**12, 2**13, 3 * 2**18
logger = logging.get_logger(__name__)


class Scratch:
    """
    Memory by name: `scratch("scores", 4, 64, 64)` is what any earlier call with that name left, or NaN for all; and
    the matrix products, whose operands may be narrower than all else.

    Attributes:
        dtype: of sums, decays, denominators and states: `accumulation_dtype`.
        operand_dtype: of what is multiplied, bfloat16 where this CPU multiplies the inputs' bfloat16 natively, three
            to four times as fast as float32, and adds up in float32; otherwise as `dtype`.
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

    def operand(self, name: str, x: Tensor) -> Tensor:
        """`x` for matrix products: itself, or a copy. (Copying to contiguous bfloat16 costs less than it saves.)"""
        if x.dtype == self.operand_dtype and (not self.is_mixed or x.is_contiguous()):
            return x
        return self(name, *x.shape, dtype=self.operand_dtype).copy_(x)

    def wide(self, name: str, x: Tensor) -> Tensor:
        """An operand in the scratch dtype, for what must have all its digits: itself, or a copy."""
        return x if x.dtype == self.dtype else self(name, *x.shape).copy_(x)

    def operands(self, *tensors: Tensor) -> list[Tensor]:
        """Query, key and value for matrix products."""
        return [self.operand(name, x) for name, x in zip("qkv", tensors, strict=True)]

    def product(self, first: Tensor, second: Tensor, out: Tensor, adds: bool = False) -> Tensor:
        """The product of operands, `(bh, l, m)` and `(bh, m, n)`, in `out`, or added to what is there."""
        if out.dtype == first.dtype:
            return out.baddbmm_(first, second) if adds else torch.bmm(first, second, out=out)
        narrow = torch.bmm(first, second, out=self("product", *out.shape, dtype=first.dtype))
        return out.add_(narrow) if adds else out.copy_(narrow)

    def target(self, name: str, out: Tensor, is_sum: bool = False) -> Tensor:
        """
        Where to compute what will be in `out`: there, if a matrix product can write to it. `is_sum`: several products
        will be added up.
        """
        dtype = self.dtype if is_sum else self.operand_dtype
        is_possible = out.dtype == dtype and (self.is_mixed or out.is_contiguous())
        return out if is_possible else self(name, *out.shape, dtype=dtype)

    def deliver(self, found: Sequence[Tensor], outs: Sequence[Tensor]) -> None:
        """What was computed at a `target` to where it belongs."""
        for x, out in zip(found, outs, strict=True):
            if x is not out:
                out.copy_(x)


def pairs_per_slice(wanted: int, *tensors: Tensor) -> int:
    """
    How many (batch, head) pairs of `(b, h, ...)` a slice has: about `wanted`, some heads of one sequence, or several
    sequences with all their heads if all tensors have these side by side in memory. (Of an odd number of heads one
    sequence at most: the directions of heads alternate within a slice.)
    """
    batch, heads = tensors[0].shape[:2]
    if heads % 2 and batch > 1:
        wanted = min(wanted, heads)
    if wanted >= 2 * heads and all(batch == 1 or heads == 1 or x.stride(0) == heads * x.stride(1) for x in tensors):
        return wanted // max(heads, 1) * heads
    return -(-heads // -(-heads // max(1, min(wanted, heads))))


def is_short(query: Tensor, has_decay: bool) -> bool:
    """
    Whether sequences `(b, h, l, d)` are so short that a slice of one costs more in calls than copies cost that have
    the heads of several side by side, which `pairs_per_slice` asks for.
    """
    batch, heads, length, dim = query.shape
    is_scattered = batch > 1 and heads % 2 == 0 and query.stride(0) != heads * query.stride(1)
    is_small = query.numel() * query.element_size() <= FEW_BYTES
    longest = SHORT_WITH_DECAY if has_decay else SHORT_WITHOUT_DECAY
    return is_scattered and is_small and heads * length * dim <= longest


def side_by_side(log_decay: Tensor | None, query: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """These tensors, or contiguous copies where `is_short`; `log_decay` is that of one direction."""
    tensors = query, *others
    return tuple(x.contiguous() for x in tensors) if is_short(query, log_decay is not None) else tensors


def laid_out_as(like: Tensor, x: Tensor) -> Tensor:
    """`x` if it is in memory as `torch.empty_like` has it for `like`, of the same shape, or such a copy."""
    has_it = x.stride() == torch.empty_like(like, device="meta").stride()
    return x if has_it else torch.empty_like(like, dtype=x.dtype).copy_(x)


def slices_of_all(pairs: int, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Of tensors `(b, h, ...)`, the slices `(bh, ...)`, views all; `pairs` from `pairs_per_slice`."""
    if pairs > tensors[0].shape[1] or len(tensors[0]) == 1:
        return list(zip(*[x.flatten(0, 1).split(pairs) for x in tensors], strict=True))
    by_sequence = zip(*tensors, strict=True)
    return [part for some in by_sequence for part in zip(*[x.split(pairs) for x in some], strict=True)]


def first_head(s: int, pairs: int, heads: int) -> int:
    """The first head of slice s."""
    return s % -(-heads // pairs) * pairs


def allocate_outputs(query: Tensor, value: Tensor, normalization: str) -> tuple[Scratch, Tensor, Tensor]:
    """
    Scratch memory, and memory for output and factor: head_dim^-1/2, which `finish` may replace. A dtype that this CPU
    is slow at is named once.
    """
    if not has_native_product(query.dtype):
        logger.warning_once(
            f"This CPU has no matrix product in {query.dtype}: LION's kernels compute in float32, as fast as for "
            "float32 inputs. Linear layers do not: load the model with dtype=torch.float32 for speed."
        )
    scratch = Scratch(query)
    # With operands in bfloat16, gradients gain next to nothing from an output that is wider.
    is_narrow = scratch.is_mixed and normalization != "separate"
    output = torch.empty_like(value, dtype=value.dtype if is_narrow else scratch.dtype)
    return scratch, output, torch.full(query.shape[:3], query.shape[-1] ** -0.5, dtype=scratch.dtype)


def finish(output: Tensor, numerator: Tensor, factor: Tensor, normalization: str) -> None:
    """
    Write the output of some queries, `(bh, length, e)`; `numerator` may be `output` itself. `factor`, `(bh, length)`,
    holds the denominators, or head_dim^-1/2 for "none"; for "sum" their inverses take their place, 0 where a
    denominator is 0, which makes the output and all gradients 0 there (SPEC §5).
    """
    if normalization == "sum":
        is_zero = is_zero_denominator(factor)
        factor.reciprocal_().masked_fill_(is_zero, 0)
    if normalization != "separate":
        torch.mul(numerator, factor.unsqueeze(-1), out=output)
    elif numerator is not output:
        output.copy_(numerator)


def rounded(output: Tensor, factor: Tensor, value: Tensor, normalization: str, *more: Tensor) -> tuple[Tensor, ...]:
    """
    What an operator returns (`attention_operator`): the output in the dtype of the values that it was given, laid out
    as these are, and itself if wider.
    """
    output = laid_out_as(value, output)  # where it is of copies `side_by_side`
    if output.dtype == value.dtype or normalization == "separate":
        return output, factor, factor.new_empty(0), *more
    return output.to(value.dtype), factor, output, *more


def output_gradients(
    grad: Tensor,
    grad_denominator: Tensor | None,
    output: Tensor,
    factor: Tensor,
    normalization: str,
    chunks: tuple[int, int],
    scratch: Scratch,
) -> tuple[Tensor, Tensor | None]:
    """
    The gradients of numerators and denominators, n_i and d_i, of some `(bh, length, e)` in chunks, `(bh * n, chunk,
    e)` and `(bh * n, chunk, 1)`, padded with zeros. For "sum" they are n_i = dy_i / den_i and d_i = -n_i · y_i; d is
    None for "none", whose denominators nobody sees.

    Args:
        chunks: their number n and size.
    """
    bh, length, dim = grad.shape
    is_padded = chunks[0] * chunks[1] > length
    n = scratch("n", bh, chunks[0] * chunks[1], dim)
    real = n[:, :length] if is_padded else n
    if normalization == "separate":
        real.copy_(grad)
    else:
        torch.mul(grad, factor.unsqueeze(-1), out=real)
    if is_padded:
        n[:, length:] = 0
    if normalization == "none":
        return n.view(-1, chunks[1], dim), None
    if scratch.is_mixed:  # of the n that is multiplied: n_i · v_j + d_i cancels where v_j is near y_i
        n.copy_(scratch.operand("n", n))
    d = scratch("d", *n.shape[:-1])
    if is_padded:
        d[:, length:] = 0
    if normalization == "separate":
        d[:, :length] = grad_denominator
    else:
        product = torch.mul(real, output, out=scratch("product", *real.shape))
        torch.sum(product, -1, out=d[:, :length]).neg_()
    return n.view(-1, chunks[1], dim), d.view(-1, chunks[1], 1)


def cpu_operator(
    name: str, compute: Callable, compute_gradients: Callable, plain: Callable, allocate_more: Callable | None = None
) -> Callable:
    """
    The operator `lion::<name>` of a hand-written forward and backward for the CPU.

    Args:
        compute, compute_gradients, plain: as in `attention_operator`; `compute` returns what is `rounded`.
        allocate_more: memory for one more tensor that `compute` returns and `compute_gradients` takes, from the
            arguments of `compute`.
    """

    def gradients_laid_out(grad, grad_denominator, query, key, value, forward, backward, output, *others):
        inputs = query, key, value
        *given, grad, output = side_by_side(forward, *inputs, grad, output)
        *gradients, d_forward, d_backward = compute_gradients(
            grad, grad_denominator, *given, forward, backward, output, *others
        )
        return *map(laid_out_as, inputs, gradients), d_forward, d_backward

    def allocate_saved(query, key, value, forward, backward, chunk_size, normalization, head_directions):
        dtype = accumulation_dtype(query.dtype)
        has_wider = value.dtype != dtype and normalization != "separate" and not Scratch(query).is_mixed
        wider = torch.empty_like(value, dtype=dtype) if has_wider else value.new_empty(0, dtype=dtype)
        more = () if allocate_more is None else (allocate_more(query, key, value, forward),)
        return wider, *more

    num_saved = 1 if allocate_more is None else 2
    return attention_operator(name, compute, gradients_laid_out, plain, allocate_saved, num_saved)
