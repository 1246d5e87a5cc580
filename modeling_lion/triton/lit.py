# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
LION-LIT on a GPU. Without decays, one state S = kᵀ [v|1] of all tokens serves every query, at any length.

    forward    partial states · output
    backward   partial adjoint states dS = (c q)ᵀ [dy|-delta] · gradients

Partial states are sums over slices of the sequence, computed in parallel. Every program that uses a state adds the
partial states, always in the same order. Letters are those of triton/decay.py.
"""

from .tile_products import (
    add_weighted,
    factor,
    head_of,
    inside_if,
    load_scale,
    load_state,
    load_tile,
    load_transposed,
    product,
    store_output,
    store_tile,
    tl,
    triton,
)


@triton.jit
def partial_states_kernel(
    x, y, output, inverses, delta, states, totals, heads, length, slice_tiles, num_slices, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    FULL_VALUE_TILE: tl.constexpr, TILE: tl.constexpr, ADJOINT: tl.constexpr, NORMALIZE: tl.constexpr,
    DIVIDES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    One tile of the state of one slice of the sequence: `states` `(bh, slices, HEAD_DIM, VALUE_DIM)` and `totals`
    `(bh, slices, HEAD_DIM)`, float32. Forward: x = k, y = v. ADJOINT: x = q, y = dy; it writes delta, `(bh, length)`,
    if DIVIDES, and otherwise reads it.
    """
    head_tiles: tl.constexpr = (HEAD_DIM + HEAD_TILE - 1) // HEAD_TILE
    value_tiles: tl.constexpr = (VALUE_DIM + VALUE_TILE - 1) // VALUE_TILE
    state_tile = tl.program_id(0) % (head_tiles * value_tiles)
    index = (tl.program_id(0) // (head_tiles * value_tiles)).to(tl.int64)
    bh, n = tl.program_id(0) // (head_tiles * value_tiles * num_slices), index % num_slices
    head_start = state_tile // value_tiles * HEAD_TILE
    value_start = state_tile % value_tiles * VALUE_TILE
    x, y, output = head_of(x, bh, heads), head_of(y, bh, heads), head_of(output, bh, heads)
    state = tl.zeros([HEAD_TILE, VALUE_TILE], tl.float32)
    total = tl.zeros([HEAD_TILE], tl.float32)
    begin = n.to(tl.int32) * slice_tiles * TILE
    for start in range(begin, tl.minimum(begin + slice_tiles * TILE, length), TILE):
        tokens = start + tl.arange(0, TILE)
        xs = load_transposed(x, start, length, head_start, TILE, HEAD_TILE, HEAD_DIM)
        ys = load_tile(y, start, length, value_start, TILE, VALUE_TILE, VALUE_DIM)
        if ADJOINT:
            row_scale = load_scale(inverses, tokens, bh, length, scale, NORMALIZE)
            if NORMALIZE:
                at = bh.to(tl.int64) * length + tokens
                if DIVIDES:
                    dy = ys
                    if VALUE_TILE < FULL_VALUE_TILE:
                        dy = load_tile(y, start, length, 0, TILE, FULL_VALUE_TILE, VALUE_DIM)
                    outputs = load_tile(output, start, length, 0, TILE, FULL_VALUE_TILE, VALUE_DIM)
                    along = tl.sum(dy.to(tl.float32) * outputs.to(tl.float32), 1)
                    tl.store(delta + at, along, mask=inside_if(state_tile == 0, tokens, length))
                else:
                    along = tl.load(delta + at, mask=tokens < length, other=0.0)
                total -= tl.sum(xs.to(tl.float32) * (row_scale * along)[None, :], 1)
            state = add_weighted(state, xs, ys, row_scale, PRECISION)
        else:
            if NORMALIZE:
                total += tl.sum(xs.to(tl.float32), 1)
            state = product(xs, ys, state, PRECISION)
    d = head_start + tl.arange(0, HEAD_TILE)
    e = value_start + tl.arange(0, VALUE_TILE)
    inside = (d < HEAD_DIM)[:, None] & (e < VALUE_DIM)[None, :]
    tl.store(states + index * HEAD_DIM * VALUE_DIM + d[:, None] * VALUE_DIM + e[None, :], state, mask=inside)
    if NORMALIZE:
        tl.store(totals + index * HEAD_DIM + d, total, mask=inside_if(value_start == 0, d, HEAD_DIM))


@triton.jit
def whole_state(
    states, bh, num_slices, d, e, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, IS_BFLOAT16: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """
    The state of all slices at rows d and columns e, one of shape `(n, 1)`, the other `(1, m)`, as a factor of
    products, rounded to bfloat16 if IS_BFLOAT16.
    """
    states += bh.to(tl.int64) * num_slices * HEAD_DIM * VALUE_DIM
    state = load_state(states, d, e, HEAD_DIM, VALUE_DIM)
    for n in range(1, num_slices):
        state += load_state(states + n * HEAD_DIM * VALUE_DIM, d, e, HEAD_DIM, VALUE_DIM)
    return state.to(tl.bfloat16) if IS_BFLOAT16 else factor(state, PRECISION)


@triton.jit
def times_whole_state(x, state, PRECISION: tl.constexpr):
    """x S in float32, for a `whole_state` or its transpose."""
    return tl.dot(factor(x.to(state.dtype), PRECISION), state, input_precision=PRECISION)


@triton.jit
def whole_totals(totals, bh, num_slices, d, HEAD_DIM: tl.constexpr):
    totals += bh.to(tl.int64) * num_slices * HEAD_DIM
    total = tl.load(totals + d, mask=d < HEAD_DIM, other=0.0)
    for n in range(1, num_slices):
        total += tl.load(totals + n * HEAD_DIM + d, mask=d < HEAD_DIM, other=0.0)
    return total


@triton.jit
def lit_output_kernel(
    query, output, denominators, states, totals, heads, length, program_tiles, num_programs, num_slices, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    TILE: tl.constexpr, NORMALIZE: tl.constexpr, DIVIDES: tl.constexpr, SMALLEST: tl.constexpr,
    IS_BFLOAT16: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """VALUE_TILE columns of the output of some tiles, stored by `store_output`."""
    value_tiles: tl.constexpr = (VALUE_DIM + VALUE_TILE - 1) // VALUE_TILE
    value_start = tl.program_id(0) % value_tiles * VALUE_TILE
    program = tl.program_id(0) // value_tiles % num_programs
    bh = tl.program_id(0) // (value_tiles * num_programs)
    query, output = head_of(query, bh, heads), head_of(output, bh, heads)
    d = tl.arange(0, HEAD_TILE)
    e = value_start + tl.arange(0, VALUE_TILE)
    state = whole_state(states, bh, num_slices, d[:, None], e[None, :], HEAD_DIM, VALUE_DIM, IS_BFLOAT16, PRECISION)
    if NORMALIZE:
        z = whole_totals(totals, bh, num_slices, d, HEAD_DIM)
    begin = program * program_tiles * TILE
    for start in range(begin, tl.minimum(begin + program_tiles * TILE, length), TILE):
        q = load_tile(query, start, length, 0, TILE, HEAD_TILE, HEAD_DIM)
        y = times_whole_state(q, state, PRECISION)
        total = tl.zeros([TILE], tl.float32)
        if NORMALIZE:
            total += tl.sum(q.to(tl.float32) * z[None, :], 1)
        store_output(
            output, y, total, denominators, bh, start, length, value_start, scale,
            TILE, VALUE_TILE, VALUE_DIM, NORMALIZE, DIVIDES, SMALLEST,
        )  # fmt: skip


@triton.jit
def lit_gradient_kernel(
    query, key, value, grad, d_query, d_key, d_value, inverses, delta, states, totals, d_states, d_totals,
    heads, length, program_tiles, num_programs, num_slices, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    FULL_HEAD_TILE: tl.constexpr, FULL_VALUE_TILE: tl.constexpr, STATE_TILES: tl.constexpr, TILE: tl.constexpr,
    NORMALIZE: tl.constexpr, IS_BFLOAT16: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    dq = c (dy Sᵀ - delta zᵀ), dk = v dSᵀ + dz and dv = k dS for some tiles: HEAD_TILE columns of dq and dk and
    VALUE_TILE columns of dv, one after the other, so that a program holds one state at a time.
    """
    state_tile = tl.program_id(0) % STATE_TILES
    program = tl.program_id(0) // STATE_TILES % num_programs
    bh = tl.program_id(0) // (STATE_TILES * num_programs)
    query, key, value = head_of(query, bh, heads), head_of(key, bh, heads), head_of(value, bh, heads)
    d_query, d_key, d_value = head_of(d_query, bh, heads), head_of(d_key, bh, heads), head_of(d_value, bh, heads)
    grad = head_of(grad, bh, heads)
    head_start, value_start = state_tile * HEAD_TILE, state_tile * VALUE_TILE
    d = head_start + tl.arange(0, HEAD_TILE)
    all_e = tl.arange(0, FULL_VALUE_TILE)
    begin = program * program_tiles * TILE
    end = tl.minimum(begin + program_tiles * TILE, length)

    state = whole_state(
        states, bh, num_slices, d[None, :], all_e[:, None], HEAD_DIM, VALUE_DIM, IS_BFLOAT16, PRECISION
    )
    if NORMALIZE:
        z = whole_totals(totals, bh, num_slices, d, HEAD_DIM)
    for start in range(begin, end, TILE):
        tokens = start + tl.arange(0, TILE)
        dy = load_tile(grad, start, length, 0, TILE, FULL_VALUE_TILE, VALUE_DIM)
        gradient = times_whole_state(dy, state, PRECISION)
        if NORMALIZE:
            at = bh.to(tl.int64) * length + tokens
            gradient -= tl.load(delta + at, mask=tokens < length, other=0.0)[:, None] * z[None, :]
        gradient *= load_scale(inverses, tokens, bh, length, scale, NORMALIZE)[:, None]
        store_tile(d_query, gradient, start, length, head_start, TILE, HEAD_TILE, HEAD_DIM)

    state = whole_state(
        d_states, bh, num_slices, d[None, :], all_e[:, None], HEAD_DIM, VALUE_DIM, IS_BFLOAT16, PRECISION
    )
    if NORMALIZE:
        z = whole_totals(d_totals, bh, num_slices, d, HEAD_DIM)
    for start in range(begin, end, TILE):
        values = load_tile(value, start, length, 0, TILE, FULL_VALUE_TILE, VALUE_DIM)
        gradient = times_whole_state(values, state, PRECISION)
        if NORMALIZE:
            gradient += z[None, :]
        store_tile(d_key, gradient, start, length, head_start, TILE, HEAD_TILE, HEAD_DIM)

    all_d = tl.arange(0, FULL_HEAD_TILE)
    e = value_start + tl.arange(0, VALUE_TILE)
    state = whole_state(
        d_states, bh, num_slices, all_d[:, None], e[None, :], HEAD_DIM, VALUE_DIM, IS_BFLOAT16, PRECISION
    )
    for start in range(begin, end, TILE):
        keys = load_tile(key, start, length, 0, TILE, FULL_HEAD_TILE, HEAD_DIM)
        gradient = times_whole_state(keys, state, PRECISION)
        store_tile(d_value, gradient, start, length, value_start, TILE, VALUE_TILE, VALUE_DIM)
