# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
LION-LIT on a GPU: nothing decays, so one state S = kᵀ [v|1] of all tokens serves every query, at any length.

    forward    partial states · output
    backward   partial adjoint states dS = (c q)ᵀ [dy|-delta] · gradients

The sequence is cut into a few parts that are summed up at the same time; whoever uses a state adds its partial sums,
always in the same order. Letters as in triton_decay.py.
"""

from .triton_tiles import head_of, inverse_of, load_state, load_tile, product, store_tile


try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError("triton is not installed; it comes with torch for CUDA.") from error


@triton.jit
def partial_states_kernel(
    x, y, output, inverse, delta, states, totals, heads, length, part_tiles, num_parts, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
    FULL_VALUE_BLOCK: tl.constexpr, TILE: tl.constexpr, ADJOINT: tl.constexpr, NORMALIZE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """
    One block of the state of one part: `states` `(rows, parts, HEAD_DIM, VALUE_DIM)` and `totals` `(rows, parts,
    HEAD_DIM)`, float32. Forward: x = k, y = v. Adjoint: x = q, y = dy; writes delta `(rows, length)`, too.
    """
    head_blocks: tl.constexpr = (HEAD_DIM + HEAD_BLOCK - 1) // HEAD_BLOCK
    value_blocks: tl.constexpr = (VALUE_DIM + VALUE_BLOCK - 1) // VALUE_BLOCK
    block = tl.program_id(0) % (head_blocks * value_blocks)
    place = (tl.program_id(0) // (head_blocks * value_blocks)).to(tl.int64)
    row, part = tl.program_id(0) // (head_blocks * value_blocks * num_parts), place % num_parts
    head_start = block // value_blocks * HEAD_BLOCK
    value_start = block % value_blocks * VALUE_BLOCK
    x, y, output = head_of(x, row, heads), head_of(y, row, heads), head_of(output, row, heads)
    state = tl.zeros([HEAD_BLOCK, VALUE_BLOCK], tl.float32)
    total = tl.zeros([HEAD_BLOCK], tl.float32)
    begin = part.to(tl.int32) * part_tiles * TILE
    for start in range(begin, tl.minimum(begin + part_tiles * TILE, length), TILE):
        tokens = start + tl.arange(0, TILE)
        xs = load_tile(x, start, length, head_start, TILE, HEAD_BLOCK, HEAD_DIM)
        ys = load_tile(y, start, length, value_start, TILE, VALUE_BLOCK, VALUE_DIM)
        if ADJOINT:
            if NORMALIZE:
                at = row.to(tl.int64) * length + tokens
                dy = load_tile(y, start, length, 0, TILE, FULL_VALUE_BLOCK, VALUE_DIM)
                outputs = load_tile(output, start, length, 0, TILE, FULL_VALUE_BLOCK, VALUE_DIM)
                along = tl.sum(dy.to(tl.float32) * outputs.to(tl.float32), 1)
                tl.store(delta + at, along, mask=(tokens < length) & (block == 0))
                factor = tl.load(inverse + at, mask=tokens < length, other=0.0)
                total -= tl.sum(xs.to(tl.float32) * (factor * along)[:, None], 0)
                xs = (xs.to(tl.float32) * factor[:, None]).to(ys.dtype)
            else:
                xs = (xs.to(tl.float32) * scale).to(ys.dtype)
        elif NORMALIZE:
            total += tl.sum(xs.to(tl.float32), 0)
        state = product(tl.trans(xs.to(ys.dtype)), ys, state, PRECISION)
    d = head_start + tl.arange(0, HEAD_BLOCK)
    e = value_start + tl.arange(0, VALUE_BLOCK)
    inside = (d < HEAD_DIM)[:, None] & (e < VALUE_DIM)[None, :]
    tl.store(states + place * HEAD_DIM * VALUE_DIM + d[:, None] * VALUE_DIM + e[None, :], state, mask=inside)
    if NORMALIZE:
        tl.store(totals + place * HEAD_DIM + d, total, mask=(d < HEAD_DIM) & (value_start == 0))


@triton.jit
def whole_state(
    states, row, num_parts, d, e, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, IS_BFLOAT16: tl.constexpr,
):  # fmt: skip
    """
    The state of all parts, at the rows and columns that d and e give, one of them `(n, 1)`, the other `(1, m)`;
    rounded to bfloat16 if that is what it is multiplied with.
    """
    states += row.to(tl.int64) * num_parts * HEAD_DIM * VALUE_DIM
    state = load_state(states, d, e, HEAD_DIM, VALUE_DIM)
    for part in range(1, num_parts):
        state += load_state(states + part * HEAD_DIM * VALUE_DIM, d, e, HEAD_DIM, VALUE_DIM)
    return state.to(tl.bfloat16) if IS_BFLOAT16 else state


@triton.jit
def whole_totals(totals, row, num_parts, d, HEAD_DIM: tl.constexpr):
    totals += row.to(tl.int64) * num_parts * HEAD_DIM
    total = tl.load(totals + d, mask=d < HEAD_DIM, other=0.0)
    for part in range(1, num_parts):
        total += tl.load(totals + part * HEAD_DIM + d, mask=d < HEAD_DIM, other=0.0)
    return total


@triton.jit
def lit_output_kernel(
    query, output, inverse, states, totals, heads, length, group_tiles, num_groups, num_parts, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
    TILE: tl.constexpr, NORMALIZE: tl.constexpr, EMPTY: tl.constexpr, IS_BFLOAT16: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The output of some tiles, VALUE_BLOCK columns of it, and 1 / denominators `(rows, length)`."""
    value_blocks: tl.constexpr = (VALUE_DIM + VALUE_BLOCK - 1) // VALUE_BLOCK
    value_start = tl.program_id(0) % value_blocks * VALUE_BLOCK
    group = tl.program_id(0) // value_blocks % num_groups
    row = tl.program_id(0) // (value_blocks * num_groups)
    query, output = head_of(query, row, heads), head_of(output, row, heads)
    d = tl.arange(0, HEAD_BLOCK)
    e = value_start + tl.arange(0, VALUE_BLOCK)
    state = whole_state(states, row, num_parts, d[:, None], e[None, :], HEAD_DIM, VALUE_DIM, IS_BFLOAT16)
    if NORMALIZE:
        z = whole_totals(totals, row, num_parts, d, HEAD_DIM)
    begin = group * group_tiles * TILE
    for start in range(begin, tl.minimum(begin + group_tiles * TILE, length), TILE):
        tokens = start + tl.arange(0, TILE)
        q = load_tile(query, start, length, 0, TILE, HEAD_BLOCK, HEAD_DIM)
        y = tl.dot(q.to(state.dtype), state, input_precision=PRECISION)
        if NORMALIZE:
            factor = inverse_of(tl.sum(q.to(tl.float32) * z[None, :], 1), EMPTY)
            mask = (tokens < length) & (value_start == 0)
            tl.store(inverse + row.to(tl.int64) * length + tokens, factor, mask=mask)
            y *= factor[:, None]
        else:
            y *= scale
        store_tile(output, y, start, length, value_start, TILE, VALUE_BLOCK, VALUE_DIM)


@triton.jit
def lit_gradient_kernel(
    query, key, value, grad, d_query, d_key, d_value, inverse, delta, states, totals, d_states, d_totals,
    heads, length, group_tiles, num_groups, num_parts, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
    FULL_HEAD_BLOCK: tl.constexpr, FULL_VALUE_BLOCK: tl.constexpr, BLOCKS: tl.constexpr, TILE: tl.constexpr,
    NORMALIZE: tl.constexpr, IS_BFLOAT16: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    dq = c (dy Sᵀ - delta zᵀ), dk = v dSᵀ + dz and dv = k dS of some tiles: HEAD_BLOCK columns of the first two and
    VALUE_BLOCK of the third. The three go by one after the other: no two states have to be held at the same time.
    """
    block = tl.program_id(0) % BLOCKS
    group = tl.program_id(0) // BLOCKS % num_groups
    row = tl.program_id(0) // (BLOCKS * num_groups)
    query, key, value = head_of(query, row, heads), head_of(key, row, heads), head_of(value, row, heads)
    d_query, d_key, d_value = head_of(d_query, row, heads), head_of(d_key, row, heads), head_of(d_value, row, heads)
    grad = head_of(grad, row, heads)
    head_start, value_start = block * HEAD_BLOCK, block * VALUE_BLOCK
    d = head_start + tl.arange(0, HEAD_BLOCK)
    all_e = tl.arange(0, FULL_VALUE_BLOCK)
    begin = group * group_tiles * TILE
    end = tl.minimum(begin + group_tiles * TILE, length)

    state = whole_state(states, row, num_parts, d[None, :], all_e[:, None], HEAD_DIM, VALUE_DIM, IS_BFLOAT16)
    if NORMALIZE:
        z = whole_totals(totals, row, num_parts, d, HEAD_DIM)
    for start in range(begin, end, TILE):
        tokens = start + tl.arange(0, TILE)
        dy = load_tile(grad, start, length, 0, TILE, FULL_VALUE_BLOCK, VALUE_DIM)
        gradient = tl.dot(dy.to(state.dtype), state, input_precision=PRECISION)
        if NORMALIZE:
            at = row.to(tl.int64) * length + tokens
            gradient -= tl.load(delta + at, mask=tokens < length, other=0.0)[:, None] * z[None, :]
            gradient *= tl.load(inverse + at, mask=tokens < length, other=0.0)[:, None]
        else:
            gradient *= scale
        store_tile(d_query, gradient, start, length, head_start, TILE, HEAD_BLOCK, HEAD_DIM)

    state = whole_state(d_states, row, num_parts, d[None, :], all_e[:, None], HEAD_DIM, VALUE_DIM, IS_BFLOAT16)
    if NORMALIZE:
        z = whole_totals(d_totals, row, num_parts, d, HEAD_DIM)
    for start in range(begin, end, TILE):
        values = load_tile(value, start, length, 0, TILE, FULL_VALUE_BLOCK, VALUE_DIM)
        gradient = tl.dot(values.to(state.dtype), state, input_precision=PRECISION)
        if NORMALIZE:
            gradient += z[None, :]
        store_tile(d_key, gradient, start, length, head_start, TILE, HEAD_BLOCK, HEAD_DIM)

    all_d = tl.arange(0, FULL_HEAD_BLOCK)
    e = value_start + tl.arange(0, VALUE_BLOCK)
    state = whole_state(d_states, row, num_parts, all_d[:, None], e[None, :], HEAD_DIM, VALUE_DIM, IS_BFLOAT16)
    for start in range(begin, end, TILE):
        keys = load_tile(key, start, length, 0, TILE, FULL_HEAD_BLOCK, HEAD_DIM)
        gradient = tl.dot(keys.to(state.dtype), state, input_precision=PRECISION)
        store_tile(d_value, gradient, start, length, value_start, TILE, VALUE_BLOCK, VALUE_DIM)
