# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Numbers inside a model that show numerical problems: decays, denominators, where the first NaN comes from."""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from modeling_lion import LionPreTrainedModel
from modeling_lion.attention_reference import reference_attention
from modeling_lion.mixer import LinearMixer
from modeling_lion.modeling_lion import LionAttention
from modeling_lion.patch_order import scan_attention

from .sample_inputs import model_batches


@dataclass(frozen=True)
class HeadNumerics:
    """
    One head of one layer.

    Attributes:
        smallest_decay: the minimum λ over all tokens (and scans), in [0, 1].
        smallest_denominator: the minimum |Σ_j A_ij| over all tokens, without the factor D^-1/2; `None` where
            nothing is divided (`normalization="none"`).
        first_nan: the first token, counted from 0, whose decay or scores are not finite.
    """

    layer: int
    head: int
    smallest_decay: float
    smallest_denominator: float | None
    first_nan: int | None


@dataclass(frozen=True)
class Numerics:
    """
    What `numerics_report` found.

    Attributes:
        heads: every head of every layer of linear attention; softmax attention has neither decays nor denominators
            that could be 0.
        first_nan: the first weight, or else the first module in the order of computing, that holds a number that is
            not finite; `None` if there is none.
    """

    heads: tuple[HeadNumerics, ...]
    first_nan: str | None

    def table(self) -> list[list[str]]:
        """Rows of text, a header first."""
        number = lambda x: "-" if x is None else f"{x:.3g}"
        return [["layer", "head", "smallest λ", "smallest denominator", "first NaN at token"]] + [
            [str(h.layer), str(h.head), number(h.smallest_decay), number(h.smallest_denominator), number(h.first_nan)]
            for h in self.heads
        ]


@torch.no_grad()
def numerics_report(model: LionPreTrainedModel, samples: list[Tensor]) -> Numerics:
    """
    Record the decays and denominators of a model while it computes, in memory quadratic in the length. `samples` are
    tensors of token ids `(length,)`, or of pixels `(channels, height, width)`.
    """
    first_nan = next((f"the weight {name}" for name, x in model.state_dict().items() if not x.isfinite().all()), None)
    attentions = [m for m in model.modules() if isinstance(m, LionAttention) and isinstance(m.mixer, LinearMixer)]
    reports: list[list[Tensor]] = [[] for _ in attentions]
    bad_modules = []

    def look_at_heads(report, module, args, kwargs):
        report.append(head_numbers(module, *args, **kwargs))

    def look_at_output(name, module, args, output):
        output = output[0] if isinstance(output, tuple) else output
        if isinstance(output, Tensor) and not output.isfinite().all():
            bad_modules.append(name)

    handles = [
        attention.register_forward_pre_hook(partial(look_at_heads, report), with_kwargs=True)
        for attention, report in zip(attentions, reports, strict=True)
    ]
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(partial(look_at_output, name or type(model).__name__)))
    try:
        for sample in samples:
            model.base_model(**model_batches(model, [sample], "none")[0])
    finally:
        for handle in handles:
            handle.remove()

    heads = []
    for layer, report in enumerate(reports):
        for head, numbers in enumerate(torch.stack(report).amin(0).tolist()):
            decay, denominator, bad = numbers
            denominator = denominator if model.config.normalization == "sum" else None
            heads.append(HeadNumerics(layer, head, decay, denominator, int(bad) if bad < math.inf else None))
    if first_nan is None and bad_modules:
        first_nan = f"the output of {bad_modules[0]}"
    return Numerics(tuple(heads), first_nan)


def head_numbers(
    attention: LionAttention,
    hidden_states: Tensor,
    is_real: Tensor | None,
    memory=None,
    scans=None,
    position_embeddings=None,
    **kwargs,
) -> Tensor:
    """`(heads, 3)`: the smallest λ, the smallest |denominator|, the first token that is not finite (inf if none)."""
    query, key, value, log_decays = attention.mixer(hidden_states, is_real, position_embeddings)
    reference = reference_attention if scans is None else partial(scan_attention, reference_attention, scans=scans)
    _, weights = reference(query, key, value, log_decays, normalization="none")
    log_decay = log_decays.forward  # the same backward
    denominators = weights[0].sum(-1) * query.shape[-1] ** 0.5  # (heads, length)
    heads, length = denominators.shape
    if log_decay is None:
        decays = torch.ones_like(denominators)
    else:
        log_decay = log_decay.amin(-1) if log_decay.dim() == 4 else log_decay
        decays = log_decay.exp().reshape(-1, heads, length if log_decay.dim() == 3 else 1)  # (scans, heads, length)
        decays = decays.amin(0).expand(heads, length)
    bad = ~(denominators.isfinite() & decays.isfinite())
    first = torch.where(bad.any(-1), bad.int().argmax(-1), math.inf)
    return torch.stack([decays.amin(-1), denominators.abs().amin(-1), first.to(decays.dtype)], dim=-1)
