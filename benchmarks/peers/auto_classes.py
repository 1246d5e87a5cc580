# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The peers of peers/mamba.py as classes of models, which the Auto classes make and load, so that the scripts of
examples/ train them as they are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

from modeling_lion import LionConfig, LionForMaskedLM, LionForSequenceClassification
from peers.mamba import MAMBA_PEERS, use_mamba


AUTO_CLASSES = {
    AutoModelForMaskedLM: LionForMaskedLM,
    AutoModelForSequenceClassification: LionForSequenceClassification,
}


@cache
def peer_class(name: str, model_class: type) -> type:
    """
    A class of LION's models with the mixers of a peer, as "TwoMamba2ForMaskedLM".

    Args:
        name: one of `MAMBA_PEERS`.
    """

    def __init__(self, config: LionConfig, *args, **kwargs):
        model_class.__init__(self, config, *args, **kwargs)
        use_mamba(self, name)

    members = {"__init__": __init__, "__module__": __name__}
    name_of_class = "".join(filter(str.isalnum, name.title()))
    return type(model_class.__name__.replace("Lion", name_of_class, 1), (model_class,), members)


@contextmanager
def auto_classes_of(name: str) -> Iterator[None]:
    """In this context, the Auto classes make a peer of a `LionConfig`, if `name` is that of one."""
    try:
        for auto_class, model_class in AUTO_CLASSES.items() if name in MAMBA_PEERS else ():
            auto_class.register(LionConfig, peer_class(name, model_class), exist_ok=True)
        yield
    finally:
        for auto_class, model_class in AUTO_CLASSES.items():
            auto_class.register(LionConfig, model_class, exist_ok=True)
