# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
LION-D and LION-S on a GPU: parallel and chunk form in one set of Triton kernels.

The sequence is cut into chunks of several tiles. Inside a chunk every tile meets every other one; between chunks there
is one state per direction. A chunk that holds the whole sequence needs no states and is the parallel form.

    forward    sums · states (if more than one chunk) · output
    backward   query gradients · adjoint states (if more than one chunk) · key and value gradients · decay gradients

Decays. Per tile and in base 2, `sums` holds what `block_sums` returns (decay_mask.py): of token t of a tile, the sum
of log decays from the tile's start to t, from t to its end (toward the right), from its end to t, from t to its start
(toward the left). Two different tiles see each other by factors that belong to rows, to columns and to the tiles
between, each at most 1: no exponent per pair, and no difference of sums. Only the tile on the diagonal subtracts; for
float32 it has sums of its own, without the steps that nothing survives, which are counted beside them: in the sums,
they would take the digits of what follows (`split_cuts` in decay_mask.py).

    G_ij = (dy_i · v_j - delta_i) c_i M_ij        c_i = 1 / den_i        delta_i = dy_i · y_i
    dq = G k        dk = Gᵀ q        dv_j = Σ_i c_i (q_i · k_j) M_ij dy_i        R = G ∘ (q kᵀ)

Gradients of the decays are what crosses each step (`DecayGradient` in fused_kernel.py). Per token t of a chunk:

    d right_t = Σ_{i>t} (row_i - column_i) + Σ_{j≤t} given_j + through      of R below the diagonal
    d left_t  = Σ_{j≥t} (column_j - row_j) + Σ_{i<t} taken_i + through      of R above it

with row and column sums of R inside the chunk, what queries take from and keys give to other chunks, and what passes
the chunk from one side to the other. Sums of the diagonal tile come from one float32 tile, so that they cancel.
"""

from .triton_tiles import (
    dots,
    head_of,
    held_tile,
    inverse_of,
    load_tile,
    product,
    store_tile,
    times_state,
    times_totals,
)


try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError("triton is not installed; it comes with torch for CUDA.") from error

# Rows of `sums`, and of the gradients' parts.
FROM_START, TO_END, FROM_END, TO_START = (tl.constexpr(i) for i in range(4))
DECAYS_FROM_START, DECAYS_TO_START, CUTS_FROM_START, CUTS_TO_START = (tl.constexpr(i) for i in range(4, 8))
# log2 of what is left behind a cut, for the diagonal: any multiple of it is a float32, and 2 to it is 0.
CUT = tl.constexpr(-256.0)
LOG2_E = tl.constexpr(1.4426950408889634)
ROW_RIGHT, ROW_LEFT, TAKEN_LEFT, COLUMN_RIGHT, GIVEN_RIGHT, COLUMN_LEFT = (tl.constexpr(i) for i in range(6))


@triton.jit
def load_decay(decay, tokens, length, LOG_ZERO: tl.constexpr):
    """log λ of some tokens, `(TILES, TILE)`; -inf becomes a number that can be added up; 0 beyond the length."""
    pointer, token_stride = decay
    inside = (tokens >= 0) & (tokens < length)
    value = tl.load(pointer + tokens.to(tl.int64) * token_stride, mask=inside, other=0.0).to(tl.float32)
    return tl.maximum(value, LOG_ZERO)


@triton.jit
def sums_kernel(
    right, left, sums, heads, length, num_tiles,
    LOG_ZERO: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr, COUNT_CUTS: tl.constexpr,
):  # fmt: skip
    """
    Sums of log decays of TILES tiles, in base 2: `(rows, 4, num_tiles * TILE)` float32; if COUNT_CUTS, 8 of them.

    Where tokens share a decay (a token stride of 0), one tile serves all.
    """
    groups = tl.cdiv(num_tiles, TILES)
    row = tl.program_id(0) // groups
    tile = tl.program_id(0) % groups * TILES + tl.arange(0, TILES)[:, None]
    within = tl.arange(0, TILE)[None, :]
    tokens = tile * TILE + within
    to_right, to_left = head_of(right, row, heads), head_of(left, row, heads)
    kinds: tl.constexpr = 8 if COUNT_CUTS else 4
    width = num_tiles * TILE
    out = sums + row.to(tl.int64) * kinds * width + tokens
    mask = tile < num_tiles
    at = load_decay(to_right, tokens, length, LOG_ZERO)
    before = tl.where(within > 0, load_decay(to_right, tokens - 1, length, LOG_ZERO), 0.0)
    tl.store(out + FROM_START * width, tl.cumsum(before * LOG2_E, 1), mask=mask)
    tl.store(out + TO_END * width, tl.cumsum(at * LOG2_E, 1, reverse=True), mask=mask)
    if COUNT_CUTS:
        store_apart(out, DECAYS_FROM_START, CUTS_FROM_START, before, width, mask, LOG_ZERO)
    at = load_decay(to_left, tokens, length, LOG_ZERO)
    behind = tl.where(within < TILE - 1, load_decay(to_left, tokens + 1, length, LOG_ZERO), 0.0)
    tl.store(out + FROM_END * width, tl.cumsum(behind * LOG2_E, 1, reverse=True), mask=mask)
    tl.store(out + TO_START * width, tl.cumsum(at * LOG2_E, 1), mask=mask)
    if COUNT_CUTS:
        store_apart(out, DECAYS_TO_START, CUTS_TO_START, at, width, mask, LOG_ZERO)


@triton.jit
def store_apart(out, decays_kind, cuts_kind, decay, width, mask, LOG_ZERO: tl.constexpr):
    """The sums of decays without cuts, and of cuts without other decays."""
    is_cut = decay <= LOG_ZERO
    tl.store(out + decays_kind * width, tl.cumsum(tl.where(is_cut, 0.0, decay * LOG2_E), 1), mask=mask)
    tl.store(out + cuts_kind * width, tl.cumsum(tl.where(is_cut, CUT, 0.0), 1), mask=mask)


@triton.jit
def sums_of(sums, row, heads):
    """The sums of one row: pointer, stride of a tile (0 where one serves all), and stride between the four."""
    pointer, batch_stride, head_stride, tile_stride, kind_stride = sums
    pointer += (row // heads).to(tl.int64) * batch_stride + (row % heads).to(tl.int64) * head_stride
    return pointer, tile_stride, kind_stride


@triton.jit
def load_sums(sums, kind, tile, start, SIZE: tl.constexpr):
    """Sums of SIZE tokens of a tile, from `start`."""
    pointer, tile_stride, kind_stride = sums
    return tl.load(pointer + kind * kind_stride + tile * tile_stride + start + tl.arange(0, SIZE))


@triton.jit
def through_tile(sums, tile, toward_right, TILE: tl.constexpr):
    """log2 of what is left of a state that passes a whole tile."""
    pointer, tile_stride, kind_stride = sums
    to_end = pointer + TO_END * kind_stride
    to_start = pointer + TO_START * kind_stride + TILE - 1
    return tl.load(tl.where(toward_right != 0, to_end, to_start) + tile * tile_stride)


@triton.jit
def differences(
    sums, from_start, to_start, tile, piece, TILE: tl.constexpr, QUERIES: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Of two kinds of sums, what lies between QUERIES queries from `piece` and all keys of a tile, either way."""
    query_start = tl.expand_dims(load_sums(sums, from_start, tile, piece, QUERIES), 0 if TRANSPOSED else 1)
    query_to_start = tl.expand_dims(load_sums(sums, to_start, tile, piece, QUERIES), 0 if TRANSPOSED else 1)
    key_start = tl.expand_dims(load_sums(sums, from_start, tile, 0, TILE), 1 if TRANSPOSED else 0)
    key_to_start = tl.expand_dims(load_sums(sums, to_start, tile, 0, TILE), 1 if TRANSPOSED else 0)
    return query_start - key_start, key_to_start - query_to_start


@triton.jit
def mask_on_diagonal(
    sums, tile, piece,
    TILE: tl.constexpr, QUERIES: tl.constexpr, TRANSPOSED: tl.constexpr, COUNT_CUTS: tl.constexpr,
):  # fmt: skip
    """
    M inside a tile: a row for each of QUERIES queries from `piece`, or for each key if TRANSPOSED. Of both exponents
    the one that does not apply is never below 0: the minimum chooses.
    """
    if COUNT_CUTS:
        right, left = differences(sums, DECAYS_FROM_START, DECAYS_TO_START, tile, piece, TILE, QUERIES, TRANSPOSED)
        cut_right, cut_left = differences(sums, CUTS_FROM_START, CUTS_TO_START, tile, piece, TILE, QUERIES, TRANSPOSED)
        return tl.exp2(tl.minimum(right + cut_right, left + cut_left))
    else:
        right, left = differences(sums, FROM_START, TO_START, tile, piece, TILE, QUERIES, TRANSPOSED)
        return tl.exp2(tl.minimum(right, left))


@triton.jit
def chunk_of(tile, chunk_tiles, num_tiles):
    """The number of a tile's chunk, its first tile, and the first tile behind it."""
    chunk = tile // chunk_tiles
    return chunk, chunk * chunk_tiles, tl.minimum((chunk + 1) * chunk_tiles, num_tiles)


@triton.jit
def states_kernel(
    x, y, sums, inverse, delta, states, totals, given_states, given_totals, through, heads, length,
    num_tiles, chunk_tiles, num_chunks, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
    TILE: tl.constexpr, ADJOINT: tl.constexpr, NORMALIZE: tl.constexpr, NEEDS_THROUGH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """
    The states that reach every chunk, in both directions: `states` `(rows, chunks, 2, HEAD_DIM, VALUE_DIM)` and
    `totals` `(rows, chunks, 2, HEAD_DIM)`. One program walks the sequence, for one direction and block of the state.

    Forward: x = k, y = v; direction 0 has come from the left. Adjoint: x = q, y = dy, both walk the other way round;
    `through` `(rows, chunks, 2, blocks)` then gets what passes each chunk, Σ S ∘ dS, before the chunk's own decay.
    """
    head_blocks: tl.constexpr = (HEAD_DIM + HEAD_BLOCK - 1) // HEAD_BLOCK
    value_blocks: tl.constexpr = (VALUE_DIM + VALUE_BLOCK - 1) // VALUE_BLOCK
    blocks: tl.constexpr = head_blocks * value_blocks
    block = tl.program_id(0) % blocks
    direction = tl.program_id(0) // blocks % 2
    row = tl.program_id(0) // (2 * blocks)
    head_start = block // value_blocks * HEAD_BLOCK
    value_start = block % value_blocks * VALUE_BLOCK
    x, y, sums = head_of(x, row, heads), head_of(y, row, heads), sums_of(sums, row, heads)
    toward_right = direction == 0
    if ADJOINT:
        ascends = direction == 1
        kind = tl.where(toward_right, FROM_START, FROM_END)
    else:
        ascends = direction == 0
        kind = tl.where(toward_right, TO_END, TO_START)
    d = head_start + tl.arange(0, HEAD_BLOCK)
    e = value_start + tl.arange(0, VALUE_BLOCK)
    inside = (d < HEAD_DIM)[:, None] & (e < VALUE_DIM)[None, :]
    first_block = (d < HEAD_DIM) & (value_start == 0)  # the one that takes care of the totals
    state = tl.zeros([HEAD_BLOCK, VALUE_BLOCK], tl.float32)
    total = tl.zeros([HEAD_BLOCK], tl.float32)
    # As far as the border of the last chunk on the way, whose own tiles nobody behind it needs.
    steps = tl.where(ascends, (num_chunks - 1) * chunk_tiles, num_tiles - chunk_tiles) + 1
    for step in range(steps):
        tile = tl.where(ascends, step, num_tiles - 1 - step)
        chunk = tile // chunk_tiles
        enters = tile == tl.where(ascends, chunk * chunk_tiles, tl.minimum((chunk + 1) * chunk_tiles, num_tiles) - 1)
        if enters:
            place = (row.to(tl.int64) * num_chunks + chunk) * 2 + direction
            at = place * HEAD_DIM * VALUE_DIM + d[:, None] * VALUE_DIM + e[None, :]
            tl.store(states + at, state.to(states.dtype.element_ty), mask=inside)
            if NORMALIZE:
                tl.store(totals + place * HEAD_DIM + d, total, mask=first_block)
            if NEEDS_THROUGH:
                passed = tl.sum(tl.load(given_states + at, mask=inside, other=0.0).to(tl.float32) * state)
                if NORMALIZE:
                    z = tl.load(given_totals + place * HEAD_DIM + d, mask=first_block, other=0.0)
                    passed += tl.sum(z * total)
                tl.store(through + place * blocks + block, passed)
        tokens = tile * TILE + tl.arange(0, TILE)
        weight = tl.exp2(load_sums(sums, kind, tile, 0, TILE))
        part = load_tile(x, tokens, length, head_start, HEAD_BLOCK, HEAD_DIM).to(tl.float32)
        values = load_tile(y, tokens, length, value_start, VALUE_BLOCK, VALUE_DIM)
        passes = tl.exp2(through_tile(sums, tile, toward_right, TILE))
        if ADJOINT:
            if NORMALIZE:
                weight *= tl.load(inverse + row.to(tl.int64) * length + tokens, mask=tokens < length, other=0.0)
                ones = -tl.load(delta + row.to(tl.int64) * length + tokens, mask=tokens < length, other=0.0)
                total = total * passes + tl.sum(part * (weight * ones)[:, None], 0)
            else:
                weight *= scale
        part *= weight[:, None]
        if NORMALIZE and not ADJOINT:
            total = total * passes + tl.sum(part, 0)
        state = product(tl.trans(part.to(values.dtype)), values, state * passes, PRECISION)


@triton.jit
def output_of_side(
    accumulator, total, query, q, row_weight, key, value, sums, tile, steps, length, value_start,
    TO_LEFT: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add what the chunk's tiles on one side of a tile give it, the nearest first; and what all of them let pass."""
    between = 0.0
    queries = tile * TILE + tl.arange(0, TILE)
    for step in range(steps):
        other = tile - 1 - step if TO_LEFT else tile + 1 + step
        tokens = other * TILE + tl.arange(0, TILE)
        values = load_tile(value, tokens, length, value_start, VALUE_BLOCK, VALUE_DIM)
        weight = tl.exp2(load_sums(sums, TO_END if TO_LEFT else TO_START, other, 0, TILE) + between)
        scores = dots(query, queries, q, key, tokens, length, HEAD_BLOCK, SPLIT, HEAD_DIM, PRECISION)
        scores *= row_weight[:, None] * weight[None, :]
        total += tl.sum(scores, 1)
        accumulator = product(scores, values, accumulator, PRECISION)
        between += through_tile(sums, other, TO_LEFT, TILE)
    return accumulator, total, between


@triton.jit
def output_kernel(
    query, key, value, output, sums, inverse, states, totals, heads, length,
    num_tiles, chunk_tiles, num_chunks, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
    INNER: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, HAS_STATES: tl.constexpr, NORMALIZE: tl.constexpr,
    COUNT_CUTS: tl.constexpr, EMPTY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The output of one tile, VALUE_BLOCK columns of it, and 1 / denominators `(rows, length)`."""
    value_blocks: tl.constexpr = (VALUE_DIM + VALUE_BLOCK - 1) // VALUE_BLOCK
    value_start = tl.program_id(0) % value_blocks * VALUE_BLOCK
    tile = tl.program_id(0) // value_blocks % num_tiles
    row = tl.program_id(0) // (value_blocks * num_tiles)
    query, key, value = head_of(query, row, heads), head_of(key, row, heads), head_of(value, row, heads)
    output, sums = head_of(output, row, heads), sums_of(sums, row, heads)
    chunk, first, behind = chunk_of(tile, chunk_tiles, num_tiles)
    tokens = tile * TILE + tl.arange(0, TILE)
    q = held_tile(query, tokens, length, HEAD_BLOCK, SPLIT, HEAD_DIM)
    accumulator = tl.zeros([TILE, VALUE_BLOCK], tl.float32)
    total = tl.zeros([TILE], tl.float32)
    for to_left in tl.static_range(2):
        row_weight = tl.exp2(load_sums(sums, FROM_START if to_left else FROM_END, tile, 0, TILE))
        steps = tile - first if to_left else behind - 1 - tile
        accumulator, total, between = output_of_side(
            accumulator, total, query, q, row_weight, key, value, sums, tile, steps, length, value_start,
            to_left, HEAD_DIM, VALUE_DIM, HEAD_BLOCK, VALUE_BLOCK, SPLIT, TILE, PRECISION,
        )  # fmt: skip
        if HAS_STATES:
            place = (row.to(tl.int64) * num_chunks + chunk) * 2 + (0 if to_left else 1)
            weight = row_weight * tl.exp2(between)
            taken = tl.zeros([TILE, VALUE_BLOCK], tl.float32)
            taken = times_state(
                taken, query, tokens, length, states + place * HEAD_DIM * VALUE_DIM, value_start,
                False, INNER, HEAD_DIM, VALUE_BLOCK, HEAD_DIM, VALUE_DIM, PRECISION,
            )  # fmt: skip
            accumulator += taken * weight[:, None]
            if NORMALIZE:
                z = totals + place * HEAD_DIM
                total += times_totals(query, tokens, length, z, HEAD_BLOCK, HEAD_DIM) * weight
    values = load_tile(value, tokens, length, value_start, VALUE_BLOCK, VALUE_DIM)
    scores = dots(query, tokens, q, key, tokens, length, HEAD_BLOCK, SPLIT, HEAD_DIM, PRECISION)
    scores *= mask_on_diagonal(sums, tile, 0, TILE, TILE, False, COUNT_CUTS)
    accumulator = product(scores, values, accumulator, PRECISION)
    if NORMALIZE:
        factor = inverse_of(total + tl.sum(scores, 1), EMPTY)
        mask = (tokens < length) & (value_start == 0)
        tl.store(inverse + row.to(tl.int64) * length + tokens, factor, mask=mask)
        accumulator *= factor[:, None]
    else:
        accumulator *= scale
    store_tile(output, accumulator, tokens, length, value_start, VALUE_BLOCK, VALUE_DIM)


@triton.jit
def query_gradient_of_side(
    accumulator, grad, dy, delta, row_weight, key, value, sums, tile, steps, length,
    TO_LEFT: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr,
    VALUE_BLOCK: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add G k of the chunk's tiles on one side, the nearest first; and what all of them let pass."""
    between = 0.0
    queries = tile * TILE + tl.arange(0, TILE)
    for step in range(steps):
        other = tile - 1 - step if TO_LEFT else tile + 1 + step
        tokens = other * TILE + tl.arange(0, TILE)
        keys = load_tile(key, tokens, length, 0, HEAD_BLOCK, HEAD_DIM)
        weight = tl.exp2(load_sums(sums, TO_END if TO_LEFT else TO_START, other, 0, TILE) + between)
        g = dots(grad, queries, dy, value, tokens, length, VALUE_BLOCK, SPLIT, VALUE_DIM, PRECISION) - delta[:, None]
        accumulator = product(g * row_weight[:, None] * weight[None, :], keys, accumulator, PRECISION)
        between += through_tile(sums, other, TO_LEFT, TILE)
    return accumulator, between


@triton.jit
def query_gradient_kernel(
    query, key, value, output, grad, d_query, sums, inverse, delta, states, totals, parts, heads, length,
    num_tiles, chunk_tiles, num_chunks, scale, part_stride,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
    INNER: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, HAS_STATES: tl.constexpr, NORMALIZE: tl.constexpr,
    NEEDS_DECAY: tl.constexpr, COUNT_CUTS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of the queries of one tile, delta, and the queries' parts of the gradients of the decays."""
    tile = tl.program_id(0) % num_tiles
    row = tl.program_id(0) // num_tiles
    query, key, value = head_of(query, row, heads), head_of(key, row, heads), head_of(value, row, heads)
    output, grad, d_query = head_of(output, row, heads), head_of(grad, row, heads), head_of(d_query, row, heads)
    sums = sums_of(sums, row, heads)
    chunk, first, behind = chunk_of(tile, chunk_tiles, num_tiles)
    tokens = tile * TILE + tl.arange(0, TILE)
    at = row.to(tl.int64) * length + tokens
    dy = held_tile(grad, tokens, length, VALUE_BLOCK, SPLIT, VALUE_DIM)
    if NORMALIZE:
        y = load_tile(output, tokens, length, 0, VALUE_BLOCK, VALUE_DIM)
        whole = load_tile(grad, tokens, length, 0, VALUE_BLOCK, VALUE_DIM) if dy is None else dy
        along = tl.sum(whole.to(tl.float32) * y.to(tl.float32), 1)
        factor = tl.load(inverse + at, mask=tokens < length, other=0.0)
        tl.store(delta + at, along, mask=tokens < length)
    else:
        along = tl.zeros([TILE], tl.float32)
        factor = along + scale
    accumulator = tl.zeros([TILE, HEAD_BLOCK], tl.float32)
    seen = tl.zeros([TILE], tl.float32)  # q · accumulator so far, with which each phase finds its own share
    for to_left in tl.static_range(2):
        row_weight = factor * tl.exp2(load_sums(sums, FROM_START if to_left else FROM_END, tile, 0, TILE))
        steps = tile - first if to_left else behind - 1 - tile
        accumulator, between = query_gradient_of_side(
            accumulator, grad, dy, along, row_weight, key, value, sums, tile, steps, length,
            to_left, HEAD_DIM, VALUE_DIM, HEAD_BLOCK, VALUE_BLOCK, SPLIT, TILE, PRECISION,
        )  # fmt: skip
        if NEEDS_DECAY and not to_left:
            q = load_tile(query, tokens, length, 0, HEAD_BLOCK, HEAD_DIM).to(tl.float32)
            seen = tl.sum(q * accumulator, 1)
            row_left = seen
        if HAS_STATES:
            place = (row.to(tl.int64) * num_chunks + chunk) * 2 + (0 if to_left else 1)
            taken = tl.zeros([TILE, HEAD_BLOCK], tl.float32)
            taken = times_state(
                taken, grad, tokens, length, states + place * HEAD_DIM * VALUE_DIM, 0,
                True, INNER, VALUE_DIM, HEAD_BLOCK, HEAD_DIM, VALUE_DIM, PRECISION,
            )  # fmt: skip
            if NORMALIZE:
                d = tl.arange(0, HEAD_BLOCK)
                z = tl.load(totals + place * HEAD_DIM + d, mask=d < HEAD_DIM, other=0.0)
                taken -= along[:, None] * z[None, :]
            accumulator += taken * (row_weight * tl.exp2(between))[:, None]
        if NEEDS_DECAY:
            q = load_tile(query, tokens, length, 0, HEAD_BLOCK, HEAD_DIM).to(tl.float32)
            now = tl.sum(q * accumulator, 1)
            share = now - seen
            seen = now
            if to_left:
                row_right = share
            else:
                tl.store(parts + TAKEN_LEFT * part_stride + at, share, mask=tokens < length)
    g = dots(grad, tokens, dy, value, tokens, length, VALUE_BLOCK, SPLIT, VALUE_DIM, PRECISION) - along[:, None]
    g *= factor[:, None] * mask_on_diagonal(sums, tile, 0, TILE, TILE, False, COUNT_CUTS)
    if NEEDS_DECAY:
        q = held_tile(query, tokens, length, HEAD_BLOCK, SPLIT, HEAD_DIM)
        r = g * dots(query, tokens, q, key, tokens, length, HEAD_BLOCK, SPLIT, HEAD_DIM, PRECISION)
        i = tl.arange(0, TILE)
        below = tl.where(i[:, None] > i[None, :], r, 0.0)
        above = tl.where(i[:, None] < i[None, :], r, 0.0)
        row_right += tl.sum(below, 1) - tl.sum(below, 0)
        row_left += tl.sum(above, 1) - tl.sum(above, 0)
        tl.store(parts + ROW_RIGHT * part_stride + at, row_right, mask=tokens < length)
        tl.store(parts + ROW_LEFT * part_stride + at, row_left, mask=tokens < length)
    keys = load_tile(key, tokens, length, 0, HEAD_BLOCK, HEAD_DIM)
    accumulator = product(g, keys, accumulator, PRECISION)
    store_tile(d_query, accumulator, tokens, length, 0, HEAD_BLOCK, HEAD_DIM)


@triton.jit
def add_key_gradients(
    d_keys, d_values, key, value, keys, values, own, weights, query, grad, delta, tokens, row, length,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
    SPLIT: tl.constexpr, NORMALIZE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add Gᵀ q and Wᵀ dy of some queries. `weights` are c_i M_ij, a row per key and a column per query."""
    scores = dots(key, own, keys, query, tokens, length, HEAD_BLOCK, SPLIT, HEAD_DIM, PRECISION)
    dy = load_tile(grad, tokens, length, 0, VALUE_BLOCK, VALUE_DIM)
    d_values = product(scores * weights, dy, d_values, PRECISION)
    g = dots(value, own, values, grad, tokens, length, VALUE_BLOCK, SPLIT, VALUE_DIM, PRECISION)
    if NORMALIZE:
        g -= tl.load(delta + row.to(tl.int64) * length + tokens, mask=tokens < length, other=0.0)[None, :]
    q = load_tile(query, tokens, length, 0, HEAD_BLOCK, HEAD_DIM)
    d_keys = product(g * weights, q, d_keys, PRECISION)
    return d_keys, d_values


@triton.jit
def load_factor(inverse, tokens, row, length, scale, NORMALIZE: tl.constexpr):
    """c of some queries."""
    if NORMALIZE:
        return tl.load(inverse + row.to(tl.int64) * length + tokens, mask=tokens < length, other=0.0)
    else:
        return tl.zeros(tokens.shape, tl.float32) + scale


@triton.jit
def keys_dot(key, d_keys, tokens, length, HEAD_BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr):
    """k · d_keys; the keys are read again rather than kept in registers twice."""
    return tl.sum(load_tile(key, tokens, length, 0, HEAD_BLOCK, HEAD_DIM).to(tl.float32) * d_keys, 1)


@triton.jit
def key_gradient_kernel(
    query, key, value, grad, d_key, d_value, sums, inverse, delta, states, totals, parts, heads, length,
    num_tiles, chunk_tiles, num_chunks, scale, part_stride,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_BLOCK: tl.constexpr, VALUE_BLOCK: tl.constexpr,
    INNER: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, QUERIES: tl.constexpr, HAS_STATES: tl.constexpr,
    NORMALIZE: tl.constexpr, NEEDS_DECAY: tl.constexpr, COUNT_CUTS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    The gradients of keys and values of one tile, QUERIES queries at a time, and the keys' parts of the gradients of
    the decays. `states` and `totals` are the adjoint ones.
    """
    pieces: tl.constexpr = TILE // QUERIES
    tile = tl.program_id(0) % num_tiles
    row = tl.program_id(0) // num_tiles
    query, key, value = head_of(query, row, heads), head_of(key, row, heads), head_of(value, row, heads)
    grad, d_key, d_value = head_of(grad, row, heads), head_of(d_key, row, heads), head_of(d_value, row, heads)
    sums = sums_of(sums, row, heads)
    chunk, first, behind = chunk_of(tile, chunk_tiles, num_tiles)
    tokens = tile * TILE + tl.arange(0, TILE)
    at = row.to(tl.int64) * length + tokens
    d_keys = tl.zeros([TILE, HEAD_BLOCK], tl.float32)
    d_values = tl.zeros([TILE, VALUE_BLOCK], tl.float32)
    seen = tl.zeros([TILE], tl.float32)  # k · d_keys so far, with which each phase finds its own share
    for to_left in tl.static_range(2):
        # The chunk's other tiles on one side, the nearest first.
        row_weight = tl.exp2(load_sums(sums, TO_START if to_left else TO_END, tile, 0, TILE))
        steps = tile - first if to_left else behind - 1 - tile
        between = 0.0
        # Read anew for every phase: kept, they would take registers from the states.
        keys = held_tile(key, tokens, length, HEAD_BLOCK, SPLIT, HEAD_DIM)
        values = held_tile(value, tokens, length, VALUE_BLOCK, SPLIT, VALUE_DIM)
        for step in range(steps * pieces):
            other = tile - 1 - step // pieces if to_left else tile + 1 + step // pieces
            piece = step % pieces * QUERIES
            queries = other * TILE + piece + tl.arange(0, QUERIES)
            weight = tl.exp2(load_sums(sums, FROM_END if to_left else FROM_START, other, piece, QUERIES) + between)
            weight *= load_factor(inverse, queries, row, length, scale, NORMALIZE)
            d_keys, d_values = add_key_gradients(
                d_keys, d_values, key, value, keys, values, tokens, row_weight[:, None] * weight[None, :], query, grad,
                delta, queries, row, length, HEAD_DIM, VALUE_DIM, HEAD_BLOCK, VALUE_BLOCK, SPLIT, NORMALIZE, PRECISION,
            )  # fmt: skip
            passes = through_tile(sums, other, not to_left, TILE)
            between += tl.where(piece == TILE - QUERIES, passes, 0.0)
        if NEEDS_DECAY and not to_left:
            seen = keys_dot(key, d_keys, tokens, length, HEAD_BLOCK, HEAD_DIM)
            tl.store(parts + COLUMN_RIGHT * part_stride + at, seen, mask=tokens < length)
        if HAS_STATES:
            place = (row.to(tl.int64) * num_chunks + chunk) * 2 + (1 if to_left else 0)
            state = states + place * HEAD_DIM * VALUE_DIM
            border_weight = row_weight * tl.exp2(between)
            given = tl.zeros([TILE, HEAD_BLOCK], tl.float32)
            given = times_state(
                given, value, tokens, length, state, 0,
                True, INNER, VALUE_DIM, HEAD_BLOCK, HEAD_DIM, VALUE_DIM, PRECISION,
            )  # fmt: skip
            if NORMALIZE:
                d = tl.arange(0, HEAD_BLOCK)
                given += tl.load(totals + place * HEAD_DIM + d, mask=d < HEAD_DIM, other=0.0)[None, :]
            d_keys += given * border_weight[:, None]
            given = tl.zeros([TILE, VALUE_BLOCK], tl.float32)
            given = times_state(
                given, key, tokens, length, state, 0,
                False, INNER, HEAD_DIM, VALUE_BLOCK, HEAD_DIM, VALUE_DIM, PRECISION,
            )  # fmt: skip
            d_values += given * border_weight[:, None]
        if NEEDS_DECAY and (HAS_STATES or to_left):
            now = keys_dot(key, d_keys, tokens, length, HEAD_BLOCK, HEAD_DIM)
            part = COLUMN_LEFT if to_left else GIVEN_RIGHT
            tl.store(parts + part * part_stride + at, now - seen, mask=tokens < length)
            seen = now
    keys = held_tile(key, tokens, length, HEAD_BLOCK, SPLIT, HEAD_DIM)
    values = held_tile(value, tokens, length, VALUE_BLOCK, SPLIT, VALUE_DIM)
    for piece in range(0, TILE, QUERIES):
        queries = tile * TILE + piece + tl.arange(0, QUERIES)
        weights = mask_on_diagonal(sums, tile, piece, TILE, QUERIES, True, COUNT_CUTS)
        weights *= load_factor(inverse, queries, row, length, scale, NORMALIZE)[None, :]
        d_keys, d_values = add_key_gradients(
            d_keys, d_values, key, value, keys, values, tokens, weights, query, grad, delta, queries, row,
            length, HEAD_DIM, VALUE_DIM, HEAD_BLOCK, VALUE_BLOCK, SPLIT, NORMALIZE, PRECISION,
        )  # fmt: skip
    store_tile(d_key, d_keys, tokens, length, 0, HEAD_BLOCK, HEAD_DIM)
    store_tile(d_value, d_values, tokens, length, 0, VALUE_BLOCK, VALUE_DIM)


@triton.jit
def load_part(parts, part, part_stride, tokens, length):
    return tl.load(parts + part * part_stride + tokens, mask=tokens < length, other=0.0)


@triton.jit
def decay_gradient_kernel(
    right, parts, through, sums, d_right, d_left, heads, length, num_tiles, chunk_tiles, num_chunks, part_stride,
    BLOCKS: tl.constexpr, LOG_ZERO: tl.constexpr, TILE: tl.constexpr, HAS_STATES: tl.constexpr,
    SAME: tl.constexpr,
):  # fmt: skip
    """
    The gradients of the log decays of one tile, `(rows, length)` float32: of both directions together in `d_right` if
    they are the SAME. 0 where a decay was raised to LOG_ZERO.
    """
    tile = tl.program_id(0) % num_tiles
    row = tl.program_id(0) // num_tiles
    chunk, first, behind = chunk_of(tile, chunk_tiles, num_tiles)
    tokens = tile * TILE + tl.arange(0, TILE)
    sums = sums_of(sums, row, heads)
    parts += row.to(tl.int64) * length
    inside_right = load_part(parts, ROW_RIGHT, part_stride, tokens, length)
    inside_right -= load_part(parts, COLUMN_RIGHT, part_stride, tokens, length)
    to_right = tl.cumsum(inside_right, 0, reverse=True) - inside_right
    inside_left = load_part(parts, COLUMN_LEFT, part_stride, tokens, length)
    inside_left -= load_part(parts, ROW_LEFT, part_stride, tokens, length)
    to_left = tl.cumsum(inside_left, 0, reverse=True)
    for other in range(tile + 1, behind):
        others = other * TILE + tl.arange(0, TILE)
        to_right += tl.sum(
            load_part(parts, ROW_RIGHT, part_stride, others, length)
            - load_part(parts, COLUMN_RIGHT, part_stride, others, length)
        )
        to_left += tl.sum(
            load_part(parts, COLUMN_LEFT, part_stride, others, length)
            - load_part(parts, ROW_LEFT, part_stride, others, length)
        )
    if HAS_STATES:
        to_right += tl.cumsum(load_part(parts, GIVEN_RIGHT, part_stride, tokens, length), 0)
        taken = load_part(parts, TAKEN_LEFT, part_stride, tokens, length)
        to_left += tl.cumsum(taken, 0) - taken
        for other in range(first, tile):
            others = other * TILE + tl.arange(0, TILE)
            to_right += tl.sum(load_part(parts, GIVEN_RIGHT, part_stride, others, length))
            to_left += tl.sum(load_part(parts, TAKEN_LEFT, part_stride, others, length))
        keeps_right, keeps_left = 0.0, 0.0
        for other in range(first, behind):
            keeps_right += through_tile(sums, other, True, TILE)
            keeps_left += through_tile(sums, other, False, TILE)
        place = (row.to(tl.int64) * num_chunks + chunk) * 2 * BLOCKS
        for block in tl.static_range(BLOCKS):
            to_right += tl.load(through + place + block) * tl.exp2(keeps_right)
            to_left += tl.load(through + place + BLOCKS + block) * tl.exp2(keeps_left)
    at = row.to(tl.int64) * length + tokens
    if SAME:
        pointer, token_stride = head_of(right, row, heads)
        decay = tl.load(pointer + tokens.to(tl.int64) * token_stride, mask=tokens < length, other=0.0)
        tl.store(d_right + at, tl.where(decay < LOG_ZERO, 0.0, to_right + to_left), mask=tokens < length)
    else:
        tl.store(d_right + at, to_right, mask=tokens < length)
        tl.store(d_left + at, to_left, mask=tokens < length)
