# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Attention whose decays differ between the channels of the keys, on a GPU: chunks of one tile, which are halved again
and again inside (attention/plain_diagonal.py), and between chunks one state per direction, with a decay for each of
its rows.

    forward    states (if more than one chunk) · output
    backward   adjoint states (if more than one chunk) · gradients of the values · of queries, keys and log decays

Between two halves, queries of the second half and keys of the first are forward, the others backward. All factors are
exponentials of sums of log decays within a half, recomputed at each level, and at most 1. Channels are processed in
slices: weights are sums over them, and the gradients of a slice need no other slice.

    G_ij = (dy_i · v_j - delta_i) c_i      dQ = (G on a level) K      dq_F = dQ from_start      dk_F = dK to_end

As in cpu/diagonal.py, with the parts of dq and dk that come through states, and with T = Σ_i q_i dq_i over those parts
in a chunk plus what passes the whole chunk,

    d forward_t = Σ_{j≤t} (k_j dk_F,j - q_j dq_F,j) + T_F      d backward_t = Σ_{j≥t} (k_j dk_B,j - q_j dq_B,j) + T_B

Letters as in triton/decay.py.
"""

from .common import (
    LOG2_E,
    head_of,
    load_scale,
    load_state,
    load_tile,
    product,
    store_output,
    store_tile,
    tl,
    triton,
)


@triton.jit
def load_log_decays(
    log_decay, begin, length, start, shift, TILE: tl.constexpr, SLICE: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """Base-2 log decays of the tokens of a tile, shifted by `shift`, `(TILE, SLICE)`; 0 beyond tile and length."""
    pointer, token_stride = log_decay
    within, column = tl.arange(0, TILE)[:, None] + shift, tl.arange(0, SLICE)[None, :]
    pointers = pointer + tl.cast(begin, tl.int64) * token_stride + start + (within * token_stride + column)
    inside = (within >= 0) & (within < tl.minimum(TILE, length - begin)) & (column < DIM - start)
    return tl.load(pointers, mask=inside, other=0.0) * LOG2_E


@triton.jit
def load_steps(
    forward, backward, begin, length, start, TILE: tl.constexpr, SLICE: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """Log decays of a tile: forward, forward of the tokens before, backward, and backward of the tokens after."""
    at_forward = load_log_decays(forward, begin, length, start, 0, TILE, SLICE, DIM)
    before = load_log_decays(forward, begin, length, start, -1, TILE, SLICE, DIM)
    at_backward = load_log_decays(backward, begin, length, start, 0, TILE, SLICE, DIM)
    after = load_log_decays(backward, begin, length, start, 1, TILE, SLICE, DIM)
    return at_forward, before, at_backward, after


@triton.jit
def add_or_begin(x, x_begins, y, y_begins):
    """Combine two parts of a segmented scan: a part that begins a new segment is not added to the one before."""
    return tl.where(y_begins != 0, y, x + y), x_begins | y_begins


@triton.jit
def sums_in_halves(x, half, TILE: tl.constexpr, SLICE: tl.constexpr, REVERSE: tl.constexpr):
    """Sums up to each token, or from it on, within every `half` tokens."""
    within = tl.arange(0, TILE)[:, None] % half
    begins = (within == (half - 1 if REVERSE else 0)) & (tl.arange(0, SLICE)[None, :] >= 0)
    sums, _ = tl.associative_scan((x, begins.to(tl.int32)), 0, add_or_begin, reverse=REVERSE)
    return sums


@triton.jit
def factors_of_halves(steps, half, TILE: tl.constexpr, SLICE: tl.constexpr):
    """What queries and keys are scaled with between halves of `half` tokens, `(TILE, SLICE)` each."""
    at_forward, before, at_backward, after = steps
    token = tl.arange(0, TILE)[:, None]
    is_second = (token // half) % 2 == 1
    from_start = sums_in_halves(tl.where(token % half > 0, before, 0.0), half, TILE, SLICE, False)
    from_end = sums_in_halves(tl.where(token % half < half - 1, after, 0.0), half, TILE, SLICE, True)
    of_query = tl.exp2(tl.where(is_second, from_start, from_end))
    to_start = sums_in_halves(at_backward, half, TILE, SLICE, False)
    to_end = sums_in_halves(at_forward, half, TILE, SLICE, True)
    return of_query, tl.exp2(tl.where(is_second, to_start, to_end))


@triton.jit
def border_factor(
    log_decay, begin, length, start, direction, OF_QUERIES: tl.constexpr, TILE: tl.constexpr, SLICE: tl.constexpr,
    DIM: tl.constexpr,
):  # fmt: skip
    """
    The decay between tokens and the borders of a tile, `(TILE, SLICE)`, in a direction, 0 forward and 1 backward: for
    queries from the border where the direction enters, for keys to the border where it leaves.
    """
    # A query is reached by the step of the token before it or, backward, after it.
    shift = 2 * direction - 1 if OF_QUERIES else 0
    x = load_log_decays(log_decay, begin, length, start, shift, TILE, SLICE, DIM)
    is_reverse = direction == 1 if OF_QUERIES else direction == 0
    return tl.exp2(tl.where(is_reverse, tl.cumsum(x, 0, reverse=True), tl.cumsum(x, 0)))


@triton.jit
def meet(half, TILE: tl.constexpr):
    """Whether query and key are in different halves, of `half` tokens, of one block, `(TILE, TILE)`."""
    number = tl.arange(0, TILE) // half
    return (number[:, None] ^ number[None, :]) == 1


@triton.jit
def is_own(TILE: tl.constexpr):
    return tl.arange(0, TILE)[:, None] == tl.arange(0, TILE)[None, :]


@triton.jit
def weights_inside(
    query, key, forward, backward, begin, length,
    HEAD_DIM: tl.constexpr, SLICE: tl.constexpr, TILE: tl.constexpr, TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """
    A inside a tile, or its transpose, `(TILE, TILE)` float32. Triton 3.4 to 3.7.0 multiply wrongly with the transpose
    of a product on Hopper GPUs; so a transpose is a product of its own, here and in `diagonal_gradient_kernel`.
    """
    weights = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, HEAD_DIM, SLICE):
        q = load_tile(query, begin, length, start, TILE, SLICE, HEAD_DIM)
        k = load_tile(key, begin, length, start, TILE, SLICE, HEAD_DIM)
        steps = load_steps(forward, backward, begin, length, start, TILE, SLICE, HEAD_DIM)
        own = tl.sum(q.to(tl.float32) * k.to(tl.float32), 1)
        weights += tl.where(is_own(TILE), own[:, None], 0.0)
        half = tl.full([], 1, tl.int32)
        while half < TILE:
            of_query, of_key = factors_of_halves(steps, half, TILE, SLICE)
            scaled_query = (q.to(tl.float32) * of_query).to(k.dtype)
            scaled_key = (k.to(tl.float32) * of_key).to(k.dtype)
            if TRANSPOSED:
                scores = tl.dot(scaled_key, tl.trans(scaled_query), input_precision=PRECISION)
            else:
                scores = tl.dot(scaled_query, tl.trans(scaled_key), input_precision=PRECISION)
            weights += tl.where(meet(half, TILE), scores, 0.0)
            half *= 2
    return weights


@triton.jit
def diagonal_states_kernel(
    x, y, forward, backward, inverses, delta, states, totals, given_states, given_totals, through, heads, length,
    num_tiles, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    TILE: tl.constexpr, ADJOINT: tl.constexpr, NORMALIZE: tl.constexpr, NEEDS_THROUGH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """
    As `states_kernel` in triton/decay.py, with chunks of one tile; `through` is `(bh, chunks, 2, value tiles,
    HEAD_DIM)`, what passes each chunk in every row of the state.
    """
    value_tiles: tl.constexpr = (VALUE_DIM + VALUE_TILE - 1) // VALUE_TILE
    state_tiles: tl.constexpr = (HEAD_DIM + HEAD_TILE - 1) // HEAD_TILE * value_tiles
    state_tile = tl.program_id(0) % state_tiles
    direction = tl.program_id(0) // state_tiles % 2
    bh = tl.program_id(0) // (2 * state_tiles)
    head_start = state_tile // value_tiles * HEAD_TILE
    value_start = state_tile % value_tiles * VALUE_TILE
    x, y = head_of(x, bh, heads), head_of(y, bh, heads)
    is_forward = direction == 0
    pointer, token_stride = head_of(forward, bh, heads)
    backward_pointer, backward_stride = head_of(backward, bh, heads)
    pointer = tl.where(is_forward, pointer, backward_pointer)
    token_stride = tl.where(is_forward, token_stride, backward_stride)
    d = head_start + tl.arange(0, HEAD_TILE)
    e = value_start + tl.arange(0, VALUE_TILE)
    inside = (d < HEAD_DIM)[:, None] & (e < VALUE_DIM)[None, :]
    sums_totals = (d < HEAD_DIM) & (value_start == 0)  # this program computes the totals
    ascends = direction == 1 if ADJOINT else direction == 0
    state = tl.zeros([HEAD_TILE, VALUE_TILE], tl.float32)
    total = tl.zeros([HEAD_TILE], tl.float32)
    for step in range(num_tiles):
        tile = tl.where(ascends, step, num_tiles - 1 - step)
        begin = tile * TILE
        place = (bh.to(tl.int64) * num_tiles + tile) * 2 + direction
        at = place * HEAD_DIM * VALUE_DIM + d[:, None] * VALUE_DIM + e[None, :]
        tl.store(states + at, state.to(states.dtype.element_ty), mask=inside)
        if NORMALIZE:
            tl.store(totals + place * HEAD_DIM + d, total, mask=sums_totals)
        if NEEDS_THROUGH:
            passed = tl.sum(tl.load(given_states + at, mask=inside, other=0.0).to(tl.float32) * state, 1)
            if NORMALIZE:
                passed += tl.load(given_totals + place * HEAD_DIM + d, mask=sums_totals, other=0.0) * total
            row = through + (place * value_tiles + state_tile % value_tiles) * HEAD_DIM
            tl.store(row + d, passed, mask=d < HEAD_DIM)
        log_decay = (pointer, token_stride)
        whole = load_log_decays(log_decay, begin, length, head_start, 0, TILE, HEAD_TILE, HEAD_DIM)
        passes = tl.exp2(tl.sum(whole, 0))
        weight = border_factor(log_decay, begin, length, head_start, direction, ADJOINT, TILE, HEAD_TILE, HEAD_DIM)
        xs = load_tile(x, begin, length, head_start, TILE, HEAD_TILE, HEAD_DIM).to(tl.float32) * weight
        values = load_tile(y, begin, length, value_start, TILE, VALUE_TILE, VALUE_DIM)
        if ADJOINT:
            tokens = begin + tl.arange(0, TILE)
            xs *= load_scale(inverses, tokens, bh, length, scale, NORMALIZE)[:, None]
            if NORMALIZE:
                along = tl.load(delta + bh.to(tl.int64) * length + tokens, mask=tokens < length, other=0.0)
                total = total * passes - tl.sum(xs * along[:, None], 0)
        elif NORMALIZE:
            total = total * passes + tl.sum(xs, 0)
        state = product(tl.trans(xs.to(values.dtype)), values, state * passes[:, None], PRECISION)


@triton.jit
def add_states(
    accumulator, total, x, forward, backward, states, totals, bh, tile, num_tiles, length, value_start,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    TILE: tl.constexpr, OF_QUERIES: tl.constexpr, NEEDS_TOTAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    Add the products of the queries or keys x of a tile with the states of both directions, VALUE_TILE columns of them,
    to `(TILE, VALUE_TILE)`, and with their totals to `(TILE,)`.
    """
    begin = tile * TILE
    e = value_start + tl.arange(0, VALUE_TILE)
    place = (bh.to(tl.int64) * num_tiles + tile) * 2 * HEAD_DIM
    for start in range(0, HEAD_DIM, HEAD_TILE):
        d = start + tl.arange(0, HEAD_TILE)
        xs = load_tile(x, begin, length, start, TILE, HEAD_TILE, HEAD_DIM).to(tl.float32)
        for direction in tl.static_range(2):
            scaled = xs * border_factor(
                forward if direction == 0 else backward, begin, length, start, direction, OF_QUERIES, TILE, HEAD_TILE,
                HEAD_DIM,
            )  # fmt: skip
            rows = place + direction * HEAD_DIM
            state = load_state(states + rows * VALUE_DIM, d[:, None], e[None, :], HEAD_DIM, VALUE_DIM)
            accumulator = product(scaled, state, accumulator, PRECISION)
            if NEEDS_TOTAL:
                z = tl.load(totals + rows + d, mask=d < HEAD_DIM, other=0.0)
                total += tl.sum(scaled * z[None, :], 1)
    return accumulator, total


@triton.jit
def diagonal_output_kernel(
    query, key, value, output, forward, backward, denominators, states, totals, heads, length, num_tiles, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    TILE: tl.constexpr, HAS_STATES: tl.constexpr, NORMALIZE: tl.constexpr,
    DIVIDES: tl.constexpr, SMALLEST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """As `output_kernel` in triton/decay.py."""
    value_tiles: tl.constexpr = (VALUE_DIM + VALUE_TILE - 1) // VALUE_TILE
    value_start = tl.program_id(0) % value_tiles * VALUE_TILE
    tile = tl.program_id(0) // value_tiles % num_tiles
    bh = tl.program_id(0) // (value_tiles * num_tiles)
    query, key, value = head_of(query, bh, heads), head_of(key, bh, heads), head_of(value, bh, heads)
    output, forward, backward = head_of(output, bh, heads), head_of(forward, bh, heads), head_of(backward, bh, heads)
    begin = tile * TILE
    weights = weights_inside(
        query, key, forward, backward, begin, length, HEAD_DIM, HEAD_TILE, TILE, False, PRECISION
    )  # fmt: skip
    total = tl.sum(weights, 1)
    values = load_tile(value, begin, length, value_start, TILE, VALUE_TILE, VALUE_DIM)
    accumulator = tl.dot(weights.to(values.dtype), values, input_precision=PRECISION)
    if HAS_STATES:
        accumulator, total = add_states(
            accumulator, total, query, forward, backward, states, totals, bh, tile, num_tiles, length, value_start,
            HEAD_DIM, VALUE_DIM, HEAD_TILE, VALUE_TILE, TILE, True, NORMALIZE, PRECISION,
        )  # fmt: skip
    store_output(
        output, accumulator, total, denominators, bh, begin, length, value_start, scale,
        TILE, VALUE_TILE, VALUE_DIM, NORMALIZE, DIVIDES, SMALLEST,
    )  # fmt: skip


@triton.jit
def diagonal_value_gradient_kernel(
    query, key, grad, d_value, forward, backward, inverses, states, heads, length, num_tiles, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    TILE: tl.constexpr, HAS_STATES: tl.constexpr, NORMALIZE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """VALUE_TILE columns of Aᵀ (c dy) of one tile; `states` are adjoint."""
    value_tiles: tl.constexpr = (VALUE_DIM + VALUE_TILE - 1) // VALUE_TILE
    value_start = tl.program_id(0) % value_tiles * VALUE_TILE
    tile = tl.program_id(0) // value_tiles % num_tiles
    bh = tl.program_id(0) // (value_tiles * num_tiles)
    query, key, grad = head_of(query, bh, heads), head_of(key, bh, heads), head_of(grad, bh, heads)
    d_value, forward, backward = head_of(d_value, bh, heads), head_of(forward, bh, heads), head_of(backward, bh, heads)
    begin = tile * TILE
    weights = weights_inside(
        query, key, forward, backward, begin, length, HEAD_DIM, HEAD_TILE, TILE, True, PRECISION
    )  # fmt: skip
    tokens = begin + tl.arange(0, TILE)
    weights *= load_scale(inverses, tokens, bh, length, scale, NORMALIZE)[None, :]
    dy = load_tile(grad, begin, length, value_start, TILE, VALUE_TILE, VALUE_DIM)
    gradient = tl.dot(weights.to(dy.dtype), dy, input_precision=PRECISION)
    if HAS_STATES:
        unused = tl.zeros([TILE], tl.float32)  # before 3.7, Triton could not return None in a tuple
        gradient, _ = add_states(
            gradient, unused, key, forward, backward, states, None, bh, tile, num_tiles, length, value_start,
            HEAD_DIM, VALUE_DIM, HEAD_TILE, VALUE_TILE, TILE, False, False, PRECISION,
        )  # fmt: skip
    store_tile(d_value, gradient, begin, length, value_start, TILE, VALUE_TILE, VALUE_DIM)


@triton.jit
def times_slice_of_state(
    x, begin, length, state, d, TILE: tl.constexpr, HEAD_TILE: tl.constexpr, HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, VALUE_TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x Sᵀ, `(TILE, HEAD_TILE)`, for the rows d of a state."""
    result = tl.zeros([TILE, HEAD_TILE], tl.float32)
    for start in range(0, VALUE_DIM, VALUE_TILE):
        e = start + tl.arange(0, VALUE_TILE)
        part = load_state(state, d[None, :], e[:, None], HEAD_DIM, VALUE_DIM)
        result = product(
            load_tile(x, begin, length, start, TILE, VALUE_TILE, VALUE_DIM), part, result, PRECISION
        )  # fmt: skip
    return result


@triton.jit
def diagonal_gradient_kernel(
    query, key, value, grad, d_query, d_key, d_forward, d_backward, forward, backward, inverses, delta, states,
    totals, d_states, d_totals, through, heads, length, num_tiles, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    THROUGH_TILES: tl.constexpr, TILE: tl.constexpr, HAS_STATES: tl.constexpr,
    NORMALIZE: tl.constexpr, NEEDS_DECAY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """HEAD_TILE columns of the gradients of queries, keys and both log decays of one tile."""
    slices: tl.constexpr = (HEAD_DIM + HEAD_TILE - 1) // HEAD_TILE
    start = tl.program_id(0) % slices * HEAD_TILE
    tile = tl.program_id(0) // slices % num_tiles
    bh = tl.program_id(0) // (slices * num_tiles)
    query, key, value = head_of(query, bh, heads), head_of(key, bh, heads), head_of(value, bh, heads)
    grad, d_query, d_key = head_of(grad, bh, heads), head_of(d_query, bh, heads), head_of(d_key, bh, heads)
    forward, backward = head_of(forward, bh, heads), head_of(backward, bh, heads)
    begin = tile * TILE
    tokens = begin + tl.arange(0, TILE)
    row_scale = load_scale(inverses, tokens, bh, length, scale, NORMALIZE)
    g, g_transposed = tl.zeros([TILE, TILE], tl.float32), tl.zeros([TILE, TILE], tl.float32)
    for value_start in range(0, VALUE_DIM, VALUE_TILE):
        dy = load_tile(grad, begin, length, value_start, TILE, VALUE_TILE, VALUE_DIM)
        values = load_tile(value, begin, length, value_start, TILE, VALUE_TILE, VALUE_DIM)
        g = product(dy, tl.trans(values), g, PRECISION)
        g_transposed = product(values, tl.trans(dy), g_transposed, PRECISION)
    if NORMALIZE:
        along = tl.load(delta + bh.to(tl.int64) * length + tokens, mask=tokens < length, other=0.0)
        g -= along[:, None]
        g_transposed -= along[None, :]
    g *= row_scale[:, None]
    g_transposed *= row_scale[None, :]

    q = load_tile(query, begin, length, start, TILE, HEAD_TILE, HEAD_DIM).to(tl.float32)
    k = load_tile(key, begin, length, start, TILE, HEAD_TILE, HEAD_DIM).to(tl.float32)
    steps = load_steps(forward, backward, begin, length, start, TILE, HEAD_TILE, HEAD_DIM)
    narrow: tl.constexpr = query[0].dtype.element_ty
    q_forward, q_backward = tl.zeros([TILE, HEAD_TILE], tl.float32), tl.zeros([TILE, HEAD_TILE], tl.float32)
    k_forward, k_backward = tl.zeros([TILE, HEAD_TILE], tl.float32), tl.zeros([TILE, HEAD_TILE], tl.float32)
    half = tl.full([], 1, tl.int32)
    while half < TILE:
        of_query, of_key = factors_of_halves(steps, half, TILE, HEAD_TILE)
        on_level = meet(half, TILE)
        level_g = tl.where(on_level, g, 0.0).to(narrow)
        level_g_transposed = tl.where(on_level, g_transposed, 0.0).to(narrow)
        is_second = (tl.arange(0, TILE)[:, None] // half) % 2 == 1
        part = tl.dot(level_g, (k * of_key).to(narrow), input_precision=PRECISION) * of_query
        q_forward += tl.where(is_second, part, 0.0)
        q_backward += tl.where(is_second, 0.0, part)
        part = tl.dot(level_g_transposed, (q * of_query).to(narrow), input_precision=PRECISION) * of_key
        k_forward += tl.where(is_second, 0.0, part)
        k_backward += tl.where(is_second, part, 0.0)
        half *= 2

    d_query_slice, d_key_slice = q_forward + q_backward, k_forward + k_backward
    d = start + tl.arange(0, HEAD_TILE)
    for direction in tl.static_range(2):
        q_way = q_forward if direction == 0 else q_backward
        k_way = k_forward if direction == 0 else k_backward
        total = tl.zeros([HEAD_TILE], tl.float32)
        if HAS_STATES:
            place = (bh.to(tl.int64) * num_tiles + tile) * 2 + direction
            rows = place * HEAD_DIM
            taken = times_slice_of_state(
                grad, begin, length, states + rows * VALUE_DIM, d, TILE, HEAD_TILE, HEAD_DIM, VALUE_DIM, VALUE_TILE,
                PRECISION,
            )  # fmt: skip
            given = times_slice_of_state(
                value, begin, length, d_states + rows * VALUE_DIM, d, TILE, HEAD_TILE, HEAD_DIM, VALUE_DIM, VALUE_TILE,
                PRECISION,
            )  # fmt: skip
            if NORMALIZE:
                z = tl.load(totals + rows + d, mask=d < HEAD_DIM, other=0.0)
                taken -= along[:, None] * z[None, :]
                given += tl.load(d_totals + rows + d, mask=d < HEAD_DIM, other=0.0)[None, :]
            log_decay = forward if direction == 0 else backward
            taken *= row_scale[:, None] * border_factor(
                log_decay, begin, length, start, direction, True, TILE, HEAD_TILE, HEAD_DIM
            )  # fmt: skip
            given *= border_factor(log_decay, begin, length, start, direction, False, TILE, HEAD_TILE, HEAD_DIM)
            d_query_slice += taken
            d_key_slice += given
            if NEEDS_DECAY:
                for n in tl.static_range(THROUGH_TILES):
                    row = through + (place * THROUGH_TILES + n) * HEAD_DIM
                    total += tl.load(row + d, mask=d < HEAD_DIM, other=0.0)
                whole = load_log_decays(log_decay, begin, length, start, 0, TILE, HEAD_TILE, HEAD_DIM)
                total = total * tl.exp2(tl.sum(whole, 0)) + tl.sum(q * taken, 0)
                q_way += taken
                k_way += given
        if NEEDS_DECAY:
            crossing = tl.cumsum(k * k_way - q * q_way, 0, reverse=direction == 1) + total[None, :]
            out = (d_forward if direction == 0 else d_backward) + bh.to(tl.int64) * length * HEAD_DIM
            store_tile((out, HEAD_DIM), crossing, begin, length, start, TILE, HEAD_TILE, HEAD_DIM)
    own = tl.sum(tl.where(is_own(TILE), g, 0.0), 1)[:, None]
    store_tile(d_query, d_query_slice + own * k, begin, length, start, TILE, HEAD_TILE, HEAD_DIM)
    store_tile(d_key, d_key_slice + own * q, begin, length, start, TILE, HEAD_TILE, HEAD_DIM)
