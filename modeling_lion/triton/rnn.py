# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The recurrent form on a GPU, for inference: one kernel for both directions, with states that stay in registers.

    forward   S_i = λ_{i-1} S_{i-1} + k_i v_iᵀ      backward  S_i = λ_{i+1} S_{i+1} + k_i v_iᵀ      z likewise, v = 1

Each direction computes q_i (S_i - k_i v_iᵀ / 2), so that token i, which is in both states, counts once
(attention/plain.py).
"""

from .common import head_of, inverse_of, tl, triton


@triton.jit
def rnn_kernel(
    query, key, value, forward, backward, output, denominators, first_numerators, first_denominators,
    heads, length, scale,
    HEAD_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, HEAD_TILE: tl.constexpr, VALUE_TILE: tl.constexpr,
    HAS_DECAY: tl.constexpr, NORMALIZE: tl.constexpr, DIVIDES: tl.constexpr, SMALLEST: tl.constexpr,
):  # fmt: skip
    """
    VALUE_TILE columns of the output of one (batch, head) pair. `first_numerators` `(bh, length, VALUE_DIM)` and
    `first_denominators` `(bh, value tiles, length)`, float32, are what the first direction leaves for the second,
    which reads backwards. Unless DIVIDES, the output is the numerators, and the `denominators` `(bh, length)` are
    written.
    """
    value_tiles: tl.constexpr = (VALUE_DIM + VALUE_TILE - 1) // VALUE_TILE
    bh = tl.program_id(0) // value_tiles
    query_pointer, query_stride = head_of(query, bh, heads)
    key_pointer, key_stride = head_of(key, bh, heads)
    value_pointer, value_stride = head_of(value, bh, heads)
    output_pointer, output_stride = head_of(output, bh, heads)
    d = tl.arange(0, HEAD_TILE)
    e = tl.program_id(0) % value_tiles * VALUE_TILE + tl.arange(0, VALUE_TILE)
    first_numerators += bh.to(tl.int64) * length * VALUE_DIM + e
    first_denominators += tl.program_id(0).to(tl.int64) * length
    for is_backward in tl.static_range(2):
        if HAS_DECAY:
            decay_pointer, decay_stride = head_of(backward if is_backward else forward, bh, heads)
        state = tl.zeros([HEAD_TILE, VALUE_TILE], tl.float32)
        total = tl.zeros([HEAD_TILE], tl.float32)
        for step in range(length):
            i = tl.cast(length - 1 - step if is_backward else step, tl.int64)
            q = tl.load(query_pointer + i * query_stride + d, mask=d < HEAD_DIM, other=0.0).to(tl.float32)
            k = tl.load(key_pointer + i * key_stride + d, mask=d < HEAD_DIM, other=0.0).to(tl.float32)
            v = tl.load(value_pointer + i * value_stride + e, mask=e < VALUE_DIM, other=0.0).to(tl.float32)
            own = tl.sum(q * k, 0) / 2
            state += k[:, None] * v[None, :]
            y = tl.sum(q[:, None] * state, 0) - own * v
            if NORMALIZE:
                total += k
                denominator = tl.sum(q * total, 0) - own
            if is_backward:
                y += tl.load(first_numerators + i * VALUE_DIM, mask=e < VALUE_DIM, other=0.0)
                if NORMALIZE:
                    denominator += tl.load(first_denominators + i)
                    if DIVIDES:
                        y *= inverse_of(denominator, SMALLEST)
                    else:
                        is_first = tl.program_id(0) % value_tiles == 0
                        tl.store(denominators + bh.to(tl.int64) * length + i, denominator, mask=is_first)
                else:
                    y *= scale
                y = y.to(output_pointer.dtype.element_ty)
                tl.store(output_pointer + i * output_stride + e, y, mask=e < VALUE_DIM)
            else:
                tl.store(first_numerators + i * VALUE_DIM, y, mask=e < VALUE_DIM)
                if NORMALIZE:
                    tl.store(first_denominators + i, denominator)
            if HAS_DECAY:
                decay = tl.exp(tl.load(decay_pointer + i * decay_stride).to(tl.float32))
                state *= decay
                total *= decay
        tl.debug_barrier()  # other threads of the program read what each has written
