# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Mail: single messages (.eml) and boxes (.mbox), with their attachments."""

import email
import email.policy
import re
from collections.abc import Iterator
from email.message import EmailMessage, MIMEPart
from functools import partial

from .section import Section, decode, sections_of_parts


# The line before each message of a box. It has a day of the week, a time and a year, as no sentence has.
FROM = re.compile(
    rb"(?:\A|(?<=\n\n)|(?<=\r\n\r\n))From (?=[^\n]*\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b)(?=[^\n]*\d:\d\d)"
    rb"[^\n]*\b\d{4}\b[^\n]*\n"
)
SHOWN = "Subject", "From", "To", "Date"


def read_box(data: bytes, file: str) -> Iterator[Section]:
    """Yield the texts of the messages in a box, named by their subjects."""
    messages = [x for x in FROM.split(data) if x.strip()]

    def read(n: int, message: bytes) -> Iterator[Section]:
        for text, place, name in read_message(message, file):
            yield Section(text, f"message {n}" + (f" > {place}" if place else ""), name)

    return sections_of_parts(partial(read, n, message) for n, message in enumerate(messages, 1))


def read_message(data: bytes, file: str) -> Iterator[Section]:
    """Yield the text of a message and those of its attachments that can be read, named by its subject."""
    from .readers import sections_of

    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    headers = {name: value for name in SHOWN if (value := header(message, name))}
    body = message.get_body(("plain", "html"))
    attached = [(name, part) for part in message.iter_attachments() if (name := part.get_filename())]
    headers |= {"Attached": ", ".join(name for name, _ in attached)} if attached else {}
    head = "\n".join(f"{name}: {value}" for name, value in headers.items())

    def read_body() -> Iterator[Section]:
        yield Section(f"{head}\n\n{'' if body is None else text_of(body)}", "", headers.get("Subject"))

    def read_attached(name: str, part: MIMEPart) -> Iterator[Section]:
        for text, place, heading in sections_of(content_of(part), name):
            place = f"line {place}" if isinstance(place, int) else place
            yield Section(text, f"{name}: {place}" if place else name, heading or name)

    return sections_of_parts([read_body, *(partial(read_attached, name, part) for name, part in attached)])


def header(message: EmailMessage, name: str) -> str:
    """Return a header, as it is written if it cannot be parsed, in one line."""
    try:
        value = message[name]
    except Exception:  # the parser of `email` expects less than people's programs write
        value = next(value for key, value in message.raw_items() if key.lower() == name.lower())
    return " ".join(str(value or "").split())


def content_of(part: MIMEPart) -> bytes:
    """Return the decoded content of a part; empty for one that has parts itself."""
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def text_of(body: MIMEPart) -> str:
    """Return the text of the body of a message."""
    content, charset = content_of(body), body.get_content_charset("us-ascii")
    if body.get_content_subtype() == "html":
        from .html import blocks_of

        return "\n\n".join(text for _, text in blocks_of(content, "mail", charset) if text)
    return decode(content, "mail", charset)
