# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What the hand-written kernels for the CPU share: slices that stay in cache, one scratch memory for all of them, and the
operator that makes a forward and a backward known to autograd and to torch.compile.

On a CPU, elementwise work on tensors that exceed the cache, and the first touch of every fresh page of memory, cost
more than the matrix products of linear attention. So the fused bodies take a few heads at a time and write whatever
is in between into the same scratch memory again and again. autograd can't do that: hence the backward by hand.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from transformers.utils import logging

from .lion_kernel import accumulation_dtype, is_empty, run_plain


logger = logging.get_logger(__name__)

ARGUMENTS = "(Tensor query, Tensor key, Tensor value, Tensor? right, Tensor? left, int chunk_size, bool normalize)"
BACKWARD_SCHEMA = (
    "(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor? right, Tensor? left, Tensor output, Tensor[] kept,"
    " int chunk_size, bool normalize, bool needs_decay) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


class Scratch:
    """Memory by name: `scratch("scores", 4, 64, 64)` is what any earlier call with that name left, or NaN for all."""

    def __init__(self, like: Tensor, dtype: torch.dtype):
        self.like, self.dtype = like, dtype
        self.memory: dict[str, Tensor] = {}
        self.views: dict[tuple, Tensor] = {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        view = self.views.get((name, shape))
        if view is None:
            size = math.prod(shape)
            if name not in self.memory or self.memory[name].numel() < size:
                self.memory[name] = self.like.new_empty(size, dtype=self.dtype)
                self.views.clear()
            view = self.views[name, shape] = self.memory[name][:size].view(shape)
        return view

    def cast(self, *tensors: Tensor) -> list[Tensor]:
        """Query, key and value in the scratch dtype."""
        if tensors[0].dtype == tensors[-1].dtype == self.dtype:
            return list(tensors)
        return [self(name, *x.shape).copy_(x) for name, x in zip("qkv", tensors, strict=True)]

    def target(self, name: str, out: Tensor) -> Tensor:
        """Where to compute what will be in `out`: there, if a matrix product can write to it."""
        return out if out.is_contiguous() and out.dtype == self.dtype else self(name, *out.shape)

    def deliver(self, found: list[Tensor], outs: list[Tensor]) -> None:
        """What was computed at a `target` to where it belongs."""
        for x, out in zip(found, outs, strict=True):
            if x is not out:
                out.copy_(x)


def rows_at_a_time(wanted: int, *tensors: Tensor) -> int:
    """
    How many (batch, head) pairs of `(b, h, ...)` to take at a time: about `wanted`, some heads of one sequence, or
    several sequences with all their heads if all tensors have these side by side in memory.
    """
    batch, heads = tensors[0].shape[:2]
    if wanted >= 2 * heads and all(batch == 1 or heads == 1 or x.stride(0) == heads * x.stride(1) for x in tensors):
        return wanted // max(heads, 1) * heads
    return -(-heads // -(-heads // max(1, min(wanted, heads))))


def row_views(x: Tensor, rows: int) -> list[Tensor]:
    """`(b, h, ...)` in slices `(rows, ...)`, views all; `rows` from `rows_at_a_time`."""
    if rows > x.shape[1]:
        return x.flatten(0, 1).split(rows)
    return [part for sequence in x.unbind(0) for part in sequence.split(rows)]


def row_slices(rows: int, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """The `row_views` of several tensors, by slice."""
    return list(zip(*(row_views(x, rows) for x in tensors), strict=True))


def read_blocks(x: Tensor, num_blocks: int, block: int, scratch: Scratch, name: str) -> Tensor:
    """`(rows, length, d)` to `(rows * num_blocks, block, d)`, padded with zeros, in the scratch dtype."""
    rows, length, dim = x.shape
    if num_blocks * block == length and x.dtype == scratch.dtype and (rows == 1 or x.is_contiguous()):
        return x.reshape(-1, block, dim)
    copy = scratch(name, rows, num_blocks * block, dim)
    copy[:, :length] = x
    copy[:, length:] = 0
    return copy.view(-1, block, dim)


def blocks_to_write(out: Tensor, num_blocks: int, block: int, scratch: Scratch, name: str) -> Tensor:
    """Memory for what `write_blocks` will bring to `out`, `(rows, length, d)`: that of `out` itself if possible."""
    rows, length, dim = out.shape
    if out.is_contiguous() and num_blocks * block == length and out.dtype == scratch.dtype:
        return out.view(-1, block, dim)
    return scratch(name, rows * num_blocks, block, dim)


def write_blocks(out: Tensor, blocks: Tensor) -> None:
    """The way back from `read_blocks`: into `out`, `(rows, length, d)`, without the padding."""
    if blocks.data_ptr() != out.data_ptr():
        out.copy_(blocks.view(len(out), -1, out.shape[-1])[:, : out.shape[1]])


def inverse_totals(totals: Tensor) -> Tensor:
    """1 / totals, in place; 0 where the total `is_empty`, which makes outputs and all gradients 0 there (SPEC §5)."""
    empty = is_empty(totals)
    return totals.reciprocal_().masked_fill_(empty, 0)


def scaled_gradient(grad: Tensor, inverse: Tensor, output: Tensor | None, blocks: tuple[int, int], scratch: Scratch):
    """
    The gradients of numerators and denominators: n_i = dy_i / den_i, `(..., block, e)`, and d_i = -n_i · y_i,
    `(..., block, 1)`, of some `(..., length, e)` in blocks, padded with zeros. Without `output`, d is None.
    """
    *rows, length, dim = grad.shape
    is_padded = blocks[0] * blocks[1] > length
    n = scratch("n", *rows, blocks[0] * blocks[1], dim)
    real = n[..., :length, :] if is_padded else n
    torch.mul(grad, inverse.unsqueeze(-1), out=real)
    if is_padded:
        n[..., length:, :] = 0
    if output is None:
        return n.view(-1, blocks[1], dim), None
    d = scratch("d", *n.shape[:-1])
    if is_padded:
        d[..., length:] = 0
    product = torch.mul(real, output, out=scratch("product", *real.shape))
    torch.sum(product, -1, out=d[..., :length]).neg_()
    return n.view(-1, blocks[1], dim), d.view(-1, blocks[1], 1)


class DecayShares(NamedTuple):
    """A `DecayGradient` of some (batch, head) pairs: `(rows, blocks, c)`, and `(rows, blocks)` for `through`."""

    query_right: Tensor
    key_right: Tensor
    query_left: Tensor
    key_left: Tensor
    through_right: Tensor
    through_left: Tensor

    def of_blocks(self, n: slice) -> "DecayShares":
        return DecayShares(*(x[:, n] for x in self))


class DecayGradient:
    """
    The gradients of the log decays, from what crosses each step inside a block of `c` tokens (never from sums over the
    whole sequence, which would cancel):

        d right_t = Σ_{i>t} query_right_i + Σ_{j≤t} key_right_j + through_right
        d left_t  = Σ_{i<t} query_left_i  + Σ_{j≥t} key_left_j  + through_left

    `query_right_i` is the gradient of the log of what query i gets from the blocks left of its own, `key_right_j` of
    what key j gives to the blocks right of its own, `through` of what passes the block from one side to the other.
    """

    def __init__(self, like: Tensor, batch: int, heads: int, num_blocks: int, block: int):
        self.query_right, self.key_right, self.query_left, self.key_left = (
            like.new_zeros(batch, heads, num_blocks, block) for _ in range(4)
        )
        self.through_right, self.through_left = (like.new_zeros(batch, heads, num_blocks) for _ in range(2))
        self.below = like.new_ones(block, block).tril_(-1)

    def views(self, rows: int) -> list[DecayShares]:
        """By slices of (batch, head) pairs, of `rows_at_a_time`."""
        fields = (getattr(self, name) for name in DecayShares._fields)
        return [DecayShares(*views) for views in row_slices(rows, *fields)]

    def inside_blocks(self, r: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
        """
        What stays inside blocks, of R = d log M, `(..., c, c)`: shares of `query_right` and of `key_left`, `(..., c)`.
        The row i counts from i on and the column j is taken back from j on, so that only what crosses t is left.
        `below` is memory of the same shape; r is lost.
        """
        torch.mul(r, self.below, out=below)
        above = r.sub_(below)  # with the diagonal, which cancels
        return below.sum(-1).sub_(below.sum(-2)), above.sum(-2).sub_(above.sum(-1))

    def result(self, length: int, right: Tensor, left: Tensor | None) -> tuple[Tensor, Tensor]:
        """The gradients in the shapes of `right` and `left`."""
        from_here = self.query_right.flip(-1).cumsum(-1).flip(-1)
        d_right = from_here - self.query_right + self.key_right.cumsum(-1) + self.through_right.unsqueeze(-1)
        up_to_here = self.query_left.cumsum(-1)
        d_left = up_to_here - self.query_left + self.key_left.flip(-1).cumsum(-1).flip(-1)
        d_left += self.through_left.unsqueeze(-1)
        d_right, d_left = (x.flatten(2)[..., :length] for x in (d_right, d_left))
        if left is None:
            return (d_right + d_left).sum_to_size(right.shape), d_left.new_empty(0)
        return d_right.sum_to_size(right.shape), d_left.sum_to_size(left.shape)


def has_native_product(dtype: torch.dtype) -> bool:
    """Whether this CPU multiplies matrices in a dtype; True where torch does not tell (before 2.10, not on x86)."""
    features = {torch.bfloat16: ("avx512_bf16", "amx_bf16"), torch.float16: ("avx512_fp16", "amx_fp16")}.get(dtype)
    if features is None:
        return True
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    if capabilities.get("architecture") != "x86_64":
        return True
    return any(capabilities.get(name) for name in features)


def fused_operator(
    name: str, forward: Callable, backward: Callable, plain: Callable, keep_more: Callable | None = None
) -> Callable:
    """
    The operator `lion::<name>` of a hand-written forward and backward for the CPU.

    Args:
        forward: `(query, key, value, right, left, chunk_size, normalize) -> (exact, inverse, ...)`. `right` and `left`
            as in `run_plain`. `exact` is the output in the accumulation dtype: rounded to bfloat16, it would cost the
            gradients of the decays most of their digits. `inverse` is what each output was multiplied with,
            `(batch, heads, length)`: 1 / denominator, or the constant head_dim^-1/2 if not `normalize`.
        backward: `(grad, query, key, value, right, left, exact, inverse, ..., chunk_size, normalize, needs_decay)` to
            the five gradients, empty for decays that are None or not needed.
        plain: the body of differentiable operations (`lion_kernel`), for second derivatives.
        keep_more: memory for one more tensor that `forward` returns and `backward` takes, from the arguments of
            `forward`.

    Returns:
        A function of the arguments of `forward` that returns the output.
    """

    def forward_and_round(query, key, value, *others):
        if not has_native_product(query.dtype):
            logger.warning_once(
                f"This CPU has no matrix product in {query.dtype}: LION's kernels compute in float32, as fast as for "
                "float32 inputs. Linear layers do not: load the model with dtype=torch.float32 for speed."
            )
        exact, *kept = forward(query, key, value, *others)
        if exact.dtype == value.dtype:
            return exact, exact.new_empty(0), *kept
        return exact.to(value.dtype), exact, *kept

    def keep(query, key, value, *others):
        dtype = accumulation_dtype(query.dtype)
        exact = value.new_empty(0) if value.dtype == dtype else torch.empty_like(value, dtype=dtype)
        more = () if keep_more is None else (keep_more(query, key, value, *others),)
        return exact, query.new_empty(query.shape[:3], dtype=dtype), *more

    def unpacked(*args):
        *inputs, output, kept, chunk_size, normalize, needs_decay = args
        return backward(*inputs, output, *kept, chunk_size, normalize, needs_decay)

    num_kept = 2 if keep_more is None else 3
    return differentiable_operator(name, forward_and_round, unpacked, plain, keep, num_kept)


def differentiable_operator(
    name: str,
    forward: Callable,
    backward: Callable | None,
    plain: Callable,
    keep: Callable,
    num_kept: int,
    empty_like: Callable = torch.empty_like,
) -> Callable:
    """
    An operator `lion::<name>` that autograd and torch.compile know.

    Args:
        forward: `(query, key, value, right, left, chunk_size, normalize) -> (output, *kept)`, with what the backward
            needs beside the inputs: first the output in wider numbers, or nothing, `(0,)`, if the output will do.
        backward: `(grad, query, key, value, right, left, output, kept, chunk_size, normalize, needs_decay)` to the
            five gradients, empty for decays that are None or not needed. `output` may be the wider one, `kept` is the
            rest. `None` for the derivative of `plain`.
        plain: the body of differentiable operations (`lion_kernel`), for second derivatives.
        keep: memory for `kept`, from the arguments of `forward`; num_kept: how many tensors.
        empty_like: memory for the output and the gradients of queries, keys and values.

    Returns:
        A function of the arguments of `forward` that returns the output.
    """
    schema = f"{ARGUMENTS} -> ({', '.join(['Tensor'] * (1 + num_kept))})"
    forward_op = torch.library.custom_op(f"lion::{name}", forward, mutates_args=(), schema=schema)

    @forward_op.register_fake
    def _(query, key, value, *others):
        return (empty_like(value), *keep(query, key, value, *others)) if num_kept else empty_like(value)

    if backward is not None:
        backward_op = torch.library.custom_op(
            f"lion::{name}_backward", backward, mutates_args=(), schema=BACKWARD_SCHEMA
        )

        @backward_op.register_fake
        def _(grad, query, key, value, right, left, output, kept, chunk_size, normalize, needs_decay):
            decays = [
                grad.new_empty(0) if x is None or not needs_decay else x.new_empty(x.shape) for x in (right, left)
            ]
            return empty_like(query), empty_like(key), empty_like(value), *decays

    def setup_context(ctx, inputs, output):
        *tensors, ctx.chunk_size, ctx.normalize = inputs
        kept = ()
        if num_kept and backward is not None:
            output, exact, *kept = output
            kept = (exact if exact.dim() > 1 else output, *kept)
        ctx.save_for_backward(*tensors, *kept)
        ctx.set_materialize_grads(False)

    def differentiate(ctx, grad, *_):
        saved = ctx.saved_tensors  # once: checkpointing computes them for it
        inputs, kept = saved[:5], saved[5:]
        needs = ctx.needs_input_grad[:5]
        if grad is None:
            return (None,) * 7
        is_differentiable = torch.is_grad_enabled()  # create_graph=True: the gradient itself will be differentiated
        if is_differentiable or backward is None:
            with torch.enable_grad():
                if not is_differentiable:
                    inputs = [None if x is None else x.detach().requires_grad_() for x in inputs]
                wanted = [x for x, needed in zip(inputs, needs, strict=True) if needed]
                result = run_plain(plain, *inputs, ctx.chunk_size, ctx.normalize)
                found = iter(
                    torch.autograd.grad(result, wanted, grad, create_graph=is_differentiable, allow_unused=True)
                )
            return *(next(found) if needed else None for needed in needs), None, None
        with torch.autocast(grad.device.type, enabled=False):
            grads = backward_op(grad, *inputs, kept[0], kept[1:], ctx.chunk_size, ctx.normalize, any(needs[3:]))
        return *(g if needed else None for g, needed in zip(grads, needs, strict=True)), None, None

    forward_op.register_autograd(differentiate, setup_context=setup_context)
    return (lambda *args: forward_op(*args)[0]) if num_kept else forward_op
