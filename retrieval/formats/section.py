# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Sections, which readers yield, and the error for files that are skipped."""

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


# Control bytes that text files do not have. White space and the escape character (colours) are allowed.
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
HEADINGS = " > "  # between headings
# Length of a passage in characters: shorter paragraphs, rows and lines are joined, longer paragraphs are cut.
SHORTEST, LONGEST = 500, 1500


class Section(NamedTuple):
    """
    A part of a file.

    Attributes:
        text: its text.
        place: the number of its first line if the text is that of the file line by line, else a page, headings and
            so on; empty for the file as a whole.
        name: what stands in front of its passages, as headings and names of functions; `None` for the file's name.
    """

    text: str
    place: int | str
    name: str | None = None


class SkippedFile(ValueError):
    """
    A file that is not read.

    Args:
        reason: in a few words. Files with the same ending and reason are counted together.
        message: a sentence for users who gave this one file.
        is_lasting: whether the file would be skipped again while it does not change.
    """

    def __init__(self, reason: str, message: str, is_lasting: bool = True):
        super().__init__(message)
        self.reason, self.is_lasting = reason, is_lasting


def is_binary(head: bytes) -> bool:
    """Return whether a file with these first bytes is no text."""
    return b"\0" in head and not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def decode(data: bytes, file: str | Path) -> str:
    """
    Decode a text in UTF-8, in UTF-16 with a byte order mark, or else in Windows-1252.

    Raises:
        SkippedFile: if it is binary. `file` is named then.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    if b"\0" not in data:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            if not CONTROL.search(data):
                return data.decode("cp1252", errors="replace")
    raise SkippedFile("no text", f"{Path(file).name} is no text: give text files, such as .txt, .md or .py.")


def with_heading(path: list[tuple[int, str]], level: int, heading: str) -> list[tuple[int, str]]:
    """Add a heading to the levels and words of those above a text. It ends the headings of its level and below."""
    return [*(above for above in path if above[0] < level), (level, heading)]


def under_headings(blocks: Iterable[tuple[int, str]]) -> Iterator[Section]:
    """
    Join blocks of text into one section for each heading, whose place and name are the headings above.

    Args:
        blocks: pairs of a level, 1 or more for a heading and 0 for other text, and the text, in order.
    """
    path: list[tuple[int, str]] = []
    texts: list[str] = []

    def section() -> Iterator[Section]:
        headings = HEADINGS.join(heading for _, heading in path)
        if any(text.strip() for text in texts):
            yield Section("\n\n".join(texts), headings, headings or None)

    for level, text in blocks:
        if level and text.strip():
            yield from section()
            path = with_heading(path, level, " ".join(text.split()))
            texts = []
        elif text.strip():
            texts.append(text)
    yield from section()
