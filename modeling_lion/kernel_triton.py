# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The kernels on a GPU: Triton bodies behind the same names, with the arguments and results of the bodies for the CPU.

This file allocates and launches. The device code is in triton_decay.py (D and S), triton_lit.py, triton_rnn.py and
triton_feature_map.py, which need triton and are imported with the first CUDA tensor: nobody else pays for them.

Launches, forward and backward: D and S 2 and 3 in the full form, 3 and 4 in chunks; LIT 2 and 2. There are no atomics,
so that results repeat bit by bit, and no synchronization with the host, so that CUDA graphs can capture them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .decay_mask import log_zero
from .fused_kernel import differentiable_operator
from .lion_kernel import smallest_total
from .triton_plan import Plan, launch, padded, state_dtype, with_strides


LOG_ZERO = log_zero(torch.float32)
EMPTY = smallest_total(torch.float32)
# More tokens than a sequence has: a chunk of that size is the full form.
WHOLE = 2**30
TILES_PER_PROGRAM = 16
# Numbers that a program of the feature map holds.
MAPPED_AT_ONCE = 2048


def with_short_strides(x: Tensor) -> Tensor:
    """A tensor whose last dimension is the innermost one, and in which a tile spans less than 2^31 numbers."""
    return x if x.stride(-1) == 1 and x.stride(-2) < 2**24 else x.contiguous()


def empty_like(x: Tensor) -> Tensor:
    """Memory in the layout of x, but for a last dimension that is not the innermost one."""
    return torch.empty_like(with_short_strides(x))


def keep(query, key, value, right, left, chunk_size, normalize) -> list[Tensor]:
    """
    Memory for what the forward keeps for the backward: nothing in the place of an output in wider numbers, inverse,
    decays inside tiles, states and totals (triton_decay.py, triton_lit.py).
    """
    plan = Plan(query, value, right is not None, chunk_size, normalize)
    decays, totals, dtype = (0,), (0,), torch.float32
    if right is None:
        totals = (plan.rows, plan.num_parts, plan.head_dim)
    else:
        # Tokens that share a decay share what is computed of it, and so do batches and heads.
        tiles = 1 if right.shape[-1] == 1 else plan.num_tiles
        decays = (*right.shape[:2], 8 if plan.count_cuts else 6, tiles * plan.tile)
        if plan.num_chunks > 1:
            totals, dtype = (plan.rows, plan.num_chunks, 2, plan.head_dim), state_dtype(value.dtype)
    states = (*totals, plan.value_dim) if totals != (0,) else (0,)
    shapes = ((0,), (plan.rows, plan.length) if normalize else (0,), decays)
    return [
        *(plan.empty(*shape) for shape in shapes),
        plan.empty(*states, dtype=dtype),
        plan.empty(*(totals if normalize else (0,))),
    ]


def forward(query, key, value, right, left, chunk_size, normalize) -> tuple[Tensor, ...]:
    plan = Plan(query, value, right is not None, chunk_size, normalize)
    kept = keep(query, key, value, right, left, chunk_size, normalize)
    query, key, value = (with_short_strides(x) for x in (query, key, value))
    output = torch.empty_like(value)
    with torch.cuda.device_of(query):
        if right is None:
            lit_forward(plan, query, key, value, output, *kept[1:])
        else:
            decay_forward(plan, query, key, value, right, left, output, *kept[1:])
    return output, *kept


def backward(
    grad, query, key, value, right, left, output, kept, chunk_size, normalize, needs_decay
):  # fmt: skip
    plan = Plan(query, value, right is not None, chunk_size, normalize)
    grad, query, key, value = (with_short_strides(x) for x in (grad, query, key, value))
    gradients = [torch.empty_like(x) for x in (query, key, value)]
    with torch.cuda.device_of(query):
        if right is None:
            lit_backward(plan, grad, query, key, value, output, *kept, *gradients)
            decays = None, None
        else:
            decays = decay_backward(
                plan, grad, query, key, value, right, left, output, *kept, *gradients, needs_decay
            )  # fmt: skip
    return *gradients, *(grad.new_empty(0) if x is None else x for x in decays)


def decay_forward(plan, query, key, value, right, left, output, inverse, decays, states, totals) -> None:
    from .triton_decay import decays_kernel, output_kernel

    tiles = decays.shape[-1] // plan.tile
    tokens = plan.length if right.shape[-1] > 1 else plan.tile
    to_right, to_left = (x.expand(-1, -1, tokens) for x in (right, right if left is None else left))
    launch(
        decays_kernel, right.shape[0] * right.shape[1] * -(-tiles // TILES_PER_PROGRAM),
        with_strides(to_right), with_strides(to_left), decays, right.shape[1], tokens, tiles,
        LOG_ZERO=LOG_ZERO, TILE=plan.tile, TILES=TILES_PER_PROGRAM, COUNT_CUTS=plan.count_cuts,
        num_warps=4, num_stages=1,
    )  # fmt: skip
    decays = decays_with_strides(plan, decays)
    if plan.num_chunks > 1:
        launch_states(plan, key, value, decays, states, totals)
    blocks = plan.blocks("output", head_limit=plan.head_block)
    launch(
        output_kernel, plan.rows * plan.num_tiles * -(-plan.value_dim // blocks["VALUE_BLOCK"]),
        *(with_strides(x) for x in (query, key, value, output)), decays, inverse, states, totals,
        plan.heads, plan.length, plan.num_tiles, plan.chunk_tiles, plan.num_chunks, plan.scale,
        HAS_STATES=plan.num_chunks > 1, COUNT_CUTS=plan.count_cuts, EMPTY=EMPTY, SPLIT=plan.split,
        **plan.common, **blocks,
    )  # fmt: skip


def decays_with_strides(plan: Plan, decays: Tensor) -> tuple:
    """As the kernels take them: strides of batch, head, tile and kind, 0 where one serves all."""
    batch, heads, _, width = decays.shape
    tile_stride = plan.tile if width > plan.tile else 0
    return decays, decays.stride(0) if batch > 1 else 0, decays.stride(1) if heads > 1 else 0, tile_stride, width


def launch_states(plan, x, y, decays, states, totals, inverse=None, delta=None, given=(None,) * 3) -> None:
    """The states that reach each chunk, of keys and values; given `delta` the adjoint ones, of queries and dy."""
    from .triton_decay import states_kernel

    blocks = plan.state_blocks("states", 2 * plan.rows)
    launch(
        states_kernel, 2 * plan.rows * plan.num_blocks(blocks),
        with_strides(x), with_strides(y), decays, inverse, delta, states, totals, *given,
        plan.heads, plan.length, plan.num_tiles, plan.chunk_tiles, plan.num_chunks, plan.scale,
        ADJOINT=delta is not None, NEEDS_THROUGH=given[2] is not None, **plan.common, **blocks,
    )  # fmt: skip


def decay_backward(
    plan, grad, query, key, value, right, left, output, inverse, decays, states, totals, d_query, d_key, d_value,
    needs_decay,
):  # fmt: skip
    """Fill the gradients, and return those of the decays: None for what is None or not needed."""
    from .triton_decay import decay_gradient_kernel, key_gradient_kernel, query_gradient_kernel

    has_states = plan.num_chunks > 1
    all_decays = decays_with_strides(plan, decays)
    sizes = (plan.heads, plan.length, plan.num_tiles, plan.chunk_tiles, plan.num_chunks)
    delta = plan.empty(*(inverse.shape))
    parts = plan.empty(6, plan.rows, plan.length) if needs_decay else None
    part_stride = plan.rows * plan.length
    options = {"HAS_STATES": has_states, "NEEDS_DECAY": needs_decay, "COUNT_CUTS": plan.count_cuts}
    options |= {"SPLIT": plan.split, **plan.common}
    launch(
        query_gradient_kernel, plan.rows * plan.num_tiles,
        *(with_strides(x) for x in (query, key, value, output, grad, d_query)), all_decays, inverse, delta, states,
        totals, parts, *sizes, plan.scale, part_stride, **options, **plan.blocks("query_gradient"),
    )  # fmt: skip
    d_states, d_totals, through, num_blocks = None, None, None, 1
    if has_states:
        num_blocks = plan.num_blocks(plan.state_blocks("states", 2 * plan.rows))
        d_states, d_totals = torch.empty_like(states), torch.empty_like(totals)
        through = plan.empty(plan.rows, plan.num_chunks, 2, num_blocks) if needs_decay else None
        launch_states(
            plan, query, grad, all_decays, d_states, d_totals, inverse, delta, (states, totals, through)
        )  # fmt: skip
    launch(
        key_gradient_kernel, plan.rows * plan.num_tiles,
        *(with_strides(x) for x in (query, key, value, grad, d_key, d_value)), all_decays, inverse, delta, d_states,
        d_totals, parts, *sizes, plan.scale, part_stride, **options, **plan.blocks("key_gradient"),
    )  # fmt: skip
    if not needs_decay:
        return None, None
    d_right = plan.empty(plan.batch, plan.heads, plan.length)
    d_left = None if left is None else torch.empty_like(d_right)
    launch(
        decay_gradient_kernel, plan.rows * plan.num_tiles,
        with_strides(right.expand_as(d_right)), parts, through, all_decays, d_right, d_left, *sizes, part_stride,
        BLOCKS=num_blocks, LOG_ZERO=LOG_ZERO, TILE=plan.tile, HAS_STATES=has_states, SAME=left is None,
        num_warps=1, num_stages=1,
    )  # fmt: skip
    return tuple(
        None if d is None else d.sum_to_size(x.shape).to(x.dtype) for d, x in ((d_right, right), (d_left, left))
    )


def launch_partial_states(plan, x, y, output, inverse, delta, states, totals, is_adjoint: bool) -> None:
    """Sums over parts of the sequence, of keys and values; or the adjoint ones of queries and gradients, and delta."""
    from .triton_lit import partial_states_kernel

    blocks = plan.state_blocks("lit_states", plan.rows * plan.num_parts)
    launch(
        partial_states_kernel, plan.rows * plan.num_parts * plan.num_blocks(blocks),
        *(with_strides(t) for t in (x, y, output)), inverse, delta, states, totals,
        plan.heads, plan.length, plan.part_tiles, plan.num_parts, plan.scale,
        FULL_VALUE_BLOCK=plan.value_block, ADJOINT=is_adjoint, **plan.common, **blocks,
    )  # fmt: skip


def lit_forward(plan, query, key, value, output, inverse, decays, states, totals) -> None:
    from .triton_lit import lit_output_kernel

    launch_partial_states(plan, key, value, output, inverse, None, states, totals, is_adjoint=False)
    blocks = plan.blocks("lit_output")
    launch(
        lit_output_kernel, plan.rows * plan.num_groups * -(-plan.value_dim // blocks["VALUE_BLOCK"]),
        with_strides(query), with_strides(output), inverse, states, totals,
        plan.heads, plan.length, plan.group_tiles, plan.num_groups, plan.num_parts, plan.scale,
        EMPTY=EMPTY, IS_BFLOAT16=value.dtype == torch.bfloat16, **plan.common, **blocks,
    )  # fmt: skip


def lit_backward(
    plan, grad, query, key, value, output, inverse, decays, states, totals, d_query, d_key, d_value
):  # fmt: skip
    from .triton_lit import lit_gradient_kernel

    delta, d_states, d_totals = (torch.empty_like(x) for x in (inverse, states, totals))
    launch_partial_states(plan, query, grad, output, inverse, delta, d_states, d_totals, is_adjoint=True)
    blocks = plan.blocks("lit_gradient")
    num_blocks = max(-(-plan.head_dim // blocks["HEAD_BLOCK"]), -(-plan.value_dim // blocks["VALUE_BLOCK"]))
    launch(
        lit_gradient_kernel, plan.rows * plan.num_groups * num_blocks,
        *(with_strides(x) for x in (query, key, value, grad, d_query, d_key, d_value)), inverse, delta, states,
        totals, d_states, d_totals, plan.heads, plan.length, plan.group_tiles, plan.num_groups, plan.num_parts,
        plan.scale, FULL_HEAD_BLOCK=plan.head_block, FULL_VALUE_BLOCK=plan.value_block, BLOCKS=num_blocks,
        IS_BFLOAT16=value.dtype == torch.bfloat16, **plan.common, **blocks,
    )  # fmt: skip


def rnn_forward(query, key, value, right, left, chunk_size, normalize) -> Tensor:
    from .triton_rnn import rnn_kernel

    plan = Plan(query, value, right is not None, 0, normalize)
    query, key, value = (with_short_strides(x) for x in (query, key, value))
    output = torch.empty_like(value)
    shape = (plan.batch, plan.heads, plan.length)
    decays = [None if x is None else x.expand(shape) for x in (right, right if left is None else left)]
    blocks = plan.blocks("rnn")
    value_blocks = -(-plan.value_dim // blocks["VALUE_BLOCK"])
    with torch.cuda.device_of(query):
        launch(
            rnn_kernel, plan.rows * value_blocks,
            *(with_strides(x) for x in (query, key, value)),
            *(None if x is None else with_strides(x) for x in decays), with_strides(output),
            plan.empty(plan.rows, plan.length, plan.value_dim), plan.empty(plan.rows, value_blocks, plan.length),
            plan.heads, plan.length, plan.scale,
            HEAD_DIM=plan.head_dim, VALUE_DIM=plan.value_dim, HAS_DECAY=right is not None, NORMALIZE=normalize,
            EMPTY=EMPTY, **blocks,
        )  # fmt: skip
    return output


def launch_silu_norm(x: Tensor, grad: Tensor | None = None) -> Tensor:
    """The feature map of `(..., head_dim)` (feature_map.py); given the gradient of its result, that of x."""
    from .triton_feature_map import silu_norm_kernel

    x = x.contiguous()
    result = torch.empty_like(x)
    rows, block = x.shape[:-1].numel(), padded(x.shape[-1])
    per_program = MAPPED_AT_ONCE // block
    with torch.cuda.device_of(x):
        launch(
            silu_norm_kernel, -(-rows // per_program), x, None if grad is None else grad.contiguous(), result, rows,
            DIM=x.shape[-1], BLOCK=block, ROWS=per_program, BACKWARD=grad is not None, num_warps=4, num_stages=1,
        )  # fmt: skip
    return result


triton_silu_norm = torch.library.custom_op("lion::triton_silu_norm", launch_silu_norm, mutates_args=())


@triton_silu_norm.register_fake
def _(x, grad=None):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def clamped(plain: Callable) -> Callable:
    """A plain body that takes decays as the Triton kernels do, of -inf, too."""

    def body(query, key, value, right, left, chunk_size):
        right, left = (None if x is None else x.clamp(min=log_zero(x.dtype)) for x in (right, left))
        return plain(query, key, value, right, left, chunk_size or 64)

    return body


def triton_operator(name: str, plain: Callable) -> Callable:
    """
    The operator `lion::triton_<name>`.

    Args:
        name: "chunk"; "parallel", which is the same with one chunk of any length; or "rnn", whose backward is that of
            the plain body.
        plain: the body of differentiable operations (`lion_kernel`).
    """
    if name == "rnn":
        return differentiable_operator(
            "triton_rnn", rnn_forward, None, clamped(plain), lambda *inputs: (), 0, empty_like
        )
    operator = differentiable_operator(f"triton_{name}", forward, backward, clamped(plain), keep, 5, empty_like)
    chunk_size = WHOLE if name == "parallel" else 0

    def body(query, key, value, right, left, _, normalize):
        return operator(query, key, value, right, left, chunk_size, normalize)

    return body
