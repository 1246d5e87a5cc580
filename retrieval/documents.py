# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Read files, and split them into passages."""

import hashlib
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from modeling_lion import split_passages

from .characters import printable, without_surrogates
from .docstrings import docstrings, module_name, python_files, split_paragraphs
from .formats.junk import PROSE, check_text
from .formats.readers import PACKED, is_code, sections_of
from .formats.section import HEADINGS, Section, SkippedFile, decode, is_binary, with_heading
from .passages import LONGEST, behind_spaces
from .sources import place_of_package


TEXT_FILES = (".txt", ".md", ".rst")
MOST_BYTES = 100_000_000  # of a file that is read
HEAD = 8192  # bytes by which binary files are told
# The first bytes of files of gzip, bzip2, xz, zip, zstd and 7z.
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf")
# A heading in Markdown or reStructuredText. An item of a list, a quote and a line of signs are none.
HEADING = re.compile(
    r"^#+ +(\S.*?) *#*\r?$|^ ?(?![-*>] |[-=~*#]+\s*$)([^\s.:#].{2,80})\n([-=~*#])\3{2,}\s*$", re.MULTILINE
)
# What generators of pages read, at the beginning of Markdown, and the title in it.
FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(?=[\w-]+[ \t]*:|---).*?^(---|\.\.\.)\s*$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"^title[ \t]*:[ \t]*([\"']?)([^\s>|].*?)\1\s*$", re.MULTILINE | re.IGNORECASE)
FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?(^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)  # code in Markdown
LIKE_A_LINE = re.compile(r":(?=\d+$)")  # at the end of a heading
TOP = 3000  # a heading within the first characters is the name of a text


def read_bytes(path: str | Path) -> bytes:
    """
    Read a file.

    Raises:
        SkippedFile: if it has more than `MOST_BYTES`, or is binary and of no format that is read.
    """
    name = printable(Path(path).name)
    with open(path, "rb") as file:
        head = file.read(HEAD)
        if is_binary(head) and Path(name).suffix.lower() not in PACKED:
            reason = "compressed" if head.startswith(COMPRESSED) else "no text"
            raise SkippedFile(reason, f"{name} is no text: give text files, such as .txt, .md or .py.")
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise SkippedFile(
                f"over {MOST_BYTES // 10**6} MB",
                f"{name} has {size:,} bytes, and up to {MOST_BYTES:,} are read: split it.",
            )
        return head + file.read()


def read_text(path: str | Path) -> str:
    """
    Read a text file in UTF-16 or UTF-32 with a byte order mark, in UTF-8, or else in Windows-1252.

    Raises:
        SkippedFile: a ValueError, if the file is binary, or has more than `MOST_BYTES`.
    """
    return decode(read_bytes(path), printable(Path(path).name))


class Document(NamedTuple):
    """
    A text that is encoded at once, with its passages.

    Attributes:
        name: is put in front of each passage; `None` for nothing.
        text: contains all passages.
        spans: index of the first character of each passage, and of the one behind its last.
    """

    name: str | None
    text: str
    spans: tuple[tuple[int, int], ...]


class Passage(NamedTuple):
    """
    A passage of a file.

    Attributes:
        name: is put in front of it: headings, or the name of a docstring; `None` for nothing.
        text: the passage.
        place: where to find it: `file:line`, a page, headings, or the name of a docstring.
        begin: index of its first character in the text that is read of the file.
    """

    name: str | None
    text: str
    place: str
    begin: int = 0

    @property
    def key(self) -> bytes:
        """The same for passages of equal name and text: 16 bytes."""
        return hashlib.sha256(repr((self.name, self.text)).encode()).digest()[:16]

    def as_document(self) -> Document:
        return Document(self.name, self.text, ((0, len(self.text)),))


def name_of(text: str, path: str | Path) -> str:
    """
    Return the title of a text in Markdown or reStructuredText: that of its front matter, its first heading, or else
    its file name as words.
    """
    is_rst, top = str(path).lower().endswith(".rst"), text[:TOP]
    front = None if is_rst else FRONT_MATTER.match(top)
    title = TITLE.search(front[0]) if front else None
    words = " ".join(title[2].split()) if title else next((words for *_, words in headings_of(top, is_rst)), "")
    return words or Path(printable(path)).stem.replace("_", " ").replace("-", " ")


def headings_of(text: str, is_rst: bool) -> list[tuple[int, int, int, str]]:
    """
    Find the headings in Markdown or reStructuredText. Code in fences has none, nor has front matter.

    Returns:
        For each heading the index of its first character and of the one behind its last, its level from 1 on, and its
        words.
    """
    front = None if is_rst else FRONT_MATTER.match(text)
    without = deque(x.span() for x in ([front] if front else []) + [*FENCE.finditer(text)])
    levels: dict[str, int] = {} if is_rst else {"=": 1, "-": 2}
    found = []
    for x in HEADING.finditer(text):
        while without and without[0][1] <= x.start():
            without.popleft()
        if (x[1] and is_rst) or (without and without[0][0] <= x.start()):
            continue
        marks = len(x[0]) - len(x[0].lstrip("#"))
        level = marks if x[1] else levels.setdefault(x[3], len(levels) + 1)
        found.append((x.start(), x.end(), level, " ".join((x[1] or x[2]).strip("`* ").split())))
    return found


def heading_paths(text: str, title: str, spans: Sequence[tuple[int, int]], is_rst: bool) -> Iterator[str]:
    """Yield, for each passage, the title, the headings above it, and the headings with which it begins."""
    headings = deque(headings_of(text, is_rst))
    path: list[tuple[int, str]] = []
    for first, _ in spans:
        while headings and headings[0][0] <= first:
            _, end, level, words = headings.popleft()
            path = with_heading(path, level, words)
            first = max(first, behind_spaces(text, end))
        words = [words for _, words in path]
        yield HEADINGS.join(words if words[:1] == [title] else [title, *words])


def passages_of_text(text: str, path: str) -> Iterator[Passage]:
    """Split a text into passages, whose names are the headings above. `path` is the file, for names and places."""
    text, printed = without_surrogates(text), printable(path)
    if "\n" not in text:
        text = text.replace("\r", "\n")  # line ends of old Macs
    spans = split_passages(text)
    names = heading_paths(text, name_of(text, path), spans, path.lower().endswith(".rst"))
    line, counted = 1, 0
    for (first, end), name in zip(spans, names, strict=True):
        line += text.count("\n", counted, first)
        counted = first
        yield Passage(name, text[first:end], f"{printed}:{line}", first)


def files_of_package(package: str) -> tuple[list[str], str]:
    """`place_of_package`, with the Python files there in the place of the folder or file."""
    place, root = place_of_package(package)
    return files_at(place), root


def files_at(place: str) -> list[str]:
    """Return the Python files of a folder, or the one that is given."""
    return python_files([place]) if os.path.isdir(place) else [place]


def passages_of_sections(sections: Iterable[Section], path: str, default: str) -> Iterator[Passage]:
    """
    Yield the passages of the sections of a file.

    Args:
        path: the file, for places.
        default: the name of sections that have none.
    """
    path, begin = printable(path), 0
    for section in sections:
        name, text = without_surrogates(section.name or default), without_surrogates(section.text)
        is_passage = isinstance(section.place, int) and len(text) <= LONGEST and bool(text.strip())
        for first, end in [(0, len(text))] if is_passage else split_passages(text):
            place = place_of(path, section.place, text.count("\n", 0, first))
            yield Passage(name, text[first:end], place, begin + first)
        begin += len(text) + len("\n\n")  # a blank line between sections


def place_of(path: str, place: int | str, lines: int) -> str:
    """Return the place of a passage that begins `lines` lines below the beginning of a section at `place`."""
    if isinstance(place, int):
        return f"{path}:{place + lines}"
    return LIKE_A_LINE.sub(": ", f"{path}: {without_surrogates(place)}" if place else path)


def passages_of(file: str, folder: str) -> Iterator[Passage]:
    """
    Yield the passages of a file.

    Raises:
        SkippedFile, OSError: if the file cannot be read, or has no text to search.
    """
    path, file_name = os.path.relpath(file, folder), printable(os.path.basename(file))
    data, ending = read_bytes(file), Path(file).suffix.lower()
    if not ending or ending in PROSE:
        check_text(data, file_name, is_by_lines=False)
        passages = passages_of_text(decode(data, file_name), path)
    else:
        sections = sections_of(data, file_name)
        default = printable(path) if is_code(file_name) else name_of("", path)
        if ending == ".py":
            default = printable(module_name(file, folder))
            sections = (x._replace(name=f"{default}.{x.name}" if x.name else default) for x in sections)
        passages = passages_of_sections(sections, path, default)
    first = next(passages, None)
    if first is not None:
        yield first
        yield from passages
    elif data.strip():
        raise SkippedFile("no text", f"{file_name} has no text.")


def passages_of_docstrings(file: str, folder: str) -> Iterator[Passage]:
    """Yield the docstring of each public name in a Python file as a passage: its name and its first paragraph."""
    for docstring in docstrings(file, module_name(file, folder)):
        paragraphs = split_paragraphs(docstring.text)
        if paragraphs and not any(part.startswith("_") for part in docstring.name.split(".")):
            name = printable(docstring.name)
            yield Passage(name, without_surrogates(paragraphs[0][:LONGEST]), name)
