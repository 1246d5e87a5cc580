# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Which reader a file has. Modules with libraries of the extra `files` are imported when they are needed."""

import posixpath
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module

from .junk import check_text
from .section import Section, SkippedFile


INSTALL = 'pip install "lion-transformers[files]"'
# Module and function of the reader, by the ending of a file. All others are read by their lines, if they are text.
READERS = {
    ".csv": "tables.read_csv",
    ".docx": "archives.read_docx",
    ".eml": "mail.read_message",
    ".epub": "archives.read_epub",
    ".htm": "html.read",
    ".html": "html.read",
    ".ipynb": "tables.read_notebook",
    ".json": "tables.read_json",
    ".jsonl": "tables.read_jsonl",
    ".ltx": "code.read_latex",
    ".mbox": "mail.read_box",
    ".ndjson": "tables.read_jsonl",
    ".odt": "archives.read_odt",
    ".pdf": "pdf.read",
    ".py": "code.read_python",
    ".pyi": "code.read_python",
    ".tab": "tables.read_csv",
    ".tex": "code.read_latex",
    ".tsv": "tables.read_csv",
    ".xhtml": "html.read",
}
BY_LINES = "code.read_lines"
PACKED = {".docx", ".epub", ".odt", ".pdf"}  # not text
MARKED = {".html", ".htm", ".xhtml", ".eml", ".mbox", ".ipynb"}  # text, with code and data in it that is not read


def is_code(file: str) -> bool:
    """Return whether a file is read by its lines."""
    return posixpath.splitext(file.lower())[1] not in READERS


def reader_of(file: str) -> Callable[[bytes, str], Iterable[Section]]:
    """
    Return the reader of a file.

    Raises:
        ImportError: if a library that it needs is not installed.
    """
    ending = posixpath.splitext(file.lower())[1]
    module, function = READERS.get(ending, BY_LINES).split(".")
    return getattr(import_module(f".{module}", __package__), function)


def sections_of(data: bytes, file: str) -> Iterator[Section]:
    """
    Yield the sections of a file, none for an empty one.

    Args:
        data: its contents.
        file: its name, whose ending tells the format.

    Raises:
        SkippedFile: if it is damaged, encrypted, too large, no text or junk, or if a library is missing.
    """
    if not data.strip():
        return
    ending = posixpath.splitext(file.lower())[1]
    if ending not in PACKED | MARKED:
        check_text(data, file, is_by_lines=is_code(file))
    try:
        yield from reader_of(file)(data, file)
    except (SkippedFile, MemoryError):
        raise
    except ImportError as error:
        raise SkippedFile(INSTALL, f"{file} is read with {error.name}: {INSTALL}.", is_lasting=False) from error
    except Exception as error:  # of any library, for files that it does not expect
        raise SkippedFile("damaged", f"{file} is damaged: {type(error).__name__}: {error}") from error
