# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What a linear encoder does with its inputs before its own code runs: borders of packed sequences are read from
`position_ids`, and a table of positions is read again by longer texts, or they are refused.
"""

from inspect import signature

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..attention.tracing import is_compiling, is_readable


# Positions that buffers hold before they grow: 1 MB each.
BUFFERED_POSITIONS = 131_072


def install_input_hooks(model: PreTrainedModel) -> None:
    """Register the hooks below on the base model, and on its table of positions if it has one."""
    base = model.base_model
    base.register_forward_pre_hook(prepare_inputs, with_kwargs=True)
    base.register_forward_hook(check_borders_arrived, with_kwargs=True)
    if model.config.lion_position_table is None or model.config.lion_positions is None:
        return
    name, first = model.config.lion_position_table
    table = base.get_submodule(name)
    table.first_position = first
    table.register_forward_pre_hook(wrap_positions)
    grow_buffers(base.get_submodule(name.rpartition(".")[0]), table.num_embeddings, BUFFERED_POSITIONS)


def prepare_inputs(model: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
    """A forward pre-hook of the base model."""
    if not str(model.config._attn_implementation).startswith("lion"):
        return None
    inputs = next((x for x in (*args, kwargs.get("input_ids"), kwargs.get("inputs_embeds")) if x is not None), None)
    if inputs is not None and model.config.lion_position_table is not None:
        check_length(model, inputs.shape[1])
    given = kwargs
    if len(args) > 1:
        given = kwargs | dict(signature(model.forward).bind_partial(*args).arguments)
    position_ids, mask, borders = (given.get(x) for x in ("position_ids", "attention_mask", "cu_seq_lens_q"))
    if is_compiling() or position_ids is None and borders is None:
        return None
    is_padding = isinstance(mask, Tensor) and mask.dim() == 2
    is_padded = is_padding and is_readable(mask) and not mask.all()
    if borders is not None and is_padded:
        raise ValueError(
            "`cu_seq_lens_q` is given, and `attention_mask` has padding: leave the padding out, or give one of both."
        )
    if borders is not None or not is_readable(position_ids) or mask is not None and not is_padding:
        return None
    begins = position_ids.diff(dim=1) <= 0
    if is_padded:  # padding is a sequence of its own, whatever its positions are
        is_real = mask.bool()
        begins = begins & is_real[:, 1:] & is_real[:, :-1]
    if not begins.any():
        return None
    if is_padded:
        begins = begins | (is_real[:, 1:] != is_real[:, :-1])
    begins = torch.cat((torch.ones_like(begins[:, :1]), begins), dim=1)
    if inputs is not None:
        begins = begins.expand(len(inputs), -1)
    starts = begins.flatten().nonzero().flatten()
    borders = torch.cat((starts, starts.new_full((1,), begins.numel()))).to(torch.int32)
    return args, kwargs | {"cu_seq_lens_q": borders}


def check_borders_arrived(model: nn.Module, args: tuple, kwargs: dict, output) -> None:
    """A forward hook of the base model: raise an error if the attention functions did not get the borders."""
    borders = kwargs.get("cu_seq_lens_q")
    is_lion = str(model.config._attn_implementation).startswith("lion")
    if borders is not None and is_lion and not is_compiling() and not getattr(borders, "was_seen", False):
        raise ValueError(
            f"{type(model).__name__} does not pass `cu_seq_lens_q` on to its attention, so that packed sequences "
            "would see each other: give each sequence a row of its own."
        )


def longest_text(model: PreTrainedModel) -> int | None:
    """The most tokens of a text, by a table of positions that is not cyclic; `None` without a limit."""
    return size_of_table(model.base_model)


def size_of_table(base: nn.Module) -> int | None:
    """`longest_text` of the base model that the hooks are on, which may have a base model of its own."""
    config = base.config
    if not config.has_longest_text:
        return None
    name, first = config.lion_position_table
    return base.get_submodule(name).num_embeddings - first


def check_length(model: PreTrainedModel, length: int) -> None:
    """
    Raise a ValueError if a text is longer than a table of positions that is not cyclic; the default positions of one
    that is grow with the text.
    """
    size = size_of_table(model)
    if size is None and not is_compiling():
        name, first = model.config.lion_position_table
        owner = model.get_submodule(name.rpartition(".")[0])
        longest = max((x.shape[-1] for x in owner.buffers(recurse=False) if x.dim() == 2), default=0)
        if BUFFERED_POSITIONS <= longest < length + first:
            grow_buffers(owner, longest, 2 * (length + first))
    if size is not None and length > size:
        raise ValueError(
            f"The input has {length} tokens, and the table of positions ({model.config.lion_position_table[0]}) has "
            f'{size}: linearize the encoder with `positions="cyclic"`, which reads the table again, or cut the text '
            "(`truncation=True`)."
        )


def wrap_positions(table: nn.Embedding, args: tuple) -> tuple[Tensor]:
    """A forward pre-hook of a table of positions: a position behind its end is read from its start on."""
    first = table.first_position
    (positions,) = args
    size = table.num_embeddings - first
    return (torch.where(positions < first, positions, (positions - first) % size + first),)


def grow_buffers(owner: nn.Module, size: int, wanted: int) -> None:
    """
    Make the default positions and token types of a module, buffers `(1, size)` that are not saved, `wanted` long.
    """
    saved = owner.state_dict(keep_vars=True)
    for name, buffer in list(owner.named_buffers(recurse=False)):
        if name not in saved and buffer.dim() == 2 and buffer.shape[-1] == size:
            grown = torch.zeros(1, wanted, dtype=buffer.dtype, device=buffer.device)
            if name == "position_ids":
                grown = torch.arange(wanted, dtype=buffer.dtype, device=buffer.device).unsqueeze(0)
            owner.register_buffer(name, grown, persistent=False)
