# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Read files as documents, and split them into passages."""

import importlib.util
import itertools
import os
import re
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from modeling_lion import split_passages

from .docstrings import docstrings, module_name, python_files, split_paragraphs
from .formats.junk import PROSE, check_text
from .formats.readers import PACKED, is_code, sections_of
from .formats.section import HEADINGS, Section, SkippedFile, decode, is_binary, with_heading
from .passages import LONGEST, behind_spaces


STANDARD_LIBRARY = "stdlib"
TEXT_FILES = (".txt", ".md", ".rst")
MOST_BYTES = 100_000_000  # of a file that is read
HEAD = 8192  # bytes by which binary files are told
# The first bytes of files of gzip, bzip2, xz, zip, zstd and 7z.
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf")
SURROGATE = re.compile("[\ud800-\udfff]")
# A heading in Markdown or reStructuredText.
HEADING = re.compile(r"^#+ +(\S.*?) *#*$|^ ?([^\s.:#].{2,80})\n([-=~*#])\3{2,}\s*$", re.MULTILINE)
FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?(^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)  # code in Markdown
LIKE_A_LINE = re.compile(r":(?=\d+$)")  # at the end of a heading
TOP = 3000  # a heading within the first characters is the name of a text
LONGEST_DOCUMENT = 40_000  # characters (see benchmarks/bench_passages.py); longer texts become several documents
BATCH_CHARACTERS = 40_000  # encoded at once: a few seconds, after which reading can stop


def printable(path: str | Path) -> str:
    """Return a path that can be printed and tokenized: bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode(errors="replace")


def without_surrogates(text: str) -> str:
    """Replace single surrogates by U+FFFD. Escapes in Python and JSON can make them, and tokenizers reject them."""
    return SURROGATE.sub("\ufffd", text)


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
    Read a text file in UTF-8, in UTF-16 with a byte order mark, or else in Windows-1252.

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
        places: where to find each passage: `file:line`, a page, headings, or the name of a docstring.
        begin: index of the first character of `text` in the text of the file, for a document that is a part of it.
    """

    name: str | None
    text: str
    spans: tuple[tuple[int, int], ...]
    places: tuple[str, ...]
    begin: int = 0


def name_of(text: str, path: str | Path) -> str:
    """Return the first heading of a text in Markdown or reStructuredText, else its file name as words."""
    found = HEADING.search(text[:TOP])
    if found:
        return (found[1] or found[2]).strip("`* ")
    return Path(printable(path)).stem.replace("_", " ").replace("-", " ")


def headings_of(text: str, is_rst: bool) -> list[tuple[int, int, int, str]]:
    """
    Find the headings in Markdown or reStructuredText. Code in fences has none.

    Returns:
        For each heading the index of its first character and of the one behind its last, its level from 1 on, and its
        words.
    """
    fences = [x.span() for x in FENCE.finditer(text)]
    levels: dict[str, int] = {} if is_rst else {"=": 1, "-": 2}
    found = []
    for x in HEADING.finditer(text):
        if (x[1] and is_rst) or any(first <= x.start() < end for first, end in fences):
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


def documents_of_text(text: str, path: str) -> Iterator[Document]:
    """
    Split a text into documents of up to `LONGEST_DOCUMENT` characters. All passages of a document are under the same
    headings, which are its name. `path` is the file, for names and places.
    """
    spans, printed = split_passages(text), printable(path)
    names = list(heading_paths(text, name_of(text, path), spans, path.lower().endswith(".rst")))
    places, line, end = [], 1, 0
    for first, _ in spans:
        line += text.count("\n", end, first)
        end = first
        places.append(f"{printed}:{line}")
    begin = 0
    for n, (_, end) in enumerate(spans):
        start = spans[begin][0]
        is_last = n + 1 == len(spans) or names[n + 1] != names[n]
        if is_last or spans[n + 1][1] - start > LONGEST_DOCUMENT:
            of_part = tuple((first - start, last - start) for first, last in spans[begin : n + 1])
            yield Document(names[n], text[start:end], of_part, tuple(places[begin : n + 1]), start)
            begin = n + 1


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Group documents, in order, into lists of up to `BATCH_CHARACTERS` characters."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        if batch and size + len(document.text) > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += len(document.text)
    if batch:
        yield batch


def files_of_package(package: str) -> tuple[list[str], str]:
    """
    Return the Python files of a package, a module or the standard library (`STANDARD_LIBRARY`), and the folder from
    which they are imported.

    Raises:
        ValueError: if there is no such package, or it has no Python files.
    """
    if package == STANDARD_LIBRARY:
        folder = os.path.realpath(sysconfig.get_path("stdlib"))
        return python_files([folder]), folder
    found = importlib.util.find_spec(package) if package.isidentifier() else None
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        raise ValueError(f"--package {package}: this Python has no Python files under that name; give an import name.")
    origin = Path(found.origin)
    if not found.submodule_search_locations:
        return [str(origin)], str(origin.parent)
    return python_files([str(origin.parent)]), str(origin.parents[1])


def documents_of_sections(sections: Iterable[Section], path: str, default: str) -> Iterator[Document]:
    """
    Make documents of the sections of a file. Those that follow each other and have the same name are in one document.

    Args:
        path: the file, for places.
        default: the name of sections that have none.
    """
    path = printable(path)
    for name, group in itertools.groupby(sections, lambda section: without_surrogates(section.name or default)):
        text = ""
        spans: list[tuple[int, int]] = []
        places: list[str] = []
        for section in group:
            if len(text) > LONGEST_DOCUMENT:
                yield Document(name, text, tuple(spans), tuple(places))
                text, spans, places = "", [], []
            found = without_surrogates(section.text)
            is_passage = isinstance(section.place, int) and len(found) <= LONGEST
            for first, end in [(0, len(found))] if is_passage else split_passages(found):
                spans.append((len(text) + first, len(text) + end))
                places.append(place_of(path, section.place, found.count("\n", 0, first)))
            text += f"{found}\n\n"
        if spans:
            yield Document(name, text, tuple(spans), tuple(places))


def place_of(path: str, place: int | str, lines: int) -> str:
    """Return the place of a passage that begins `lines` lines below the beginning of a section at `place`."""
    if isinstance(place, int):
        return f"{path}:{place + lines}"
    return LIKE_A_LINE.sub(": ", f"{path}: {without_surrogates(place)}" if place else path)


def documents_of(file: str, folder: str) -> Iterator[Document]:
    """
    Read a file as documents, with its passages.

    Raises:
        SkippedFile, OSError: if the file cannot be read, or has no text to search.
    """
    path, file_name = os.path.relpath(file, folder), printable(os.path.basename(file))
    data, ending = read_bytes(file), Path(file).suffix.lower()
    if not ending or ending in PROSE:
        check_text(data, file_name, is_by_lines=False)
        documents = documents_of_text(decode(data, file_name), path)
    else:
        sections = sections_of(data, file_name)
        default = printable(path) if is_code(file_name) else name_of("", path)
        if ending == ".py":
            default = printable(module_name(file, folder))
            sections = (x._replace(name=f"{default}.{x.name}" if x.name else default) for x in sections)
        documents = documents_of_sections(sections, path, default)
    first = next(documents, None)
    if first is not None:
        yield first
        yield from documents
    elif data.strip():
        raise SkippedFile("no text", f"{file_name} has no text.")


def documents_of_docstrings(file: str, folder: str) -> Iterator[Document]:
    """Read the docstring of each public name in a Python file as a document: its name and its first paragraph."""
    for docstring in docstrings(file, module_name(file, folder)):
        paragraphs = split_paragraphs(docstring.text)
        if paragraphs and not any(part.startswith("_") for part in docstring.name.split(".")):
            text, name = without_surrogates(paragraphs[0][:LONGEST]), printable(docstring.name)
            yield Document(name, text, ((0, len(text)),), (name,))
