# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The recurrent form (SPEC §3 "rnn"): one state per direction and head, updated token by token. O(D²) state, O(L·D)
memory; in training the states are computed again, segment by segment, instead of being kept.

    forward   S_i = λ_{i-1} S_{i-1} + k_i v_iᵀ      backward  S_i = λ_{i+1} S_{i+1} + k_i v_iᵀ      z likewise, v = 1

Each direction gives q_i (S_i - k_i v_iᵀ / 2), so that token i, which is in both states, counts once.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from .decay_mask import per_token
from .kernel_triton import triton_operator
from .lion_kernel import lion_kernel


SEGMENT_LENGTH = 64


def plain_rnn(
    query: Tensor, key: Tensor, value: Tensor, right: Tensor | None, left: Tensor | None, chunk_size: int
) -> tuple[Tensor, Tensor]:
    value = pad(value, (0, 1), value=1.0)
    if right is None:
        right = left = query.new_zeros(1, 1, query.shape[2])
    # Both directions in one recurrence over (direction, batch, heads): the second one reads the sequence backwards.
    query, key, value, decay = (
        torch.stack((forward, backward.flip(2)))
        for forward, backward in (
            (query, query),
            (key, key),
            (value, value),
            (per_token(right.exp()), per_token(left.exp())),
        )
    )
    needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value, decay))
    needs_grad = needs_grad and not torch._C._are_functorch_transforms_active()  # which a checkpoint can't pass
    state = key.new_zeros(*key.shape[:3], key.shape[-1], value.shape[-1])
    outputs = []
    for segment in zip(*(x.split(SEGMENT_LENGTH, dim=3) for x in (query, key, value, decay)), strict=True):
        if needs_grad:
            output, state = checkpoint(recurrence, *segment, state, use_reentrant=False)
        else:
            output, state = recurrence(*segment, state)
        outputs.append(output)
    forward, backward = torch.cat(outputs, dim=3)
    output = forward + backward.flip(2)
    return output[..., :-1], output[..., -1:]


def recurrence(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """
    Run the recurrence over one segment.

    Args:
        query, key: `(2, batch, heads, segment, head_dim)`; value: `(2, batch, heads, segment, value_dim)`.
        decay: λ of each token, `(2, 1 or batch, 1 or heads, segment, 1 or head_dim)`.
        state: the state that reaches the segment, decayed up to its first token, `(2, b, h, head_dim, value_dim)`.

    Returns:
        The outputs `(2, batch, heads, segment, value_dim)` and the state that reaches the next segment.
    """
    outputs = []
    for i in range(query.shape[3]):
        key_i, value_i = key[:, :, :, i, :, None], value[:, :, :, i, None, :]
        state = state + key_i * value_i
        outputs.append(query[:, :, :, i, None, :] @ state)
        state = state * decay[:, :, :, i, :, None]
    own = (query * key).sum(-1, keepdim=True) * value
    return torch.cat(outputs, dim=3) - own / 2, state


triton_rnn = triton_operator("rnn", plain_rnn)


@lion_kernel(triton=triton_rnn)
def rnn_attention(query, key, value, right, left, chunk_size):
    return plain_rnn(query, key, value, right, left, chunk_size)
