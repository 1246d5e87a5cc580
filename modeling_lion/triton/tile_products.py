# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Functions that the Triton kernels share. This module needs triton; triton/launch.py imports it with the first CUDA
tensor.

A kernel gets a tensor `(batch, heads, length, dim)` as a tuple: its pointer, and its strides of batch, head and token.
The stride of the last dimension is 1. Kernels compute tiles of TILE tokens, and pad dimensions to a power of two. "bh"
is a (batch, head) pair. There are no atomics, so results are reproducible to the bit.
"""

try:  # transformers requires imports of Hub code to be installed, except inside of `try`
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError("triton is not installed; it comes with torch for CUDA.") from error


LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def head_of(x, bh, heads):
    """The pointer and the token stride of one (batch, head) pair."""
    pointer, batch_stride, head_stride, token_stride = x
    pointer += (bh // heads).to(tl.int64) * batch_stride + (bh % heads).to(tl.int64) * head_stride
    return pointer, token_stride


@triton.jit
def inside_if(condition, index, size):
    """
    index < size if the scalar `condition` holds, otherwise False. (Triton's interpreter turns `condition & block` into
    numbers, which from 3.9 on it does not accept as a mask.)
    """
    return index < tl.where(condition, size, 0)


@triton.jit
def tile_pointers(x, first, length, start, ROWS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr):
    """
    The pointers and the mask of a tile. Pointers are the address of its first token plus 32-bit offsets, which are the
    same for all tiles, so that a loop over tiles does not recompute them (`with_short_strides`).
    """
    pointer, token_stride = x
    pointer += tl.cast(first, tl.int64) * token_stride + start
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    return pointer + (row * token_stride + column), (row < length - first) & (column < DIM - start)


@triton.jit
def load_tile(x, first, length, start, ROWS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr):
    """The tile `(ROWS, WIDTH)` of tokens from `first` and columns from `start`; 0 beyond `length` and DIM."""
    pointers, mask = tile_pointers(x, first, length, start, ROWS, WIDTH, DIM)
    return tl.load(pointers, mask=mask, other=0.0)


@triton.jit
def load_transposed(x, first, length, start, ROWS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr):
    """
    The transpose of `load_tile`, `(WIDTH, ROWS)`, as the first operand of a product. On Hopper GPUs, Triton 3.4 to
    3.7.0 miscompile products with `tl.trans` of a computed tile, such as one that was rounded to TensorFloat-32.
    """
    pointer, token_stride = x
    pointer += tl.cast(first, tl.int64) * token_stride + start
    row, column = tl.arange(0, ROWS)[None, :], tl.arange(0, WIDTH)[:, None]
    mask = (row < length - first) & (column < DIM - start)
    return tl.load(pointer + (row * token_stride + column), mask=mask, other=0.0)


@triton.jit
def store_tile(x, values, first, length, start, ROWS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr):
    pointers, mask = tile_pointers(x, first, length, start, ROWS, WIDTH, DIM)
    tl.store(pointers, values.to(x[0].dtype.element_ty), mask=mask)


@triton.jit
def factor(x, PRECISION: tl.constexpr):
    """
    A factor of a product, rounded to TensorFloat-32 if that is the precision of float32 products. A GPU would truncate
    some operands and not others, so that products that are computed twice would differ.
    """
    if PRECISION == "tf32" and x.dtype == tl.float32:
        rounded = ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        return tl.where(x == x, rounded, x)  # rounding would turn some NaN into 0
    else:
        return x


@triton.jit
def product(a, b, accumulator, PRECISION: tl.constexpr):
    """accumulator + a b, in the dtype of b and accumulated in float32."""
    a, b = factor(a.to(b.dtype), PRECISION), factor(b, PRECISION)
    return tl.dot(a, b, accumulator, input_precision=PRECISION)


@triton.jit
def add_weighted(accumulator, x, y, weights, PRECISION: tl.constexpr):
    """
    accumulator + x (weights ∘ y), with a weight for each row of y. In float16, weights are first divided by the
    largest one: a gradient divided by its denominator can be too small.
    """
    if y.dtype == tl.float16:
        largest = tl.max(tl.abs(weights), 0)
        largest = tl.where(largest > 0, largest, 1.0)
        weighted = (y.to(tl.float32) * (weights / largest)[:, None]).to(y.dtype)
        return accumulator + largest * tl.dot(x, weighted)
    else:
        weighted = (y.to(tl.float32) * weights[:, None]).to(y.dtype)
        return product(x, weighted, accumulator, PRECISION)


@triton.jit
def held_tile(
    x, first, length, ROWS: tl.constexpr, WIDTH: tl.constexpr, SPLIT: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """
    A tile for several `dots`, `(ROWS, WIDTH)`; 0 if `dots` reads slices of SPLIT columns instead. (Before 3.7, Triton
    functions cannot return None.)
    """
    if SPLIT < WIDTH:
        return 0.0
    else:
        return load_tile(x, first, length, 0, ROWS, WIDTH, DIM)


@triton.jit
def dots(
    x, first, tile, y, other, length, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr, SPLIT: tl.constexpr, DIM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    x yᵀ, float32, for ROWS tokens from `first` and COLUMNS tokens from `other`. `tile` is the `held_tile` of x. If
    whole rows do not fit in registers, this reads x and y in slices of SPLIT columns.
    """
    if SPLIT < WIDTH:
        result = tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in range(0, WIDTH, SPLIT):
            ys = load_tile(y, other, length, start, COLUMNS, SPLIT, DIM)
            result = product(load_tile(x, first, length, start, ROWS, SPLIT, DIM), tl.trans(ys), result, PRECISION)
        return result
    else:
        ys = load_tile(y, other, length, 0, COLUMNS, WIDTH, DIM)
        return tl.dot(factor(tile, PRECISION), tl.trans(factor(ys, PRECISION)), input_precision=PRECISION)


@triton.jit
def load_state(x, d, e, DIM: tl.constexpr, VALUE_DIM: tl.constexpr):
    """Elements `(d, e)` of a contiguous state `(DIM, VALUE_DIM)`; 0 beyond it. Transposed if d is a row."""
    return tl.load(x + d * VALUE_DIM + e, mask=(d < DIM) & (e < VALUE_DIM), other=0.0)


@triton.jit
def times_state(
    accumulator, x, weights, first, length, state, start, ROWS: tl.constexpr,
    TRANSPOSED: tl.constexpr, INNER: tl.constexpr, INNER_DIM: tl.constexpr, OUTER: tl.constexpr,
    DIM: tl.constexpr, VALUE_DIM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    Add x S, columns from `start`, or x Sᵀ if TRANSPOSED, to `(ROWS, OUTER)`, with a weight for each row of x. The
    inner dimension is tiled, since a state of 256 x 256 does not fit beside the tiles.
    """
    outer = start + tl.arange(0, OUTER)
    for inner_start in range(0, INNER_DIM, INNER):
        inner = inner_start + tl.arange(0, INNER)
        if TRANSPOSED:
            state_tile = load_state(state, outer[None, :], inner[:, None], DIM, VALUE_DIM)
        else:
            state_tile = load_state(state, inner[:, None], outer[None, :], DIM, VALUE_DIM)
        xs = load_tile(x, first, length, inner_start, ROWS, INNER, INNER_DIM).to(tl.float32) * weights[:, None]
        accumulator = product(xs, state_tile, accumulator, PRECISION)
    return accumulator


@triton.jit
def held_times_state(
    tile, state, start, WIDTH: tl.constexpr, DIM: tl.constexpr, OUTER: tl.constexpr, VALUE_DIM: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """x S, columns from `start`, for a `held_tile` of whole rows, without weights."""
    state_tile = load_state(state, tl.arange(0, WIDTH)[:, None], start + tl.arange(0, OUTER)[None, :], DIM, VALUE_DIM)
    return tl.dot(
        factor(tile.to(state_tile.dtype), PRECISION), factor(state_tile, PRECISION), input_precision=PRECISION
    )


@triton.jit
def times_totals(x, first, length, totals, ROWS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr):
    """x z, `(ROWS,)`, float32. The totals z are the column of the state for v = 1."""
    columns = tl.arange(0, WIDTH)
    z = tl.load(totals + columns, mask=columns < DIM, other=0.0)
    return tl.sum(load_tile(x, first, length, 0, ROWS, WIDTH, DIM).to(tl.float32) * z[None, :], 1)


@triton.jit
def inverse_of(total, SMALLEST: tl.constexpr):
    """1 / total, and 0 where the total counts as 0 (`inverse_denominator`)."""
    is_zero = tl.abs(total) < SMALLEST
    return tl.where(is_zero, 0.0, 1.0 / tl.where(is_zero, 1.0, total))


@triton.jit
def load_scale(inverses, tokens, bh, length, scale, NORMALIZE: tl.constexpr):
    """The factor c of some queries: 1 / denominator (0 beyond the length), or `scale` unless NORMALIZE."""
    if NORMALIZE:
        return tl.load(inverses + bh.to(tl.int64) * length + tokens, mask=tokens < length, other=0.0)
    else:
        return tl.zeros(tokens.shape, tl.float32) + scale


@triton.jit
def store_output(
    output, accumulator, total, denominators, bh, first, length, start, scale,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, NORMALIZE: tl.constexpr, DIVIDES: tl.constexpr,
    SMALLEST: tl.constexpr,
):  # fmt: skip
    """
    Store columns from `start` of the output of some tokens, given numerators and denominators. With the first columns,
    also store the denominators, `(bh, length)`, or their inverses if DIVIDES. Returns the output in float32.
    """
    if NORMALIZE:
        tokens = first + tl.arange(0, ROWS)
        mask = inside_if(start == 0, tokens, length)
        if DIVIDES:
            total = inverse_of(total, SMALLEST)
            accumulator *= total[:, None]
        tl.store(denominators + bh.to(tl.int64) * length + tokens, total, mask=mask)
    else:
        accumulator *= scale
    store_tile(output, accumulator, first, length, start, ROWS, WIDTH, DIM)
    return accumulator
