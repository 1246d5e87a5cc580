# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""An index of documents: encodes those that have changed, and finds the passages nearest to a query."""

import contextlib
import re
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from torch import Tensor

from ..documents import Document, batches, without_surrogates
from ..encoders import SentenceEncoder
from .vectors import MemoryVectors, SavedVectors


SIGNS = " #=-~*`"  # that mark headings
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
LINE_OF_FILE = re.compile(r"(.*\S):(\d+)", re.DOTALL)
WORD = re.compile(r"\w+")


class Answer(NamedTuple):
    """A passage, its document and place, and its cosine similarity to the query."""

    score: float
    document: str
    place: str
    text: str


class Index:
    """
    Documents, and the vectors of those that have been read.

    Args:
        documents: what to search, in reading order. Copies (same name and text in several places) are read once.
        vectors: vectors of earlier searches; those of other documents are removed.
    """

    def __init__(self, documents: Iterable[Document], vectors: MemoryVectors | SavedVectors):
        self.keys = {document: document.key for document in documents}  # hashed once
        self.copies: dict[str, list[Document]] = defaultdict(list)
        for document, key in self.keys.items():
            self.copies[key].append(document)
        self.vectors = vectors
        for key in vectors.keys - self.copies.keys():
            vectors.remove(key)

    def missing(self) -> list[Document]:
        """Return the documents that have not been read, only the first of several copies."""
        return [copies[0] for key, copies in self.copies.items() if key not in self.vectors.keys]

    def count(self, documents: Iterable[Document]) -> int:
        """Count the passages of documents and of their copies."""
        return sum(len(document.spans) * len(self.copies[self.keys[document]]) for document in documents)

    def passages(self) -> tuple[int, int]:
        """Return how many passages have been read, and how many there are."""
        every = sum(len(document.spans) for document in self.keys)
        return every - self.count(self.missing()), every

    def read(self, encoder: SentenceEncoder, query: str = "") -> Iterator[tuple[int, int]]:
        """
        Read what has not been read. If a query is given, documents with its words come first. Yields after each batch
        how many passages have been read, and how many there are.
        """
        done, every = self.passages()
        for batch in batches(by_words(query, self.missing())):
            unread = [x for x in batch if self.keys[x] not in self.vectors.keys]  # other requests may have read some
            if unread:
                for document, vectors in zip(unread, encoder.encode_documents(unread), strict=True):
                    self.vectors.add(self.keys[document], vectors)
            done += self.count(batch)
            yield done, every

    def read_and_save(
        self, encoder: SentenceEncoder, query: str = "", seconds: float | None = None
    ) -> Iterator[tuple[int, int]]:
        """
        `read`, and save the vectors after each batch and at the end, even if it is closed or an error occurs.
        After `seconds` no new batch begins.
        """
        begin = time.monotonic()
        try:
            for progress in self.read(encoder, query):
                self.vectors.save()
                yield progress
                if seconds is not None and time.monotonic() - begin > seconds:
                    break
        finally:
            self.vectors.save()

    def search(self, query: Tensor, top: int = 5) -> list[Answer]:
        """Return the passages nearest to a query's vector `(size,)` among those that have been read, best first."""
        answers = []
        for score, key, n in self.vectors.search(query, top):
            # Another index with the same vectors may have keys that this one lacks, from before a file was changed.
            for name, text, spans, places in self.copies.get(key, ()):
                answers.append(Answer(score, name, places[n], text[slice(*spans[n])]))
        return answers[:top]


def by_words(query: str, documents: list[Document]) -> list[Document]:
    """Sort documents: those with words of a query first, the best by BM25, then the others in their order."""
    words = WORD.findall(without_surrogates(query))
    if not words:
        return documents
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute("CREATE VIRTUAL TABLE texts USING fts5(name, text, content='', tokenize='porter')")
        except sqlite3.OperationalError:  # an SQLite without FTS5
            return documents
        rows = ((n, without_surrogates(x.name or ""), without_surrogates(x.text)) for n, x in enumerate(documents))
        database.executemany("INSERT INTO texts(rowid, name, text) VALUES (?, ?, ?)", rows)
        wanted = " OR ".join(f'"{word}"' for word in dict.fromkeys(words))
        found = database.execute("SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank, rowid", (wanted,))
        best = [n for (n,) in found]
    return [documents[n] for n in dict.fromkeys((*best, *range(len(documents))))]


def nearest_line(encoder: SentenceEncoder, query: Tensor, answer: Answer) -> tuple[str, str]:
    """
    Return the sentence of a passage that is nearest to the query, or the part of it in one line of the file, and its
    place. For a docstring this is the first line.
    """
    lines = [line for line in enumerate(answer.text.split("\n")) if line[1].strip(SIGNS) not in ("", answer.document)]
    if not lines:
        return answer.document, answer.place
    if answer.document == answer.place:
        return lines[0][1], answer.place
    sentences = [(n, sentence) for n, line in lines for sentence in SENTENCE_END.split(line.strip())]
    n, sentence = sentences[int((encoder.encode_texts([x for _, x in sentences]) @ query).argmax())]
    in_line = LINE_OF_FILE.fullmatch(answer.place)
    return sentence, f"{in_line[1]}:{int(in_line[2]) + n}" if in_line else answer.place
