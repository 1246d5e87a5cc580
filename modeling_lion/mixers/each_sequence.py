# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Each sequence of a batch alone, without padding, for mixers that know of neither padding nor packing."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..attention.packing import sequence_of_each_token
from ..attention.tracing import is_readable


def each_sequence(
    mix: Callable[[Tensor], Tensor], hidden_states: Tensor, is_real: Tensor | None, cu_seqlens: Tensor | None
) -> Tensor:
    """
    `mix` of every sequence, in one call for all that have the same number of real tokens; 0 at padded tokens.

    Args:
        mix: maps `(sequences, length, channels)` to the same shape.
        hidden_states: `(batch, length, channels)`.
        is_real: False for padding, `(batch, length)`, bool; `None` without padding.
        cu_seqlens: borders of packed sequences, `(num_sequences + 1,)`; `None` if nothing is packed.

    Raises:
        ValueError: if `mix` returns another shape, or the numbers of real tokens cannot be read, as in a graph.
    """
    if is_real is None and cu_seqlens is None:
        return checked(mix, hidden_states)
    if not all(is_readable(x) for x in (is_real, cu_seqlens) if x is not None):
        raise ValueError(
            "A mixer with a method `mix` takes the sequences of a batch one by one, and a graph (torch.compile, "
            "export) is for all lengths: leave out `attention_mask` and `cu_seq_lens_q`, or give the class a "
            "`forward`, which takes batches."
        )
    tokens = hidden_states.flatten(0, 1)
    mixed = torch.zeros_like(tokens)
    for index in tokens_by_length(hidden_states, is_real, cu_seqlens):
        some = checked(mix, tokens[index])
        mixed = mixed.to(some.dtype).index_copy(0, index.flatten(), some.flatten(0, 1))
    return mixed.view(hidden_states.shape)


def checked(mix: Callable[[Tensor], Tensor], hidden_states: Tensor) -> Tensor:
    mixed = mix(hidden_states)
    if mixed.shape != hidden_states.shape:
        raise ValueError(
            f"`mix` returned {tuple(mixed.shape)} for hidden states {tuple(hidden_states.shape)}: give the same shape."
        )
    return mixed


def tokens_by_length(hidden_states: Tensor, is_real: Tensor | None, cu_seqlens: Tensor | None) -> list[Tensor]:
    """
    The real tokens of all sequences that have some, `(sequences, length)`, int64, for each length: indices that count
    through all rows. Arguments as in `each_sequence`.
    """
    batch, length = hidden_states.shape[:2]
    row = torch.arange(batch, device=hidden_states.device).unsqueeze(1).expand(-1, length)
    sequence = row
    if cu_seqlens is not None:
        sequence = row * (len(cu_seqlens) - 1) + sequence_of_each_token(cu_seqlens, length)
    token = torch.arange(batch * length, device=hidden_states.device)
    if is_real is not None:
        token = token[is_real.flatten()]
    sequence = sequence.flatten()[token]
    counts = sequence.bincount()
    lengths = counts[sequence]
    return [token[lengths == n].view(-1, n) for n in counts.unique().tolist() if n]
