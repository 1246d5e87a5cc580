# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Small encoders, as users of sentence-transformers save them."""

from pathlib import Path

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer


def sentence_checkpoint(folder: Path, tokens: Path | Transformer, *modules, **options) -> Path:
    """An encoder around a checkpoint, or around one that is loaded; these modules, or means of length one, follow."""
    tokens = tokens if isinstance(tokens, Transformer) else Transformer(str(tokens))
    modules = modules or (Pooling(32), Normalize())
    SentenceTransformer(modules=[tokens, *modules], device="cpu", **options).save(str(folder))
    return folder
