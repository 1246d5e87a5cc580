# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The three forms of linear attention (SPEC §3) in differentiable torch operations, for devices without a kernel, for
`torch.func`, and for second derivatives of the hand-written kernels.

A body takes query, key and value in the accumulation dtype, the forward and backward log decays of `finite_log_decay`,
for every token or `None`, and a chunk size. It returns the numerators Σ_j (q_i·k_j) M_ij v_j,
`(batch, heads, length, value_dim)`, and the denominators Σ_j (q_i·k_j) M_ij, `(batch, heads, length, 1)`.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from ..private_apis import is_torch_func_active
from .decay_mask import LogDecay, chunk_sums, cut_evenly, decay_mask, mask_directions, over_tokens, reads_forward
from .numerics import accumulation_dtype, needs_grad, normalize


# Number of steps between two states that the recurrence saves for backward.
RNN_STEPS = 64


def run_plain(body: Callable, *inputs) -> tuple[Tensor, Tensor]:
    """Output and denominators, `(batch, heads, length)`, of a body; inputs as in attention/custom_operator.py."""
    body, prepared = prepare_plain(body, *inputs)
    return finish_plain(*body(*prepared), inputs[2].dtype, inputs[-2], inputs[0].shape[-1])


def prepare_plain(body: Callable, *inputs) -> tuple[Callable, tuple]:
    """The body to call, and its inputs, from those of `run_plain`."""
    query, key, value, forward, backward, chunk_size, _, head_directions = inputs
    if body is rnn_body and head_directions == "alternate":
        body = alternating_rnn_body
    else:
        forward, backward = mask_directions(forward, backward, query.shape[1], head_directions)
    if forward is not None:
        forward, backward = over_tokens(LogDecay(forward, backward), query)
    dtype = accumulation_dtype(query.dtype)
    return body, (query.to(dtype), key.to(dtype), value.to(dtype), forward, backward, chunk_size)


def finish_plain(
    numerator: Tensor, denominator: Tensor, dtype: torch.dtype, division: str, head_dim: int
) -> tuple[Tensor, Tensor]:
    """Output, in `dtype` unless division is deferred, and denominators, `(batch, heads, length)`, of a body's sums."""
    output = numerator
    if division != "deferred":
        output = normalize(numerator, denominator, division, head_dim).to(dtype)
    return output, denominator.squeeze(-1)


def with_ones(value: Tensor) -> Tensor:
    """The values with a column of ones, whose attention output is the denominators."""
    return pad(value, (0, 1), value=1.0)


def split_ones(output: Tensor) -> tuple[Tensor, Tensor]:
    """Numerators and denominators, from the attention output of `with_ones`."""
    return output[..., :-1], output[..., -1:]


def parallel_body(query, key, value, forward, backward, chunk_size):
    """The parallel form: one length x length matrix per head, O(L²) time."""
    scores = query @ key.transpose(-1, -2)
    if forward is not None:
        scores = scores * decay_mask(forward, backward)
    return scores @ value, scores.sum(-1, keepdim=True)


def chunk_body(query, key, value, forward, backward, chunk_size):
    """The chunk form (cpu/chunk.py): a matrix inside each chunk, a state per direction between them; O(L) time."""
    value = with_ones(value)
    if forward is None:
        return split_ones(query @ (key.transpose(-1, -2) @ value))

    length = query.shape[2]
    num_chunks, chunk = cut_evenly(length, chunk_size)
    padding = num_chunks * chunk - length
    if padding:  # skipped if 0, since torch.compile assumes that `pad` makes its input contiguous
        query, key, value = (pad(x, (0, 0, 0, padding)) for x in (query, key, value))
    query, key, value = (x.unflatten(2, (num_chunks, chunk)) for x in (query, key, value))
    forward, backward = (pad(x, (0, padding)).unflatten(2, (num_chunks, chunk)) for x in (forward, backward))

    scores = query @ key.transpose(-1, -2) * decay_mask(forward, backward)
    output = scores @ value
    if num_chunks > 1:
        from_start, to_end, from_end, to_start = (x.exp().unsqueeze(-1) for x in chunk_sums(forward, backward))
        forward_state = pass_states((key * to_end).transpose(-1, -2) @ value, to_end[..., :1, :])
        backward_state = pass_states((key * to_start).transpose(-1, -2) @ value, to_start[..., -1:, :], reverse=True)
        output = output + (query * from_start) @ forward_state + (query * from_end) @ backward_state
    # Remove the padding before anything is divided.
    return split_ones(output.flatten(2, 3)[:, :, :length])


def pass_states(sums: Tensor, decay: Tensor, reverse: bool = False) -> Tensor:
    """
    The state that reaches each chunk from the chunks before it (after it, if `reverse`), from the sums that chunks
    add, `(b, h, n, d, e)`, and the factors by which they multiply a state, `(1 or b, h, n, 1, 1)`, in [0, 1].
    """
    order = range(sums.shape[2])
    order = order[::-1] if reverse else order
    states = [torch.zeros_like(sums[:, :, 0])]
    for n in order[:-1]:
        states.append(torch.addcmul(sums[:, :, n], states[-1], decay[:, :, n]))
    return torch.stack(states[::-1] if reverse else states, dim=2)


def rnn_body(query, key, value, forward, backward, chunk_size):
    """
    The recurrent form: one O(D²) state per direction and head, updated token by token, O(L·D) memory. Backward
    recomputes the states, `RNN_STEPS` at a time.

        forward   S_i = λ_{i-1} S_{i-1} + k_i v_iᵀ      backward   S_i = λ_{i+1} S_{i+1} + k_i v_iᵀ

    The denominators are the column of S for v = 1. Token i is in both states, so it is subtracted once.
    """
    if forward is None:
        forward = backward = query.new_zeros(1, 1, query.shape[2])
    # Both directions in one recurrence over (direction, batch, heads): the second reads the sequence backwards.
    log_decays = forward.unsqueeze(-1), backward.unsqueeze(-1)
    inputs = ((query, query), (key, key), (with_ones(value),) * 2, log_decays)
    ahead, back = recur(*(torch.stack((x, y.flip(2))) for x, y in inputs))
    own = (query * key).sum(-1, keepdim=True) * with_ones(value)
    return split_ones(ahead + back.flip(2) - own)


def alternating_rnn_body(query, key, value, forward, backward, chunk_size):
    """`rnn_body` for alternating directions: one recurrence, in which odd heads read from the end."""
    is_forward = reads_forward(query.shape[1], query.device).view(-1, 1, 1)

    def aligned(x: Tensor) -> Tensor:  # into the reading order of each head, and back
        return x.where(is_forward, x.flip(2))

    own = forward.unsqueeze(-1).where(is_forward, backward.unsqueeze(-1))
    output = recur(*(aligned(x).unsqueeze(0) for x in (query, key, with_ones(value), own)))
    return split_ones(aligned(output.squeeze(0)))


def recur(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor) -> Tensor:
    """q_i S_i with S_i = λ_{i-1} S_{i-1} + k_i v_iᵀ, for `(directions, batch, heads, length, ...)`."""
    state = key.new_zeros(*key.shape[:3], key.shape[-1], value.shape[-1])
    outputs = []
    for inputs in zip(*(x.split(RNN_STEPS, dim=3) for x in (query, key, value, log_decay.exp())), strict=True):
        output, state = without_saving(recurrence, *inputs, state)(*inputs, state)
        outputs.append(output)
    return torch.cat(outputs, dim=3)


def without_saving(function: Callable, *inputs) -> Callable:
    """`function`, checkpointed if these inputs need gradients: backward recomputes its activations."""
    if needs_grad(*inputs) and not is_torch_func_active():  # which does not support checkpoints
        return partial(checkpoint, function, use_reentrant=False)
    return function


def recurrence(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Some steps of `recur` from a decayed `state`: the outputs, and the decayed state after them."""
    outputs = []
    for i in range(query.shape[3]):
        key_i, value_i = key[:, :, :, i, :, None], value[:, :, :, i, None, :]
        state = state + key_i * value_i
        outputs.append(query[:, :, :, i, None, :] @ state)
        state = state * decay[:, :, :, i, :, None]
    return torch.cat(outputs, dim=3), state
