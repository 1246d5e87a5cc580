# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The attention functions of linearized models: `attn_implementation` `"lion"`, which chooses the form, and
`"lion_parallel"`, `"lion_chunk"`, `"lion_rnn"`.

The number of real tokens of a row decides how it is computed. A row of at most `lion_exact_length` tokens gets the
result of "sdpa", to the bit. A longer row gets linear attention in the modules that have a branch (branch.py). In
compiled and exported graphs, which cannot read the mask, the length of the batch decides, padding included.
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
from .model_inputs import ARRIVED


# The form of attention for each value of `attn_implementation`.
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
    The attention function of linearized models, with the arguments of transformers' attention functions.

    Args:
        module: an attention module of a model from `linearize`.
        query, key, value, scaling, output_attentions: as in `lion_local_attention`, as is the result.
        attention_mask: from `linearized_mask`, or any mask that `read_mask` supports.
        dropout: probability of dropping an attention weight, or in linear rows an element of the output.
        cu_seq_lens_q: borders of packed sequences, which do not see each other, as in `Tokens`.
        form: a value of `LINEARIZED_FORMS`.
        kwargs: arguments of transformers' own function.

    Raises:
        ValueError: if a longer row has a mask that is neither padding nor packing, or for weights of packed rows.
    """
    branch = module.lion
    if output_attentions is None:
        output_attentions = bool(module.config.output_attentions)
    options = kwargs | {"scaling": scaling, "dropout": dropout}
    attend = partial(attend_rows, module, branch, form=form, output_attentions=output_attentions, **options)
    if cu_seq_lens_q is None:
        return attend(query, key, value, attention_mask)
    ARRIVED.has_borders = True
    has_window = kwargs.get("sliding_window") is not None
    tokens = Tokens() if attention_mask is None else read_mask(attention_mask, query.shape[0], has_window)
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
    """`linearized_attention` for one sequence in each row, or for sequences that the mask separates."""
    longest_exact, inputs = branch.config.lion_exact_length, (query, key, value)
    reach = window_reach(module.config, options.get("sliding_window"))
    exact = partial(exact_attention, module, output_attentions=output_attentions, **options)
    is_full = isinstance(branch, KeptAttention) and reach is None  # softmax over all tokens, for any mask
    if is_full or fits_for_all(query.shape[2], longest_exact):
        return exact(*inputs, attention_mask)
    tokens = Tokens()
    if attention_mask is not None:
        has_window = options.get("sliding_window") is not None
        tokens = read_mask(attention_mask, query.shape[0], has_window)  # `len` would specialize a graph
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


def exact_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    output_attentions: bool = False,
    **options,
) -> tuple[Tensor, Tensor | None]:
    """The encoder's own attention, by "sdpa" if supported, otherwise by "eager"; "eager" computes the weights."""
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
    """The linear attention of a branch, for rows longer than `lion_exact_length`."""
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
    """Softmax in the window of a module, for longer rows; in linear time, except for what needs transformers."""
    if output_attentions or options["dropout"] > 0 or options.get("softcap") is not None:
        return exact_attention(module, query, key, value, tokens.is_real, output_attentions, **options)
    # Windows of transformers count padded tokens.
    tokens = replace(tokens, order=None)
    return windowed(query, key, value, tokens, reach, options["scaling"], options.get("s_aux")), None


def window_reach(config: PreTrainedConfig, sliding_window: int | None) -> int | None:
    """
    The number of tokens that a module sees on each side, from the `sliding_window` that it passes. `None` without a
    window, and for models that are not in `ADDED_TO_WINDOW`: their masks include the window.
    """
    added = ADDED_TO_WINDOW.get(config.model_type.removeprefix("lion-"))
    return None if sliding_window is None or added is None else sliding_window - added


def attend_packed(attend: Callable, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens) -> tuple[Tensor, None]:
    """Call `attend` on each packed sequence as a row of its own; padded tokens get 0."""
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
    The mask function of linearized models, with the arguments of transformers' mask functions; those named here as in
    `lion_local_mask`.

    Returns:
        The mask of "sdpa", `(batch, 1, queries, keys)` or `None`, if all rows are exact or the mask is more than
        padding and a known window. Otherwise as `lion_local_mask` for layers with a window.
    """
    # Modules of a part of a model have the configuration of the part, which lacks the field.
    is_exact = fits_for_all(kv_length, getattr(config, "lion_exact_length", 0))
    has_dense_window = local_size is not None and window_reach(config, local_size) is None
    if not (is_exact or has_dense_window or use_vmap):
        return attention_mask if attention_mask is not None and may_pad(attention_mask) else None
    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "local_size": local_size}
    options = {"config": config, "use_vmap": use_vmap}
    return ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](attention_mask=attention_mask, **sizes, **options, **kwargs)


def attention_of_part(module: nn.Module, *inputs, form: str, **kwargs) -> tuple[Tensor, Tensor | None]:
    """
    Call the `linearized_attention` of the code that made the part `lion` of the module, since names of attention
    functions belong to the process, and several models may have their own code beside their weights. Raises a
    ValueError if the module does not belong to a model from `linearize`.
    """
    function = getattr(getattr(module, "lion", None), "attention_function", None)
    if function is None:
        raise ValueError(
            f"{type(module).__name__} has no part `lion`, and would silently stay softmax: load what was saved with "
            "AutoModel or the class that its config.json names, call `modeling_lion.linearize(model)`, or use "
            '`attn_implementation="sdpa"`.'
        )
    return function(module, *inputs, form=form, **kwargs)


for _part in (LinearBranch, KeptAttention):
    _part.attention_function = staticmethod(linearized_attention)
# These names apply to all models of the process.
for _name, _linearized_form in LINEARIZED_FORMS.items():
    AttentionInterface.register(_name, partial(attention_of_part, form=_linearized_form))
    AttentionMaskInterface.register(_name, linearized_mask)
