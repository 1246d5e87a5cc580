# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Models of LION's classes with other mixers, which the Auto classes make and load, so that the scripts of examples/
train them as they are: the stand-ins for Hydra and Vim, and mixers of one's own.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

from transformers import AutoModelForImageClassification, AutoModelForMaskedLM, AutoModelForSequenceClassification

from modeling_lion import (
    LionConfig,
    LionForImageClassification,
    LionForMaskedLM,
    LionForSequenceClassification,
    modeling_lion,
)
from modeling_lion.mixers.mixer import Mixer
from peers.mamba import MAMBA_PEERS, use_mamba


OWN_MIXERS: dict[str, type[Mixer]] = {}
AUTO_CLASSES = {
    AutoModelForImageClassification: LionForImageClassification,
    AutoModelForMaskedLM: LionForMaskedLM,
    AutoModelForSequenceClassification: LionForSequenceClassification,
}


def add_mixer(place: str) -> str:
    """
    Take a mixer of one's own among the models.

    Args:
        place: a file and a class in it that is a `LinearMixer` or another `Mixer`, as "retention.py:RetentionMixer".

    Returns:
        The name of the model: that of the class.

    Raises:
        ValueError: if there is no such file, or no such class of mixers in it.
    """
    file, _, name = place.rpartition(":")
    if not Path(file).is_file():
        raise ValueError(f"{place!r} is not FILE:CLASS of a file that exists, as in retention.py:RetentionMixer.")
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    mixer = getattr(module, name, None)
    if not (isinstance(mixer, type) and issubclass(mixer, Mixer)):
        raise ValueError(
            f"{file} has no class {name} of mixers: derive it from modeling_lion.mixers.linear.LinearMixer."
        )
    OWN_MIXERS[name] = mixer
    return name


@cache
def peer_class(name: str, model_class: type) -> type:
    """
    A class of LION's models, with the mixers of a peer or of one's own in the place of those of its `mixer_type`.

    Args:
        name: one of `MAMBA_PEERS` or of `OWN_MIXERS`.
    """

    def __init__(self, config: LionConfig, *args, **kwargs):
        with patch.dict(modeling_lion.MIXERS, {config.mixer_type: OWN_MIXERS[name]} if name in OWN_MIXERS else {}):
            model_class.__init__(self, config, *args, **kwargs)
        if name in MAMBA_PEERS:
            use_mamba(self, name)

    return type(
        model_class.__name__.replace("Lion", name, 1), (model_class,), {"__init__": __init__, "__module__": __name__}
    )


@contextmanager
def auto_classes_of(name: str) -> Iterator[None]:
    """In this context, the Auto classes make models with the mixers of `name` of a `LionConfig`, if it has any."""
    has_others = name in MAMBA_PEERS or name in OWN_MIXERS
    try:
        for auto_class, model_class in AUTO_CLASSES.items() if has_others else ():
            auto_class.register(LionConfig, peer_class(name, model_class), exist_ok=True)
        yield
    finally:
        for auto_class, model_class in AUTO_CLASSES.items():
            auto_class.register(LionConfig, model_class, exist_ok=True)
