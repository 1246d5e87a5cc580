# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""An index of documents, which reads those that have changed, and answers to queries."""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from torch import Tensor

from ..documents import Document, batches, without_surrogates
from ..encoders import Encoder
from .vectors import Vectors


SIGNS = " #=-~*`"  # of headings
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
WORD = re.compile(r"\w+")


class Answer(NamedTuple):
    """A passage, its document and place, and its cosine to the query."""

    score: float
    document: str
    place: str
    text: str


class Index:
    """
    Documents, and the vectors of those that have been read.

    Args:
        documents: what to search, in the order in which it is read. Of those with the same name and text only one.
        vectors: those that are kept; of what is not among the documents they are removed.
    """

    def __init__(self, documents: Iterable[Document], vectors: Vectors):
        self.documents, self.vectors = {document.key: document for document in documents}, vectors
        for key in vectors.keys - self.documents.keys():
            vectors.remove(key)

    def missing(self) -> list[Document]:
        """What has not been read."""
        read = self.vectors.keys
        return [document for key, document in self.documents.items() if key not in read]

    def passages(self) -> tuple[int, int]:
        """How many passages have been read, and how many there are."""
        every = sum(len(document.spans) for document in self.documents.values())
        return every - sum(len(document.spans) for document in self.missing()), every

    def read(self, encoder: Encoder, query: str = "") -> Iterator[tuple[int, int]]:
        """
        Read what has not been read; documents with words of the query first, if one is given. Yields `passages()`
        after each batch.
        """
        for batch in batches(by_words(query, self.missing())):
            batch = [document for document in batch if document.key not in self.vectors.keys]  # read meanwhile
            if batch:
                for document, vectors in zip(batch, encoder.encode_documents(batch), strict=True):
                    self.vectors.add(document.key, vectors)
            yield self.passages()

    def read_and_save(
        self, encoder: Encoder, query: str = "", seconds: float | None = None
    ) -> Iterator[tuple[int, int]]:
        """
        Read, and save on the way, as often as the vectors say, and at the end, also if the iterator is closed or an
        error ends it. No new batch begins after so many seconds. Yields as `read` does.
        """
        begin = last = time.monotonic()
        try:
            for progress in self.read(encoder, query):
                if time.monotonic() - last >= self.vectors.save_every:
                    self.vectors.save()
                    last = time.monotonic()
                yield progress
                if seconds is not None and time.monotonic() - begin > seconds:
                    break
        finally:
            self.vectors.save()

    def search(self, query: Tensor, top: int = 5) -> list[Answer]:
        """The passages nearest to the vector of a query, of those that have been read, the best first."""
        answers = []
        for score, key, n in self.vectors.search(query, top):
            if key not in self.documents:  # of another index with these vectors, made before a file was changed
                continue
            name, text, spans, places = self.documents[key]
            answers.append(Answer(score, name, places[n], text[slice(*spans[n])]))
        return answers


def by_words(query: str, documents: list[Document]) -> list[Document]:
    """Documents with words of a query before others, the best by BM25 first; otherwise in their order."""
    words = WORD.findall(without_surrogates(query))
    if not words:
        return documents
    try:
        import sqlite3
    except ImportError:  # a Python that was built without it
        return documents
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute("CREATE VIRTUAL TABLE texts USING fts5(name, text, content='', tokenize='porter')")
        except sqlite3.OperationalError:  # an SQLite without FTS5
            return documents
        rows = ((n, x.name, without_surrogates(x.text)) for n, x in enumerate(documents))
        database.executemany("INSERT INTO texts(rowid, name, text) VALUES (?, ?, ?)", rows)
        wanted = " OR ".join(f'"{word}"' for word in dict.fromkeys(words))
        found = database.execute("SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank, rowid", (wanted,))
        best = [n for (n,) in found]
    return [documents[n] for n in dict.fromkeys((*best, *range(len(documents))))]


def nearest_line(encoder: Encoder, query: Tensor, answer: Answer) -> tuple[str, str]:
    """
    The sentence of a passage, or the part of it in one line of the file, that is nearest to the query, and its place.
    Of a docstring it is the first line.
    """
    lines = [line for line in enumerate(answer.text.split("\n")) if line[1].strip(SIGNS) not in ("", answer.document)]
    if not lines:
        return answer.document, answer.place
    if answer.document == answer.place:
        return lines[0][1], answer.place
    sentences = [(n, sentence) for n, line in lines for sentence in SENTENCE_END.split(line.strip())]
    n, sentence = sentences[int((encoder.encode_texts([x for _, x in sentences]) @ query).argmax())]
    file, first = answer.place.rsplit(":", 1)
    return sentence, f"{file}:{int(first) + n}"
