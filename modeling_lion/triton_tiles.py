# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What the Triton kernels share. It needs triton; kernel_triton.py imports it with the first CUDA tensor.

A tensor `(batch, heads, length, dim)` reaches a kernel as a tuple: its pointer and its strides of batch, head and
token; the stride of the last dimension is 1. Kernels work on tiles of TILE tokens; dimensions that are no power of two
are padded inside. "row" is a (batch, head) pair. Nothing is atomic: two runs give the same bits.
"""

try:  # an import outside of `try` would make triton a requirement of the model's code on the Hub
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError("triton is not installed; it comes with torch for CUDA.") from error


@triton.jit
def head_of(x, row, heads):
    """The tuple of one (batch, head) pair: pointer and stride of a token."""
    pointer, batch_stride, head_stride, token_stride = x
    pointer += (row // heads).to(tl.int64) * batch_stride + (row % heads).to(tl.int64) * head_stride
    return pointer, token_stride


@triton.jit
def tile_pointers(x, tokens, columns):
    pointer, token_stride = x
    return pointer + tokens[:, None].to(tl.int64) * token_stride + columns[None, :]


@triton.jit
def load_tile(x, tokens, length, start, BLOCK: tl.constexpr, DIM: tl.constexpr):
    """`(TILE, BLOCK)`: columns from `start` of some tokens, 0 beyond the length and beyond DIM."""
    columns = start + tl.arange(0, BLOCK)
    mask = (tokens < length)[:, None] & (columns < DIM)[None, :]
    return tl.load(tile_pointers(x, tokens, columns), mask=mask, other=0.0)


@triton.jit
def store_tile(x, values, tokens, length, start, BLOCK: tl.constexpr, DIM: tl.constexpr):
    columns = start + tl.arange(0, BLOCK)
    mask = (tokens < length)[:, None] & (columns < DIM)[None, :]
    tl.store(tile_pointers(x, tokens, columns), values.to(x[0].dtype.element_ty), mask=mask)


@triton.jit
def product(a, b, accumulator, PRECISION: tl.constexpr):
    """accumulator + a b, in the dtype of b and accumulated in float32."""
    return tl.dot(a.to(b.dtype), b, accumulator, input_precision=PRECISION)


@triton.jit
def held_tile(x, tokens, length, BLOCK: tl.constexpr, SPLIT: tl.constexpr, DIM: tl.constexpr):
    """A tile for several `dots`, `(TILE, BLOCK)`; None if they go by in parts of SPLIT columns."""
    if SPLIT < BLOCK:
        return None
    else:
        return load_tile(x, tokens, length, 0, BLOCK, DIM)


@triton.jit
def dots(
    x, tokens, tile, y, others, length,
    BLOCK: tl.constexpr, SPLIT: tl.constexpr, DIM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    x yᵀ of some tokens and some others, float32. `tile` is the `held_tile` of x. Where registers are too few for
    whole rows, both are read in parts of SPLIT columns.
    """
    if SPLIT < BLOCK:
        result = tl.zeros([tokens.shape[0], others.shape[0]], tl.float32)
        for first in range(0, BLOCK, SPLIT):
            part = load_tile(y, others, length, first, SPLIT, DIM)
            result = product(load_tile(x, tokens, length, first, SPLIT, DIM), tl.trans(part), result, PRECISION)
        return result
    else:
        return tl.dot(tile, tl.trans(load_tile(y, others, length, 0, BLOCK, DIM)), input_precision=PRECISION)


@triton.jit
def load_state(x, d, e, DIM: tl.constexpr, VALUE_DIM: tl.constexpr):
    """`(d, e)` of a contiguous state `(DIM, VALUE_DIM)`, 0 beyond it; transposed where d is a row and e a column."""
    return tl.load(x + d * VALUE_DIM + e, mask=(d < DIM) & (e < VALUE_DIM), other=0.0)


@triton.jit
def times_state(
    accumulator, x, tokens, length, state, start,
    TRANSPOSED: tl.constexpr, INNER: tl.constexpr, INNER_DIM: tl.constexpr, OUTER: tl.constexpr,
    DIM: tl.constexpr, VALUE_DIM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    Add x S, columns from `start`, or x Sᵀ, to `(TILE, OUTER)`. The inner dimension goes by in blocks: a whole state
    of 256 x 256 does not fit beside the tiles.
    """
    outer = start + tl.arange(0, OUTER)
    for first in range(0, INNER_DIM, INNER):
        inner = first + tl.arange(0, INNER)
        if TRANSPOSED:
            block = load_state(state, outer[None, :], inner[:, None], DIM, VALUE_DIM)
        else:
            block = load_state(state, inner[:, None], outer[None, :], DIM, VALUE_DIM)
        part = load_tile(x, tokens, length, first, INNER, INNER_DIM)
        accumulator = product(part, block, accumulator, PRECISION)
    return accumulator


@triton.jit
def times_totals(x, tokens, length, totals, BLOCK: tl.constexpr, DIM: tl.constexpr):
    """x z, `(TILE,)`, in float32; the totals z are the column of the state for v = 1."""
    columns = tl.arange(0, BLOCK)
    z = tl.load(totals + columns, mask=columns < DIM, other=0.0)
    return tl.sum(load_tile(x, tokens, length, 0, BLOCK, DIM).to(tl.float32) * z[None, :], 1)


@triton.jit
def inverse_of(total, EMPTY: tl.constexpr):
    """1 / total; 0 where the total counts as 0 (`is_empty`), which makes outputs and all gradients 0 there."""
    empty = tl.abs(total) < EMPTY
    return tl.where(empty, 0.0, 1.0 / tl.where(empty, 1.0, total))
