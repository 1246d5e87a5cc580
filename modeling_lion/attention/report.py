# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Reports what a model attends to, in memory linear in the length: for chosen tokens, rows of the attention matrix and of
the decay mask, and for every token the receptive field of each head.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .decay_mask import LogDecay, decay_mask_rows, finite_log_decay, is_per_head, over_tokens
from .lion_attention import DECAYS_ONLY, lion_attention
from .numerics import accumulation_dtype, normalize


@dataclass
class AttentionReport:
    """
    The `attention_report` of one layer; float32, or float64 for a float64 model.

    Args:
        attention: exact attention weights of the chosen tokens, `(batch, heads, tokens, length)`: rows of the matrix
            that `output_attentions=True` returns.
        mask: the same rows of the decay mask M (SPEC §2), from 0 to 1; the mean over the scans of an image.
        receptive_field: Σ_j M_ij over the real tokens j, `(batch, heads, length)`: how many tokens reach token i, each
            weighted by its decay. For LION-LIT it is the length; for a decay of λ it is (1 + λ) / (1 - λ) in the
            middle of a long text, and 1 / (1 - λ) in a head of one direction.
    """

    attention: Tensor
    mask: Tensor
    receptive_field: Tensor


@torch.no_grad()
def attention_report(model: PreTrainedModel, tokens: list[int], **inputs: Tensor) -> list[AttentionReport | None]:
    """`LionPreTrainedModel.attention_report`."""
    layers = [layer.attention for layer in model.base_model.layers]
    linear = [layer for layer in layers if layer.mixer.needs == DECAYS_ONLY]
    if not linear:
        raise ValueError(
            f"`mixer_type` is {model.config.mixer_type!r}, and `layer_types` {model.config.layer_types}: only "
            "linear attention that `lion_attention` computes has a decay mask to report; softmax and the delta rule "
            "give their weights with output_attentions=True."
        )
    reports = dict.fromkeys(layers)
    hook = partial(report_layer, tokens=tokens, reports=reports)
    handles = [layer.register_forward_pre_hook(hook, with_kwargs=True) for layer in linear]
    try:
        model.base_model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    return list(reports.values())


def report_layer(attention, args: tuple, kwargs: dict, *, tokens: list[int], reports: dict) -> None:
    """A forward pre-hook of an attention module that stores its report in `reports`."""
    hidden_states, layout = args[:2]
    query, key, _, log_decay = attention.mixer(hidden_states, layout).inputs
    length, head_dim = query.shape[2:]
    if any(not 0 <= token < length for token in tokens):
        raise ValueError(f"`tokens` is {tokens}; give positions from 0 to {length - 1}.")
    dtype = accumulation_dtype(query.dtype)
    query, key = query.to(dtype), key.to(dtype)
    ones = query.new_ones(*query.shape[:3], 1)
    real_keys = ones if layout.tokens.is_real is None else ones * layout.tokens.is_real[:, None, :, None]

    scans, cu_seqlens = getattr(layout, "scans", None), layout.tokens.cu_seqlens
    directions = attention.config.head_directions
    tokens = torch.tensor(tokens, dtype=torch.long, device=query.device)
    orders = torch.arange(length, device=query.device).unsqueeze(0) if scans is None else scans
    mask, receptive_field = 0, 0
    for n, order in enumerate(orders):
        along_scan = LogDecay(*(of_scan(x, n, query.shape[1], order) for x in log_decay))
        raster = order.argsort()
        log_decays = over_tokens(finite_log_decay(along_scan, query, cu_seqlens, directions), query)
        rows = decay_mask_rows(*log_decays, raster[tokens])
        mask = mask + rows[..., raster] / len(orders)
        options = {"chunk_size": attention.config.chunk_size, "cu_seqlens": cu_seqlens, "head_directions": directions}
        inputs = ones, real_keys[:, :, order], ones, along_scan
        reached, _ = lion_attention(*inputs, form="chunk", normalization="none", **options)
        receptive_field = receptive_field + reached[:, :, raster, 0] / len(orders)
    weights = (query[:, :, tokens] @ key.transpose(-1, -2)) * mask
    weights = normalize(weights, weights.sum(-1, keepdim=True), attention.config.normalization, head_dim)
    reports[attention] = AttentionReport(weights, mask.expand_as(weights), receptive_field)


def of_scan(x: Tensor | None, n: int, heads: int, order: Tensor) -> Tensor | None:
    """The log decays of scan n along its order; each scan has its own heads."""
    if x is None:
        return None
    if is_per_head(x):
        return x.split(heads)[n]
    return x.split(heads, dim=1)[n][..., order]
