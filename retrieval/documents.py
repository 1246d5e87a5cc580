# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Read files as documents, and split them into passages."""

import codecs
import hashlib
import importlib.util
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from modeling_lion import split_passages

from .docstrings import docstrings, module_name, python_files, split_paragraphs
from .passages import LONGEST
from .sources import check_folder


STANDARD_LIBRARY = "stdlib"
TEXT_FILES = (".txt", ".md", ".rst")
MOST_BYTES = 100_000_000  # of a file that is read
# Control bytes that text files do not have. White space and the escape character (colours) are allowed.
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
SURROGATE = re.compile("[\ud800-\udfff]")
# A heading in Markdown or reStructuredText.
HEADING = re.compile(r"^#+ +(\S.*?) *#*$|^([^\s.:#].{2,80})\n([-=~*#])\3{2,}\s*$", re.MULTILINE)
HEAD = 3000  # a heading within the first characters is the name of a text
LONGEST_DOCUMENT = 40_000  # characters (see benchmarks/bench_passages.py); longer texts become several documents
BATCH_CHARACTERS = 40_000  # encoded at once: a few seconds, after which reading can stop


def printable(path: str | Path) -> str:
    """Return a path that can be printed and tokenized: bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode(errors="replace")


def without_surrogates(text: str) -> str:
    """Replace single surrogates by U+FFFD. Escapes in Python and JSON can make them, and tokenizers reject them."""
    return SURROGATE.sub("\ufffd", text)


def read_text(path: str | Path) -> str:
    """
    Read a text file in UTF-8, in UTF-16 with a byte order mark, or else in Windows-1252.

    Raises:
        ValueError: if the file is binary, or has more than `MOST_BYTES`.
    """
    size, name = Path(path).stat().st_size, printable(Path(path).name)
    if size > MOST_BYTES:
        raise ValueError(f"{name} has {size:,} bytes, and up to {MOST_BYTES:,} are read: split it.")
    data = Path(path).read_bytes()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    if b"\0" not in data:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            if not CONTROL.search(data):
                return data.decode("cp1252", errors="replace")
    raise ValueError(f"{name} is no text: give text files, such as .txt, .md or .py.")


class Document(NamedTuple):
    """
    A text that is encoded at once, with its passages.

    Attributes:
        name: is put in front of each passage; `None` for nothing.
        text: contains all passages.
        spans: index of the first character of each passage, and of the one behind its last.
        places: where to find each passage: `file:line`, or the name of a docstring.
    """

    name: str | None
    text: str
    spans: tuple[tuple[int, int], ...]
    places: tuple[str, ...]

    @property
    def key(self) -> str:
        """A hash of what the encoder reads: name, text and spans."""
        return hashlib.sha256(repr(self[:3]).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def in_pieces(self) -> Iterator["Document"]:
        """Yield a document for each passage, with the same name."""
        for (first, end), place in zip(self.spans, self.places, strict=True):
            yield Document(self.name, self.text[first:end], ((0, end - first),), (place,))


def name_of(text: str, path: str | Path) -> str:
    """Return the first heading of a text in Markdown or reStructuredText, else its file name as words."""
    found = HEADING.search(text[:HEAD])
    if found:
        return (found[1] or found[2]).strip("`* ")
    return Path(printable(path)).stem.replace("_", " ").replace("-", " ")


def documents_of_text(text: str, path: str) -> Iterator[Document]:
    """Split a text into documents of up to `LONGEST_DOCUMENT` characters. `path` is the file, for names and places."""
    name, spans, path = name_of(text, path), split_passages(text), printable(path)
    places, line, end = [], 1, 0
    for first, _ in spans:
        line += text.count("\n", end, first)
        end = first
        places.append(f"{path}:{line}")
    begin = 0
    for n, (_, end) in enumerate(spans):
        start = spans[begin][0]
        if n + 1 == len(spans) or spans[n + 1][1] - start > LONGEST_DOCUMENT:
            of_part = tuple((first - start, last - start) for first, last in spans[begin : n + 1])
            yield Document(name, text[start:end], of_part, tuple(places[begin : n + 1]))
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


def files_of_folder(folder: str | Path) -> tuple[list[str], str]:
    """
    Return the Python and text files in a folder and its subfolders, and the folder. Hidden files and links that lead
    out of the folder are left out.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if it has no such files.
    """
    folder = check_folder(folder)
    visible = (
        path for path in folder.rglob("*") if not any(x.startswith(".") for x in path.relative_to(folder).parts)
    )
    root = folder.resolve()
    own = (path for path in visible if path.is_file() and path.resolve().is_relative_to(root))
    files = sorted(str(path) for path in own if path.suffix.lower() in (".py", *TEXT_FILES))
    if not files:
        raise ValueError(f"{folder} has no files to search: none ends with .py, {', '.join(TEXT_FILES)}.")
    return files, str(folder)


def documents_of(file: str, folder: str) -> Iterator[Document]:
    """
    Read a file as documents: a text with its passages, or the docstring of each public name in a Python file.

    Raises:
        ValueError, OSError: if the text cannot be read.
    """
    if not file.lower().endswith(".py"):
        yield from documents_of_text(read_text(file), os.path.relpath(file, folder))
        return
    for docstring in docstrings(file, module_name(file, folder)):
        paragraphs = split_paragraphs(docstring.text)
        if paragraphs and not any(part.startswith("_") for part in docstring.name.split(".")):
            text, name = without_surrogates(paragraphs[0][:LONGEST]), printable(docstring.name)
            yield Document(name, text, ((0, len(text)),), (name,))
