# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Calls mixers on whole sequences without padding, for mixers that support neither padding nor packing."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..attention.tracing import is_readable
from ..tokens import Tokens


def each_sequence(mix: Callable[[Tensor], Tensor], hidden_states: Tensor, tokens: Tokens) -> Tensor:
    """
    Apply `mix`, which maps `(sequences, length, channels)` to the same shape, to every sequence of `(batch, length,
    channels)`, in one call for all with the same number of real tokens; padded tokens get 0.

    Raises:
        ValueError: if `mix` returns another shape, or the numbers of real tokens cannot be read, as in a graph.
    """
    masks = [x for x in (tokens.is_real, tokens.cu_seqlens) if x is not None]
    if not masks:
        return checked(mix, hidden_states)
    if not all(map(is_readable, masks)):
        raise ValueError(
            "A mixer with a method `mix` computes the sequences of a batch one by one, which a graph (torch.compile, "
            "export) cannot: leave out `attention_mask` and `cu_seq_lens_q`, or give the class a `forward`, which "
            "takes batches."
        )
    states = hidden_states.flatten(0, 1)
    mixed = torch.zeros_like(states)
    for index, _ in tokens.sequences_as_rows(hidden_states, are_equal=True):
        some = checked(mix, states[index])
        mixed = mixed.to(some.dtype).index_copy(0, index.flatten(), some.flatten(0, 1))
    return mixed.view(hidden_states.shape)


def checked(mix: Callable[[Tensor], Tensor], hidden_states: Tensor) -> Tensor:
    mixed = mix(hidden_states)
    if mixed.shape != hidden_states.shape:
        raise ValueError(
            f"`mix` returned {tuple(mixed.shape)} for hidden states {tuple(hidden_states.shape)}: give the same shape."
        )
    return mixed
