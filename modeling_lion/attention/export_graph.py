# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Bodies as in attention/plain.py for a graph that serves every length (`torch.export`, ONNX, OpenVINO): without loops
over chunks, without float64, which OpenVINO narrows, and with few operators, each of which costs a runtime a pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from .plain import chunk_body, split_ones, with_ones
from .tracing import is_exporting, is_known_true, is_symbolic


# Fewer tokens than `chunk_size` + 2.5 `head_dim` take less time in the full form, in ONNX Runtime, too.
LONGEST_FULL_FORM = 2.5


# Whether what is exported in this thread chooses its form by the length when it runs.
_CHOOSES_BY_LENGTH = ContextVar("chooses_by_length", default=False)


@contextmanager
def choosing_graphs() -> Iterator[None]:
    """
    What is exported in it, with `attn_implementation="auto"`, chooses by the length when it runs (`graph_auto_body`).
    For ONNX: other exporters know no `torch.cond`, nor are there gradients.
    """
    token = _CHOOSES_BY_LENGTH.set(True)
    try:
        yield
    finally:
        _CHOOSES_BY_LENGTH.reset(token)


def is_exporting_a_choice() -> bool:
    """Whether a graph is being exported, in `choosing_graphs`."""
    return is_exporting() and _CHOOSES_BY_LENGTH.get()


def least_log_decay(dtype: torch.dtype) -> float:
    """
    Stands for everything below: its exp is less than the rounding of 1 (2e-9 in float32), and sums of as many as a
    chunk has tokens keep their digits, so that no steps have to be taken out of them (`split_cuts`,
    attention/decay.py).
    """
    return -40.0 if dtype == torch.float64 else -20.0


def graph_auto_body(query, key, value, forward, backward, chunk_size):
    """The full form for short inputs, chunks for long ones, chosen when the graph runs. Without gradients."""
    inputs = [query, key, value, forward] + ([] if backward is forward else [backward])

    def short(query, key, value, *log_decay):
        return graph_full_body(query, key, value, log_decay[0], log_decay[-1])

    def long(query, key, value, *log_decay):
        output = graph_chunk_body(query, key, value, log_decay[0], log_decay[-1], chunk_size)
        return tuple(x.contiguous() for x in output)  # as those of the other branch are

    longest = chunk_size + int(LONGEST_FULL_FORM * query.shape[3])
    is_short = query.shape[2] <= longest
    for known, body in ((is_short, short), (query.shape[2] > longest, long)):
        if is_known_true(known):
            return body(*inputs)
    return torch.cond(is_short, short, long, inputs)


def graph_full_body(query, key, value, forward, backward):
    """`parallel_body` for few tokens, whose sums need no chunks."""
    scores = query @ key.transpose(-1, -2) * mask_in_chunk(*sums_in_chunk(*bounded(forward, backward)))
    return scores @ value, scores.sum(-1, keepdim=True)


def graph_chunk_body(query, key, value, forward, backward, chunk_size):
    """`chunk_body` for any number of chunks: states pass through all of them in one product."""
    if forward is None:
        return chunk_body(query, key, value, forward, backward, chunk_size)
    length = query.shape[2]
    num_chunks, padding = chunks_of(length, chunk_size)
    tensors = (pad(x, (0, 0, 0, padding)) for x in (query, key, with_ones(value)))
    query, key, value = (x.unflatten(2, (num_chunks, chunk_size)) for x in tensors)
    forward, backward = bounded(forward, backward, padding, (num_chunks, chunk_size))
    before, through = sums_in_chunk(forward, backward)
    output = query @ key.transpose(-1, -2) * mask_in_chunk(before, through) @ value
    # Of a chunk: what a state loses from its start to a token and from there to its end, and the other way round.
    forward_total, backward_total = (before + forward)[..., -1:], through[..., -1:]
    for to_query, from_key, total, reverse in (
        (before, forward_total - before, forward_total, False),
        (backward_total - through, through, backward_total, True),
    ):
        sums = (key * from_key.exp().unsqueeze(-1)).transpose(-1, -2) @ value
        states = pass_states_at_once(sums.flatten(3), total.squeeze(-1), reverse).unflatten(3, sums.shape[3:])
        output = output + (query * to_query.exp().unsqueeze(-1)) @ states
    return split_ones(cut_length(output.flatten(2, 3), length, dim=2))


def chunks_of(length: int | torch.SymInt, chunk: int) -> tuple[int | torch.SymInt, int | torch.SymInt]:
    """
    How many chunks hold the tokens, and how much padding is in the last. Where the length is unknown and may be that
    of one chunk, one chunk more: of a single one, the graph would be another.
    """
    spare = is_symbolic(length) and not is_known_true(length > chunk)
    num_chunks = (length + (1 + spare) * chunk - 1) // chunk
    return num_chunks, num_chunks * chunk - length


def cut_length(x: Tensor, length: int | torch.SymInt, dim: int) -> Tensor:
    """The first `length` elements of a dimension; not with a slice, as how it relates to the whole is unknown."""
    return x.index_select(dim, torch.arange(length, device=x.device))


def bounded(
    forward: Tensor, backward: Tensor, padding: int | torch.SymInt = 0, chunks: tuple | None = None
) -> tuple[Tensor, Tensor]:
    """Log decays no smaller than `least_log_decay`, in chunks if asked for; one tensor where both are the same."""
    least = least_log_decay(forward.dtype)

    def bound(x: Tensor) -> Tensor:
        x = x.clamp(min=least)
        return x if chunks is None else pad(x, (0, padding)).unflatten(2, chunks)

    bound_forward = bound(forward)
    return bound_forward, bound_forward if backward is forward else bound(backward)


def sums_in_chunk(forward: Tensor, backward: Tensor) -> tuple[Tensor, Tensor]:
    """Of `(..., chunk)`, Σ_{k<t} forward_k and Σ_{k≤t} backward_k for each token t of a chunk."""
    through = backward.cumsum(-1)
    return (through if forward is backward else forward.cumsum(-1)) - forward, through


def mask_in_chunk(before: Tensor, through: Tensor) -> Tensor:
    """
    M of the sums, `(..., chunk, chunk)`. Of two exponents, the one that does not apply is never below 0 and the one
    that does never above: the minimum chooses (`write_mask`, cpu/decay_mask.py).
    """
    below = before.unsqueeze(-1) - before.unsqueeze(-2)
    return torch.minimum(below, through.unsqueeze(-2) - through.unsqueeze(-1)).exp()


def pass_states_at_once(sums: Tensor, total: Tensor, reverse: bool) -> Tensor:
    """
    The state that reaches each chunk from the chunks before it (after it, if `reverse`): one product with the matrix
    of what is left of each state on its way from chunk to chunk. n² x operations for n chunks.

    Args:
        sums: what each chunk adds, `(b, h, n, x)`.
        total: the log decay of a whole chunk, `(1 or b, 1 or h, n)`.
    """
    chunk = torch.arange(total.shape[-1], device=total.device)
    to, origin = chunk[:, None], chunk
    # Row i, column j: the sum over the chunks between them, none of them a difference of other sums.
    if reverse:
        steps = pad(total, (1, -1)).unsqueeze(-2) * (origin - 1 > to)
        left = steps.cumsum(-1).exp() * (origin > to)
    else:
        steps = pad(total, (1, -1)).unsqueeze(-1) * (to - 1 > origin)
        left = steps.cumsum(-2).exp() * (to > origin)
    return left @ sums
