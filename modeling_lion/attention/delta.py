# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The gated delta rule in both directions (SPEC §14): `delta_attention` checks its inputs, chooses a form and a kernel,
and runs it, as `lion_attention` does for linear attention.

The kernel is an operator like those of attention/custom_operator.py, with one more input and other divisions:

    operator(query, key, value, forward, backward, beta, chunk_size, division, head_directions)
        -> (output, denominator, *saved)

    "rms"      y / denominator, in the dtype of the values; denominator = (mean of y² + 1e-5)^1/2
    "none"     y, in the dtype of the values; the denominators are left unwritten
    "deferred" y, in the accumulation dtype
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.utils import is_flash_linear_attention_available

from .decay_mask import NO_DECAY, LogDecay, finite_log_decay, is_per_head
from .delta_plain import (
    back_in_order,
    correct,
    delta_chunk_body,
    delta_parallel_body,
    delta_rnn_body,
    finish_delta,
    in_reading_order,
    scores_with_beta,
)
from .export_graph import graph_delta_body
from .far_sums import alternated
from .kernels import KERNELS, backend_of
from .lion_attention import check_arguments
from .numerics import accumulation_dtype, without_autocast
from .plan import CallPlan, planned
from .tracing import is_exporting, is_symbolic


# The kernel of flash-linear-attention (`pip install "lion-transformers[gpu]"`) has no other dtypes, and no wider keys.
FLASH_DTYPES = (torch.float16, torch.bfloat16)
LARGEST_FLASH_DIM = 256
DELTA_BODIES = {"parallel": delta_parallel_body, "chunk": delta_chunk_body, "rnn": delta_rnn_body}


def delta_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: LogDecay = NO_DECAY,
    beta: Tensor | None = None,
    *,
    form: str = "auto",
    normalization: str = "rms",
    chunk_size: int = 64,
    cu_seqlens: Tensor | None = None,
    head_directions: str = "alternate",
    returns_sums: bool = False,
    plan: CallPlan | None = None,
) -> tuple[Tensor, Tensor | None]:
    """
    The gated delta rule of SPEC §14. Even heads read forward, odd heads backward. A state maps keys to values; a token
    adds the difference between its value and what the state returns for its key.

    Args:
        query, value: as in `lion_attention`.
        key: `(batch, heads, length, head_dim)`, with ‖k‖ at most 1, so that states cannot grow; 0 if padded.
        log_decay: the log decay of every step, as in `lion_attention`; each head uses those of its direction.
        beta: the share of the difference that each token adds, `(batch, heads, length)`, from 0 to 2; `None` for 1. It
            has no effect at padded tokens. Converted to float32, or to float64 for float64 inputs.
        normalization: `"rms"` divides each output by √(mean square + 1e-5); `"none"` does not.
        head_directions: `"alternate"`.
        returns_sums: return outputs in the accumulation dtype, not normalised, for a caller who adds to them.
        form, chunk_size, cu_seqlens, plan: as in `lion_attention`. The parallel form is one chunk.

    Returns:
        The output and the weights or `None`, as `lion_attention`. The weights, which multiply the values, have entries
        of either sign. As there, a wrong argument raises a ValueError.
    """
    if plan is None:
        options = form, normalization, chunk_size, cu_seqlens, head_directions
        check_arguments(query, key, value, log_decay, *options, ("rms", "none"), ("alternate",))
        if beta is not None and beta.shape != query.shape[:3]:
            shape = tuple(query.shape[:3])
            raise ValueError(f"beta must be None or (batch, heads, length) = {shape}; got {tuple(beta.shape)}.")
    division = "deferred" if returns_sums else normalization
    with without_autocast(query):
        dtype = accumulation_dtype(query.dtype)
        beta = query.new_ones(query.shape[:3], dtype=dtype) if beta is None else beta.to(dtype)
        forward, backward = finite_log_decay(log_decay, query, cu_seqlens, head_directions, masks_directions=False)
        if form == "eager":
            return reference_delta(query, key, value, forward, backward, beta, division)
        operator, direct, body = planned(plan, choose_delta, query, value, options=(form,))
        inputs = (query, key, value, forward, backward, beta, chunk_size, division, head_directions)
        if operator is None:
            y = body(*in_reading_order(*inputs[:6]), chunk_size)  # called from here to keep stack traces short
            return finish_delta(back_in_order(y), value.dtype, division)[0], None
        output, *_ = operator(*inputs) if direct is None else direct(*inputs, plan)
        return output, None


def delta_both_ways(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor, *, form: str = "auto"
) -> tuple[Tensor, Tensor | None]:
    """
    Run `delta_attention` forward and backward in every head and add both outputs, in the accumulation dtype and not
    normalised; for `"eager"`, also the weights. `log_decay`, `(heads,)` or `(batch, heads, length)`, is for both ways.
    """
    both = alternated(log_decay, log_decay, dim=0 if is_per_head(log_decay) else 1)
    inputs = (alternated(x, x) for x in (query, key, value))
    found = delta_attention(*inputs, LogDecay(both, both), alternated(beta, beta), form=form, returns_sums=True)
    output, weights = (None if x is None else x.unflatten(1, (-1, 2)).sum(2) for x in found)
    return output, weights


def reference_delta(
    query: Tensor, key: Tensor, value: Tensor, forward: Tensor, backward: Tensor, beta: Tensor, division: str
) -> tuple[Tensor, Tensor]:
    """The output and the weights, by the whole matrix: the output is the product of weights and values."""
    query, key, wide, *others = in_reading_order(query, key, value, forward, backward, beta)
    reads, answers = scores_with_beta(query, key, *others)
    weights = correct(reads, answers, left=False)
    y = weights @ wide
    output, denominator = finish_delta(back_in_order(y), value.dtype, division)
    weights = back_in_order(weights).transpose(-1, -2)
    weights = back_in_order(weights).transpose(-1, -2)
    if division == "rms":
        weights = weights / denominator.unsqueeze(-1)
    return output, weights if division == "deferred" else weights.to(value.dtype)


def choose_delta(query: Tensor, value: Tensor, form: str) -> tuple[Callable | None, Callable | None, Callable | None]:
    """
    As `choose` in lion_attention.py. The chunk form is fastest at every length, since a short text is one chunk; on a
    GPU, "auto" is that of flash-linear-attention where it can compute. Graphs that serve every length support no other
    form.
    """
    is_automatic = form == "auto"
    form = "chunk" if is_automatic else form
    backend = backend_of(query, value)
    if is_automatic and backend != "plain" and has_flash_delta(query):
        return None, None, partial(flash_delta_body, dtype=query.dtype)
    operator = KERNELS.get((backend, f"delta_{form}"))
    if operator is not None:
        return operator, operator.without_dispatcher(query), None
    is_graph = is_exporting() or is_symbolic(query.shape[2])
    return None, None, graph_delta_body if is_graph else DELTA_BODIES[form]


def has_flash_delta(query: Tensor) -> bool:
    """Whether flash-linear-attention computes for such queries. It cannot be compiled or traced as a whole."""
    return (
        query.device.type == "cuda"
        and query.dtype in FLASH_DTYPES
        and query.shape[-1] <= LARGEST_FLASH_DIM
        and not torch.compiler.is_compiling()
        and is_flash_linear_attention_available()
    )


def flash_delta_body(query, key, value, log_decay, beta, chunk_size, *, dtype):
    """
    A body as in attention/delta_plain.py; products are computed in `dtype`. The kernel chooses the chunk size, and
    decays the state before it writes, not after that: it gets the log decay of the token before.
    """
    decay = pad(log_decay[..., :-1], (1, 0)).expand(beta.shape)
    inputs = (x.to(dtype).transpose(1, 2).contiguous() for x in (query, key, value))
    gates = (x.transpose(1, 2).contiguous() for x in (decay, beta))
    # By name: a file on the Hub may not import what a reader might lack.
    library = import_module("fla.ops.gated_delta_rule")
    output, _ = library.chunk_gated_delta_rule(*inputs, *gates, scale=1.0)
    return output.transpose(1, 2).to(query.dtype)
