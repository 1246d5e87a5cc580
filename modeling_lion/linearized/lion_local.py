# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
`attn_implementation="lion_local"` for transformers' own encoders with sliding windows, such as ModernBERT. It gives
the results of "sdpa". On a CPU, its time and memory are linear in the length, where "sdpa" scores all pairs and masks
most.

Two functions are registered under this name. The mask function returns the padding mask, `(batch, length)`, for layers
with a window, and the mask of "sdpa" for others. The attention function computes windows by
attention/softmax_window.py. transformers computes dense attention for dropout of weights, soft caps, returned weights
and masks of other shapes.
"""

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from transformers import AttentionMaskInterface, PreTrainedConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import AttentionInterface
from transformers.utils import is_flash_attn_2_available, is_torch_flex_attn_available

from ..attention.softmax_window import attend_in_window, check_window_arguments
from ..attention.tracing import is_known_true
from ..private_apis import eager_attention_of
from ..tokens import Tokens, may_pad
from .config import type_of_source


LION_LOCAL = "lion_local"
# The attention functions of transformers, by name.
FUNCTIONS_OF_TRANSFORMERS = AttentionInterface()
# Encoders with windows in both directions, by `model_type`: the number that their layers pass as `sliding_window`,
# minus the tokens that they see on each side. Most add one, which transformers' flash attention subtracts again.
ADDED_TO_WINDOW = {
    "modernbert": 1,
    "neomme": 1,
    "ultrabert": 1,
    "openai_privacy_filter": 1,
    "embedding_gemma2_text": 1,
    "t5_gemma_module": 0,
}
# Models with attention sinks, which flash attention 2 lacks.
WITH_SINKS = ("openai_privacy_filter",)


def lion_local_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | BlockMask | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    output_attentions: bool = False,
    **kwargs,
) -> tuple[Tensor, Tensor | None]:
    """
    The attention function "lion_local", with the arguments of transformers' attention functions.

    Args:
        module: the attention module of a model, which has a `config`.
        query: `(batch, heads, length, head_dim)`, any float dtype; key, value: `(batch, key_value_heads, length,
            head_dim)`.
        attention_mask: from `lion_local_mask`, or `(batch or 1, 1, length, length)`, bool or added to the scores.
        dropout: probability of dropping a weight; more than 0 takes quadratic time.
        sliding_window: the number that the model passes; `None` in layers of full attention.
        softcap: bound of the scores; takes quadratic time.
        s_aux: attention sinks, `(heads,)`.
        cu_seq_lens_q: borders of packed sequences, `(num_sequences + 1,)`, which do not see each other.
        output_attentions: whether to return the weights, in quadratic time.

    Returns:
        The output, `(batch, length, heads, head_dim)`, in the dtype of `value`, and the weights, `(batch, heads,
        length, length)`, or `None`.

    Raises:
        ValueError: if the model is causal, or is not known to have windows in both directions.
    """
    check_model(module.config, getattr(module, "is_causal", False) if is_causal is None else is_causal)
    reach = None if sliding_window is None else sliding_window - ADDED_TO_WINDOW[type_of_source(module.config)]
    options = {"dropout": dropout, "scaling": scaling, "is_causal": False}
    is_dense = isinstance(attention_mask, Tensor) and attention_mask.dim() == 4
    name = name_on(query.device, query.dtype, module.config)
    if isinstance(attention_mask, BlockMask) or (name == "flash_attention_2" and not is_dense):
        name = "flex_attention" if isinstance(attention_mask, BlockMask) else name
        options |= kwargs | {"softcap": softcap, "s_aux": s_aux, "cu_seq_lens_q": cu_seq_lens_q}
        options["sliding_window"] = None if reach is None else reach + 1
        return FUNCTIONS_OF_TRANSFORMERS[name](module, query, key, value, attention_mask, **options)
    is_eager = output_attentions or softcap is not None
    if name == LION_LOCAL and reach is not None and not (is_dense or is_eager or dropout > 0):
        tokens = Tokens(attention_mask, cu_seq_lens_q)
        return windowed(query, key, value, tokens, reach, scaling, s_aux), None
    mask = dense_mask(query, attention_mask, reach, cu_seq_lens_q)
    if not is_eager and s_aux is None:
        return FUNCTIONS_OF_TRANSFORMERS["sdpa"](module, query, key, value, mask, **options)
    mask = added_to_scores(mask, query.dtype)
    return eager_attention_of(module)(module, query, key, value, mask, softcap=softcap, s_aux=s_aux, **options)


def lion_local_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    use_vmap: bool = False,
    config: PreTrainedConfig | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    **kwargs,
) -> Tensor | BlockMask | None:
    """
    The mask function of "lion_local", with the arguments of transformers' mask functions.

    Args:
        attention_mask: False for padded keys, `(batch, keys)`, bool; `None` if all are real.
        local_size: number of tokens that a query sees on each side; `None` in layers of full attention.
        use_vmap: whether the caller added a mask function of its own.

    Returns:
        On a CPU, for layers with a window: False for padded keys, `(batch, keys)`, bool, or `None` if all are known to
        be real. For other layers, and for masks that are more than a window: `(batch, 1, queries, keys)`, bool, or
        `None` if every query sees every key. On another device: the mask of transformers' attention function there.

    Raises:
        ValueError: if the model is not known to have windows in both directions.
    """
    check_model(config)
    name = name_on(torch.device(device), dtype, config)
    is_dense = use_vmap or q_length != kv_length or getattr(config, "attn_logit_softcapping", None) is not None
    if name == LION_LOCAL and local_size is not None and not is_dense:
        return attention_mask if attention_mask is not None and may_pad(attention_mask) else None
    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "local_size": local_size}
    kwargs |= {"config": config, "dtype": dtype, "device": device, "use_vmap": use_vmap}
    mask_function = ALL_MASK_ATTENTION_FUNCTIONS["sdpa" if name == LION_LOCAL else name]
    return mask_function(attention_mask=attention_mask, **sizes, **kwargs)


def check_model(config: PreTrainedConfig, is_causal: bool = False) -> None:
    """Raise a ValueError, which says what to use, unless the model is an encoder with windows."""
    model_type = type_of_source(config) if hasattr(config, "model_type") else type(config).__name__
    is_causal = is_causal or getattr(config, "is_decoder", False)
    if model_type in ADDED_TO_WINDOW and not is_causal:
        return
    why = "is causal" if is_causal else "is not known to have any"
    raise ValueError(
        f'`attn_implementation="{LION_LOCAL}"` computes sliding windows in both directions, and the model with '
        f'`model_type` "{model_type}" {why}: use "sdpa" or "eager". For a model of several parts, name those with '
        f'windows, as in `attn_implementation={{"text_config": "{LION_LOCAL}"}}`. Models with windows: '
        f"{', '.join(ADDED_TO_WINDOW)}."
    )


def name_on(device: torch.device, dtype: torch.dtype, config: PreTrainedConfig) -> str:
    """The attention function that computes on a device: LION's own on a CPU, one of transformers' elsewhere."""
    if device.type in ("cpu", "meta"):
        return LION_LOCAL
    is_half = dtype in (torch.float16, torch.bfloat16)
    has_flash = is_flash_attn_2_available() and type_of_source(config) not in WITH_SINKS
    if device.type == "cuda" and is_half and has_flash:
        return "flash_attention_2"
    return "flex_attention" if device.type == "cuda" and is_torch_flex_attn_available() else "sdpa"


def windowed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tokens: Tokens,
    reach: int,
    scaling: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """
    Attention to the real keys at most `reach` tokens away, `(batch, length, heads, head_dim)`. If `tokens` has no
    `order`, padded tokens count in the distance, as in "sdpa".
    """
    query, key, value = by_query_head(query, key, value)
    check_window_arguments(query, key, value, reach, tokens, first_query=0)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    output, log_sum = attend_in_window(query, key, value, reach, scaling, tokens, 0, sinks is not None)
    if sinks is None:
        return output
    # A sink is an additional key with value 0, which takes weight from all others.
    kept = (log_sum - sinks.unsqueeze(-1)).sigmoid()
    return output * kept.transpose(1, 2).unsqueeze(-1).to(output.dtype)


def dense_mask(
    query: Tensor, attention_mask: Tensor | None, reach: int | None, cu_seqlens: Tensor | None = None
) -> Tensor | None:
    """
    The mask for "sdpa", `(batch or 1, 1, length, length)`; `None` if every query sees every key. `attention_mask` is
    False for padded keys, `(batch, length)`, bool, or has the shape of the result, and then includes the window of
    `reach`.
    """
    length = query.shape[2]
    is_dense = attention_mask is not None and attention_mask.dim() == 4
    if is_dense or reach is not None and is_known_true(length <= reach + 1):
        reach = None
    if reach is None and cu_seqlens is None:
        is_done = is_dense or attention_mask is None
        return attention_mask if is_done else attention_mask[:, None, None, :].expand(-1, 1, length, -1)
    seen = Tokens(None if is_dense else attention_mask, cu_seqlens).seen(query[:, 0], reach)
    if not is_dense:
        return seen
    if attention_mask.dtype == torch.bool:
        return attention_mask & seen
    return attention_mask.masked_fill(~seen, torch.finfo(attention_mask.dtype).min)


def added_to_scores(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """The mask for "eager", which is added to scores, from a bool mask; other masks are unchanged."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


def by_query_head(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Repeat keys and values for each query head, and cast queries and keys to the dtype of the values."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    # Under autocast, norms and rotations may leave queries and keys in another dtype.
    return query.to(value.dtype), key.to(value.dtype), value


def register_lion_local() -> None:
    AttentionInterface.register(LION_LOCAL, lion_local_attention)
    AttentionMaskInterface.register(LION_LOCAL, lion_local_mask)
    for misspelt in ("lion-local", "lion local"):  # transformers' error would list only its own names
        AttentionInterface.register(misspelt, refuse_misspelt)
        AttentionMaskInterface.register(misspelt, refuse_misspelt)


def refuse_misspelt(*args, **kwargs) -> None:
    raise ValueError(f'The name of this attention is "{LION_LOCAL}": give `attn_implementation="{LION_LOCAL}"`.')
