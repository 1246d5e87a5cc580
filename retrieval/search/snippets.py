# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Sentences of passages, and those nearest to a query."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from ..encoders import SentenceEncoder
from ..formats.section import HEADINGS
from .index import Answer


# A blank line; a new line behind a colon or a bracket of code, or one that begins a heading, an item, a row of a table
# or a field; the line under a heading.
BLOCK = re.compile(
    r"\n\s*\n|(?<=[:;{}])\n|\n(?=\s*(?:#+ |[-*+•|>] |\d+[.)] |:\w))|\s*^[-=~*#^+\"`]{3,}[ \t]*$\s*", re.MULTILINE
)
END = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s)|[。！？]+[」』”）]*")  # what may end a sentence
# Full stops behind these end no sentence, whatever follows: titles, references, initials, and the number of an item.
NO_END = re.compile(
    r"(?:^|[\s(\[\"'“„‘])(?:(?-i:[A-Z])|(?:[A-Za-z]\. ?)+[A-Za-z]|dr|mr|mrs|ms|prof|st|rev|gen|col|capt|lt|sgt|"
    r"vs|cf|ca|viz|approx|figs?|eqs?|sec|ch|vol|nos?|nr|pp?|art|abs|bzw|vgl|ggf|m[mr]e|sra?)$|^\W*\d+$",
    re.IGNORECASE,
)
NO_BEGIN = re.compile(r"[a-z,;:)]")
SIGNS = " \t\r\n#*-+>|`•=~_"  # around headings and items
LINE_OF_FILE = re.compile(r"(.*\S):(\d+)", re.DOTALL)
FEWEST = 2  # letters and digits of a sentence


def sentences(text: str) -> list[tuple[int, int]]:
    """
    Split a text into sentences, at the ends of paragraphs, headings, items and sentences. Full stops of abbreviations,
    initials and numbers do not end a sentence.

    Returns:
        For each sentence the index of its first character and of the one behind its last. White space and signs of
        headings and items around it are left out.
    """
    borders = [0, *(index for x in BLOCK.finditer(text) for index in x.span()), len(text)]
    spans = []
    for first, last in zip(borders[::2], borders[1::2], strict=True):
        for x in END.finditer(text, first, last):
            behind = text[x.end() : last].lstrip()
            if not NO_BEGIN.match(behind) and not (x[0] == "." and NO_END.search(text[first : x.start()])):
                spans.append((first, x.end()))
                first = x.end()
        spans.append((first, last))
    stripped = []
    for first, last in spans:
        sentence = text[first:last]
        first += len(sentence) - len(sentence.lstrip(SIGNS))
        last -= len(sentence) - len(sentence.rstrip(" \t\r\n#=~|"))
        if sum(map(str.isalnum, text[first:last])) >= FEWEST:
            stripped.append((first, last))
    return stripped


def snippets(encoder: SentenceEncoder, query: Tensor, answers: Sequence[Answer]) -> list[tuple[int, int]]:
    """
    Find the sentence of each passage that is nearest to a query, other than headings in the name of the document.

    Args:
        query: the vector, `(size,)`.

    Returns:
        For each passage the index of the sentence's first character, and of the one behind its last.
    """
    spans = []
    for x in answers:
        headings, found = (x.document or "").split(HEADINGS), sentences(x.text) or [(0, len(x.text))]
        spans.append([span for span in found if x.text[slice(*span)] not in headings] or found)
    texts = [x.text[first:end] for x, found in zip(answers, spans, strict=True) for first, end in found]
    scores = encoder.encode_texts(texts) @ query if texts else torch.zeros(0)
    of_answers = scores.split([len(found) for found in spans])
    return [found[int(x.argmax())] for found, x in zip(spans, of_answers, strict=True)]


def place_of_snippet(answer: Answer, first: int) -> str:
    """Return the place of a passage, with the line of its character `first` if it is a line of a file."""
    found = LINE_OF_FILE.fullmatch(answer.place)
    return answer.place if found is None else f"{found[1]}:{int(found[2]) + answer.text.count(chr(10), 0, first)}"
