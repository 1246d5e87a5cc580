# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Web pages: the main text, by headings."""

import codecs
import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element  # whose interface elements of lxml have

from lxml import etree

from .section import Section, decode, under_headings


# What is no text, what is around the text of a page, and roles of both.
DROPPED = (
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "math",
    "head",
    "iframe",
    "object",
    "select",
    "button",
    "nav",
)
AROUND = ("header", "footer", "aside", "form")
ROLES = {"navigation", "search", "banner", "contentinfo", "complementary", "menu", "menubar", "dialog", "alertdialog"}
CLASSES = {"headerlink", "navheader", "navfooter", "toc", "breadcrumb", "breadcrumbs", "sidebar"}  # of generated pages
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
PARAGRAPHS = (
    "p",
    "div",
    "section",
    "article",
    "main",
    "ul",
    "ol",
    "dl",
    "table",
    "blockquote",
    "figure",
    "hr",
    "body",
)
LINES = ("li", "tr", "dt", "dd", "br", "caption", "summary", "figcaption")
# Signs that no text has: the end of a line, the end of a paragraph, white space that is kept, and around a heading.
LINE, PARAGRAPH, BREAK, SPACE, HEADING = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3", "\ufdd4"
KEPT = str.maketrans({"\n": BREAK, " ": SPACE, "\t": SPACE * 4, "\r": None})
LINK_SIGN = re.compile(r"\s*[¶§]\s*$")  # behind headings of generated pages


MAIN = etree.XPath("//*[self::main or self::article or @role='main']")
WITH_ROLE, WITH_CLASS, HIDDEN = etree.XPath("//*[@role]"), etree.XPath("//*[@class]"), etree.XPath("//*[@hidden]")
TEXT = etree.XPath("string()")


def read(data: bytes, file: str) -> Iterator[Section]:
    """
    Yield the sections of a page, without navigation, headers, footers and forms. If the page marks a main part that
    has most of the text, only this part is read.
    """
    return under_headings(blocks_of(data, file))


def blocks_of(data: bytes, file: str) -> list[tuple[int, str]]:
    """Return the headings and texts of a page, as `under_headings` takes them. Without an h1 its title comes first."""
    page = parse(data, file)
    if page is None:
        return []
    title = " ".join((page.findtext(".//title") or "").split())
    clear_around(page)
    marked = set(found := MAIN(page))
    outermost = [x for x in found if not any(above in marked for above in x.iterancestors())]
    has_most = 2 * sum(len(TEXT(x)) for x in outermost) > len(TEXT(page))
    blocks = [block for part in (outermost if has_most else [page]) for block in blocks_of_part(part)]
    levels = [(level, text) for level, text in blocks if level and text]
    if any(level == 1 for level, _ in levels):
        return blocks
    is_repeated = levels and levels[0][1].lower() in title.lower()  # the first heading takes its place then
    return [(levels[0][0] if is_repeated else 1, title), *blocks]


def clear_around(page: Element) -> None:
    """Empty the elements that are no text, and those around the main text."""
    dropped = [*page.iter(*DROPPED), *HIDDEN(page)]
    dropped += [
        x for x in page.iter(*AROUND) if not any(above.tag in ("main", "article") for above in x.iterancestors())
    ]
    dropped += [x for x in WITH_ROLE(page) if x.get("role") in ROLES]
    dropped += [x for x in WITH_CLASS(page) if x.get("class") in CLASSES]
    for element in dropped:
        element.clear(keep_tail=True)


def parse(data: bytes, file: str) -> Element | None:
    """Parse a page in UTF-8, in UTF-16 with a byte order mark, in the encoding that it names, or in Windows-1252."""
    encoding: str | None = "utf-8"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = decode(data, file).encode()
    try:
        data.decode()
    except UnicodeDecodeError:
        encoding = None if re.search(rb"charset|encoding", data[:2000]) else "cp1252"
    if not data.strip():
        return None
    return etree.fromstring(data, etree.HTMLParser(encoding=encoding, remove_comments=True, remove_pis=True))


def blocks_of_part(part: Element) -> Iterator[tuple[int, str]]:
    """Yield the headings and texts of an element, which is changed."""
    for element in list(part.iter("pre", *HEADINGS)):
        text, is_code = TEXT(element), element.tag == "pre"
        element.clear(keep_tail=True)
        mark = PARAGRAPH if is_code else HEADING
        element.text = f"{mark}{text.translate(KEPT) if is_code else element.tag[1] + LINK_SIGN.sub('', text)}{mark}"
    for tags, mark in ((PARAGRAPHS, PARAGRAPH), (LINES, LINE)):
        for element in part.iter(*tags):
            element.text, element.tail = mark + (element.text or ""), mark + (element.tail or "")
    for cell in part.iter("td", "th"):
        if cell.getnext() is not None:
            cell.tail = f" | {cell.tail or ''}"
    for n, text in enumerate(TEXT(part).split(HEADING)):
        if n % 2:
            yield int(text[0]), text[1:]
        else:
            yield 0, in_lines(text)


def in_lines(text: str) -> str:
    """Replace marks by ends of lines, and all other white space by single spaces."""
    text = re.sub(rf" ?[{LINE}{PARAGRAPH}][ {LINE}{PARAGRAPH}]*", ends, " ".join(text.split()))
    return text.replace(BREAK, "\n").replace(SPACE, " ").strip()


def ends(marks: re.Match) -> str:
    return "\n\n" if PARAGRAPH in marks[0] else "\n"
