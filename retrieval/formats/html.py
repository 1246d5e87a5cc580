# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Web pages: the main text, by headings."""

import re
from collections.abc import Iterator
from html import unescape
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
    "title",
    "iframe",
    "object",
    "select",
    "button",
    "nav",
)
AROUND = ("header", "footer", "aside", "form")
ROLES = {"navigation", "search", "menu", "menubar", "dialog", "alertdialog"}
ROLES_AROUND = {"banner", "contentinfo", "complementary"}
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
NO_TEXT = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufdd0-\ufdd4\ufffe\uffff]")  # lxml has no control characters
REFERENCE = re.compile(r"&#(?:\d{1,20}|[xX][\da-fA-F]{1,20});?")
CHARSET = re.compile(rb"(?:charset|encoding)\s*=[\s\"']*(?!utf-?(?:16|32))([\w.:-]+)", re.IGNORECASE)
HEAD = 2000  # bytes in which a page names its charset


MAIN = etree.XPath("//*[self::main or self::article or @role='main']")
WITH_ROLE, WITH_CLASS, HIDDEN = etree.XPath("//*[@role]"), etree.XPath("//*[@class]"), etree.XPath("//*[@hidden]")
TEXT = etree.XPath("string()")


def read(data: bytes, file: str) -> Iterator[Section]:
    """
    Yield the sections of a page, without navigation, and without headers, footers, asides and forms if most of the
    text is elsewhere. If the page marks a main part that has most of the text, only this part is read.
    """
    return under_headings(blocks_of(data, file))


def blocks_of(data: bytes, file: str, charset: str | None = None) -> list[tuple[int, str]]:
    """
    Return the headings and texts of a page, as `under_headings` takes them. Without an h1 its title comes first.

    Args:
        charset: of a message; `None` for the one that the page names.
    """
    page = parse(data, file, charset)
    if page is None:
        return []
    title = page.findtext(".//title") or ""
    clear(page)
    title = " ".join((clear_around(page) or title).split())
    marked = set(found := MAIN(page))
    outermost = [x for x in found if not any(above in marked for above in x.iterancestors())]
    has_most = 2 * sum(len(TEXT(x)) for x in outermost) > len(TEXT(page))
    blocks = [block for part in (outermost if has_most else [page]) for block in blocks_of_part(part)]
    levels = [(level, text) for level, text in blocks if level and text]
    if not any(text for _, text in blocks):
        return []
    if any(level == 1 for level, _ in levels):
        return blocks
    is_repeated = levels and levels[0][1].lower() in title.lower()  # the first heading takes its place then
    return [(levels[0][0] if is_repeated else 1, title), *blocks]


def clear(page: Element) -> None:
    """Empty the elements that are no text."""
    dropped = [*page.iter(*DROPPED), *HIDDEN(page)]
    dropped += [x for x in WITH_ROLE(page) if x.get("role") in ROLES]
    dropped += [x for x in WITH_CLASS(page) if x.get("class") in CLASSES]
    for element in dropped:
        element.clear(keep_tail=True)


def clear_around(page: Element) -> str:
    """Empty the elements around the main text, as far as most of the text remains. Returns the first h1 in them."""
    whole = rest = len(TEXT(page))
    chosen: dict[Element, int] = {}
    for element in [*page.iter(*AROUND), *(x for x in WITH_ROLE(page) if x.get("role") in ROLES_AROUND)]:
        size, above = len(TEXT(element)), [element, *element.iterancestors()]
        if 2 * (rest - size) > whole and not any(x in chosen or x.tag in ("main", "article") for x in above):
            chosen[element] = size
            rest -= size
    title = next((words for element in chosen for x in element.iter("h1") if (words := TEXT(x).strip())), "")
    for element in chosen:
        element.clear(keep_tail=True)
    return title


def parse(data: bytes, file: str, charset: str | None) -> Element | None:
    """Parse a page, decoded as `decode` does, also if it is damaged."""
    named = CHARSET.search(data[:HEAD])
    text = decode(data, file, charset or (named[1].decode() if named else "us-ascii"))
    text = REFERENCE.sub(lambda x: " " if NO_TEXT.match(unescape(x[0]) or "\0") else x[0], text)
    text = NO_TEXT.sub(" ", text)
    if not text.strip():
        return None
    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    return etree.fromstring(text.encode(errors="replace"), parser)


def blocks_of_part(part: Element) -> Iterator[tuple[int, str]]:
    """Yield the headings and texts of an element, which is changed."""
    for element in list(part.iter("pre")):
        text = TEXT(element)
        element.clear(keep_tail=True)
        element.text = f"{PARAGRAPH}{text.translate(KEPT)}{PARAGRAPH}"
    for tags, mark in ((PARAGRAPHS, PARAGRAPH), (LINES, LINE)):
        for element in part.iter(*tags):
            element.text, element.tail = mark + (element.text or ""), mark + (element.tail or "")
    for cell in part.iter("td", "th"):
        if cell.getnext() is not None:
            cell.tail = f" | {cell.tail or ''}"
    for element in list(part.iter(*HEADINGS)):
        first, _, rest = in_lines(TEXT(element)).partition("\n\n")
        element.clear(keep_tail=True)
        element.text = f"{HEADING}{element.tag[1]}{LINK_SIGN.sub('', first)}{HEADING}"
        element.text += f"{PARAGRAPH}{rest.translate(KEPT)}{PARAGRAPH}"
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
