# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The attention functions of encoders that became linear (linearize.py): `attn_implementation` `"lion"`, which chooses
the form, and `"lion_parallel"`, `"lion_chunk"`, `"lion_rnn"`.

Each row is computed by its own number of real tokens. A row of at most `lion_exact_length` gets what "sdpa" gives, to
the bit; a longer one is linear in the modules that have a head for it (branch.py). Values that cannot be read,
as in compiled and exported graphs, leave the choice to the length of the batch, padding included.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionMaskInterface, PreTrainedConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import AttentionInterface

from ..attention.export_graph import is_exporting_a_choice
from ..attention.tracing import fits_for_all, is_readable
from ..private_apis import eager_attention_of
from .branch import InPlaceHead, KeptAttention
from .graph_choice import choose_in_graph
from .lion_local import (
    ADDED_TO_WINDOW,
    FUNCTIONS_OF_TRANSFORMERS,
    added_to_scores,
    by_query_head,
    dense_mask,
    may_pad,
    windowed,
)


# Forms of attention by the name of `attn_implementation`.
FORMS_IN_PLACE = {"lion": "auto", "lion_parallel": "parallel", "lion_chunk": "chunk", "lion_rnn": "rnn"}


class Rows(NamedTuple):
    """
    Which rows of a batch are computed as softmax.

    Attributes:
        exact: `(rows,)`, int64; `None` if no row is.
        linear: `(rows,)`, int64; `None` for all.
        is_real: False for padding, `(batch, length)`, bool; `None` without padding.
    """

    exact: Tensor | None
    linear: Tensor | None
    is_real: Tensor | None


def in_place_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    cu_seq_lens_q: Tensor | None = None,
    output_attentions: bool | None = None,
    *,
    form: str = "auto",
    **kwargs,
) -> tuple[Tensor, Tensor | None]:
    """
    An attention function of transformers, with its arguments.

    Args:
        module: an attention module of a model from `linearize`.
        query: `(batch, heads, length, head_dim)`, any float dtype; key, value: `(batch, key_value_heads, length,
            head_dim)`.
        attention_mask: of `in_place_mask`, or `(batch or 1, 1, length or 1, length)`, bool or added to the scores.
        scaling: of the scores.
        dropout: probability of dropping a weight, in rows that are linear a mixed value.
        cu_seq_lens_q: borders of packed sequences, `(num_sequences + 1,)`, each of which is on its own: of all tokens
            of the batch one after the other, or of every row.
        output_attentions: whether to return the weights, in quadratic time.
        form: a value of `FORMS_IN_PLACE`.
        kwargs: of transformers' own function.

    Returns:
        `(batch, length, heads, head_dim)` in the dtype of `value`; the weights `(batch, heads, length, length)` or
        `None`.

    Raises:
        ValueError: if a longer row has a mask that is neither padding nor packing.
    """
    head = module.lion
    if output_attentions is None:
        output_attentions = bool(module.config.output_attentions)
    options = kwargs | {"scaling": scaling, "dropout": dropout}
    attend = partial(attend_rows, module, head, form=form, output_attentions=output_attentions, **options)
    if cu_seq_lens_q is None:
        return attend(query, key, value, attention_mask)
    if output_attentions:
        raise ValueError("Packed rows have no attention weights: run the sequences one by one.")
    cu_seq_lens_q.was_seen = True  # model_inputs.py looks whether the borders arrive
    reach = window_reach(module.config, kwargs.get("sliding_window"))
    return attend_packed(attend, query, key, value, cu_seq_lens_q, reach), None


def attend_rows(
    module: nn.Module,
    head: InPlaceHead | KeptAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    form: str,
    output_attentions: bool,
    **options,
) -> tuple[Tensor, Tensor | None]:
    """`in_place_attention` for one sequence in each row."""
    longest_exact = head.config.lion_exact_length
    if fits_for_all(query.shape[2], longest_exact):
        return exact_attention(module, query, key, value, attention_mask, output_attentions, **options)
    reach = window_reach(module.config, options.get("sliding_window"))
    if not output_attentions and (borders := borders_of_blocks(attention_mask)) is not None:
        attend = partial(attend_rows, module, head, form=form, output_attentions=False, **options)
        return attend_packed(attend, query, key, value, borders, reach), None
    rows = rows_of(attention_mask, query, longest_exact)
    exact = partial(exact_attention, module, output_attentions=output_attentions, **options)
    if not isinstance(head, KeptAttention):
        linear = partial(linear_attention, head, form=form, output_attentions=output_attentions, **options)
    else:
        linear = partial(kept_attention, module, output_attentions=output_attentions, **options)
    if rows.linear is not None and len(rows.linear) == 0:
        return exact(query, key, value, attention_mask)
    keeps_mask = isinstance(head, KeptAttention) and reach is None  # the others read padding from it
    if attention_mask is not None and attention_mask.dim() == 4 and not keeps_mask:
        check_is_padding(attention_mask, rows.is_real)
    if rows.exact is None or len(rows.exact) == 0:
        return linear(query, key, value, attention_mask, rows.is_real)
    attention_mask = attention_mask.expand(len(query), *attention_mask.shape[1:])
    some = rows.exact
    short, short_weights = exact(query[some], key[some], value[some], sdpa_mask(attention_mask)[some])
    some = rows.linear
    long, long_weights = linear(query[some], key[some], value[some], attention_mask[some], rows.is_real[some])
    output = torch.cat((short, long))[order := torch.cat((rows.exact, rows.linear)).argsort()]
    return output, torch.cat((short_weights, long_weights))[order] if output_attentions else None


def rows_of(attention_mask: Tensor | None, query: Tensor, longest_exact: int) -> Rows:
    """Which rows of a batch with more than `longest_exact` tokens, padding included, are exact."""
    if attention_mask is None:
        return Rows(None, None, None)
    is_real = attention_mask
    if attention_mask.dim() == 4:
        is_real = padding_of(attention_mask, len(query))
    if not is_readable(attention_mask):
        return Rows(None, None, is_real)
    is_exact = is_real.sum(-1) <= longest_exact
    return Rows(is_exact.nonzero().flatten(), (~is_exact).nonzero().flatten(), is_real)


def padding_of(attention_mask: Tensor, batch: int) -> Tensor:
    """
    Which tokens are real, `(batch, length)`, from a mask `(batch or 1, 1, queries, keys)`: those that see themselves.
    """
    seen = attention_mask if attention_mask.dtype == torch.bool else attention_mask >= 0
    seen = seen[:, 0]
    seen = seen.diagonal(dim1=-2, dim2=-1) if seen.shape[1] > 1 else seen[:, 0]
    return seen.expand(batch, -1)


def borders_of_blocks(attention_mask: Tensor | None) -> Tensor | None:
    """
    Borders of packed sequences, `(num_sequences + 1,)`, from a mask `(1, 1, length, length)` of the model's own, as of
    several images in one row; `None` if it is another one.
    """
    is_square = attention_mask is not None and attention_mask.dim() == 4 and attention_mask.shape[2] > 1
    if not is_square or len(attention_mask) > 1 or getattr(attention_mask, "is_of_lion", False):
        return None
    if not is_readable(attention_mask):
        return None
    seen = (attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0)[0, 0]
    sequence = F.pad(~seen.diagonal(-1), (1, 0)).cumsum(0)
    is_hidden = ~seen if attention_mask.dtype == torch.bool else attention_mask[0, 0] <= -1e4
    wanted = sequence.unsqueeze(0) == sequence.unsqueeze(1)
    if not (torch.equal(seen, wanted) and torch.equal(is_hidden, ~wanted)) or sequence[-1] == 0:
        return None
    return F.pad(sequence.bincount().cumsum(0), (1, 0)).to(torch.int32)


def check_is_padding(attention_mask: Tensor, is_real: Tensor) -> None:
    """Raise a ValueError if a mask `(batch or 1, 1, queries, keys)` is more than padding, or cannot be read."""
    if getattr(attention_mask, "is_of_lion", False):
        return
    if attention_mask.dtype == torch.bool:
        wanted = is_real[:, None, None, :].expand(-1, 1, attention_mask.shape[2], -1)
        is_padding = is_readable(attention_mask) and torch.equal(attention_mask.expand_as(wanted), wanted)
    else:  # added to the scores
        hidden = attention_mask <= -1e4
        is_padding = is_readable(attention_mask) and bool(((attention_mask == 0) | hidden).all())
        is_padding = is_padding and bool((~hidden == is_real[:, None, None, :]).all())
    if not is_padding:
        raise ValueError(
            f"`attention_mask` {tuple(attention_mask.shape)} is neither padding nor packing, and the text is longer "
            "than `lion_exact_length`: linear attention cannot hide pairs of tokens. Give a mask (batch, length), or "
            '`cu_seq_lens_q` for packed sequences, or use `attn_implementation="sdpa"`.'
        )


def sdpa_mask(attention_mask: Tensor | None) -> Tensor | None:
    """A mask as "sdpa" takes it, from one `(batch, length)` or of its shape already."""
    if attention_mask is None or attention_mask.dim() == 4:
        return attention_mask
    length = attention_mask.shape[1]
    return attention_mask[:, None, None, :].expand(-1, 1, length, -1)


def exact_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    output_attentions: bool = False,
    **options,
) -> tuple[Tensor, Tensor | None]:
    """What the encoder computes, by "sdpa" or else "eager", and, if wanted, the weights by "eager"."""
    mask, output = sdpa_mask(attention_mask), None
    if module.lion.has_sdpa:
        output, _ = FUNCTIONS_OF_TRANSFORMERS["sdpa"](module, query, key, value, mask, **options)
        if not output_attentions:
            return output, None
    mask = added_to_scores(mask, query.dtype)
    eager_output, weights = eager_attention_of(module)(module, query, key, value, mask, **options)
    return eager_output if output is None else output, weights if output_attentions else None


def linear_attention(
    head: InPlaceHead,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    is_real: Tensor | None,
    *,
    form: str,
    output_attentions: bool,
    scaling: float | None,
    dropout: float,
    **others,
) -> tuple[Tensor, Tensor | None]:
    """The linear attention of a head, for longer rows, of which padding is all that the mask hides."""
    query, key, value = by_query_head(query, key, value)
    if is_exporting_a_choice():
        reach = window_reach(head.config, others.get("sliding_window"))
        return choose_in_graph(head, query, key, value, is_real, scaling, form, reach), None
    output, weights = head(query, key, value, is_real, scaling, form, output_attentions)
    return F.dropout(output, dropout, training=dropout > 0), weights


def kept_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    is_real: Tensor | None,
    *,
    output_attentions: bool,
    **options,
) -> tuple[Tensor, Tensor | None]:
    """Softmax for longer rows: in its window, if the module has one, in linear time."""
    reach = window_reach(module.config, options.get("sliding_window"))
    if reach is None:
        return exact_attention(module, query, key, value, attention_mask, output_attentions, **options)
    if output_attentions or options["dropout"] > 0 or options.get("softcap") is not None:
        mask = dense_mask(query, is_real, reach, None)
        return exact_attention(module, query, key, value, mask, output_attentions, **options)
    return windowed(query, key, value, is_real, reach, options["scaling"], options.get("s_aux"), None), None


def window_reach(config: PreTrainedConfig, sliding_window: int | None) -> int | None:
    """
    How many tokens a module sees on each side, from what it passes as `sliding_window`; `None` without a window, and
    for models of which this is not known: their masks have the window in them.
    """
    added = ADDED_TO_WINDOW.get(config.model_type.removeprefix("lion-"))
    return None if sliding_window is None or added is None else sliding_window - added


def attend_packed(
    attend: Callable, query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, reach: int | None
) -> Tensor:
    """`attend` of each packed sequence, as a row of its own; `reach` is that of the module's window, if it has one."""
    batch, _, length, _ = query.shape
    if batch > 1 and int(cu_seqlens[-1]) == length:  # borders of every row: of all tokens, one row after the other
        starts = torch.arange(batch, device=cu_seqlens.device).unsqueeze(1) * length
        cu_seqlens = torch.cat(((starts + cu_seqlens[:-1]).flatten(), starts[-1] + length))
    starts, lengths = cu_seqlens[:-1].to(query.device).long(), cu_seqlens.diff().to(query.device)
    query, key, value = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    output = None
    # Sequences of similar lengths together: short ones would be padded to the longest of all.
    sizes = lengths.clamp(min=1).log2().ceil().long().where(lengths > 0, -1)
    for size in sizes[sizes >= 0].unique().tolist():
        some = (sizes == size).nonzero().flatten()
        position = torch.arange(int(lengths[some].max()), device=query.device)
        is_real = position < lengths[some].unsqueeze(1)
        token = (starts[some].unsqueeze(1) + position).clamp(max=batch * length - 1)
        rows = [x[token].transpose(1, 2) for x in (query, key, value)]
        mask = None if bool(is_real.all()) else is_real
        if reach is not None:
            mask = dense_mask(rows[0], mask, reach, None)
            if mask is not None:
                mask = mask.expand(len(some), -1, -1, -1)
                mask.is_of_lion = True
        found, _ = attend(*rows, mask)
        output = found.new_zeros(batch * length, *found.shape[2:]) if output is None else output
        output = output.index_put((token[is_real],), found[is_real])
    return output.view(batch, length, *output.shape[1:])


def in_place_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    use_vmap: bool = False,
    config: PreTrainedConfig | None = None,
    **kwargs,
) -> Tensor | None:
    """
    A mask function of transformers, with its arguments.

    Args:
        attention_mask: which keys are real, `(batch, keys)`, bool; `None` for all.
        local_size: tokens seen on each side; `None` in layers of full attention.
        use_vmap: whether the caller added a mask of its own.

    Returns:
        The mask of "sdpa", `(batch, 1, queries, keys)` or `None`, where a row may be exact; else which keys are real,
        `(batch, keys)`, `None` where all are known to be.
    """
    # Modules of a part have the configuration of the part, which may lack the field: then any row may be exact.
    longest_exact = getattr(config, "lion_exact_length", kv_length)
    is_padded = may_pad(attention_mask)
    may_be_exact = fits_for_all(kv_length, longest_exact)
    if is_padded and is_readable(attention_mask):
        may_be_exact = bool((attention_mask.sum(-1) <= longest_exact).any())
    has_dense_window = local_size is not None and window_reach(config, local_size) is None
    if not (may_be_exact or has_dense_window or use_vmap):
        return attention_mask if is_padded else None
    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "local_size": local_size}
    options = {"config": config, "use_vmap": use_vmap}
    mask = ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](attention_mask=attention_mask, **sizes, **options, **kwargs)
    if mask is not None and not use_vmap:
        mask.is_of_lion = True
    return mask


def attention_of_part(module: nn.Module, *inputs, form: str, **kwargs) -> tuple[Tensor, Tensor | None]:
    """
    `in_place_attention` of the code that made the module's part: several models of one process may come with code of
    their own, beside their weights, and names of attention functions are for all of them.

    Raises:
        ValueError: if the module is of no model from `linearize`.
    """
    function = getattr(getattr(module, "lion", None), "attention_function", None)
    if function is None:
        raise ValueError(
            f"{type(module).__name__} has no part of LION, and would stay softmax in silence: call "
            '`modeling_lion.linearize(model)`, or use `attn_implementation="sdpa"`. (If it shares its configuration '
            "with a model that became linear, make it from a copy of the configuration.)"
        )
    return function(module, *inputs, form=form, **kwargs)


for _part in (InPlaceHead, KeptAttention):
    _part.attention_function = staticmethod(in_place_attention)
# For all models of this process.
for _name, _form_in_place in FORMS_IN_PLACE.items():
    AttentionInterface.register(_name, partial(attention_of_part, form=_form_in_place))
    AttentionMaskInterface.register(_name, in_place_mask)
