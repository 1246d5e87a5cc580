# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Search by meaning: texts of files, the passages of a long text, and vectors of texts."""

import codecs
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from sentence_transformers import SentenceTransformer
from torch import Tensor

from modeling_lion import split_passages


# Bytes that no text has; beside white space there is the escape, of colours.
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def read_text(path: str | Path) -> str:
    """
    The text in a file: UTF-8, UTF-16 with a byte order mark, or otherwise Windows' Latin-1.

    Raises:
        ValueError: if the file is binary.
    """
    data = Path(path).read_bytes()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    if b"\0" not in data:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            if not CONTROL.search(data):
                return data.decode("cp1252", errors="replace")
    raise ValueError(f"{Path(path).name} is no text: give text files, such as .txt, .md or .py.")


def places_of(text: str, spans: Sequence[tuple[int, int]], name: str) -> Iterator[str]:
    """Of every passage of a text, in their order, the place: `name:line`."""
    line, end = 1, 0
    for first, _ in spans:
        line += text.count("\n", end, first)
        end = first
        yield f"{name}:{line}"


def passages_of(text: str, name: str) -> Iterator[tuple[str, str]]:
    """Of every passage of a text the place and the passage itself."""
    spans = split_passages(text)
    for place, (first, end) in zip(places_of(text, spans, name), spans, strict=True):
        yield place, text[first:end]


def unit_vectors(encoder: SentenceTransformer, texts: list[str], batch_size: int = 32) -> Tensor:
    """The vectors of texts by an encoder: `(number of texts, size)`, float32, of length 1, on the CPU."""
    options = {"batch_size": batch_size, "convert_to_tensor": True, "show_progress_bar": False}
    return encoder.encode(texts, normalize_embeddings=True, **options).float().cpu()
