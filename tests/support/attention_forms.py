# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The forms of `lion_attention` as functions of four tensors, with one λ for both directions, and inputs for them."""

import sys
from pathlib import Path

import torch

import modeling_lion
from modeling_lion.attention.decay_mask import LogDecay
from modeling_lion.attention.lion_attention import lion_attention
from modeling_lion.attention.numerics import accumulation_dtype
from modeling_lion.attention.reference import reference_attention


def with_one_decay(attention):
    def form(query, key, value, log_decay=None, **kwargs):
        return attention(query, key, value, LogDecay(log_decay, log_decay), **kwargs)

    return form


def form_of(name, **options):
    return with_one_decay(lambda *args, **kwargs: lion_attention(*args, form=name, **options, **kwargs))


@with_one_decay
def naive(*args, chunk_size=None, **kwargs):
    return reference_attention(*args, **kwargs)


FORMS = {name: form_of(name) for name in ("parallel", "chunk", "rnn")}
EVERY_FORM = {**FORMS, "naive": naive}
auto = form_of("auto")


def weights_of_loss(output: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """The same numbers for every dtype of the computation, rounded to that of the inputs."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(output.shape, generator=generator, dtype=torch.float64).to(source.dtype).to(output.dtype)


def outputs_and_gradients(form, *inputs, dtype=None, autocast=False, **options) -> list[torch.Tensor]:
    """The output of a form and the gradients of all inputs that are not `None`; with `dtype`, computed in it."""
    value = inputs[2]
    inputs = [x.detach().to(dtype or x.dtype).requires_grad_() for x in inputs if x is not None]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        output = form(*inputs, **options)
    output = output[0] if isinstance(output, tuple) else output
    if output.requires_grad:  # not if there is nothing but padding
        output.backward(weights_of_loss(output, value))
    # A sequence of one token does not decay, and its decay may have no gradient at all.
    return [output.detach(), *(torch.zeros_like(x) if x.grad is None else x.grad for x in inputs)]


# Which of 40 tokens are real.
PADDINGS = {
    "left": [False] * 7 + [True] * 33,
    "right": [True] * 33 + [False] * 7,
    "interior": [True, False, False, True] * 10,
    "mixed": [False, True] + [False] * 20 + [True] * 18,
    "all": [False] * 40,
    "none": [True] * 40,
}


def our_frames() -> int:
    """How many functions of modeling_lion/ are being called at the moment."""
    folder, frame, count = str(Path(modeling_lion.__file__).parent), sys._getframe(1), 0
    while frame:
        count += frame.f_code.co_filename.startswith(folder)
        frame = frame.f_back
    return count


DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
BATCH, HEADS, HEAD_DIM, VALUE_DIM = 2, 3, 5, 6


def make_inputs(
    mixer, length, *, dtype=torch.float64, seed=0, batch=BATCH, heads=HEADS, dims=(HEAD_DIM, VALUE_DIM), positive=True
):
    """Query, key, value in `dtype` and the log decay in the accumulation dtype, all rounded already."""
    generator = torch.Generator().manual_seed(seed)
    rand = lambda *shape: torch.rand(*shape, generator=generator, dtype=torch.float64)
    query, key = (rand(2, batch, heads, length, dims[0]) + (0.1 if positive else -0.5)).to(dtype)
    value = torch.randn(batch, heads, length, dims[1], generator=generator, dtype=torch.float64).to(dtype)
    shape = {"lit": None, "decay": (heads,), "selective": (batch, heads, length)}[mixer]
    log_decay = None if shape is None else torch.log(0.02 + 0.98 * rand(*shape)).to(accumulation_dtype(dtype))
    return query, key, value, log_decay


def extreme_decays(kind, shape, dtype):
    generator = torch.Generator().manual_seed(3)
    random = torch.rand(shape, generator=generator, dtype=torch.float64)
    kinds = {
        "all zero": torch.full(shape, -torch.inf),
        "all one": torch.zeros(shape),
        "zeros and ones": torch.where(random < 0.1, -torch.inf, 0.0),
        "all kinds": torch.where(random < 0.1, -torch.inf, torch.where(random < 0.4, 0.0, -random)),
        "far below": torch.where(random < 0.3, -1e4, -random),
        "underflow": torch.where(random < 0.3, -95.0, -random),
    }
    return kinds[kind].to(dtype)


EXTREMES = ["all zero", "all one", "zeros and ones", "all kinds", "far below", "underflow"]


def pairs(kind: str, length: int, dtype=torch.float64) -> LogDecay:
    """Log decays that differ between the directions."""
    per_head, other_head = (make_inputs("decay", length, dtype=dtype, seed=seed)[3] for seed in (1, 2))
    per_token, other_token = (make_inputs("selective", length, dtype=dtype, seed=seed)[3] for seed in (1, 2))
    is_forward = torch.arange(HEADS) % 2 == 0
    one_direction = lambda x, is_open: torch.where(is_open if x.dim() == 1 else is_open[:, None], x, -torch.inf)
    return {
        "fixed": LogDecay(per_head, other_head),
        "per token": LogDecay(per_token, other_token),
        "both kinds": LogDecay(per_head, other_token),
        "forward decays only": LogDecay(per_token, None),
        "backward decays only": LogDecay(None, per_head),
        "one direction": LogDecay(one_direction(per_token, is_forward), one_direction(per_token, ~is_forward)),
        "one direction, fixed": LogDecay(one_direction(per_head, is_forward), one_direction(per_head, ~is_forward)),
        "one direction, nothing else decays": LogDecay(
            one_direction(torch.zeros_like(per_head), is_forward),
            one_direction(torch.zeros_like(per_head), ~is_forward),
        ),
    }[kind]
