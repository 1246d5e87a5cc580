# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The forms of `lion_attention` as functions of four tensors, for tests in which λ is the same in both directions."""

import sys
from pathlib import Path

import modeling_lion
from modeling_lion.attention import lion_attention
from modeling_lion.attention_reference import reference_attention
from modeling_lion.decay import LogDecay


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


def our_frames() -> int:
    """How many functions of modeling_lion/ are being called at the moment."""
    folder, frame, count = str(Path(modeling_lion.__file__).parent), sys._getframe(1), 0
    while frame:
        count += frame.f_code.co_filename.startswith(folder)
        frame = frame.f_back
    return count
