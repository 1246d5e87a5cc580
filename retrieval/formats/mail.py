# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Mail: single messages (.eml) and boxes (.mbox), with their attachments."""

import email
import email.policy
import re
from collections.abc import Iterator
from email.message import EmailMessage

from .section import Section, SkippedFile


FROM = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\r\n\r\n))From [^\n]*\n")  # before each message of a box
SHOWN = "Subject", "From", "To", "Date"


def read_box(data: bytes, file: str) -> Iterator[Section]:
    """Yield the texts of the messages in a box, named by their subjects."""
    messages = [x for x in FROM.split(data) if x.strip()]
    for n, message in enumerate(messages, 1):
        for text, place, name in read_message(message, file):
            yield Section(text, f"message {n}" + (f" > {place}" if place else ""), name)


def read_message(data: bytes, file: str) -> Iterator[Section]:
    """Yield the text of a message and those of its attachments that can be read, named by its subject."""
    from .readers import sections_of

    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    subject = str(message["Subject"] or "").strip() or None
    head = "\n".join(f"{name}: {message[name]}" for name in SHOWN if message[name])
    body = message.get_body(("plain", "html"))
    text = "" if body is None else text_of(body)
    attached = [part for part in message.iter_attachments() if part.get_filename()]
    head += "".join(f"\nAttached: {part.get_filename()}" for part in attached)
    yield Section(f"{head}\n\n{text}", "", subject)
    for part in attached:
        name = part.get_filename()
        try:
            content = part.get_payload(decode=True) or b""
            for section in sections_of(content, name):
                place = section.place if isinstance(section.place, str) else f"line {section.place}"
                yield Section(section.text, f"{name}: {place}" if place else name, section.name or name)
        except SkippedFile:
            continue


def text_of(body: EmailMessage) -> str:
    """Return the text of the body of a message."""
    content = body.get_payload(decode=True) or b""
    if body.get_content_subtype() == "html":
        from .html import blocks_of

        return "\n\n".join(text for _, text in blocks_of(content, "mail") if text)
    try:
        return content.decode(body.get_content_charset("utf-8"), errors="replace")
    except LookupError:  # a charset that does not exist
        return content.decode("utf-8", errors="replace")
