# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""PDF: the text of each page."""

import contextlib
import re
import threading

import pypdfium2
from pypdfium2 import raw

from .section import HEADINGS, Section, SkippedFile


MOST_CHARACTERS = 50_000_000
DOTS = re.compile(r"(\s*\.){4,}")  # between a heading and its page in a table of contents
HYPHEN = "\x02"  # in place of one at the end of a line, and of the end
FULL = 0.75  # lines shorter than this share of the longest one on a page end a paragraph
LOCK = threading.Lock()  # PDFium runs in one thread at a time


def read(data: bytes, file: str) -> list[Section]:
    """
    Return the text of each page that has text, named by its heading in the table of contents.

    Raises:
        SkippedFile: if the file needs a password, has too much text, or none, as scans.
    """
    with LOCK:
        try:
            document = pypdfium2.PdfDocument(data)
        except pypdfium2.PdfiumError as error:
            if error.err_code == raw.FPDF_ERR_PASSWORD:
                raise SkippedFile("encrypted", f"{file} needs a password: save it without one.") from error
            raise
        with contextlib.closing(document):
            headings = headings_of(document)
            sections, size = [], 0
            for n in range(len(document)):
                with contextlib.closing(document[n]) as page, contextlib.closing(page.get_textpage()) as text:
                    found = in_paragraphs(text.get_text_bounded())
                size += len(found)
                if size > MOST_CHARACTERS:
                    message = f"{file} has more than {MOST_CHARACTERS:,} characters: split it."
                    raise SkippedFile("too much text", message)
                if found:
                    sections.append(Section(found, f"page {n + 1}", headings.get(n)))
    if not sections:
        raise SkippedFile("no text, as scans", f"{file} has no text, as scans: recognize its characters (OCR) first.")
    return sections


def headings_of(document: pypdfium2.PdfDocument) -> dict[int, str]:
    """
    Return the headings of each page, from the table of contents: those down to the first heading on the page, or, if
    there is none, to the last one before it.
    """
    first: dict[int, str] = {}
    last: dict[int, str] = {}
    path: list[str] = []
    for bookmark in document.get_toc():
        path = [*path[: bookmark.level], " ".join(bookmark.get_title().split())]
        target = bookmark.get_dest()
        page = None if target is None else target.get_index()
        if page is not None:
            first.setdefault(page, HEADINGS.join(path))
            last[page] = HEADINGS.join(path)
    found, current = {}, None
    for page in range(len(document) if first else 0):
        if name := first.get(page, current):
            found[page] = name
        current = last.get(page, current)
    return found


def in_paragraphs(text: str) -> str:
    """Join the lines of each paragraph of a page. Lines that are much shorter than the longest one end a paragraph."""
    lines = [DOTS.sub(" ", line).strip() for line in text.replace(HYPHEN, f"{HYPHEN}\n").splitlines()]
    longest = max(map(len, lines), default=0)
    found = (
        line[:-1] if line.endswith(HYPHEN) else f"{line}\n" if len(line) < FULL * longest else f"{line} "
        for line in lines
        if line
    )
    return "".join(found).replace("\0", "").strip()
