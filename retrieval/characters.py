# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Characters that cannot be printed or tokenized. Nothing here imports torch."""

import os
import re
from pathlib import Path


CONTROL = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f]")  # those of terminals; not tabs and ends of lines
SURROGATE = re.compile("[\ud800-\udfff]")
EAST_ASIAN = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Chinese and Japanese, without spaces


def without_surrogates(text: str) -> str:
    """
    Replace single surrogates by U+FFFD. Escapes in Python and JSON and arguments that are not UTF-8 can make them, and
    tokenizers reject them.
    """
    return SURROGATE.sub("\ufffd", text)


def without_control(text: str) -> str:
    """Replace control characters by U+FFFD. A terminal obeys them."""
    return CONTROL.sub("\ufffd", text)


def printable(path: str | Path) -> str:
    """Return a path that can be printed and tokenized: without control characters and bytes that are not UTF-8."""
    return without_control(os.fsencode(path).decode(errors="replace"))
