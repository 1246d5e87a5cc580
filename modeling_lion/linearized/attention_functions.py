# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The attention functions of linearized models: `attn_implementation` `"lion"`, which chooses the form, and
`"lion_parallel"`, `"lion_chunk"`, `"lion_rnn"`.

The number of real tokens of a row decides how it is computed. A row of at most `lion_exact_length` tokens gets the
result of "sdpa", to the bit. A longer row gets linear attention in the modules that have a branch (branch.py). In
compiled and exported graphs, which cannot read the mask, the length of the batch decides, padding included.
"""

from dataclasses import dataclass, replace
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
from .config import LINEARIZED_FORMS
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
    if output_attentions is None:
        output_attentions = bool(module.config.output_attentions)
    call = ModuleCall(module, form, output_attentions, kwargs | {"scaling": scaling, "dropout": dropout})
    if cu_seq_lens_q is None:
        return call.rows(query, key, value, attention_mask)
    ARRIVED.has_borders = True
    tokens = call.read(attention_mask, query)
    return call.packed(query, key, value, replace(tokens, cu_seqlens=cu_seq_lens_q))


@dataclass
class ModuleCall:
    """A call of an attention module; `options` are those of transformers' own function."""

    module: nn.Module
    form: str
    output_attentions: bool
    options: dict

    @property
    def reach(self) -> int | None:
        return window_reach(self.module.config, self.options.get("sliding_window"))

    def read(self, mask: Tensor | None, query: Tensor) -> Tokens:
        has_window = self.options.get("sliding_window") is not None
        return Tokens() if mask is None else read_mask(mask, query.shape[0], has_window)  # `len` would specialize

    def rows(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`linearized_attention` for one sequence in each row, or for sequences that the mask separates."""
        branch, inputs = self.module.lion, (query, key, value)
        longest_exact, is_kept = branch.config.lion_exact_length, branch.is_kept
        is_full = is_kept and self.reach is None  # softmax over all tokens, for any mask
        if is_full or fits_for_all(query.shape[2], longest_exact):
            return self.exact(*inputs, mask)
        tokens = self.read(mask, query)
        if tokens.cu_seqlens is not None:
            return self.packed(*inputs, tokens)
        linear = self.kept if is_kept else self.linear
        is_exact = [length <= longest_exact for length in tokens.row_lengths or ()]
        if not any(is_exact):
            return linear(*inputs, tokens)
        if all(is_exact):
            return self.exact(*inputs, mask)
        short, long = (torch.tensor([n for n, x in enumerate(is_exact) if x == wanted]) for wanted in (True, False))
        short, long = short.to(query.device), long.to(query.device)
        mask = mask.expand(len(query), *mask.shape[1:])
        found_short = self.exact(*(x[short] for x in inputs), mask[short])
        found_long = linear(*(x[long] for x in inputs), tokens.rows(long))
        order = torch.cat((short, long)).argsort()
        output, weights = zip(found_short, found_long, strict=True)
        return torch.cat(output)[order], torch.cat(weights)[order] if self.output_attentions else None

    def exact(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return exact_attention(self.module, query, key, value, mask, self.output_attentions, **self.options)

    def linear(self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor | None]:
        """The linear attention of a branch, for rows longer than `lion_exact_length`."""
        branch, scaling, dropout = self.module.lion, self.options["scaling"], self.options["dropout"]
        query, key, value = by_query_head(query, key, value)
        if is_exporting_a_choice():
            return choose_in_graph(self, query, key, value, tokens.is_real), None
        output, weights = branch(query, key, value, tokens, scaling, self.form, self.output_attentions)
        return F.dropout(output, dropout, training=dropout > 0), weights

    def kept(self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens) -> tuple[Tensor, Tensor | None]:
        """Softmax in the window of a module, for longer rows; in linear time, except for what needs transformers."""
        options = self.options
        if self.output_attentions or options["dropout"] > 0 or options.get("softcap") is not None:
            return self.exact(query, key, value, tokens.is_real)
        tokens = replace(tokens, order=None)  # windows of transformers count padded tokens
        return windowed(query, key, value, tokens, self.reach, options["scaling"], options.get("s_aux")), None

    def packed(self, query: Tensor, key: Tensor, value: Tensor, tokens: Tokens) -> tuple[Tensor, None]:
        """Each packed sequence as a row of its own; padded tokens get 0."""
        if self.output_attentions:
            raise ValueError("Packed rows have no attention weights: run the sequences one by one.")
        inputs = [x.transpose(1, 2).flatten(0, 1) for x in (query, key, value)]
        output = value.new_zeros(*query.shape[:1], query.shape[2], query.shape[1], value.shape[-1]).flatten(0, 1)
        for token, is_real in tokens.sequences_as_rows(query.transpose(1, 2)):
            rows = [x[token].transpose(1, 2) for x in inputs]
            mask = is_real if may_pad(is_real) else None
            if tokens.window is not None and self.reach is None:  # a window that only the mask has
                mask = Tokens(mask).seen(token, tokens.window)
            found, _ = self.rows(*rows, mask)
            output = output.index_put((token[is_real],), found[is_real])
        return output.unflatten(0, (len(query), -1)), None


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


def window_reach(config: PreTrainedConfig, sliding_window: int | None) -> int | None:
    """
    The number of tokens that a module sees on each side, from the `sliding_window` that it passes. `None` without a
    window, and for models that are not in `ADDED_TO_WINDOW`: their masks include the window.
    """
    added = ADDED_TO_WINDOW.get(config.model_type.removeprefix("lion-"))
    return None if sliding_window is None or added is None else sliding_window - added


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
