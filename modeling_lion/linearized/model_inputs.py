# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Prepares the inputs of a linearized model before its own code runs: finds the borders of packed sequences, computes the
short rows of a batch without the padding up to the longest row, counts rotary positions without padding, and repeats a
table of positions for longer texts, or refuses them.
"""

import threading
from collections.abc import Callable
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from configuration_lion.configuration_lion import LionConfig

from ..attention.tracing import is_readable
from ..private_apis import has_hooks
from ..tokens import (
    Tokens,
    check_borders,
    cyclic_positions,
    indexed_borders,
    packed_borders,
    real_tokens,
    token_positions,
)
from .config import LINEARIZED_FORMS, LinearizedConfig


# Number of positions in buffers before they grow: 1 MB each.
BUFFERED_POSITIONS = 131_072
# Whether attention functions of this thread received borders in the current call.
ARRIVED = threading.local()


def with_tokens(forward: Callable) -> Callable:
    """Wrap the `forward` of a base model, to prepare its inputs."""
    kinds = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
    names = [x.name for x in signature(forward).parameters.values() if x.kind in kinds][1:]  # without `self`

    @wraps(forward)
    def forward_with_tokens(self, *args, **kwargs):
        name = str(self.config._attn_implementation) if isinstance(self.config, LinearizedConfig) else ""
        if self.base_model is not self or name not in LINEARIZED_FORMS:
            return forward(self, *args, **kwargs)
        if torch.jit.is_tracing():
            raise ValueError(
                f"`torch.jit.trace` keeps one form of attention for all lengths, and {type(self).__name__} chooses by "
                "the length of a text: use `lion export` or `torch.export`."
            )
        given = dict(zip(names, args, strict=False)) | kwargs
        inputs = next((given[name] for name in ("input_ids", "inputs_embeds") if given.get(name) is not None), None)
        if inputs is not None and self.config.lion_position_table is not None:
            check_length(self, inputs.shape[1], given)
        borders = given.get("cu_seq_lens_q")
        if borders is not None and inputs is not None:
            check_borders(borders, inputs.shape[1], len(inputs), may_be_empty=True)
        is_text = False
        if inputs is not None:  # whether the mask and the positions, if given, have the shapes of those of a text
            mask, positions, shape = given.get("attention_mask"), given.get("position_ids"), inputs.shape[:2]
            is_text = mask is None or isinstance(mask, Tensor) and mask.shape == shape
            is_text = is_text and (positions is None or positions.shape in (shape, (1, shape[1])))
        if borders is None and inputs is not None:
            borders = indexed_borders(given.get("seq_idx"), inputs)
        if borders is None and is_text and given.get("position_ids") is not None:
            is_real = real_tokens(given.get("attention_mask"), inputs)
            borders = packed_borders(given["position_ids"], is_real, len(inputs))
        if torch.compiler.is_compiling():
            if borders is not None:
                positions = packed_positions(self, names, given, inputs, borders)
            else:
                positions = rotary_positions(self, names, given, inputs) if is_text else {}
            return forward(self, **given | positions)
        if borders is not None:
            with expecting(type(self).__name__):
                positions = packed_positions(self, names, given, inputs, borders)
                return forward(self, **given | positions | {"cu_seq_lens_q": borders.to(torch.int32)})
        if not is_text:
            return forward(self, *args, **kwargs)
        is_short, positions = short_rows(self, given, inputs), rotary_positions(self, names, given, inputs)
        if is_short is None:
            return forward(self, **given | positions)
        return forward_by_length(self, forward, given, positions, inputs, is_short)

    return forward_with_tokens


@contextmanager
def expecting(name: str):
    """Raise a ValueError if attention functions get no borders in this context: sequences would see each other."""
    before, ARRIVED.has_borders = getattr(ARRIVED, "has_borders", False), False
    try:
        yield
        if not ARRIVED.has_borders:
            raise ValueError(
                f"{name} does not pass `cu_seq_lens_q` on to its attention, so that packed sequences would see each "
                "other: give each sequence a row of its own."
            )
    finally:
        ARRIVED.has_borders = before


def short_rows(model: PreTrainedModel, given: dict, inputs: Tensor) -> Tensor | None:
    """
    A mask of the exact rows, `(batch,)`, bool, of a batch that also has longer ones. `None` for other batches, for
    input tensors that do not have a value per token, and for layers with hooks, which expect all rows.
    """
    mask, longest = given.get("attention_mask"), model.config.lion_exact_length
    if mask is None or inputs.shape[1] <= longest or len(inputs) == 1 or not is_readable(mask):
        return None
    shapes = [x.shape for x in given.values() if isinstance(x, Tensor)]
    if any(shape[:2] not in (inputs.shape[:2], (1, inputs.shape[1])) for shape in shapes):
        return None
    is_short = mask.bool().sum(1) <= longest
    if not 0 < int(is_short.sum()) < len(is_short) or any(map(has_hooks, model.children())):
        return None
    return is_short


def packed_positions(
    model: PreTrainedModel, names: list[str], given: dict, inputs: Tensor | None, borders: Tensor
) -> dict[str, Tensor]:
    """`position_ids` that restart in every packed sequence (SPEC §4); nothing if they are given."""
    if inputs is None or "position_ids" not in names or given.get("position_ids") is not None:
        return {}
    mask, table = given.get("attention_mask"), model.config.lion_position_table
    is_real = mask.bool() if isinstance(mask, Tensor) and mask.shape == inputs.shape[:2] else None
    positions = token_positions(Tokens(is_real, borders), inputs)
    return {"position_ids": positions if table is None else positions + table[1]}


def rotary_positions(model: PreTrainedModel, names: list[str], given: dict, inputs: Tensor) -> dict[str, Tensor]:
    """
    `position_ids` that count real tokens only (SPEC §4), for models without a table of positions. Softmax of rotated
    queries and keys depends on differences of positions, a feature map does not (SPEC §12). Nothing if the positions
    are given, and, outside of graphs, for rows of at most `lion_exact_length` and without padding before real tokens.
    """
    mask = given.get("attention_mask")
    has_table = model.config.lion_position_table is not None
    if has_table or "position_ids" not in names or given.get("position_ids") is not None or mask is None:
        return {}
    is_graph = torch.compiler.is_compiling()  # which reads neither the length nor the mask
    if not is_graph and (inputs.shape[1] <= model.config.lion_exact_length or not is_readable(mask)):
        return {}
    is_real = mask.bool()
    if not is_graph and not bool((is_real[:, 1:] & ~is_real[:, :-1]).any()):
        return {}
    return {"position_ids": token_positions(Tokens(is_real), inputs)}


def forward_by_length(
    model: PreTrainedModel, forward: Callable, given: dict, positions: dict, inputs: Tensor, is_short: Tensor
) -> ModelOutput | tuple:
    """
    Call `forward` on the short rows, without columns in which all of them are padded, and on the long rows, with their
    `positions`.
    """
    asked = given.get("return_dict")
    returns_tuple = not (getattr(model.config, "return_dict", True) if asked is None else asked)
    seen = given["attention_mask"].bool()[is_short].any(0).nonzero().flatten().tolist()
    columns = slice(seen[0], seen[-1] + 1) if seen else slice(0, 1)
    chosen = (is_short.nonzero().flatten(), columns), ((~is_short).nonzero().flatten(), slice(None))

    def part(x: Any, rows: Tensor, columns: slice) -> Any:
        if not isinstance(x, Tensor):
            return x
        return x[:, columns] if len(x) != len(inputs) else x[rows][:, columns]

    given = given | {"return_dict": True}
    short, long = (
        forward(model, **{name: part(x, *some) for name, x in (given | more).items()})
        for some, more in zip(chosen, ({}, positions), strict=True)
    )
    order = torch.cat([rows for rows, _ in chosen]).argsort()
    joined = {name: join_rows(short.get(name), x, order, columns.start) for name, x in long.items()}
    output = type(long)(**joined)
    return output.to_tuple() if returns_tuple else output


def join_rows(short: Any, long: Any, order: Tensor, first: int) -> Any:
    """
    Join the outputs of short and long rows in the order of the batch. Those of short rows begin at token `first`.
    """
    if isinstance(long, tuple | list):
        return type(long)(join_rows(*pair, order, first) for pair in zip(short, long, strict=True))
    if not isinstance(long, Tensor):
        return long
    for dim in range(1, long.dim()):
        if short.shape[dim] != long.shape[dim]:
            whole = short.new_zeros(*short.shape[:dim], long.shape[dim], *short.shape[dim + 1 :])
            whole.narrow(dim, first, short.shape[dim]).copy_(short)
            short = whole
    return torch.cat((short, long))[order]


def make_positions_cyclic(model: PreTrainedModel) -> None:
    """Repeat the table of positions of a base model for longer texts, if `lion_positions` is "cyclic"."""
    base = model.base_model
    if model.config.lion_position_table is None or model.config.lion_positions is None:
        return
    name, first = model.config.lion_position_table
    table = base.get_submodule(name)
    table.first_position = first
    table.register_forward_pre_hook(wrap_positions)
    grow_buffers(base.get_submodule(name.rpartition(".")[0]), table.num_embeddings, BUFFERED_POSITIONS)


def longest_text(model: nn.Module) -> int | None:
    """
    The most tokens for which a LION, a linearized encoder or any other has positions; `None` without a limit. Tables
    with a `padding_idx`, as RoBERTa's, count positions from behind it, so that they have fewer than
    `max_position_embeddings`.
    """
    if not isinstance(model, PreTrainedModel):  # but a wrapper of one, as for adapters
        model = next(x for x in model.modules() if isinstance(x, PreTrainedModel))
    base, config = model.base_model, model.base_model.config
    if isinstance(config, LionConfig):
        return config.longest_text
    if isinstance(config, LinearizedConfig):
        if not config.has_longest_text:
            return None
        name, first = config.lion_position_table
        return base.get_submodule(name).num_embeddings - first
    limit = getattr(config, "max_position_embeddings", None)
    if limit is None or limit < 1:
        return None
    embeddings = {name: x for name, x in base.named_modules() if isinstance(x, nn.Embedding)}
    tables = [table for name, table in embeddings.items() if "position" in name.rpartition(".")[2]]
    if not tables and (getattr(config, "rope_parameters", None) or getattr(config, "relative_attention", False)):
        return None
    return min([limit, *(x.num_embeddings - (0 if x.padding_idx is None else x.padding_idx + 1) for x in tables)])


def check_length(model: PreTrainedModel, length: int, given: dict) -> None:
    """
    Raise a ValueError if a text is longer than a table of positions, unless positions or borders are given, with which
    sequences may be shorter; for a cyclic table, grow default positions.
    """
    size = longest_text(model)
    if size is None and not torch.compiler.is_compiling():
        name, first = model.config.lion_position_table
        owner = model.get_submodule(name.rpartition(".")[0])
        longest = max((x.shape[-1] for x in owner.buffers(recurse=False) if x.dim() == 2), default=0)
        if BUFFERED_POSITIONS <= longest < length + first:
            grow_buffers(owner, longest, 2 * (length + first))
    is_packed = any(given.get(name) is not None for name in ("position_ids", "cu_seq_lens_q", "seq_idx"))
    if size is not None and length > size and not is_packed:
        raise ValueError(
            f"The input has {length} tokens, and the table of positions ({model.config.lion_position_table[0]}) has "
            f'{size}: linearize the encoder with `positions="cyclic"`, which reads the table again, or cut the text '
            "(`truncation=True`)."
        )


def wrap_positions(table: nn.Embedding, args: tuple) -> tuple[Tensor]:
    """A forward pre-hook of a table of positions, which maps positions behind its end to its start."""
    first = table.first_position
    return (cyclic_positions(args[0], table.num_embeddings - first, first),)


def grow_buffers(owner: nn.Module, size: int, wanted: int) -> None:
    """Grow the unsaved buffers `(1, size)` of a module, default positions and token types, to `(1, wanted)`."""
    saved = owner.state_dict(keep_vars=True)
    for name, buffer in list(owner.named_buffers(recurse=False)):
        if name not in saved and buffer.dim() == 2 and buffer.shape[-1] == size:
            grown = torch.zeros(1, wanted, dtype=buffer.dtype, device=buffer.device)
            if name == "position_ids":
                grown = torch.arange(wanted, dtype=buffer.dtype, device=buffer.device).unsqueeze(0)
            owner.register_buffer(name, grown, persistent=False)
