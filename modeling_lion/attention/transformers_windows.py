# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
`attn_implementation="lion_local"` for encoders of transformers: the same weights and the same results, with sliding
windows in linear time on a CPU, where transformers' own functions compute them as full attention under a mask.

    import modeling_lion
    model = AutoModel.from_pretrained("answerdotai/ModernBERT-base", attn_implementation="lion_local")

transformers asks two functions of one name: one makes the masks of a call, the other computes each layer. Here a layer
with a window gets what is padded, `(batch, length)`, or `None`, and everything else gets the mask of sdpa and goes to
sdpa. The module is no part of the code that is saved beside LION's weights, which needs none of it.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface
from transformers.utils import is_flash_attn_2_available

from .packing import sequence_of_each_token
from .softmax_window import attend_in_window
from .softmax_window_plain import window_mask
from .tracing import is_readable


NAME = "lion_local"
# By model type, how much more than the tokens on each side of a query its layers give as `sliding_window`: most count
# the query itself, as flash attention does. What is not here has not been compared with sdpa.
EXCESS = {
    "embedding_gemma2_text": 1,
    "modernbert": 1,
    "neomme": 1,
    "openai_privacy_filter": 1,
    "t5_gemma_module": 0,
    "ultrabert": 1,
}


def check_model(config: PreTrainedConfig) -> None:
    """Raise a ValueError for a model of which nothing is known here, such as one without windows."""
    if config.model_type not in EXCESS:
        raise ValueError(
            f'attn_implementation="{NAME}" computes sliding windows that read both ways, and is compared with sdpa '
            f"for these model types: {', '.join(EXCESS)}. This is {config.model_type!r}: load it with "
            'attn_implementation="sdpa".'
        )


def is_causal(config: PreTrainedConfig) -> bool:
    return bool(getattr(config, "is_decoder", False))


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    use_vmap: bool = False,
    config: PreTrainedConfig | None = None,
    **kwargs,
) -> Tensor | None:
    """
    What `lion_local_attention` takes as a mask. Arguments as of `transformers.masking_utils.sdpa_mask`.

    Returns:
        For a window that reads both ways which tokens are real, `(batch, kv_length)`, bool, or `None` if all are; for
        all else the mask of sdpa.

    Raises:
        ValueError: for a model that is not known to have such windows.
    """
    check_model(config)
    if local_size is None or use_vmap or q_length != kv_length or q_offset != kv_offset or is_causal(config):
        return sdpa_mask(
            batch_size=batch_size,
            q_length=q_length,
            kv_length=kv_length,
            q_offset=q_offset,
            kv_offset=kv_offset,
            attention_mask=attention_mask,
            local_size=local_size,
            use_vmap=use_vmap,
            config=config,
            **kwargs,
        )
    if attention_mask is None or is_readable(attention_mask) and attention_mask.all():
        return None
    return attention_mask.bool()


def lion_local_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """
    One layer's attention, equal to sdpa's, in linear time where the layer has a window.

    Args:
        module: the layer's attention, with a `config`.
        query: `(batch, heads, length, head_dim)`; key, value: likewise, or with fewer heads, which several query heads
            then share.
        attention_mask: of `make_mask`, or any that sdpa takes.
        scaling: of the scores; `head_dim ** -0.5` if `None`.
        dropout: of the weights. Above 0 a layer with a window is computed by sdpa under a mask.
        sliding_window: as the layers of the model give it (`EXCESS`); `None` for a layer without a window.
        s_aux: a further score of each head, `(heads,)`, which takes weight and has no value ("sink").
        cu_seq_lens_q: borders of sequences packed into one row, `(num_sequences + 1,)`, which are then apart.

    Returns:
        `(batch, length, heads, head_dim)`, and no weights.

    Raises:
        ValueError: for what windows or sdpa cannot compute: a model that is not known, a cap on scores, sinks with
            dropout or without a window.
    """
    check_model(module.config)
    if softcap is not None:
        raise ValueError(
            f"`attn_logit_softcapping` is {softcap}, and neither windows in linear time nor sdpa cap scores: load the "
            'model with attn_implementation="eager".'
        )
    has_window = sliding_window is not None and not is_causal(module.config) and query.shape[2] == key.shape[2]
    is_window = has_window and (attention_mask is None or attention_mask.dim() == 2)
    if s_aux is not None and (dropout > 0 or not is_window):
        raise ValueError(
            f"`attention_dropout` is {dropout} in a layer with attention sinks; they are computed in windows without "
            'dropout only: set it to 0, or load the model with attn_implementation="eager".'
        )
    reach = None if sliding_window is None else sliding_window - EXCESS[module.config.model_type]
    if is_window and s_aux is None and runs_flash_attention(query):
        flash = ALL_ATTENTION_FUNCTIONS["flash_attention_2"]
        kwargs |= {"cu_seq_lens_q": cu_seq_lens_q} if cu_seq_lens_q is not None else {}
        options = {"scaling": scaling, "sliding_window": reach + 1, "is_causal": False}
        return flash(module, query, key, value, attention_mask, dropout=dropout, **options, **kwargs)
    if is_window and dropout == 0 and (query.device.type == "cpu" or s_aux is not None):
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        output, log_sum = attend_in_window(
            query,
            key,
            value,
            sliding_window=reach,
            scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
            is_real=attention_mask,
            cu_seqlens=cu_seq_lens_q,
            first_query=0,
            with_log_sum=s_aux is not None,
        )
        if s_aux is not None:  # the share of the weights that the sink leaves
            share = torch.sigmoid(log_sum - s_aux.to(log_sum.dtype)[:, None])
            output = (output * share.transpose(1, 2).unsqueeze(-1)).to(value.dtype)
        return output, None
    if is_window:
        token = torch.arange(query.shape[2], device=query.device)
        attention_mask = window_mask(token, token, reach, attention_mask, cu_seq_lens_q)
        attention_mask = attention_mask.view(-1, 1, *attention_mask.shape[-2:])
    elif cu_seq_lens_q is not None and attention_mask is None:
        sequence = sequence_of_each_token(cu_seq_lens_q, query.shape[2])
        attention_mask = (sequence[:, None] == sequence)[None, None]
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    options = {"scaling": scaling, "dropout": dropout}
    return sdpa(module, query, key, value, attention_mask, **options, **kwargs)


def runs_flash_attention(query: Tensor) -> bool:
    """Whether flash attention is installed and takes such tensors."""
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    return query.device.type == "cuda" and is_half and is_flash_attn_2_available()


AttentionInterface.register(NAME, lion_local_attention)
AttentionMaskInterface.register(NAME, make_mask)
