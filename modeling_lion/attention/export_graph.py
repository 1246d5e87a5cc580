# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Bodies as in attention/plain.py for graphs that serve every length (`torch.export`, ONNX, OpenVINO): without loops over
chunks, without float64, which OpenVINO narrows, and with few operators, since a runtime makes a pass over memory for
each.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from .plain import chunk_body, split_ones, with_ones
from .tracing import is_exporting, is_known_true, is_symbolic


# Up to `chunk_size` + 2.5 `mean_width` tokens the full form is faster, also in ONNX Runtime.
LONGEST_FULL_FORM = 2.5


@dataclass(frozen=True)
class Choice:
    """
    What a graph computes in some of its layers: the form of attention that is chosen at run time.

    Attributes:
        sizes: the shapes of queries, keys, values and log decays, which are one tensor for both directions or two;
            `None` for each size that is known at run time only.
        longest: the number of tokens up to which the full form is chosen.
        chunk_size: of the other form.
        is_long: whether inputs are longer than a chunk.
        least_length, dtypes: of the inputs.
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
        """Attention of at most `longest` tokens, by the full matrix."""
        return graph_full_body(query, key, value, log_decay[0], log_decay[-1])

    def long(self, query: Tensor, key: Tensor, value: Tensor, *log_decay: Tensor) -> tuple[Tensor, Tensor]:
        """Attention of more tokens, in chunks."""
        return graph_chunk_body(query, key, value, log_decay[0], log_decay[-1], self.chunk_size)


# The choices in the graph that this thread exports, if it is to have any.
_CHOICES: ContextVar[list[Choice] | None] = ContextVar("choices", default=None)


@contextmanager
def choosing_graphs() -> Iterator[list[Choice]]:
    """
    Within it, graphs exported to ONNX with `attn_implementation="auto"` choose their form by the length at run time
    (`graph_auto_body`). Such a graph calls `lion::Choice0`, `lion::Choice1` …, functions that it does not have.

    Yields:
        those functions, a list that the export fills.
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
    Smaller log decays are raised to this. Its exp, 2e-9 in float32, is below the rounding of 1, and sums of a chunk of
    them keep their digits, so that cuts need no treatment of their own (`split_cuts`, attention/decay_mask.py).
    """
    return -40.0 if dtype == torch.float64 else -20.0


def mean_width(query: Tensor, value: Tensor) -> float:
    """The harmonic mean of the widths of keys D and values E: states take 4 D E operations, the full form D + E."""
    key_dim, value_dim = query.shape[-1], value.shape[-1]
    return 2 * key_dim * value_dim / (key_dim + value_dim)


def graph_auto_body(query, key, value, forward, backward, chunk_size):
    """
    The full form for short inputs, chunks for long ones, chosen at run time. It has no gradients.

    Layers call a function of the graph. With a `torch.cond` in each of them, tracing it would take most of an export.
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
    """The shapes of tensors; `None` for each size that is known at run time only."""
    return tuple(tuple(None if is_symbolic(n) else n for n in x.shape) for x in inputs)


def chosen_in_graph(
    choice: Callable, inputs: Sequence[Tensor], dtypes: Sequence[torch.dtype], shapes: Sequence[Sequence[int]]
) -> Sequence[Tensor]:
    """The results, with these dtypes and shapes, of a choice that is made at run time (`choosing_graphs`)."""
    choices = _CHOICES.get()
    if choice not in choices:
        choices.append(choice)
    name = f"lion::Choice{choices.index(choice)}"
    return torch.onnx.ops.symbolic_multi_out(name, inputs, dtypes=dtypes, shapes=shapes, version=1)


def graph_full_body(query, key, value, forward, backward):
    """`parallel_body` for few tokens: their sums need no chunks."""
    scores = query @ key.transpose(-1, -2) * mask_in_chunk(*sums_in_chunk(*bounded(forward, backward)))
    return scores @ value, scores.sum(-1, keepdim=True)


def graph_chunk_body(query, key, value, forward, backward, chunk_size):
    """`chunk_body` for any number of chunks: one product passes states through all of them."""
    if forward is None:
        return chunk_body(query, key, value, forward, backward, chunk_size)
    length = query.shape[2]
    # If the length may fit one chunk, there is one chunk more: the graph of a single chunk would be a different one.
    spare = is_symbolic(length) and not is_known_true(length > chunk_size)
    num_chunks = (length + (1 + spare) * chunk_size - 1) // chunk_size
    padding = num_chunks * chunk_size - length
    tensors = (pad(x, (0, 0, 0, padding)) for x in (query, key, with_ones(value)))
    query, key, value = (x.unflatten(2, (num_chunks, chunk_size)) for x in tensors)
    forward, backward = bounded(forward, backward, padding, (num_chunks, chunk_size))
    before, through = sums_in_chunk(forward, backward)
    output = query @ key.transpose(-1, -2) * mask_in_chunk(before, through) @ value
    # Log decays from the start of a chunk to a token and from there to its end, then in the other direction.
    forward_total, backward_total = (before + forward)[..., -1:], through[..., -1:]
    for to_query, from_key, total, reverse in (
        (before, forward_total - before, forward_total, False),
        (backward_total - through, through, backward_total, True),
    ):
        sums = (key * from_key.exp().unsqueeze(-1)).transpose(-1, -2) @ value
        states = pass_states_at_once(sums.flatten(3), total.squeeze(-1), reverse).unflatten(3, sums.shape[3:])
        output = output + (query * to_query.exp().unsqueeze(-1)) @ states
    # The real tokens; without a slice, which would need to know how many they are.
    return split_ones(output.flatten(2, 3).index_select(2, torch.arange(length, device=output.device)))


def bounded(
    forward: Tensor, backward: Tensor, padding: int | torch.SymInt = 0, chunks: tuple | None = None
) -> tuple[Tensor, Tensor]:
    """Log decays of at least `least_log_decay`, in chunks if given; one tensor if both directions are."""
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
    """
    M from the sums, `(..., chunk, chunk)`. Of the exponents of both directions, the one that does not apply is never
    below 0 and the one that applies never above, so the minimum is right (`finish_mask`, cpu/decay_mask.py).
    """
    below = before.unsqueeze(-1) - before.unsqueeze(-2)
    return torch.minimum(below, through.unsqueeze(-2) - through.unsqueeze(-1)).exp()


def pass_states_at_once(sums: Tensor, total: Tensor, reverse: bool) -> Tensor:
    """
    `pass_states` (attention/plain.py) as one product with the matrix of decays from chunk to chunk: n² x operations
    for n chunks.

    Args:
        sums: what each chunk adds to the state, `(b, h, n, x)`.
        total: the log decay of a whole chunk, `(1 or b, 1 or h, n)`.
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
