# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Formats that are zip archives of XML: text documents (.docx, .odt) and books (.epub)."""

import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from urllib.parse import unquote
from xml.etree.ElementTree import Element  # whose interface elements of lxml have

from lxml import etree

from .html import blocks_of
from .section import Section, SkippedFile, sections_of_parts, under_headings


MOST_UNPACKED = 200_000_000  # bytes
PARSER = etree.XMLParser(resolve_entities=False, no_network=True)
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"  # repeats what it stands for
OFFICE, TEXT, TABLE = (f"{{urn:oasis:names:tc:opendocument:xmlns:{name}:1.0}}" for name in ("office", "text", "table"))
SPACES = {TEXT + "s": " ", TEXT + "tab": " ", TEXT + "line-break": "\n"}
Blocks = Iterator[tuple[int, str]]


def opened(data: bytes, file: str) -> zipfile.ZipFile:
    """
    Open an archive.

    Raises:
        SkippedFile: if it is encrypted, or has more than `MOST_UNPACKED` bytes unpacked.
    """
    archive = zipfile.ZipFile(io.BytesIO(data))
    if any(x.flag_bits & 1 for x in archive.infolist()):
        raise SkippedFile("encrypted", f"{file} is encrypted: save it without a password.")
    size = sum(x.file_size for x in archive.infolist())  # zipfile unpacks no more than is said there
    if size > MOST_UNPACKED:
        raise SkippedFile(
            "unpacks to too much", f"{file} unpacks to {size:,} bytes, and up to {MOST_UNPACKED:,} are read."
        )
    return archive


def blocks_of_document(parent: Element, tags: tuple[str, str, str], block: Callable, skipped: set) -> Blocks:
    """
    Yield the blocks of an XML document in their order, each table as one whose lines are its rows.

    Args:
        tags: of a table, a row and a cell.
        block: returns level and text of an element if it is a paragraph, else `None`.
        skipped: tags of elements that are left out.
    """
    table, row, cell = tags
    for child in parent:
        if child.tag == table:
            rows = [x for x in child.iter(row) if not any(above.tag == row for above in x.iterancestors())]
            cells = (
                (" ".join(t for _, t in blocks_of_document(x, tags, block, skipped)) for x in y.iter(cell))
                for y in rows
            )
            yield 0, "\n".join(" | ".join(x for x in y if x.strip()) for y in cells)
        elif found := block(child):
            yield found
        elif child.tag not in skipped:
            yield from blocks_of_document(child, tags, block, skipped)


def read_docx(data: bytes, file: str) -> Iterator[Section]:
    """Yield the sections of a document of Word. Notes stand in brackets where they are referred to."""
    archive = opened(data, file)
    names = {}
    if "word/styles.xml" in archive.namelist():
        for style in etree.fromstring(archive.read("word/styles.xml"), PARSER).iter(WORD + "style"):
            name = style.find(WORD + "name")
            names[style.get(WORD + "styleId")] = "" if name is None else name.get(WORD + "val", "").lower()

    signs = {WORD + "tab": lambda x: " ", WORD + "br": lambda x: "\n", WORD + "t": lambda x: x.text or ""}

    def text_of(element: Element) -> str:
        found = element.iter(*signs)
        return "".join(signs[x.tag](x) for x in found if x.getparent().tag != WORD + "tabs")

    def in_brackets(notes: dict[str, str], reference: Element) -> str:
        text = notes.get(reference.get(WORD + "id"), "")
        return f" ({text})" if text else ""

    for kind in ("footnote", "endnote"):
        if f"word/{kind}s.xml" in archive.namelist():
            root = etree.fromstring(archive.read(f"word/{kind}s.xml"), PARSER)
            notes = {
                x.get(WORD + "id"): " ".join(map(text_of, x.iter(WORD + "p"))).strip() for x in root.iter(WORD + kind)
            }
            signs[f"{WORD}{kind}Reference"] = partial(in_brackets, notes)

    def block(element: Element) -> tuple[int, str] | None:
        if element.tag != WORD + "p":
            return None
        style = element.find(f"{WORD}pPr/{WORD}pStyle")
        name = "" if style is None else names.get(style.get(WORD + "val"), "")
        heading = re.fullmatch(r"heading (\d)", name)
        return (1 if name == "title" else 1 + int(heading[1]) if heading else 0), text_of(element)

    body = etree.fromstring(archive.read("word/document.xml"), PARSER)
    etree.strip_elements(body, FALLBACK, with_tail=False)
    tags = (WORD + "tbl", WORD + "tr", WORD + "tc")
    return under_headings(blocks_of_document(body, tags, block, set()))


def read_odt(data: bytes, file: str) -> Iterator[Section]:
    """Yield the sections of an OpenDocument text. Notes stand in brackets where they are referred to."""
    archive = opened(data, file)
    if b"encryption-data" in archive.read("META-INF/manifest.xml"):
        raise SkippedFile("encrypted", f"{file} is encrypted: save it without a password.")
    body = etree.fromstring(archive.read("content.xml"), PARSER).find(OFFICE + "body")
    etree.strip_elements(body, OFFICE + "annotation", TEXT + "note-citation", with_tail=False)
    for element in body.iter(*SPACES):
        element.text = SPACES[element.tag] * int(element.get(TEXT + "c", "1"))
    for note in list(body.iter(TEXT + "note")):
        words = " ".join("".join(x.itertext()) for x in note.iter(TEXT + "p")).strip()
        note.clear(keep_tail=True)
        note.text = f" ({words})" if words else ""

    def block(element: Element) -> tuple[int, str] | None:
        if element.tag not in (TEXT + "h", TEXT + "p"):
            return None
        level = int(element.get(TEXT + "outline-level", "1")) if element.tag == TEXT + "h" else 0
        return level, "".join(element.itertext())

    tags = (TABLE + "table", TABLE + "table-row", TABLE + "table-cell")
    skipped = {TEXT + "tracked-changes", TEXT + "table-of-content", OFFICE + "forms"}
    return under_headings(blocks_of_document(body, tags, block, skipped))


def read_epub(data: bytes, file: str) -> Iterator[Section]:
    """Yield the sections of a book, chapter by chapter in reading order."""
    archive = opened(data, file)
    if "META-INF/rights.xml" in archive.namelist():
        raise SkippedFile("encrypted", f"{file} has digital rights management, so its text cannot be read.")
    container = etree.fromstring(archive.read("META-INF/container.xml"), PARSER)
    package = container.find(".//{*}rootfile").get("full-path")
    root = etree.fromstring(archive.read(package), PARSER)
    files = {x.get("id"): x.get("href") for x in root.iter("{*}item")}

    def read(n: int, chapter: str) -> Iterator[Section]:
        name = posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(files[chapter])))
        for text, place, heading in under_headings(blocks_of(archive.read(name), file)):
            yield Section(text, place or f"part {n}", heading)

    return sections_of_parts(partial(read, n, x.get("idref")) for n, x in enumerate(root.iter("{*}itemref"), 1))
