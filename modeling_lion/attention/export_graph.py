# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Bodies like those of attention/plain.py for graphs that serve every length (`torch.export`, ONNX, OpenVINO). They have
no loops over chunks, no float64, which OpenVINO narrows, and few operators, since a runtime passes over memory for
each.

In the gated delta rule (SPEC §14), a loop of the graph passes states. Runtimes have no triangular solve, so products
of blocks invert the triangular matrices. (A series of powers would lose all digits where keys repeat.)
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..private_apis import scan
from .plain import chunk_body, split_ones, with_ones
from .tracing import is_exporting, is_known_true, is_symbolic


# Up to `chunk_size` + 2.5 `mean_width` tokens the full form is faster, also in ONNX Runtime.
LONGEST_FULL_FORM = 2.5
# Size of the blocks of a triangular matrix that are not divided further.
SMALLEST_BLOCK = 16


@dataclass(frozen=True)
class Choice:
    """
    A function of a graph that chooses the form of attention at run time.

    Attributes:
        sizes: the shapes of queries, keys, values and log decays (one tensor for both directions, or two); `None` for
            sizes that are known at run time only.
        longest: the number of tokens up to which the parallel form computes.
        chunk_size: tokens per chunk of the chunk form, for longer inputs.
        is_long: whether all inputs are longer than a chunk.
    """

    sizes: tuple[tuple[int | None, ...], ...]
    longest: int
    chunk_size: int
    is_long: bool

    @property
    def least_length(self) -> int:
        return 1 + self.is_long * self.chunk_size

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        return (torch.float32,) * len(self.sizes)

    def short(self, query: Tensor, key: Tensor, value: Tensor, *log_decay: Tensor) -> tuple[Tensor, Tensor]:
        return graph_full_body(query, key, value, log_decay[0], log_decay[-1])

    def long(self, query: Tensor, key: Tensor, value: Tensor, *log_decay: Tensor) -> tuple[Tensor, Tensor]:
        return graph_chunk_body(query, key, value, log_decay[0], log_decay[-1], self.chunk_size)


# The choices in the graph that this thread exports; `None` outside of `choosing_graphs`.
_CHOICES: ContextVar[list[Choice] | None] = ContextVar("choices", default=None)


@contextmanager
def choosing_graphs() -> Iterator[list[Choice]]:
    """
    Let graphs that are exported to ONNX with `attn_implementation="auto"` choose their form by the length at run time
    (`graph_auto_body`). Yields a list, which the export fills, of the functions `lion::Choice0`, `lion::Choice1` …
    that such a graph calls, and that the caller must add.
    """
    token = _CHOICES.set([])
    try:
        yield _CHOICES.get()
    finally:
        _CHOICES.reset(token)


def is_exporting_a_choice() -> bool:
    """Whether a graph is being exported within `choosing_graphs`."""
    return is_exporting() and _CHOICES.get() is not None  # in this order: torch.compile cannot trace the second


def least_log_decay(dtype: torch.dtype) -> float:
    """
    Smaller log decays are raised to this. Its exp, 2e-9 in float32, is below the rounding error of 1. Sums over a
    chunk keep their digits, so that cuts need no separate treatment (`split_cuts`, attention/decay_mask.py).
    """
    return -40.0 if dtype == torch.float64 else -20.0


def mean_width(query: Tensor, value: Tensor) -> float:
    """The harmonic mean of the key width D and value width E: states take 4 D E operations, scores D + E."""
    key_dim, value_dim = query.shape[-1], value.shape[-1]
    return 2 * key_dim * value_dim / (key_dim + value_dim)


def graph_auto_body(query, key, value, forward, backward, chunk_size):
    """
    The parallel form for short inputs and the chunk form for long ones, chosen at run time. It has no gradients.

    Layers call a function of the graph: tracing a `torch.cond` in each layer would take most of the time of an export.
    """
    length, longest = query.shape[2], chunk_size + int(LONGEST_FULL_FORM * mean_width(query, value))
    if is_known_true(length <= longest):
        return graph_full_body(query, key, value, forward, backward)
    if is_known_true(length > longest):
        return graph_chunk_body(query, key, value, forward, backward, chunk_size)
    inputs = (query, key, value, forward) if backward is forward else (query, key, value, forward, backward)
    choice = Choice(sizes_of(inputs), longest, chunk_size, is_known_true(length > chunk_size))
    return chosen_in_graph(choice, inputs, [value.dtype] * 2, [value.shape, (*value.shape[:-1], 1)])


def sizes_of(inputs: Sequence[Tensor]) -> tuple[tuple[int | None, ...], ...]:
    """The shapes of tensors, with `None` for sizes that are known at run time only."""
    return tuple(tuple(None if is_symbolic(n) else n for n in x.shape) for x in inputs)


def chosen_in_graph(
    choice: Callable, inputs: Sequence[Tensor], dtypes: Sequence[torch.dtype], shapes: Sequence[Sequence[int]]
) -> Sequence[Tensor]:
    """Call a choice in the graph; its results have these dtypes and shapes."""
    choices = _CHOICES.get()
    if choice not in choices:
        choices.append(choice)
    name = f"lion::Choice{choices.index(choice)}"
    return torch.onnx.ops.symbolic_multi_out(name, inputs, dtypes=dtypes, shapes=shapes, version=1)


def graph_full_body(query, key, value, forward, backward):
    """`parallel_body` for few tokens, whose sums of log decays need no chunks."""
    scores = query @ key.transpose(-1, -2) * mask_in_chunk(*sums_in_chunk(*bounded(forward, backward)))
    return scores @ value, scores.sum(-1, keepdim=True)


def graph_chunk_body(query, key, value, forward, backward, chunk_size):
    """`chunk_body` for any number of chunks; one matrix product passes states through all of them."""
    if forward is None:
        return chunk_body(query, key, value, forward, backward, chunk_size)
    length = query.shape[2]
    num_chunks = chunks_in_graph(length, chunk_size)
    padding = num_chunks * chunk_size - length
    tensors = (pad(x, (0, 0, 0, padding)) for x in (query, key, with_ones(value)))
    query, key, value = (x.unflatten(2, (num_chunks, chunk_size)) for x in tensors)
    forward, backward = bounded(forward, backward, padding, (num_chunks, chunk_size))
    before, through = sums_in_chunk(forward, backward)
    output = query @ key.transpose(-1, -2) * mask_in_chunk(before, through) @ value
    # Log decays from the start of a chunk to each token, and from each token to the end; then the other direction.
    forward_total, backward_total = (before + forward)[..., -1:], through[..., -1:]
    for to_query, from_key, total, reverse in (
        (before, forward_total - before, forward_total, False),
        (backward_total - through, through, backward_total, True),
    ):
        sums = (key * from_key.exp().unsqueeze(-1)).transpose(-1, -2) @ value
        states = pass_states_at_once(sums.flatten(3), total.squeeze(-1), reverse).unflatten(3, sums.shape[3:])
        output = output + (query * to_query.exp().unsqueeze(-1)) @ states
    # Without the padding. An index instead of a slice, which export cannot compare with the unknown length.
    return split_ones(output.flatten(2, 3).index_select(2, torch.arange(length, device=output.device)))


def chunks_in_graph(length: int | torch.SymInt, chunk_size: int) -> int | torch.SymInt:
    """The number of chunks; one more if there may be one, since a single chunk would specialize the graph."""
    spare = is_symbolic(length) and not is_known_true(length > chunk_size)
    return (length + (1 + spare) * chunk_size - 1) // chunk_size


def bounded(
    forward: Tensor, backward: Tensor, padding: int | torch.SymInt = 0, chunks: tuple | None = None
) -> tuple[Tensor, Tensor]:
    """Log decays of at least `least_log_decay`, split into `chunks`; one tensor if both directions are one."""
    least = least_log_decay(forward.dtype)

    def bound(x: Tensor) -> Tensor:
        x = x.clamp(min=least)
        return x if chunks is None else pad(x, (0, padding)).unflatten(2, chunks)

    bound_forward = bound(forward)
    return bound_forward, bound_forward if backward is forward else bound(backward)


def sums_in_chunk(forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_{k<t} forward_k and Σ_{k≤t} backward_k for each token t of a chunk, `(..., chunk)`."""
    through = backward.cumsum(-1)
    return (through if forward is backward else forward.cumsum(-1)) - forward, through


def mask_in_chunk(before: Tensor, through: Tensor) -> Tensor:
    """M from the sums, `(..., chunk, chunk)`, by the smaller of both exponents (`finish_mask`, cpu/decay_mask.py)."""
    below = before.unsqueeze(-1) - before.unsqueeze(-2)
    return torch.minimum(below, through.unsqueeze(-2) - through.unsqueeze(-1)).exp()


def pass_states_at_once(sums: Tensor, total: Tensor, reverse: bool) -> Tensor:
    """
    `pass_states` (attention/plain.py), for sums `(b, h, n, x)`, as one product with the matrix of decays between
    chunks, from the log decays of whole chunks, `total`, `(1 or b, 1 or h, n)`.
    """
    chunk = torch.arange(total.shape[-1], device=total.device)
    to, origin = chunk[:, None], chunk
    # Row i, column j: the sum over the chunks between them, never a difference of other sums.
    if reverse:
        steps = pad(total, (1, -1)).unsqueeze(-2) * (origin - 1 > to)
        left = steps.cumsum(-1).exp() * (origin > to)
    else:
        steps = pad(total, (1, -1)).unsqueeze(-1) * (to - 1 > origin)
        left = steps.cumsum(-2).exp() * (to > origin)
    return left @ sums


def graph_delta_body(query, key, value, log_decay, beta, chunk_size):
    """`delta_chunk_body` for any number of chunks."""
    length, (head_dim, value_dim) = query.shape[2], (key.shape[-1], value.shape[-1])
    num_chunks = chunks_in_graph(length, chunk_size)
    padding, chunks = num_chunks * chunk_size - length, (num_chunks, chunk_size)
    query, key, value = (pad(x, (0, 0, 0, padding)).unflatten(2, chunks) for x in (query, key, value))
    log_decay, beta = (pad(x, (0, padding)).unflatten(2, chunks) for x in (log_decay, beta))
    log_decay = log_decay.clamp(min=least_log_decay(log_decay.dtype))
    through = log_decay.cumsum(-1)
    before, total = through - log_decay, through[..., -1:]
    from_start, to_end = before.exp().unsqueeze(-1), (total - before).exp()
    token = torch.arange(chunk_size, device=query.device)
    sees = (token.unsqueeze(1) >= token).to(query.dtype)
    mask = (before.unsqueeze(-1) - before.unsqueeze(-2)).clamp(max=0).exp() * beta.unsqueeze(-2) * sees
    keys = key.transpose(-1, -2)
    reads = key @ keys * mask
    # OpenVINO multiplies wrongly in seven dimensions, of which some are known at run time only.
    inverse = unit_triangular_inverse(reads.flatten(0, 2)).view(reads.shape)
    missing, read = (inverse @ torch.cat((value, key * from_start), dim=-1)).split((value_dim, head_dim), dim=-1)
    writes = (key * (to_end * beta).unsqueeze(-1)).transpose(-1, -2)
    # A chunk turns the state S into (keep - writes read) S + writes missing.
    keep = torch.eye(head_dim, dtype=key.dtype, device=key.device) * total.exp().unsqueeze(-1)
    states = pass_matrices(keep - writes @ read, writes @ missing)
    output = query @ keys * mask @ (missing - read @ states) + (query * from_start) @ states
    return output.flatten(2, 3).index_select(2, torch.arange(length, device=output.device))


def pass_matrices(factors: Tensor, added: Tensor) -> Tensor:
    """The state before each chunk, `(b, h, n, d, e)`, at first 0; chunk n turns it into factor_n S + added_n."""
    first = torch.zeros_like(added[:, :, 0])
    if not is_symbolic(added.shape[2]):
        states = [first]
        for factor, x in zip(factors.unbind(2)[:-1], added.unbind(2)[:-1], strict=True):
            states.append(factor @ states[-1] + x)
        return torch.stack(states, dim=2)

    def step(state: Tensor, of_chunk: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return of_chunk[0] @ state + of_chunk[1], state.clone()

    return scan(step, first, (factors.movedim(2, 0), added.movedim(2, 0)))[1].movedim(0, 2)


def unit_triangular_inverse(matrix: Tensor) -> Tensor:
    """(I + the part of `matrix`, `(..., c, c)`, below its diagonal)⁻¹."""
    size = matrix.shape[-1]
    if size > SMALLEST_BLOCK and size % 2 == 0:
        half = size // 2
        below = matrix[..., half:, :half]
        blocks = torch.stack((matrix[..., :half, :half], matrix[..., half:, half:]), dim=-3)
        first, second = unit_triangular_inverse(blocks).unbind(-3)
        above = torch.zeros_like(below)
        rows = torch.cat((first, above), dim=-1), torch.cat((-(second @ below @ first), second), dim=-1)
        return torch.cat(rows, dim=-2)
    row = torch.arange(size, device=matrix.device).unsqueeze(1)
    inverse, block = torch.eye(size, dtype=matrix.dtype, device=matrix.device), 1
    while block < size:  # join pairs of inverted blocks of the diagonal
        is_between = (row // (2 * block) == row.T // (2 * block)) & (row // block > row.T // block)
        inverse = inverse - inverse @ (matrix * is_between.to(matrix.dtype)) @ inverse
        block *= 2
    return inverse
