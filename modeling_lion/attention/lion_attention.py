# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Bidirectional linear attention: `lion_attention` checks its inputs, chooses a form and a kernel, and runs it."""

from collections.abc import Callable

from torch import Tensor

from ..tokens import check_borders
from .decay_mask import NO_DECAY, LogDecay, check_decay_shape, finite_log_decay
from .export_graph import LONGEST_FULL_FORM, graph_auto_body, graph_chunk_body, is_exporting_a_choice, mean_width
from .implementation_names import FORMS
from .kernels import KERNELS, backend_of
from .numerics import accumulation_dtype, without_autocast
from .plain import chunk_body, finish_plain, parallel_body, prepare_plain, rnn_body
from .plan import CallPlan, planned
from .reference import reference_attention
from .tracing import is_exporting, is_symbolic


# LONGEST_FULL_FORM for heads of one direction: up to `chunk_size` + 1.5 `mean_width` tokens.
LONGEST_ONE_WAY = 1.5

# The value of `Mixer.needs` for mixers that use `lion_attention`.
DECAYS_ONLY = ("log_decay",)

PLAIN_BODIES = {"parallel": parallel_body, "chunk": chunk_body, "rnn": rnn_body}
GRAPH_BODIES = PLAIN_BODIES | {"chunk": graph_chunk_body, "auto": graph_auto_body}


def lion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: LogDecay = NO_DECAY,
    *,
    form: str = "auto",
    normalization: str = "sum",
    chunk_size: int = 64,
    cu_seqlens: Tensor | None = None,
    head_directions: str = "both",
    returns_sums: bool = False,
    plan: CallPlan | None = None,
) -> tuple[Tensor | tuple[Tensor, Tensor], Tensor | None]:
    """
    Bidirectional linear attention with decays (SPEC §1, §2).

    Args:
        query, key: `(batch, heads, length, head_dim)`, after the feature map. A padded token has key 0.
        value: `(batch, heads, length, value_dim)`, in the same dtype.
        log_decay: the log decay of every step, forward and backward; 0 for a padded token. Converted to float32, or to
            float64 for float64 inputs.
        form: `"parallel"`, `"chunk"` or `"rnn"` (SPEC §3), which give the same result; `"auto"` for the fastest; or
            `"eager"`, the reference, which also returns the weights.
        normalization: `"sum"` divides each output by the sum of its scores (0 where the sum is 0); `"none"` scales
            scores by `head_dim ** -0.5`.
        chunk_size: tokens per chunk, for the chunk form. It does not change the result; the CPU uses smaller chunks if
            larger ones would cost digits, and Triton kernels use their tuned sizes.
        cu_seqlens: borders of packed sequences, `(num_sequences + 1,)`, the same for every row of the batch.
        head_directions: `"both"`, or `"alternate"` (SPEC §11): even heads read forward only, odd ones backward only;
            the log decays of the other direction are ignored.
        returns_sums: return numerators and denominators, for a caller who adds to both before dividing;
            `normalization` then has no effect.
        plan: the `CallPlan` that the layers of one call share; inputs are then not checked.

    Returns:
        The output, `(batch, heads, length, value_dim)`, in the dtype of `value`, and for `"eager"` the weights,
        `(batch, heads, length, length)`, otherwise `None`. With `returns_sums`, the output is a pair in the
        accumulation dtype, numerators `(batch, heads, length, value_dim)` and denominators `(batch, heads, length,
        1)`, and the weights are not divided.

    Raises:
        ValueError: if a shape, a dtype or a name is wrong.
    """
    if plan is None:
        check_arguments(query, key, value, log_decay, form, normalization, chunk_size, cu_seqlens, head_directions)
    with without_autocast(query):
        if form == "eager":
            inputs = (x.to(accumulation_dtype(x.dtype)) for x in (query, key, value))
            options = {"cu_seqlens": cu_seqlens, "head_directions": head_directions, "returns_sums": returns_sums}
            output, weights = reference_attention(*inputs, log_decay, normalization=normalization, **options)
            return (output, weights) if returns_sums else (output.to(value.dtype), weights.to(value.dtype))
        forward, backward = finite_log_decay(log_decay, query, cu_seqlens, head_directions, masks_directions=False)
        options = form, forward is not None, chunk_size, head_directions
        operator, direct, body = planned(plan, choose, query, value, options=options)
        division = "deferred" if returns_sums else normalization
        inputs = (query, key, value, forward, backward, chunk_size, division, head_directions)
        if operator is None:
            body, prepared = prepare_plain(body, *inputs)
            sums = body(*prepared)  # called from here to keep stack traces short
            output, denominator = finish_plain(*sums, value.dtype, division, query.shape[-1])
        else:
            output, denominator, *_ = operator(*inputs) if direct is None else direct(*inputs, plan)
    return (output, denominator.unsqueeze(-1)) if returns_sums else output, None


def choose(
    query: Tensor, value: Tensor, form: str, has_decays: bool, chunk_size: int, head_directions: str
) -> tuple[Callable | None, Callable | None, Callable | None]:
    """The kernel and its `without_dispatcher`, or `None` twice; without a kernel, the body (attention/plain.py)."""
    backend = backend_of(query, value)
    if form == "auto":
        form = fastest_form(query, value, has_decays, chunk_size, backend, head_directions)
    operator = KERNELS.get((backend, form))
    if operator is not None:
        return operator, operator.without_dispatcher(query), None
    is_graph = is_exporting() or is_symbolic(query.shape[2])
    return None, None, (GRAPH_BODIES if is_graph else PLAIN_BODIES)[form]


def fastest_form(
    query: Tensor,
    value: Tensor,
    has_decays: bool,
    chunk_size: int,
    backend: str,
    head_directions: str = "both",
) -> str:
    """
    The fastest form for these inputs, as measured by benchmarks/bench_kernels.py, and on a GPU by tune_triton.py.

    Per token, the parallel form takes 2 L D operations, the chunk form 2 C D + 4 D², which is equal at L = C + 2 D,
    where D is the `mean_width` of keys and values. States also cost memory traffic: times were equal at 200 to 256
    tokens (C = D = 64), and for heads of one direction, which have half as many states, at 144 to 176. Without decays,
    one state serves all queries, which is always less work. Triton kernels have a limit for each kind of GPU.
    """
    length = query.shape[2]
    if not has_decays:
        return "chunk"
    if is_exporting_a_choice():
        return "auto"
    # A graph for every length that cannot choose at run time uses the form that is linear in the length.
    if is_symbolic(length):
        return "chunk"
    tuned = KERNELS.get((backend, "longest_full_form"))
    per_dim = LONGEST_FULL_FORM if head_directions == "both" else LONGEST_ONE_WAY
    longest = chunk_size + per_dim * mean_width(query, value) if tuned is None else tuned(query.device)
    return "parallel" if length <= longest else "chunk"


def check_arguments(
    query,
    key,
    value,
    log_decay,
    form,
    normalization,
    chunk_size,
    cu_seqlens,
    head_directions,
    normalizations=("sum", "none"),
    directions=("both", "alternate"),
) -> None:
    """Raise a ValueError that names the wrong argument of `lion_attention`, or of an operator with other choices."""
    if query.dim() != 4 or key.shape != query.shape or value.shape[:-1] != query.shape[:-1]:
        raise ValueError(
            "query and key must be (batch, heads, length, head_dim) and value (batch, heads, length, value_dim); got "
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError(f"query, key and value must share a dtype; got {query.dtype}, {key.dtype}, {value.dtype}.")
    for name, x in zip(LogDecay._fields, log_decay, strict=True):
        if x is not None:
            check_decay_shape(f"The {name} log_decay", x, *query.shape[:3])
    if form not in (*FORMS, "eager"):
        raise ValueError(f'form is {form!r}; give "auto", "parallel", "chunk", "rnn" or "eager".')
    for name, given, possible in (
        ("normalization", normalization, normalizations),
        ("head_directions", head_directions, directions),
    ):
        if given not in possible:
            names = " or ".join(f'"{x}"' for x in possible)
            raise ValueError(f"{name} is {given!r}; give {names}.")
    if chunk_size < 1:
        raise ValueError(f"chunk_size is {chunk_size}; give at least 1.")
    if cu_seqlens is not None and cu_seqlens.device.type == "cpu":
        check_borders(cu_seqlens, query.shape[2])
