# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The attention functions of encoders that became linear (linearize.py): `attn_implementation` `"lion"`, which chooses
the form, and `"lion_parallel"`, `"lion_chunk"`, `"lion_rnn"`.

Each row is computed by its own number of real tokens. A row of at most `lion_exact_length` gets what "sdpa" gives, to
the bit; a longer one is linear in the modules that have a branch for it (branch.py). Values that cannot be read,
as in compiled and exported graphs, leave the choice to the length of the batch, padding included.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionMaskInterface, PreTrainedConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import AttentionInterface

from ..attention.export_graph import is_exporting_a_choice
from ..attention.tracing import fits_for_all
from ..private_apis import eager_attention_of
from ..tokens import Tokens, may_pad, read_mask
from .branch import KeptAttention, LinearBranch
from .graph_choice import choose_in_graph
from .lion_local import (
    ADDED_TO_WINDOW,
    FUNCTIONS_OF_TRANSFORMERS,
    added_to_scores,
    by_query_head,
    dense_mask,
    windowed,
)
from .model_inputs import note_borders


# Forms of attention by the name of `attn_implementation`.
LINEARIZED_FORMS = {"lion": "auto", "lion_parallel": "parallel", "lion_chunk": "chunk", "lion_rnn": "rnn"}


def linearized_attention(
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
        attention_mask: of `linearized_mask`, or as `read_mask` takes it.
        scaling: of the scores.
        dropout: probability of dropping a weight, in rows that are linear a mixed value.
        cu_seq_lens_q: borders of packed sequences, each of which is on its own, as in `Tokens`.
        output_attentions: whether to return the weights, in quadratic time.
        form: a value of `LINEARIZED_FORMS`.
        kwargs: of transformers' own function.

    Returns:
        `(batch, length, heads, head_dim)` in the dtype of `value`; the weights `(batch, heads, length, length)` or
        `None`.

    Raises:
        ValueError: if a longer row has a mask that is neither padding nor packing, or packed rows are to have weights.
    """
    branch = module.lion
    if output_attentions is None:
        output_attentions = bool(module.config.output_attentions)
    options = kwargs | {"scaling": scaling, "dropout": dropout}
    attend = partial(attend_rows, module, branch, form=form, output_attentions=output_attentions, **options)
    if cu_seq_lens_q is None:
        return attend(query, key, value, attention_mask)
    note_borders()
    tokens = Tokens() if attention_mask is None else read_mask(attention_mask, query.shape[0], has_window(kwargs))
    return attend_packed(attend, query, key, value, replace(tokens, cu_seqlens=cu_seq_lens_q))


def attend_rows(
    module: nn.Module,
    branch: LinearBranch | KeptAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    form: str,
    output_attentions: bool,
    **options,
) -> tuple[Tensor, Tensor | None]:
    """`linearized_attention` for one sequence in each row, or for the packed ones of a mask of blocks."""
    longest_exact, inputs = branch.config.lion_exact_length, (query, key, value)
    reach = window_reach(module.config, options.get("sliding_window"))
    exact = partial(exact_attention, module, output_attentions=output_attentions, **options)
    is_full = isinstance(branch, KeptAttention) and reach is None  # softmax over all, whatever the mask is
    if is_full or fits_for_all(query.shape[2], longest_exact):
        return exact(*inputs, attention_mask)
    tokens = Tokens()
    if attention_mask is not None:
        tokens = read_mask(attention_mask, query.shape[0], has_window(options))  # `len` would fix it in a graph
    if tokens.cu_seqlens is not None:
        attend = partial(attend_rows, module, branch, form=form, output_attentions=output_attentions, **options)
        return attend_packed(attend, *inputs, tokens)
    if isinstance(branch, KeptAttention):
        linear = partial(kept_attention, module, reach=reach, output_attentions=output_attentions, **options)
    else:
        linear = partial(linear_attention, branch, form=form, output_attentions=output_attentions, **options)
    is_exact = [length <= longest_exact for length in tokens.row_lengths or ()]
    if not any(is_exact):
        return linear(*inputs, tokens)
    if all(is_exact):
        return exact(*inputs, attention_mask)
    short, long = (torch.tensor([n for n, x in enumerate(is_exact) if x == wanted]) for wanted in (True, False))
    short, long = short.to(query.device), long.to(query.device)
    mask = attention_mask.expand(len(query), *attention_mask.shape[1:])
    found = exact(*(x[short] for x in inputs), mask[short]), linear(*(x[long] for x in inputs), tokens.rows(long))
    order = torch.cat((short, long)).argsort()
    output, weights = zip(*found, strict=True)
    return torch.cat(output)[order], torch.cat(weights)[order] if output_attentions else None


def has_window(options: dict) -> bool:
    """Whether a module asks for a window, by the options that it gives to attention."""
    return options.get("sliding_window") is not None


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
    mask, output = attention_mask, None
    if mask is None or mask.dim() == 2:
        reach = window_reach(module.config, options.get("sliding_window"))
        mask = dense_mask(query, mask, reach)
    if module.lion.has_sdpa:
        output, _ = FUNCTIONS_OF_TRANSFORMERS["sdpa"](module, query, key, value, mask, **options)
        if not output_attentions:
            return output, None
    mask = added_to_scores(mask, query.dtype)
    eager_output, weights = eager_attention_of(module)(module, query, key, value, mask, **options)
    return eager_output if output is None else output, weights if output_attentions else None


def linear_attention(
    branch: LinearBranch,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tokens: Tokens,
    *,
    form: str,
    output_attentions: bool,
    scaling: float | None,
    dropout: float,
    **others,
) -> tuple[Tensor, Tensor | None]:
    """The linear attention of a branch, for longer rows."""
    query, key, value = by_query_head(query, key, value)
    if is_exporting_a_choice():
        reach = window_reach(branch.config, others.get("sliding_window"))
        return choose_in_graph(branch, query, key, value, tokens.is_real, scaling, form, reach), None
    output, weights = branch(query, key, value, tokens, scaling, form, output_attentions)
    return F.dropout(output, dropout, training=dropout > 0), weights


def kept_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tokens: Tokens,
    *,
    reach: int,
    output_attentions: bool,
    **options,
) -> tuple[Tensor, Tensor | None]:
    """Softmax in the window of a module, for longer rows: in linear time, but for what only transformers computes."""
    if output_attentions or options["dropout"] > 0 or options.get("softcap") is not None:
        return exact_attention(module, query, key, value, tokens.is_real, output_attentions, **options)
    # Padding counts in a window of transformers.
    tokens = replace(tokens, order=None)
    return windowed(query, key, value, tokens, reach, options["scaling"], options.get("s_aux")), None


def window_reach(config: PreTrainedConfig, sliding_window: int | None) -> int | None:
    """
    How many tokens a module sees on each side, from what it passes as `sliding_window`; `None` without a window, and
    for models of which this is not known: their masks have the window in them.
    """
    added = ADDED_TO_WINDOW.get(config.model_type.removeprefix("lion-"))
    return None if sliding_window is None or added is None else sliding_window - added


def attend_packed(attend: Callable, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens) -> tuple[Tensor, None]:
    """`attend` of each packed sequence, as a row of its own; 0 at padded tokens."""
    if attend.keywords["output_attentions"]:
        raise ValueError("Packed rows have no attention weights: run the sequences one by one.")
    inputs = [x.transpose(1, 2).flatten(0, 1) for x in (query, key, value)]
    output = value.new_zeros(*query.shape[:1], query.shape[2], query.shape[1], value.shape[-1]).flatten(0, 1)
    for token, is_real in tokens.sequences_as_rows(query.transpose(1, 2)):
        rows = (x[token].transpose(1, 2) for x in inputs)
        found, _ = attend(*rows, is_real if may_pad(is_real) else None)
        output = output.index_put((token[is_real],), found[is_real])
    return output.unflatten(0, (len(query), -1)), None


def linearized_mask(
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
        The mask of "sdpa", `(batch, 1, queries, keys)` or `None`, where all rows are exact, or the mask is more than
        padding and a known window; else which keys are real, `(batch, keys)`, `None` where all are known to be.
    """
    # Modules of a part have the configuration of the part, which lacks the field.
    is_exact = fits_for_all(kv_length, getattr(config, "lion_exact_length", 0))
    has_dense_window = local_size is not None and window_reach(config, local_size) is None
    if not (is_exact or has_dense_window or use_vmap):
        return attention_mask if attention_mask is not None and may_pad(attention_mask) else None
    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "local_size": local_size}
    options = {"config": config, "use_vmap": use_vmap}
    return ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](attention_mask=attention_mask, **sizes, **options, **kwargs)


def attention_of_part(module: nn.Module, *inputs, form: str, **kwargs) -> tuple[Tensor, Tensor | None]:
    """
    `linearized_attention` of the code that made the module's part: several models of one process may come with code of
    their own, beside their weights, and names of attention functions are for all of them.

    Raises:
        ValueError: if the module is of no model from `linearize`.
    """
    function = getattr(getattr(module, "lion", None), "attention_function", None)
    if function is None:
        raise ValueError(
            f"{type(module).__name__} has no part of LION, and would stay softmax in silence: load what was saved "
            "with AutoModel or the class that its config.json names, call `modeling_lion.linearize(model)`, or use "
            '`attn_implementation="sdpa"`.'
        )
    return function(module, *inputs, form=form, **kwargs)


for _part in (LinearBranch, KeptAttention):
    _part.attention_function = staticmethod(linearized_attention)
# For all models of this process.
for _name, _linearized_form in LINEARIZED_FORMS.items():
    AttentionInterface.register(_name, partial(attention_of_part, form=_linearized_form))
    AttentionMaskInterface.register(_name, linearized_mask)
