# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The gated delta rule (SPEC §14) in differentiable torch operations, for devices without a kernel, for `torch.func`, and
for second derivatives of the hand-written kernel.

    S_i = λ_{i-1} (I - β_i k_i k_iᵀ) S_{i-1} + β_i k_i v_iᵀ        y_i = S_iᵀ q_i

M is the mask of a head that reads forward (attention/decay_mask.py), K₀ the strictly lower part of (k kᵀ) ∘ M, and
Q₀ = (q kᵀ) ∘ M. Token i adds β_i k_i n_iᵀ to the state, where n_i is the difference between v_i and what the state
returns for k_i:

    n = (I + K₀ diag(β))⁻¹ (v - from_start · k S)        y = Q₀ diag(β) n + from_start · q S

S is the state before the chunk. With one chunk, S is 0, and the matrix that multiplies v is
Q₀ diag(β) (I + K₀ diag(β))⁻¹.

A body takes, in the accumulation dtype and in the order in which the heads read (`in_reading_order`): query and key
`(batch, heads, length, head_dim)`, value `(batch, heads, length, value_dim)`, the log decays of `finite_log_decay`,
`(1 or batch, heads, length)`, β `(batch, heads, length)`, and a chunk size. It returns y.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from .decay_mask import LogDecay, chunk_sums, cut_evenly, decay_mask, log_decay_floor, over_tokens, reads_forward
from .numerics import accumulation_dtype
from .plain import RNN_STEPS, without_saving


# Added to the mean square by which outputs are normalised.
RMS_EPS = 1e-5
# A state that decays by more in one step counts as 0: outputs are divided by at least √1e-5, so that it cannot matter.
# Smaller log decays would cost digits in sums.
LEAST_LOG_DECAY = -50.0


def run_delta_body(body: Callable, *inputs) -> tuple[Tensor, Tensor]:
    """Output and denominators, `(batch, heads, length)`, of a body; inputs as in attention/delta.py."""
    *tensors, chunk_size, division, _ = inputs
    output = back_in_order(body(*in_reading_order(*tensors), chunk_size))
    return finish_delta(output, tensors[2].dtype, division)


def in_reading_order(
    query: Tensor, key: Tensor, value: Tensor, forward: Tensor, backward: Tensor, beta: Tensor
) -> list[Tensor]:
    """The inputs of a body: in the accumulation dtype, with the tokens of odd heads from last to first."""
    dtype = accumulation_dtype(query.dtype)
    forward, backward = over_tokens(LogDecay(forward, backward), query)
    is_forward = reads_forward(query.shape[1], query.device).view(-1, 1)
    own = forward.where(is_forward, backward.flip(2))
    own = own.masked_fill(own < LEAST_LOG_DECAY, log_decay_floor(own.dtype))
    aligned = [x.where(is_forward.unsqueeze(-1), x.flip(2)).to(dtype) for x in (query, key, value)]
    return [*aligned, own, beta.where(is_forward, beta.flip(2))]


def back_in_order(x: Tensor) -> Tensor:
    """Undo `in_reading_order` for `(batch, heads, length, ...)`."""
    return x.where(reads_forward(x.shape[1], x.device).view(-1, 1, 1), x.flip(2))


def finish_delta(numerator: Tensor, dtype: torch.dtype, division: str) -> tuple[Tensor, Tensor]:
    """Output, in `dtype` unless `division` is "deferred", and denominators, `(batch, heads, length)`."""
    denominator = (numerator.square().mean(-1, keepdim=True) + RMS_EPS).sqrt()
    output = numerator / denominator if division == "rms" else numerator
    return output if division == "deferred" else output.to(dtype), denominator.squeeze(-1)


def scores_with_beta(query: Tensor, key: Tensor, log_decay: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """K₀ diag(β) and Q₀ diag(β), `(..., length, length)`."""
    mask = decay_mask(log_decay, log_decay) * beta.unsqueeze(-2)
    keys = key.transpose(-1, -2)
    return ((key @ keys) * mask).tril(-1), ((query @ keys) * mask).tril()


def correct(reads: Tensor, x: Tensor, left: bool = True) -> Tensor:
    """(I + reads)⁻¹ x, or x (I + reads)⁻¹ if not `left`; `reads` is strictly lower triangular."""
    return torch.linalg.solve_triangular(reads, x, upper=False, left=left, unitriangular=True)


def delta_parallel_body(query, key, value, log_decay, beta, chunk_size):
    """The whole sequence as one chunk, in O(L²) time."""
    reads, answers = scores_with_beta(query, key, log_decay, beta)
    return answers @ correct(reads, value)


def delta_chunk_body(query, key, value, log_decay, beta, chunk_size):
    """The chunk form, in O(L) time: one triangular solve for all chunks (the UT transform), then a state passes."""
    length, value_dim = value.shape[2:]
    num_chunks, chunk = cut_evenly(length, chunk_size)
    if num_chunks == 1:
        return delta_parallel_body(query, key, value, log_decay, beta, chunk_size)
    padding = num_chunks * chunk - length
    if padding:
        query, key, value = (pad(x, (0, 0, 0, padding)) for x in (query, key, value))
        log_decay, beta = (pad(x, (0, padding)) for x in (log_decay, beta))
    query, key, value, log_decay, beta = (
        x.unflatten(2, (num_chunks, chunk)) for x in (query, key, value, log_decay, beta)
    )
    sums = chunk_sums(log_decay, log_decay)
    from_start, to_end = sums.from_start.exp().unsqueeze(-1), sums.to_end.exp()
    reads, answers = scores_with_beta(query, key, log_decay, beta)
    missing, read = correct(reads, torch.cat((value, key * from_start), dim=-1)).split(
        (value_dim, key.shape[-1]), dim=-1
    )
    query, writes = query * from_start, (key * (to_end * beta).unsqueeze(-1)).transpose(-1, -2)
    keep = to_end[..., :1].unsqueeze(-1)
    outputs, state = [], None
    for n in range(num_chunks):
        new = missing[:, :, n] if state is None else missing[:, :, n] - read[:, :, n] @ state
        output = answers[:, :, n] @ new
        outputs.append(output if state is None else output + query[:, :, n] @ state)
        written = writes[:, :, n] @ new
        state = written if state is None else state * keep[:, :, n] + written
    return torch.cat(outputs, dim=2)[:, :, :length]


def delta_rnn_body(query, key, value, log_decay, beta, chunk_size):
    """The recurrence, token by token, with one state per head. Backward recomputes the states, as in `rnn_body`."""
    state = key.new_zeros(*key.shape[:2], key.shape[-1], value.shape[-1])
    decay = log_decay.exp()
    outputs = []
    for inputs in zip(*(x.split(RNN_STEPS, dim=2) for x in (query, key, value, decay, beta)), strict=True):
        output, state = without_saving(delta_recurrence, *inputs, state)(*inputs, state)
        outputs.append(output)
    return torch.cat(outputs, dim=2)


def delta_recurrence(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Some steps of the recurrence from a decayed `state`: the outputs, and the decayed state after them."""
    outputs = [value[:, :, :0]]
    for i in range(query.shape[2]):
        key_i, beta_i = key[:, :, i, None], beta[:, :, i, None, None]
        missing = value[:, :, i, None] - key_i @ state
        state = state + key_i.transpose(-1, -2) * (beta_i * missing)
        outputs.append(query[:, :, i, None] @ state)
        state = state * decay[:, :, i, None, None]
    return torch.cat(outputs, dim=2), state
