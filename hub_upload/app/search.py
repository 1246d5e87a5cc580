# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Search by meaning: texts of files, the passages of a long text, and vectors of texts."""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from sentence_transformers import SentenceTransformer
from torch import Tensor

import modeling_lion  # noqa: F401  (the Auto classes know LION from here on)


# Of a passage, in characters: shorter paragraphs are joined, longer ones are cut.
SHORTEST, LONGEST = 200, 1000
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


def passages_of(text: str, name: str) -> Iterator[tuple[str, str]]:
    """The passages of a text: for each its place, `name:line`, and the passage."""
    line, end = 1, 0
    for first, last in split_passages(text):
        line += text.count("\n", end, first)
        yield f"{name}:{line}", text[first:last]
        line += text.count("\n", first, last)
        end = last


def unit_vectors(encoder: SentenceTransformer, texts: list[str], batch_size: int = 32) -> Tensor:
    """The vectors of texts by an encoder: `(number of texts, size)`, float32, of length 1, on the CPU."""
    options = {"batch_size": batch_size, "convert_to_tensor": True, "show_progress_bar": False}
    return encoder.encode(texts, normalize_embeddings=True, **options).float().cpu()


def split_passages(text: str) -> list[tuple[int, int]]:
    """
    Where the passages of a text begin and end, in characters. They are paragraphs: short ones are joined with the
    next, and long ones are cut, after a sentence or a word if possible. Nothing but white space is left out.
    """
    borders = [0, *(place for x in re.finditer(r"\n\s*\n", text) for place in x.span()), len(text)]
    spans, begin = [], None
    for first, end in zip(borders[::2], borders[1::2], strict=True):
        paragraph = text[first:end]
        if not paragraph.strip():
            continue
        end = first + len(paragraph.rstrip())
        begin = first + len(paragraph) - len(paragraph.lstrip()) if begin is None else begin
        while end - begin > LONGEST:
            piece = text[begin + SHORTEST : begin + LONGEST]
            ends = (max((x.end() for x in re.finditer(mark, piece)), default=0) for mark in (r"[.!?]\s", r"\s"))
            cut = begin + SHORTEST + next((x for x in ends if x), len(piece))
            spans.append((begin, cut))
            begin = cut
        if end - begin >= SHORTEST:
            spans.append((begin, end))
            begin = None
    return spans if begin is None else [*spans, (begin, len(text.rstrip()))]
