# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Recognise text files that nobody wrote or reads: logs, minified code, encoded data, and what programs generate."""

import re

from .section import SkippedFile


HEAD = 100_000  # bytes that are looked at
PROSE = (".txt", ".md", ".rst", ".markdown", ".adoc", ".org", ".text")
# Generated lists of versions.
LOCKS = {"cargo.lock", "composer.lock", "flake.lock", "gemfile.lock", "go.sum", "npm-shrinkwrap.json"}
LOCKS |= {"package-lock.json", "packages.lock.json", "pdm.lock", "pipfile.lock", "pnpm-lock.yaml", "poetry.lock"}
LOCKS |= {"pubspec.lock", "uv.lock", "yarn.lock"}
ENDINGS = {".log": "log", ".map": "generated", ".svg": "picture", ".eps": "picture", ".ps": "picture"}
ENDINGS |= {f".min.{x}": "minified" for x in ("js", "mjs", "css", "html")}
GENERATED = re.compile(rb"@generated\b|\bDO NOT EDIT\b|\b[Aa]utomatically generated\b")
GENERATED_HEAD = 600  # bytes in which a generated file says so
TIME = re.compile(
    rb"^.{0,40}?(\d{4}[-/]\d\d[-/]\d\d|\d\d/[A-Z][a-z]{2}/\d{4}|[A-Z][a-z]{2} [ \d]\d \d\d:|\d\d:\d\d:\d\d)"
)
LEVEL = re.compile(rb"\b(INFO|DEBUG|WARN(ING)?|ERROR|TRACE|NOTICE|FATAL|CRITICAL|HTTP/\d)\b|\w\[\d+\]:", re.IGNORECASE)
FEW_LINES = 10  # fewer lines with times may be notes
ENCODED = re.compile(rb"[\w+/-]{60,}", re.ASCII)
FEW_SIGNS = 8  # different ones, as in lines that are drawn
LONG_LINES = 300  # mean bytes; nobody writes code like this


def junk(data: bytes, name: str, is_by_lines: bool) -> str | None:
    """
    Return what a text file is if it should not be searched, else `None`.

    Args:
        is_by_lines: whether it is read by its lines, as source code.
    """
    low = name.lower()
    if low in LOCKS:
        return "lock file"
    if found := next((kind for ending, kind in ENDINGS.items() if low.endswith(ending)), None):
        return found
    head = data[:HEAD]
    if sum(len(word) for word in ENCODED.findall(head) if len(set(word)) > FEW_SIGNS) > len(head) / 2:
        return "encoded data"
    lines = [line for line in head.split(b"\n") if line.strip()]
    of_log = sum(bool(TIME.match(line) and LEVEL.search(line[:200])) for line in lines)
    if len(lines) >= FEW_LINES and of_log > len(lines) / 2 and is_by_lines | low.endswith(PROSE):
        return "log"
    if low.endswith(PROSE):
        return None
    if GENERATED.search(head[:GENERATED_HEAD]):
        return "generated"
    if is_by_lines and lines and len(head) / len(lines) > LONG_LINES:
        return "minified, or of long lines"
    return None


def check_text(data: bytes, name: str, is_by_lines: bool) -> None:
    """Raise a SkippedFile if a text file is `junk`."""
    if kind := junk(data, name, is_by_lines):
        raise SkippedFile(kind, f"{name} is left out: {kind}.")
