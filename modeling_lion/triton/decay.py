# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
LION-D and LION-S on a GPU: one set of Triton kernels for the parallel and the chunk form.

The sequence is cut into chunks of several tiles. Inside a chunk, the kernels compute all pairs of tiles; between
chunks, one state per direction. A single chunk for the whole sequence needs no states and is the parallel form.

    forward    decays · states · output; the output alone if there is one chunk
    backward   query gradients · adjoint states (if more than one chunk) · key and value gradients · decay gradients

States take two launches: one for the sum that each chunk adds, and one for a walk along the chunks.

Decays. For each token t of a tile, `decays` holds exponentials of the sums of `chunk_sums` (attention/decay_mask.py):
from the start of the tile to t and from t to its end (forward), from its end to t and from t to its start (backward).
Between two different tiles, the decay is a product of factors of the row, of the column and of the tiles between, each
at most 1, without an exponent per pair or a difference of sums. Only the tile on the diagonal subtracts sums, in base
2. For float32, these sums leave out cuts, the steps with λ = 0, which are counted separately: in a sum, a cut would
take the digits of later terms (`split_cuts` in attention/decay_mask.py).

    G_ij = (dy_i · v_j - delta_i) c_i M_ij        c_i = 1 / den_i        delta_i = dy_i · y_i
    dq = G k        dk = Gᵀ q        dv_j = Σ_i c_i (q_i · k_j) M_ij dy_i        R = G ∘ (q kᵀ)

The gradient of a log decay is the sum of R over the pairs that its step separates (cpu/decay_mask.py). For each token
t of a tile:

    d forward_t  = Σ_{i>t} (taken_i + row_i - column_i) + Σ_{j≤t} given_j + across
    d backward_t = Σ_{j≥t} (given_j + column_j - row_j) + Σ_{i<t} taken_i + across

`row` and `column` are sums of R inside the tile, below the diagonal (forward) or above it (backward). `taken` are the
sums of R of the queries of the tile with keys of other tiles and chunks, `given` those of its keys with other queries,
and `across` those of pairs on both sides of the tile. Only float32 sums of one tile are subtracted, so that they
cancel: over more tokens, errors of 16-bit products would add up.

Unless DIVIDES, the output is the numerators. In the gradients, c is then still 1 / den, dy the gradient of the
numerator times den, and delta the gradient of the denominator times -den.
"""

from .tile_products import (
    LOG2_E,
    add_weighted,
    dots,
    head_of,
    held_tile,
    held_times_state,
    inside_if,
    load_scale,
    load_tile,
    load_transposed,
    product,
    store_output,
    store_tile,
    times_state,
    times_totals,
    tl,
    triton,
)


# The kinds of `decays`, and the shares of their gradients.
FACTOR_FROM_START, FACTOR_TO_END, FACTOR_FROM_END, FACTOR_TO_START = (tl.constexpr(i) for i in range(4))
SUM_FROM_START, SUM_TO_START, CUTS_FROM_START, CUTS_TO_START = (tl.constexpr(i) for i in range(4, 8))
# Replaces the log2 of a cut on the diagonal: its multiples are exact in float32, and its exp2 is 0.
CUT = tl.constexpr(-256.0)
ROW_FORWARD, ROW_BACKWARD, TAKEN_BACKWARD = (tl.constexpr(i) for i in range(3))
COLUMN_FORWARD, GIVEN_FORWARD, COLUMN_BACKWARD = (tl.constexpr(i) for i in range(3, 6))
# The sums of a tile: `taken` of all its queries, and `given` of its keys to other chunks.
TAKEN, GIVEN = (tl.constexpr(i) for i in (0, 2))


@triton.jit
def load_log_decay(log_decay, tokens, length):
    """The log decays of some tokens, `(TILES, TILE)`; 0 beyond the length."""
    pointer, token_stride = log_decay
    inside = (tokens >= 0) & (tokens < length)
    return tl.load(pointer + tokens.to(tl.int64) * token_stride, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def decays_kernel(
    forward, backward, decays, heads, length, num_tiles,
    FLOOR: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr, COUNT_CUTS: tl.constexpr,
):  # fmt: skip
    """
    The `decays` (above) of TILES tiles, `(bh, 6, num_tiles * TILE)` float32, for each (batch, head) pair of the log
    decays `forward` and `backward`; 8 kinds instead of 6 if COUNT_CUTS.

    If tokens share a decay (a token stride of 0), one tile serves all.
    """
    groups = tl.cdiv(num_tiles, TILES)
    bh = tl.program_id(0) // groups
    tile = tl.program_id(0) % groups * TILES + tl.arange(0, TILES)[:, None]
    forward, backward = head_of(forward, bh, heads), head_of(backward, bh, heads)
    store_decays(forward, backward, decays, bh, tile, length, num_tiles, FLOOR, TILE, COUNT_CUTS)


@triton.jit
def store_decays(
    forward, backward, decays, bh, tile, length, num_tiles,
    FLOOR: tl.constexpr, TILE: tl.constexpr, COUNT_CUTS: tl.constexpr,
):  # fmt: skip
    """Store the `decays` of some tiles `(TILES, 1)` of one (batch, head) pair."""
    within = tl.arange(0, TILE)[None, :]
    tokens = tile * TILE + within
    kinds: tl.constexpr = 8 if COUNT_CUTS else 6
    width = num_tiles * TILE
    out = decays + bh.to(tl.int64) * kinds * width + tokens
    mask = tile < num_tiles
    at = load_log_decay(forward, tokens, length)
    before = tl.where(within > 0, load_log_decay(forward, tokens - 1, length), 0.0)
    tl.store(out + FACTOR_FROM_START * width, tl.exp2(tl.cumsum(before * LOG2_E, 1)), mask=mask)
    tl.store(out + FACTOR_TO_END * width, tl.exp2(tl.cumsum(at * LOG2_E, 1, reverse=True)), mask=mask)
    store_sums(out, SUM_FROM_START, CUTS_FROM_START, before, width, mask, FLOOR, COUNT_CUTS)
    at = load_log_decay(backward, tokens, length)
    after = tl.where(within < TILE - 1, load_log_decay(backward, tokens + 1, length), 0.0)
    tl.store(out + FACTOR_FROM_END * width, tl.exp2(tl.cumsum(after * LOG2_E, 1, reverse=True)), mask=mask)
    tl.store(out + FACTOR_TO_START * width, tl.exp2(tl.cumsum(at * LOG2_E, 1)), mask=mask)
    store_sums(out, SUM_TO_START, CUTS_TO_START, at, width, mask, FLOOR, COUNT_CUTS)


@triton.jit
def store_sums(
    out, sum_kind, cuts_kind, log_decay, width, mask, FLOOR: tl.constexpr, COUNT_CUTS: tl.constexpr,
):  # fmt: skip
    """Store sums of log decays. If COUNT_CUTS, they leave out the cuts, which are counted separately."""
    if COUNT_CUTS:
        is_cut = log_decay <= FLOOR
        tl.store(out + cuts_kind * width, tl.cumsum(tl.where(is_cut, CUT, 0.0), 1), mask=mask)
        log_decay = tl.where(is_cut, 0.0, log_decay)
    tl.store(out + sum_kind * width, tl.cumsum(log_decay * LOG2_E, 1), mask=mask)


@triton.jit
def decays_of(decays, bh, heads):
    """The decays of one (batch, head) pair: pointer, stride of tiles (0 if one serves all), stride of kinds."""
    pointer, batch_stride, head_stride, tile_stride, kind_stride = decays
    pointer += (bh // heads).to(tl.int64) * batch_stride + (bh % heads).to(tl.int64) * head_stride
    return pointer, tile_stride, kind_stride


@triton.jit
def load_decays(decays, kind, tile, start, SIZE: tl.constexpr):
    """One kind of the decays of a tile, for SIZE tokens from `start`."""
    pointer, tile_stride, kind_stride = decays
    return tl.load(pointer + kind * kind_stride + tile * tile_stride + start + tl.arange(0, SIZE))


@triton.jit
def through_tile(decays, tile, is_forward, TILE: tl.constexpr):
    """The factor of a state that passes through a whole tile."""
    pointer, tile_stride, kind_stride = decays
    to_end = pointer + FACTOR_TO_END * kind_stride
    to_start = pointer + FACTOR_TO_START * kind_stride + TILE - 1
    return tl.load(tl.where(is_forward != 0, to_end, to_start) + tile * tile_stride)


@triton.jit
def differences(
    decays, from_start, to_start, tile, query, key,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """The differences between QUERIES queries and KEYS keys of a tile, forward and backward, for two kinds of sums."""
    query_start = tl.expand_dims(load_decays(decays, from_start, tile, query, QUERIES), 0 if TRANSPOSED else 1)
    query_to_start = tl.expand_dims(load_decays(decays, to_start, tile, query, QUERIES), 0 if TRANSPOSED else 1)
    key_start = tl.expand_dims(load_decays(decays, from_start, tile, key, KEYS), 1 if TRANSPOSED else 0)
    key_to_start = tl.expand_dims(load_decays(decays, to_start, tile, key, KEYS), 1 if TRANSPOSED else 0)
    return query_start - key_start, key_to_start - query_to_start


@triton.jit
def mask_on_diagonal(
    decays, tile, query, key,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, TRANSPOSED: tl.constexpr, COUNT_CUTS: tl.constexpr,
):  # fmt: skip
    """
    M inside a tile: a row for each of QUERIES queries from `query` and a column for each of KEYS keys from `key`, or
    the transpose if TRANSPOSED. For each pair, the exponent of the right direction is at most 0 and the other one at
    least 0, so the minimum selects the right one.
    """
    forward, backward = differences(decays, SUM_FROM_START, SUM_TO_START, tile, query, key, QUERIES, KEYS, TRANSPOSED)
    if COUNT_CUTS:
        cut_forward, cut_backward = differences(
            decays, CUTS_FROM_START, CUTS_TO_START, tile, query, key, QUERIES, KEYS, TRANSPOSED
        )  # fmt: skip
        forward += cut_forward
        backward += cut_backward
    return tl.exp2(tl.minimum(forward, backward))


@triton.jit
def chunk_of_program(tile, chunk_tiles, num_tiles):
    """The index of the chunk of a tile, the first tile of the chunk, and the first tile after it."""
    chunk = tile // chunk_tiles
    return chunk, chunk * chunk_tiles, tl.minimum((chunk + 1) * chunk_tiles, num_tiles)


@triton.jit
def chunk_states_kernel(
    x, y, decays, inverses, delta, states, totals, chunk_decays, heads, length, num_tiles, chunk_tiles, num_chunks,
    num_pairs, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    TILE: tl.constexpr, ADJOINT: tl.constexpr, NORMALIZE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    The sums that each chunk adds to the states of both directions; a program computes one tile of a state. Writes
    `states` `(chunks, bh, 2, HEAD_DIM, VALUE_DIM)`, `totals` `(chunks, bh, 2, HEAD_DIM)`, and `chunk_decays` `(chunks,
    bh, 2)`, the factors of states that pass through the chunk.

    Forward: x = k, y = v; direction 0 ends where the chunk ends. ADJOINT: x = q, y = dy, and both directions are
    reversed.
    """
    head_tiles: tl.constexpr = (HEAD_DIM + HEAD_TILE - 1) // HEAD_TILE
    value_tiles: tl.constexpr = (VALUE_DIM + VALUE_TILE - 1) // VALUE_TILE
    state_tile = tl.program_id(0) % (head_tiles * value_tiles)
    chunk = tl.program_id(0) // (head_tiles * value_tiles) % num_chunks
    bh = tl.program_id(0) // (head_tiles * value_tiles * num_chunks)
    head_start = state_tile // value_tiles * HEAD_TILE
    value_start = state_tile % value_tiles * VALUE_TILE
    x, y, decays = head_of(x, bh, heads), head_of(y, bh, heads), decays_of(decays, bh, heads)
    # `along` is the direction in which the loop visits the tiles; `against` is the other one.
    ALONG: tl.constexpr = 1 if ADJOINT else 0
    along = tl.zeros([HEAD_TILE, VALUE_TILE], tl.float32)
    against = tl.zeros([HEAD_TILE, VALUE_TILE], tl.float32)
    total_along = tl.zeros([HEAD_TILE], tl.float32)
    total_against = tl.zeros([HEAD_TILE], tl.float32)
    decay_along, decay_against = 1.0, 1.0
    first = chunk * chunk_tiles
    for tile in range(first, tl.minimum(first + chunk_tiles, num_tiles)):
        tokens = tile * TILE + tl.arange(0, TILE)
        xs = load_transposed(x, tile * TILE, length, head_start, TILE, HEAD_TILE, HEAD_DIM)
        values = load_tile(y, tile * TILE, length, value_start, TILE, VALUE_TILE, VALUE_DIM)
        weight_along = load_decays(decays, FACTOR_FROM_END if ADJOINT else FACTOR_TO_END, tile, 0, TILE)
        weight_against = load_decays(decays, FACTOR_FROM_START if ADJOINT else FACTOR_TO_START, tile, 0, TILE)
        weight_against *= decay_against
        passes = through_tile(decays, tile, ALONG == 0, TILE)
        if ADJOINT:
            row_scale = load_scale(inverses, tokens, bh, length, scale, NORMALIZE)
            weight_along *= row_scale
            weight_against *= row_scale
        if NORMALIZE:
            ones_along, ones_against = weight_along, weight_against
            if ADJOINT:
                ones = -tl.load(delta + bh.to(tl.int64) * length + tokens, mask=tokens < length, other=0.0)
                ones_along *= ones
                ones_against *= ones
            total_along = total_along * passes + tl.sum(xs.to(tl.float32) * ones_along[None, :], 1)
            total_against += tl.sum(xs.to(tl.float32) * ones_against[None, :], 1)
        along = add_weighted(along * passes, xs, values, weight_along, PRECISION)
        against = add_weighted(against, xs, values, weight_against, PRECISION)
        decay_along *= passes
        decay_against *= through_tile(decays, tile, ALONG == 1, TILE)
    d = head_start + tl.arange(0, HEAD_TILE)
    e = value_start + tl.arange(0, VALUE_TILE)
    inside = (d < HEAD_DIM)[:, None] & (e < VALUE_DIM)[None, :]
    sums_totals = inside_if(value_start == 0, d, HEAD_DIM)  # whether this program stores the totals
    index = (tl.cast(chunk, tl.int64) * num_pairs + bh) * 2
    for direction in tl.static_range(2):
        at = (index + direction) * HEAD_DIM * VALUE_DIM + d[:, None] * VALUE_DIM + e[None, :]
        state = along if direction == ALONG else against
        tl.store(states + at, state.to(states.dtype.element_ty), mask=inside)
        if NORMALIZE:
            total = total_along if direction == ALONG else total_against
            tl.store(totals + (index + direction) * HEAD_DIM + d, total, mask=sums_totals)
        decay = decay_along if direction == ALONG else decay_against
        tl.store(chunk_decays + index + direction, decay, mask=state_tile == 0)


@triton.jit
def pass_chunks_kernel(
    states, totals, chunk_decays, given_states, given_totals, through, num_chunks, num_pairs,
    HEAD_DIM: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, TOTALS: tl.constexpr, ADJOINT: tl.constexpr,
    NORMALIZE: tl.constexpr, NEEDS_THROUGH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """
    Overwrite the sum that each chunk adds to the states with the state before the chunk. A program walks along the
    chunks, for one direction and BLOCK of the SIZE elements of a state. It loads STAGES chunks ahead, which a loop
    without products does not do by default.

    If NEEDS_THROUGH, `through` `(chunks, bh, 2, blocks)` receives Σ S ∘ dS of each chunk, before the decay of the
    chunk, where S are the `given_states`.
    """
    blocks: tl.constexpr = (SIZE + BLOCK - 1) // BLOCK
    block = tl.program_id(0) % blocks
    direction = tl.program_id(0) // blocks % 2
    bh = tl.program_id(0) // (2 * blocks)
    ascends = direction == (1 if ADJOINT else 0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, TOTALS)
    has_totals = inside_if(block == 0, d, HEAD_DIM)
    state = tl.zeros([BLOCK], tl.float32)
    total = tl.zeros([TOTALS], tl.float32)
    for step in tl.range(num_chunks, num_stages=STAGES):
        chunk = tl.where(ascends, step, num_chunks - 1 - step)
        index = (tl.cast(chunk, tl.int64) * num_pairs + bh) * 2 + direction
        place = index * SIZE + at
        decay = tl.load(chunk_decays + index)
        added = tl.load(states + place, mask=at < SIZE, other=0.0).to(tl.float32)
        tl.store(states + place, state.to(states.dtype.element_ty), mask=at < SIZE)
        if NEEDS_THROUGH:
            passed = tl.sum(tl.load(given_states + place, mask=at < SIZE, other=0.0).to(tl.float32) * state)
        if NORMALIZE:
            added_total = tl.load(totals + index * HEAD_DIM + d, mask=has_totals, other=0.0)
            tl.store(totals + index * HEAD_DIM + d, total, mask=has_totals)
            if NEEDS_THROUGH:
                z = tl.load(given_totals + index * HEAD_DIM + d, mask=has_totals, other=0.0)
                passed += tl.sum(z * total)
            total = total * decay + added_total
        if NEEDS_THROUGH:
            tl.store(through + index * blocks + block, passed)
        state = state * decay + added


@triton.jit
def neighbor(tile, step, IS_BEFORE: tl.constexpr, TILE: tl.constexpr, SLICE: tl.constexpr):
    """
    One step of a walk away from a tile, in slices of SLICE tokens, the nearest tile first. Returns the other tile, the
    offset of the slice in it, and the first token of the slice.
    """
    slices: tl.constexpr = TILE // SLICE
    other = tile - 1 - step // slices if IS_BEFORE else tile + 1 + step // slices
    offset = step % slices * SLICE
    return other, offset, other * TILE + offset


@triton.jit
def let_pass(between, decays, other, offset, is_forward, TILE: tl.constexpr, SLICE: tl.constexpr):
    """Update `between`, the factor of all tiles that a walk has passed, after a slice."""
    passes = through_tile(decays, other, is_forward, TILE)
    return between * (passes if SLICE == TILE else tl.where(offset == TILE - SLICE, passes, 1.0))


@triton.jit
def next_keys(
    log_decay, decays, between, tile, step, length,
    IS_BEFORE: tl.constexpr, HAS_STATES: tl.constexpr, TILE: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """
    One step of a walk away from a tile: the first of the next KEYS keys, their decays up to the tile, and `between`
    after them. Without states, nothing has stored the decays of other tiles: they come from the log decays, the
    nearest slice first.
    """
    if HAS_STATES:
        other, offset, first = neighbor(tile, step, IS_BEFORE, TILE, KEYS)
        weight = load_decays(decays, FACTOR_TO_END if IS_BEFORE else FACTOR_TO_START, other, offset, KEYS) * between
        between = let_pass(between, decays, other, offset, IS_BEFORE, TILE, KEYS)
    else:
        first = tile * TILE - (step + 1) * KEYS if IS_BEFORE else (tile + 1) * TILE + step * KEYS
        exponents = load_log_decay(log_decay, first + tl.arange(0, KEYS), length) * LOG2_E
        weight = tl.exp2(tl.cumsum(exponents, 0, reverse=IS_BEFORE)) * between
        between *= tl.exp2(tl.sum(exponents, 0))
    return first, weight, between


@triton.jit
def add_output_of_side(
    accumulator, total, query, q, key, value, row_weight, log_decay, decays, tile, steps, length, value_start,
    IS_BEFORE: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr,
    VALUE_TILE: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, KEYS: tl.constexpr, HAS_STATES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """
    Add the output of a tile from the keys of its chunk on one side, and the sums of its weights. The third result is
    the factor of all tiles on that side. `row_weight` are the decays inside the tile itself.
    """
    between = 1.0
    for step in range(steps * (TILE // KEYS)):
        first, weight, between = next_keys(
            log_decay, decays, between, tile, step, length, IS_BEFORE, HAS_STATES, TILE, KEYS
        )  # fmt: skip
        values = load_tile(value, first, length, value_start, KEYS, VALUE_TILE, VALUE_DIM)
        scores = dots(query, tile * TILE, q, key, first, length, TILE, KEYS, HEAD_TILE, SPLIT, HEAD_DIM, PRECISION)
        scores = scores * weight[None, :] * row_weight[:, None]
        total += tl.sum(scores, 1)
        accumulator = product(scores, values, accumulator, PRECISION)
    return accumulator, total, between


@triton.jit
def output_kernel(
    query, key, value, output, remainder, forward, backward, decays, denominators, states, totals, heads, length,
    num_tiles, chunk_tiles, num_pairs, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    INNER: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, KEYS: tl.constexpr, HAS_STATES: tl.constexpr,
    NORMALIZE: tl.constexpr, DIVIDES: tl.constexpr, KEEPS_REMAINDER: tl.constexpr, COUNT_CUTS: tl.constexpr,
    SMALLEST: tl.constexpr, FLOOR: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    VALUE_TILE columns of the output of one tile, in steps of KEYS keys, stored by `store_output`. If KEEPS_REMAINDER,
    also the rounding error of the output, which the gradients of the decays need. Without states, a program computes
    all columns, and first the `decays` of its tile from the log decays `forward` and `backward`.
    """
    value_tiles: tl.constexpr = (VALUE_DIM + VALUE_TILE - 1) // VALUE_TILE
    value_start = tl.program_id(0) % value_tiles * VALUE_TILE
    tile = tl.program_id(0) // value_tiles % num_tiles
    bh = tl.program_id(0) // (value_tiles * num_tiles)
    query, key, value = head_of(query, bh, heads), head_of(key, bh, heads), head_of(value, bh, heads)
    output = head_of(output, bh, heads)
    if not HAS_STATES:
        forward, backward = head_of(forward, bh, heads), head_of(backward, bh, heads)
        own = tile + tl.arange(0, 1)[:, None]
        store_decays(forward, backward, decays[0], bh, own, length, num_tiles, FLOOR, TILE, COUNT_CUTS)
        tl.debug_barrier()  # until all threads have stored what others load
    decays = decays_of(decays, bh, heads)
    chunk, first, end = chunk_of_program(tile, chunk_tiles, num_tiles)
    begin = tile * TILE
    q = held_tile(query, begin, length, TILE, HEAD_TILE, SPLIT, HEAD_DIM)
    accumulator = tl.zeros([TILE, VALUE_TILE], tl.float32)
    total = tl.zeros([TILE], tl.float32)
    for is_before in tl.static_range(2):
        steps = tile - first if is_before else end - 1 - tile
        row_weight = load_decays(decays, FACTOR_FROM_START if is_before else FACTOR_FROM_END, tile, 0, TILE)
        accumulator, total, between = add_output_of_side(
            accumulator, total, query, q, key, value, row_weight, forward if is_before else backward, decays, tile,
            steps, length, value_start,
            is_before, HEAD_DIM, VALUE_DIM, HEAD_TILE, VALUE_TILE, SPLIT, TILE, KEYS, HAS_STATES, PRECISION,
        )  # fmt: skip
        if HAS_STATES:
            border_weight = row_weight * between
            index = (tl.cast(chunk, tl.int64) * num_pairs + bh) * 2 + (0 if is_before else 1)
            state = states + index * HEAD_DIM * VALUE_DIM
            if INNER == 0:
                of_state = held_times_state(
                    q, state, value_start, HEAD_TILE, HEAD_DIM, VALUE_TILE, VALUE_DIM, PRECISION
                )  # fmt: skip
                accumulator += of_state * border_weight[:, None]
            else:
                accumulator = times_state(
                    accumulator, query, border_weight, begin, length, state, value_start,
                    TILE, False, INNER, HEAD_DIM, VALUE_TILE, HEAD_DIM, VALUE_DIM, PRECISION,
                )  # fmt: skip
            if NORMALIZE:
                z = totals + index * HEAD_DIM
                total += times_totals(query, begin, length, z, TILE, HEAD_TILE, HEAD_DIM) * border_weight
    for offset in range(0, TILE, KEYS):
        values = load_tile(value, begin + offset, length, value_start, KEYS, VALUE_TILE, VALUE_DIM)
        scores = dots(
            query, begin, q, key, begin + offset, length, TILE, KEYS, HEAD_TILE, SPLIT, HEAD_DIM, PRECISION
        )  # fmt: skip
        scores *= mask_on_diagonal(decays, tile, 0, offset, TILE, KEYS, False, COUNT_CUTS)
        total += tl.sum(scores, 1)
        accumulator = product(scores, values, accumulator, PRECISION)
    y = store_output(
        output, accumulator, total, denominators, bh, begin, length, value_start, scale,
        TILE, VALUE_TILE, VALUE_DIM, NORMALIZE, DIVIDES, SMALLEST,
    )  # fmt: skip
    if KEEPS_REMAINDER:
        y -= y.to(output[0].dtype.element_ty).to(tl.float32)
        remainder = head_of(remainder, bh, heads)
        store_tile(remainder, y, begin, length, value_start, TILE, VALUE_TILE, VALUE_DIM)


@triton.jit
def share_of(shares, kind, share_stride):
    """The pointer to one kind of shares of the gradients of the decays, with a 64-bit offset."""
    return shares + tl.cast(share_stride, tl.int64) * kind


@triton.jit
def rows_dot(x, y, first, length, ROWS: tl.constexpr, BLOCK: tl.constexpr, DIM: tl.constexpr):
    """x · y of each token. It loads x again, since registers are scarce."""
    return tl.sum(load_tile(x, first, length, 0, ROWS, BLOCK, DIM).to(tl.float32) * y, 1)


@triton.jit
def add_query_gradient_of_side(
    accumulator, grad, dy, delta, query, row_weight, key, value, decays, nearest, seen, tile, first_of_chunk, steps,
    length,
    IS_BEFORE: tl.constexpr, HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr,
    VALUE_TILE: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, KEYS: tl.constexpr,
    SUMS_NEAREST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    Add G k from the tiles of the chunk on one side. The second result is the factor of all those tiles. `row_weight`
    is c times the decays inside the tile itself. If SUMS_NEAREST, `nearest` receives, for each tile on this side, the
    sum of `taken` from the nearest tile up to it; `seen` is q · dq before.
    """
    between = 1.0
    for step in range(steps * (TILE // KEYS)):
        other, offset, first = neighbor(tile, step, IS_BEFORE, TILE, KEYS)
        keys = load_tile(key, first, length, 0, KEYS, HEAD_TILE, HEAD_DIM)
        weight = load_decays(decays, FACTOR_TO_END if IS_BEFORE else FACTOR_TO_START, other, offset, KEYS) * between
        g = dots(grad, tile * TILE, dy, value, first, length, TILE, KEYS, VALUE_TILE, SPLIT, VALUE_DIM, PRECISION)
        g = (g - delta[:, None]) * weight[None, :] * row_weight[:, None]
        accumulator = product(g, keys, accumulator, PRECISION)
        between = let_pass(between, decays, other, offset, IS_BEFORE, TILE, KEYS)
        if SUMS_NEAREST:  # the last slice of a tile writes last
            taken = rows_dot(query, accumulator, tile * TILE, length, TILE, HEAD_TILE, HEAD_DIM) - seen
            tl.store(nearest + (other - first_of_chunk), tl.sum(taken))
    return accumulator, between


@triton.jit
def query_gradient_kernel(
    query, key, value, output, remainder, grad, d_query, decays, inverses, delta, states, totals, shares,
    tile_sums, nearest, heads, length, num_tiles, chunk_tiles, num_pairs, scale, share_stride,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    INNER: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, KEYS: tl.constexpr, HAS_STATES: tl.constexpr,
    NORMALIZE: tl.constexpr, DIVIDES: tl.constexpr, KEEPS_REMAINDER: tl.constexpr, NEEDS_DECAY: tl.constexpr,
    COUNT_CUTS: tl.constexpr, CROSSES_TILES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    The gradient of the queries of one tile, in steps of KEYS keys, delta, and the shares of the queries in the
    gradients of the decays. CROSSES_TILES says whether chunks have more than two tiles, so that pairs have a whole
    tile between.
    """
    tile = tl.program_id(0) % num_tiles
    bh = tl.program_id(0) // num_tiles
    query, key, value = head_of(query, bh, heads), head_of(key, bh, heads), head_of(value, bh, heads)
    output, grad, d_query = head_of(output, bh, heads), head_of(grad, bh, heads), head_of(d_query, bh, heads)
    decays = decays_of(decays, bh, heads)
    chunk, first, end = chunk_of_program(tile, chunk_tiles, num_tiles)
    begin = tile * TILE
    tokens = begin + tl.arange(0, TILE)
    at = bh.to(tl.int64) * length + tokens
    dy = held_tile(grad, begin, length, TILE, VALUE_TILE, SPLIT, VALUE_DIM)
    row_scale = load_scale(inverses, tokens, bh, length, scale, NORMALIZE)
    if not NORMALIZE:
        along = tl.zeros([TILE], tl.float32)
    elif DIVIDES:
        y = load_tile(output, begin, length, 0, TILE, VALUE_TILE, VALUE_DIM).to(tl.float32)
        if KEEPS_REMAINDER:
            remainder = head_of(remainder, bh, heads)
            y += load_tile(remainder, begin, length, 0, TILE, VALUE_TILE, VALUE_DIM).to(tl.float32)
        whole = load_tile(grad, begin, length, 0, TILE, VALUE_TILE, VALUE_DIM) if SPLIT < VALUE_TILE else dy
        along = tl.sum(whole.to(tl.float32) * y, 1)
        tl.store(delta + at, along, mask=tokens < length)
    else:
        along = tl.load(delta + at, mask=tokens < length, other=0.0)
    accumulator = tl.zeros([TILE, HEAD_TILE], tl.float32)
    tile_index = bh.to(tl.int64) * num_tiles + tile
    if NEEDS_DECAY:
        nearest += tile_index * chunk_tiles
    seen = tl.zeros([TILE], tl.float32)  # q · dq so far, which each phase subtracts to get its own share
    for is_before in tl.static_range(2):
        steps = tile - first if is_before else end - 1 - tile
        row_weight = load_decays(decays, FACTOR_FROM_START if is_before else FACTOR_FROM_END, tile, 0, TILE)
        row_weight *= row_scale
        accumulator, between = add_query_gradient_of_side(
            accumulator, grad, dy, along, query, row_weight, key, value, decays, nearest, seen, tile, first, steps,
            length, is_before, HEAD_DIM, VALUE_DIM, HEAD_TILE, VALUE_TILE, SPLIT, TILE, KEYS,
            CROSSES_TILES and NEEDS_DECAY, PRECISION,
        )  # fmt: skip
        if NEEDS_DECAY and HAS_STATES and not CROSSES_TILES:
            # For the only other tile. If there is none, nothing reads this number.
            other = (first if is_before else end - 1) - first
            taken_rows = rows_dot(query, accumulator, begin, length, TILE, HEAD_TILE, HEAD_DIM) - seen
            tl.store(nearest + other, tl.sum(taken_rows))
        if HAS_STATES:
            border_weight = row_weight * between
            index = (tl.cast(chunk, tl.int64) * num_pairs + bh) * 2 + (0 if is_before else 1)
            accumulator = times_state(
                accumulator, grad, border_weight, begin, length, states + index * HEAD_DIM * VALUE_DIM, 0,
                TILE, True, INNER, VALUE_DIM, HEAD_TILE, HEAD_DIM, VALUE_DIM, PRECISION,
            )  # fmt: skip
            if NORMALIZE:
                d = tl.arange(0, HEAD_TILE)
                z = tl.load(totals + index * HEAD_DIM + d, mask=d < HEAD_DIM, other=0.0)
                accumulator -= (along * border_weight)[:, None] * z[None, :]
        if NEEDS_DECAY:
            now = rows_dot(query, accumulator, begin, length, TILE, HEAD_TILE, HEAD_DIM)
            taken_rows = now - seen
            if HAS_STATES or CROSSES_TILES:
                tl.store(tile_sums + tile_index * 4 + TAKEN + (0 if is_before else 1), tl.sum(taken_rows))
            if is_before:
                row_forward = taken_rows
            else:
                tl.store(share_of(shares, TAKEN_BACKWARD, share_stride) + at, taken_rows, mask=tokens < length)
            seen = now
    if NEEDS_DECAY:
        q = held_tile(query, begin, length, TILE, HEAD_TILE, SPLIT, HEAD_DIM)
        row_backward = tl.zeros([TILE], tl.float32)
    for offset in range(0, TILE, KEYS):
        others = begin + offset
        g = dots(grad, begin, dy, value, others, length, TILE, KEYS, VALUE_TILE, SPLIT, VALUE_DIM, PRECISION)
        g = (g - along[:, None]) * row_scale[:, None]
        g *= mask_on_diagonal(decays, tile, 0, offset, TILE, KEYS, False, COUNT_CUTS)
        if NEEDS_DECAY:
            r = g * dots(query, begin, q, key, others, length, TILE, KEYS, HEAD_TILE, SPLIT, HEAD_DIM, PRECISION)
            i, j = tl.arange(0, TILE)[:, None], offset + tl.arange(0, KEYS)[None, :]
            row_forward += tl.sum(tl.where(i > j, r, 0.0), 1)
            row_backward += tl.sum(tl.where(i < j, r, 0.0), 1)
        keys = load_tile(key, others, length, 0, KEYS, HEAD_TILE, HEAD_DIM)
        accumulator = product(g, keys, accumulator, PRECISION)
    if NEEDS_DECAY:
        tl.store(share_of(shares, ROW_FORWARD, share_stride) + at, row_forward, mask=tokens < length)
        tl.store(share_of(shares, ROW_BACKWARD, share_stride) + at, row_backward, mask=tokens < length)
    store_tile(d_query, accumulator, begin, length, 0, TILE, HEAD_TILE, HEAD_DIM)


@triton.jit
def add_key_gradients(
    d_keys, d_values, key, value, keys, values, begin, row_weights, weights, query, grad, delta, first, bh, length,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    SPLIT: tl.constexpr, TILE: tl.constexpr, QUERIES: tl.constexpr, NORMALIZE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    Add Gᵀ q and Wᵀ dy of QUERIES queries. `row_weights` · `weights` is c_i M_ij, with a row per key and a column per
    query. The third result is Rᵀ, float32.
    """
    scores = dots(key, begin, keys, query, first, length, TILE, QUERIES, HEAD_TILE, SPLIT, HEAD_DIM, PRECISION)
    dy = load_tile(grad, first, length, 0, QUERIES, VALUE_TILE, VALUE_DIM)
    d_values = product(scores * weights * row_weights, dy, d_values, PRECISION)
    g = dots(value, begin, values, grad, first, length, TILE, QUERIES, VALUE_TILE, SPLIT, VALUE_DIM, PRECISION)
    if NORMALIZE:
        tokens = first + tl.arange(0, QUERIES)
        g -= tl.load(delta + bh.to(tl.int64) * length + tokens, mask=tokens < length, other=0.0)[None, :]
    g = g * weights * row_weights
    q = load_tile(query, first, length, 0, QUERIES, HEAD_TILE, HEAD_DIM)
    d_keys = product(g, q, d_keys, PRECISION)
    return d_keys, d_values, g * scores


@triton.jit
def key_gradient_kernel(
    query, key, value, grad, d_key, d_value, decays, inverses, delta, states, totals, shares, tile_sums, heads, length,
    num_tiles, chunk_tiles, num_pairs, scale, share_stride,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    INNER: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, QUERIES: tl.constexpr, HAS_STATES: tl.constexpr,
    NORMALIZE: tl.constexpr, NEEDS_DECAY: tl.constexpr, COUNT_CUTS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    The gradients of the keys and values of one tile, in steps of QUERIES queries, and the shares of the keys in the
    gradients of the decays. `states` and `totals` are adjoint.
    """
    tile = tl.program_id(0) % num_tiles
    bh = tl.program_id(0) // num_tiles
    query, key, value = head_of(query, bh, heads), head_of(key, bh, heads), head_of(value, bh, heads)
    grad, d_key, d_value = head_of(grad, bh, heads), head_of(d_key, bh, heads), head_of(d_value, bh, heads)
    decays = decays_of(decays, bh, heads)
    chunk, first, end = chunk_of_program(tile, chunk_tiles, num_tiles)
    begin = tile * TILE
    tokens = begin + tl.arange(0, TILE)
    at = bh.to(tl.int64) * length + tokens
    d_keys = tl.zeros([TILE, HEAD_TILE], tl.float32)
    d_values = tl.zeros([TILE, VALUE_TILE], tl.float32)
    tile_index = bh.to(tl.int64) * num_tiles + tile
    column_forward = tl.zeros([TILE], tl.float32)
    seen = tl.zeros([TILE], tl.float32)  # k · d_keys so far, which each phase subtracts to get its own share
    for is_before in tl.static_range(2):
        # The other tiles of the chunk on one side, the nearest first.
        row_weight = load_decays(decays, FACTOR_TO_START if is_before else FACTOR_TO_END, tile, 0, TILE)
        steps = tile - first if is_before else end - 1 - tile
        between = 1.0
        # Reloaded in each phase, to limit register pressure.
        keys = held_tile(key, begin, length, TILE, HEAD_TILE, SPLIT, HEAD_DIM)
        values = held_tile(value, begin, length, TILE, VALUE_TILE, SPLIT, VALUE_DIM)
        for step in range(steps * (TILE // QUERIES)):
            other, offset, others = neighbor(tile, step, is_before, TILE, QUERIES)
            from_border = FACTOR_FROM_END if is_before else FACTOR_FROM_START
            weight = load_decays(decays, from_border, other, offset, QUERIES) * between
            queries = others + tl.arange(0, QUERIES)
            weight *= load_scale(inverses, queries, bh, length, scale, NORMALIZE)
            d_keys, d_values, _ = add_key_gradients(
                d_keys, d_values, key, value, keys, values, begin, row_weight[:, None], weight[None, :], query, grad,
                delta, others, bh, length, HEAD_DIM, VALUE_DIM, HEAD_TILE, VALUE_TILE, SPLIT, TILE, QUERIES,
                NORMALIZE, PRECISION,
            )  # fmt: skip
            between = let_pass(between, decays, other, offset, not is_before, TILE, QUERIES)
        if HAS_STATES:
            index = (tl.cast(chunk, tl.int64) * num_pairs + bh) * 2 + (1 if is_before else 0)
            state = states + index * HEAD_DIM * VALUE_DIM
            border_weight = row_weight * between
            if NEEDS_DECAY:
                inside = rows_dot(key, d_keys, begin, length, TILE, HEAD_TILE, HEAD_DIM)
            d_keys = times_state(
                d_keys, value, border_weight, begin, length, state, 0,
                TILE, True, INNER, VALUE_DIM, HEAD_TILE, HEAD_DIM, VALUE_DIM, PRECISION,
            )  # fmt: skip
            if NORMALIZE:
                d = tl.arange(0, HEAD_TILE)
                z = tl.load(totals + index * HEAD_DIM + d, mask=d < HEAD_DIM, other=0.0)
                d_keys += border_weight[:, None] * z[None, :]
            d_values = times_state(
                d_values, key, border_weight, begin, length, state, 0,
                TILE, False, INNER, HEAD_DIM, VALUE_TILE, HEAD_DIM, VALUE_DIM, PRECISION,
            )  # fmt: skip
        if NEEDS_DECAY:
            now = rows_dot(key, d_keys, begin, length, TILE, HEAD_TILE, HEAD_DIM)
            if HAS_STATES:
                tl.store(tile_sums + tile_index * 4 + GIVEN + (1 if is_before else 0), tl.sum(now - inside))
            if is_before:
                column_backward = now - seen
            else:
                tl.store(share_of(shares, GIVEN_FORWARD, share_stride) + at, now, mask=tokens < length)
            seen = now
    keys = held_tile(key, begin, length, TILE, HEAD_TILE, SPLIT, HEAD_DIM)
    values = held_tile(value, begin, length, TILE, VALUE_TILE, SPLIT, VALUE_DIM)
    for offset in range(0, TILE, QUERIES):
        weights = mask_on_diagonal(decays, tile, offset, 0, QUERIES, TILE, True, COUNT_CUTS)
        queries = begin + offset + tl.arange(0, QUERIES)
        weights *= load_scale(inverses, queries, bh, length, scale, NORMALIZE)[None, :]
        d_keys, d_values, r = add_key_gradients(
            d_keys, d_values, key, value, keys, values, begin, 1.0, weights, query, grad, delta, begin + offset, bh,
            length, HEAD_DIM, VALUE_DIM, HEAD_TILE, VALUE_TILE, SPLIT, TILE, QUERIES, NORMALIZE, PRECISION,
        )  # fmt: skip
        if NEEDS_DECAY:
            i, j = offset + tl.arange(0, QUERIES)[None, :], tl.arange(0, TILE)[:, None]
            column_forward += tl.sum(tl.where(i > j, r, 0.0), 1)
            column_backward += tl.sum(tl.where(i < j, r, 0.0), 1)
    if NEEDS_DECAY:
        tl.store(share_of(shares, COLUMN_FORWARD, share_stride) + at, column_forward, mask=tokens < length)
        tl.store(share_of(shares, COLUMN_BACKWARD, share_stride) + at, column_backward, mask=tokens < length)
    store_tile(d_key, d_keys, begin, length, 0, TILE, HEAD_TILE, HEAD_DIM)
    store_tile(d_value, d_values, begin, length, 0, TILE, VALUE_TILE, VALUE_DIM)


@triton.jit
def load_share(shares, kind, share_stride, tokens, length):
    return tl.load(share_of(shares, kind, share_stride) + tokens, mask=tokens < length, other=0.0)


@triton.jit
def decay_gradient_kernel(
    shares, tile_sums, nearest, through, decays, d_forward, d_backward, heads, length, num_tiles, chunk_tiles,
    num_pairs, share_stride,
    STATE_BLOCKS: tl.constexpr, TILE: tl.constexpr, HAS_STATES: tl.constexpr, CROSSES_TILES: tl.constexpr,
):  # fmt: skip
    """The gradients of the log decays of one tile; writes `(bh, length)`, float32."""
    tile = tl.program_id(0) % num_tiles
    bh = tl.program_id(0) // num_tiles
    chunk, first, end = chunk_of_program(tile, chunk_tiles, num_tiles)
    tokens = tile * TILE + tl.arange(0, TILE)
    decays = decays_of(decays, bh, heads)
    shares += bh.to(tl.int64) * length
    inside = load_share(shares, ROW_FORWARD, share_stride, tokens, length)
    inside -= load_share(shares, COLUMN_FORWARD, share_stride, tokens, length)
    forward = tl.cumsum(inside, 0, reverse=True) - inside
    forward += tl.cumsum(load_share(shares, GIVEN_FORWARD, share_stride, tokens, length), 0)
    inside = load_share(shares, COLUMN_BACKWARD, share_stride, tokens, length)
    inside -= load_share(shares, ROW_BACKWARD, share_stride, tokens, length)
    backward = tl.cumsum(inside, 0, reverse=True)
    taken = load_share(shares, TAKEN_BACKWARD, share_stride, tokens, length)
    backward += tl.cumsum(taken, 0) - taken
    if HAS_STATES or CROSSES_TILES:
        for other in range(first, end):
            index = bh.to(tl.int64) * num_tiles + other
            is_after = other > tile
            # `taken` of the other tile from beyond this one: all of it, minus the sum up to this tile.
            across = tl.load(tile_sums + index * 4 + TAKEN + tl.where(is_after, 0, 1))
            across -= tl.load(nearest + index * chunk_tiles + (tile - first))
            forward += tl.where(is_after, across, 0.0)
            backward += tl.where(other < tile, across, 0.0)
            if HAS_STATES:
                given = tl.load(tile_sums + index * 4 + GIVEN + tl.where(is_after, 1, 0))
                forward += tl.where(other < tile, given, 0.0)
                backward += tl.where(is_after, given, 0.0)
    if HAS_STATES:
        forward_decay, backward_decay = 1.0, 1.0
        for other in range(first, end):
            forward_decay *= through_tile(decays, other, True, TILE)
            backward_decay *= through_tile(decays, other, False, TILE)
        index = (tl.cast(chunk, tl.int64) * num_pairs + bh) * 2 * STATE_BLOCKS
        for block in tl.static_range(STATE_BLOCKS):
            forward += tl.load(through + index + block) * forward_decay
            backward += tl.load(through + index + STATE_BLOCKS + block) * backward_decay
    at = bh.to(tl.int64) * length + tokens
    tl.store(d_forward + at, forward, mask=tokens < length)
    tl.store(d_backward + at, backward, mask=tokens < length)
