# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The operators for GPUs (attention/custom_operator.py), which allocate memory and launch Triton kernels.

The device code is in triton/decay.py (D and S), triton/lit.py and triton/feature_map.py. These need triton, and are
imported with the first CUDA tensor. triton/launch_options.py has the sizes and options of the launches.

Forward and backward take 1 and 3 launches for D and S in the parallel form, 4 and 5 in chunks, and 2 and 2 for LIT.
Before and after them, torch bounds the log decays and sums the gradients of both directions. There are no atomics, so
results are reproducible to the bit, and no synchronization with the host, so CUDA graphs can capture the launches.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..attention.custom_operator import NAMESPACE, attention_operator
from ..attention.decay_mask import is_per_head, log_decay_floor, mask_directions
from ..attention.kernels import register_kernels
from ..attention.numerics import is_zero_denominator
from ..attention.plain import chunk_body, parallel_body, run_plain
from .launch_options import SMALLEST, Plan, launch, longest_full_form, padded, with_strides


FLOOR = log_decay_floor(torch.float32)
TILES_PER_PROGRAM = 16
# Number of elements that one program of the feature map computes.
MAPPED_AT_ONCE = 2048


def with_short_strides(x: Tensor) -> Tensor:
    """`x`, or a copy, such that its last dimension is the innermost and a tile spans less than 2^31 elements."""
    return x if x.stride(-1) == 1 and x.stride(-2) < 2**24 else x.contiguous()


def empty_like(x: Tensor) -> Tensor:
    """Memory in the layout of x if its last dimension is the innermost, otherwise contiguous."""
    return torch.empty_like(with_short_strides(x))


def with_token_dim(x: Tensor | None) -> Tensor | None:
    """View log decays `(heads,)` as `(1, heads, 1)`; other shapes are unchanged."""
    return x.view(1, -1, 1) if is_per_head(x) else x


def decay_outputs(
    plan, query, key, value, log_decay, output, denominator, decays, states, totals, remainder
) -> None:  # fmt: skip
    from .decay import output_kernel

    is_whole = plan.num_chunks == 1
    if is_whole:
        given = [with_strides(x.expand(plan.batch, plan.heads, plan.length)) for x in log_decay]
        decays = decays_with_strides(plan, decays)
    else:
        launch_decays(plan, *log_decay, decays)
        given, decays = (None, None), decays_with_strides(plan, decays)
        launch_states(plan, key, value, decays, states, totals)
    options = {"INNER": 0, **plan.options("whole_output" if is_whole else "output")}
    launch(
        output_kernel, plan.bh * plan.num_tiles * -(-plan.value_dim // options["VALUE_TILE"]),
        *(with_strides(x) for x in (query, key, value, output)), plan.strided(remainder), *given, decays, denominator,
        states, totals, plan.heads, plan.length, plan.num_tiles, plan.chunk_tiles, plan.bh, plan.scale,
        HAS_STATES=not is_whole, COUNT_CUTS=plan.count_cuts, SPLIT=plan.split, FLOOR=FLOOR,
        KEEPS_REMAINDER=plan.keeps_remainder, DIVIDES=plan.divides, SMALLEST=SMALLEST, **plan.common, **options,
    )  # fmt: skip


def launch_decays(plan: Plan, forward: Tensor, backward: Tensor, decays: Tensor) -> None:
    """Fill `decays` of all tiles."""
    from .decay import decays_kernel

    tiles = decays.shape[-1] // plan.tile
    tokens = plan.length if forward.shape[-1] > 1 else plan.tile
    launch(
        decays_kernel, forward.shape[0] * forward.shape[1] * -(-tiles // TILES_PER_PROGRAM),
        *(with_strides(x.expand(-1, -1, tokens)) for x in (forward, backward)), decays, forward.shape[1], tokens,
        tiles, FLOOR=FLOOR, TILE=plan.tile, TILES=TILES_PER_PROGRAM, COUNT_CUTS=plan.count_cuts,
        num_warps=4, num_stages=1,
    )  # fmt: skip


def decays_with_strides(plan: Plan, decays: Tensor) -> tuple:
    """`decays` with its strides of batch, head, tile and kind; a stride is 0 if one entry serves all."""
    batch, heads, _, width = decays.shape
    tile_stride = plan.tile if width > plan.tile else 0
    return decays, decays.stride(0) if batch > 1 else 0, decays.stride(1) if heads > 1 else 0, tile_stride, width


def launch_states(plan, x, y, decays, states, totals, inverse=None, delta=None, given=(None,) * 3) -> None:
    """The states before each chunk, from keys and values; with `delta`, the adjoint states, from queries and dy."""
    from .decay import chunk_states_kernel, pass_chunks_kernel

    is_adjoint = delta is not None
    options = plan.state_options("states", plan.bh * plan.num_chunks)
    chunk_decays = plan.empty(plan.num_chunks, plan.bh, 2)
    launch(
        chunk_states_kernel, plan.bh * plan.num_chunks * plan.num_state_tiles(options),
        with_strides(x), with_strides(y), decays, inverse, delta, states, totals, chunk_decays,
        plan.heads, plan.length, plan.num_tiles, plan.chunk_tiles, plan.num_chunks, plan.bh, plan.scale,
        ADJOINT=is_adjoint, **plan.common, **options,
    )  # fmt: skip
    launch(
        pass_chunks_kernel, 2 * plan.bh * plan.num_state_blocks,
        states, totals, chunk_decays, *given, plan.num_chunks, plan.bh,
        HEAD_DIM=plan.head_dim, SIZE=plan.head_dim * plan.value_dim, TOTALS=plan.head_tile, ADJOINT=is_adjoint,
        NORMALIZE=plan.has_denominators, NEEDS_THROUGH=given[2] is not None, **plan.walk,
    )  # fmt: skip


def decay_gradients(
    plan, grad, query, key, value, output, inverse, delta, decays, states, totals, remainder, d_query, d_key,
    d_value, needs_decay,
):  # fmt: skip
    """Fill the gradients. Returns those of the log decays, `(batch, heads, length)`, or `None` if not needed."""
    from .decay import decay_gradient_kernel, key_gradient_kernel, query_gradient_kernel

    has_states, crosses_tiles = plan.num_chunks > 1, plan.chunk_tiles > 2
    decays = decays_with_strides(plan, decays)
    sizes = (plan.heads, plan.length, plan.num_tiles, plan.chunk_tiles, plan.bh)
    shares = plan.empty(6, plan.bh, plan.length) if needs_decay else None
    tile_sums = plan.empty(plan.bh, plan.num_tiles, 4) if needs_decay else None
    nearest = plan.empty(plan.bh, plan.num_tiles, plan.chunk_tiles) if needs_decay else None
    share_stride = plan.bh * plan.length
    common = {"HAS_STATES": has_states, "NEEDS_DECAY": needs_decay, "COUNT_CUTS": plan.count_cuts}
    common |= {"SPLIT": plan.split, **plan.common}
    launch(
        query_gradient_kernel, plan.bh * plan.num_tiles,
        *(with_strides(x) for x in (query, key, value, output)), plan.strided(remainder), with_strides(grad),
        with_strides(d_query), decays, inverse, delta, states, totals, shares, tile_sums, nearest, *sizes,
        plan.scale, share_stride, DIVIDES=plan.divides, KEEPS_REMAINDER=plan.keeps_remainder,
        CROSSES_TILES=crosses_tiles, **common, **plan.options("query_gradient"),
    )  # fmt: skip
    d_states, d_totals, through = None, None, None
    if has_states:
        d_states, d_totals = torch.empty_like(states), torch.empty_like(totals)
        through = plan.empty(plan.num_chunks, plan.bh, 2, plan.num_state_blocks) if needs_decay else None
        launch_states(plan, query, grad, decays, d_states, d_totals, inverse, delta, (states, totals, through))
    launch(
        key_gradient_kernel, plan.bh * plan.num_tiles,
        *(with_strides(x) for x in (query, key, value, grad, d_key, d_value)), decays, inverse, delta, d_states,
        d_totals, shares, tile_sums, *sizes, plan.scale, share_stride, **common, **plan.options("key_gradient"),
    )  # fmt: skip
    if not needs_decay:
        return None
    d_forward, d_backward = (plan.empty(plan.batch, plan.heads, plan.length) for _ in range(2))
    launch(
        decay_gradient_kernel, plan.bh * plan.num_tiles,
        shares, tile_sums, nearest, through, decays, d_forward, d_backward, *sizes, share_stride,
        STATE_BLOCKS=plan.num_state_blocks, TILE=plan.tile, HAS_STATES=has_states,
        CROSSES_TILES=crosses_tiles, num_warps=1, num_stages=1,
    )  # fmt: skip
    return d_forward, d_backward


def launch_partial_states(plan, x, y, output, inverse, delta, states, totals, is_adjoint: bool) -> None:
    """States of slices of the sequence, from keys and values; or adjoint states and delta, from queries and dy."""
    from .lit import partial_states_kernel

    options = plan.state_options("lit_states", plan.bh * plan.num_slices)
    launch(
        partial_states_kernel, plan.bh * plan.num_slices * plan.num_state_tiles(options),
        *(with_strides(t) for t in (x, y, output)), inverse, delta, states, totals,
        plan.heads, plan.length, plan.slice_tiles, plan.num_slices, plan.scale,
        FULL_VALUE_TILE=plan.value_tile, ADJOINT=is_adjoint, DIVIDES=plan.divides, **plan.common, **options,
    )  # fmt: skip


def lit_outputs(plan, query, key, value, output, denominator, states, totals) -> None:
    from .lit import lit_output_kernel

    launch_partial_states(plan, key, value, output, None, None, states, totals, is_adjoint=False)
    options = plan.options("lit_output")
    launch(
        lit_output_kernel, plan.bh * plan.num_programs * -(-plan.value_dim // options["VALUE_TILE"]),
        with_strides(query), with_strides(output), denominator, states, totals,
        plan.heads, plan.length, plan.program_tiles, plan.num_programs, plan.num_slices, plan.scale,
        IS_BFLOAT16=value.dtype == torch.bfloat16, DIVIDES=plan.divides, SMALLEST=SMALLEST, **plan.common,
        **options,
    )  # fmt: skip


def lit_gradients(
    plan, grad, query, key, value, output, inverse, delta, states, totals, d_query, d_key, d_value
) -> None:  # fmt: skip
    from .lit import lit_gradient_kernel

    d_states, d_totals = torch.empty_like(states), torch.empty_like(totals)
    launch_partial_states(plan, query, grad, output, inverse, delta, d_states, d_totals, is_adjoint=True)
    options = plan.options("lit_gradient")
    num_state_tiles = max(-(-plan.head_dim // options["HEAD_TILE"]), -(-plan.value_dim // options["VALUE_TILE"]))
    launch(
        lit_gradient_kernel, plan.bh * plan.num_programs * num_state_tiles,
        *(with_strides(x) for x in (query, key, value, grad, d_query, d_key, d_value)), inverse, delta, states,
        totals, d_states, d_totals, plan.heads, plan.length, plan.program_tiles, plan.num_programs, plan.num_slices,
        plan.scale, FULL_HEAD_TILE=plan.head_tile, FULL_VALUE_TILE=plan.value_tile, STATE_TILES=num_state_tiles,
        IS_BFLOAT16=value.dtype == torch.bfloat16, **plan.common, **options,
    )  # fmt: skip


def launch_silu_norm(x: Tensor, grad: Tensor | None = None) -> Tensor:
    """`silu_norm` of `(..., head_dim)` (mixers/feature_map.py); with `grad`, the gradient of its result, that of x."""
    from .feature_map import silu_norm_kernel

    x = x.contiguous()
    result = torch.empty_like(x)
    rows, width = x.shape[:-1].numel(), padded(x.shape[-1])
    per_program = MAPPED_AT_ONCE // width
    with torch.cuda.device_of(x):
        launch(
            silu_norm_kernel, -(-rows // per_program), x, None if grad is None else grad.contiguous(), result, rows,
            DIM=x.shape[-1], WIDTH=width, ROWS=per_program, BACKWARD=grad is not None, num_warps=4, num_stages=1,
        )  # fmt: skip
    return result


triton_silu_norm = torch.library.custom_op(f"{NAMESPACE}::triton_silu_norm", launch_silu_norm, mutates_args=())


@triton_silu_norm.register_fake
def _(x, grad=None):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def allocate_saved(query, key, value, forward, backward, chunk_size, division, head_directions, *, is_whole):
    plan = Plan(query, value, forward, is_whole, division)
    return plan.allocate_saved(with_token_dim(forward), value)


def launch_attention(query, key, value, forward, backward, chunk_size, division, head_directions, *, is_whole):
    """
    The forward of `attention_operator`. With `is_whole`, the sequence is one chunk, which is the parallel form;
    otherwise chunks have the tuned size, not `chunk_size`.
    """
    plan = Plan(query, value, forward, is_whole, division)
    forward, backward = mask_directions(forward, backward, plan.heads, head_directions)
    forward, backward = with_token_dim(forward), with_token_dim(backward)
    saved = plan.allocate_saved(forward, value)
    query, key, value = (with_short_strides(x) for x in (query, key, value))
    output = torch.empty_like(value, dtype=plan.output_dtype)
    denominator = plan.empty(plan.batch, plan.heads, plan.length)
    with torch.cuda.device_of(query):
        if forward is None:
            lit_outputs(plan, query, key, value, output, denominator, *saved[2:4])
        else:
            decay_outputs(plan, query, key, value, (forward, backward), output, denominator, *saved[1:])
    return output, denominator, *saved


def launch_attention_gradients(
    grad, grad_denominator, query, key, value, forward, backward, output, denominator, saved, chunk_size, division,
    head_directions, needs_decay, *, is_whole,
):  # fmt: skip
    plan = Plan(query, value, forward, is_whole, division)
    if plan.divides:  # `store_output` has stored the inverses of the denominators
        inverse, delta = denominator, torch.empty_like(denominator)
    else:
        # Scaled by the denominators, as for divided outputs, gradients in half precision stay in range.
        denominator = torch.where(is_zero_denominator(denominator), 1.0, denominator)
        grad, delta = (grad * denominator.unsqueeze(-1)).to(value.dtype), -grad_denominator * denominator
        inverse = denominator.reciprocal()
    grad, query, key, value = (with_short_strides(x) for x in (grad, query, key, value))
    gradients = [torch.empty_like(x) for x in (query, key, value)]
    tensors, decays = (query, key, value, output, inverse, delta), None
    with torch.cuda.device_of(query):
        if forward is None:
            lit_gradients(plan, grad, *tensors, *saved[1:3], *gradients)
        else:
            decays = decay_gradients(plan, grad, *tensors, *saved, *gradients, needs_decay)
    if decays is None:
        return *gradients, grad.new_empty(0), grad.new_empty(0)
    decays = (
        d.sum_to_size(with_token_dim(x).shape).view(x.shape) for d, x in zip(decays, (forward, backward), strict=True)
    )
    return *gradients, *decays


def triton_operator(name: str, plain: Callable, is_whole: bool) -> Callable:
    """The operator `lion::triton_<name>`; `plain` is the body in attention/plain.py that computes the same."""
    functions = (
        partial(function, is_whole=is_whole)
        for function in (launch_attention, launch_attention_gradients, allocate_saved)
    )
    forward, backward, allocate = functions
    plain = partial(run_plain, plain)
    return attention_operator(f"triton_{name}", forward, backward, plain, allocate, 5, empty_like)


triton_parallel = triton_operator("parallel", parallel_body, is_whole=True)
triton_chunk = triton_operator("chunk", chunk_body, is_whole=False)
register_kernels(
    "triton",
    parallel=triton_parallel,
    chunk=triton_chunk,
    silu_norm=triton_silu_norm,
    longest_full_form=longest_full_form,
)
