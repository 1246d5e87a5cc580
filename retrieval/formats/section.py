# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Sections, which readers yield, and the error for files that are skipped."""

import codecs
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


# Control bytes that text files do not have. White space and the escape character (colours) are allowed.
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
# Byte order marks. That of UTF-16 begins as that of UTF-32 does.
MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
ASCII = bytes(range(128))
FEW = 0.01  # share of broken characters, among bytes beyond ASCII, in a text in UTF-8 that has been damaged
AS_WINDOWS = {"ascii", "iso8859-1", "utf-8"}  # charsets that Windows-1252 contains, and one that does not hold
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
    return b"\0" in head and not head.startswith(tuple(MARKS))


def decode(data: bytes, file: str | Path, charset: str | None = None) -> str:
    """
    Decode a text in UTF-16 or UTF-32 with a byte order mark, in UTF-8, in its charset, or else in Windows-1252.

    Args:
        file: is named in the error.
        charset: what the text is said to be in; it need not exist.

    Raises:
        SkippedFile: if it is binary, and no charset is given.
    """
    for mark, encoding in MARKS.items():
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    if charset is None and b"\0" in data:
        raise binary(file)
    if charset is None or not data.isascii():
        text = data.decode("utf-8-sig", errors="replace")
        broken = text.count("\ufffd") - data.count("\ufffd".encode())
        beyond = len(data.translate(None, ASCII)) if broken else 0
        if broken <= FEW * beyond or (broken == 1 and beyond > 4):
            return text
    if charset is not None:
        with contextlib.suppress(LookupError, ValueError):  # unknown ones, and those whose codec replaces nothing
            codec = codecs.lookup(charset).name
            if codec not in AS_WINDOWS:
                return data.decode(codec, errors="replace")
    elif CONTROL.search(data):
        raise binary(file)
    return data.decode("cp1252", errors="replace")


def binary(file: str | Path) -> SkippedFile:
    return SkippedFile("no text", f"{Path(file).name} is no text: give text files, such as .txt, .md or .py.")


def sections_of_parts(parts: Iterable[Callable[[], Iterable[Section]]]) -> Iterator[Section]:
    """
    Yield the sections of the parts of a file, as messages and chapters, without those that cannot be read.

    Args:
        parts: functions that read one.

    Raises:
        SkippedFile, ImportError: behind the last section, if a library is missing.
        Exception: the first error, if no part can be read.
    """
    errors, is_read = [], False
    for part in parts:
        try:
            for section in part():
                yield section
                is_read = True
        except MemoryError:
            raise
        except Exception as error:  # of any library, for parts that it does not expect
            errors.append(error)
    for error in errors:
        if not is_read or isinstance(error, ImportError) or not getattr(error, "is_lasting", True):
            raise error


def with_heading(path: list[tuple[int, str]], level: int, heading: str) -> list[tuple[int, str]]:
    """Add a heading to the levels and words of those above a text. It ends the headings of its level and below."""
    return [*(above for above in path if above[0] < level), (level, heading)]


def under_headings(blocks: Iterable[tuple[int, str]]) -> Iterator[Section]:
    """
    Join blocks of text into one section for each heading, whose place and name are the headings above. The text of a
    heading without text is the heading, unless one of a lower level follows.

    Args:
        blocks: pairs of a level, 1 or more for a heading and 0 for other text, and the text, in order.
    """
    path: list[tuple[int, str]] = []
    texts: list[str] = []

    def section(following: int) -> Iterator[Section]:
        headings = HEADINGS.join(heading for _, heading in path)
        if not texts and path and following <= path[-1][0]:
            texts.append(path[-1][1])
        if texts:
            yield Section("\n\n".join(texts), headings, headings or None)

    for level, text in blocks:
        if level and text.strip():
            yield from section(level)
            path = with_heading(path, level, " ".join(text.split()))
            texts = []
        elif text.strip():
            texts.append(text)
    yield from section(0)
