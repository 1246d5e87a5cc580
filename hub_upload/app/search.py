# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Search by meaning: texts of files as documents with passages, their vectors, and the passages nearest to a query.

The page of `lion app` and examples/search.py are made of this.
"""

import codecs
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from modeling_lion import encode_passages, split_passages
from modeling_lion.layout.passages import PassageEncoder


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


TEXT_FILES = (".txt", ".md", ".rst")
MOST_BYTES = 100_000_000  # of a file
# Bytes that no text has; beside white space there is the escape, of colours.
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
# Markdown's and reStructuredText's.
HEADING = re.compile(r"^#+ +(\S.*?) *#*$|^([^\s.:#].{2,80})\n([-=~*#])\3{2,}\s*$", re.MULTILINE)
HEAD = 3000  # characters of a text, among which a heading is its name
LONGEST_DOCUMENT = 40_000  # characters, as benchmarks/bench_passages.py measures; of longer texts parts are documents
BATCH_CHARACTERS = 40_000  # read together; some seconds, behind which reading can stop


def printable(path: str | Path) -> str:
    """A path for people, and for tokenizers, which take no bytes that are not UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def read_text(path: str | Path) -> str:
    """
    The text in a file: UTF-8, UTF-16 with a byte order mark, or otherwise Windows' Latin-1.

    Raises:
        ValueError: if the file is binary or too large.
    """
    size, name = Path(path).stat().st_size, printable(Path(path).name)
    if size > MOST_BYTES:
        raise ValueError(f"{name} has {size:,} bytes, and up to {MOST_BYTES:,} are read: split it.")
    data = Path(path).read_bytes()
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    if b"\0" not in data:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            if not CONTROL.search(data):
                return data.decode("cp1252", errors="replace")
    raise ValueError(f"{name} is no text: give text files, such as .txt, .md or .py.")


class Document(NamedTuple):
    """
    What is read at once.

    Attributes:
        name: stands in front of each passage.
        text: of all passages.
        spans: of each passage the first character, and the one behind its last.
        places: of each passage, for people: `file:line`.
    """

    name: str
    text: str
    spans: tuple[tuple[int, int], ...]
    places: tuple[str, ...]

    @property
    def key(self) -> str:
        """Changes with what is read, and with nothing else."""
        return hashlib.sha256(repr(self[:3]).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def name_of(text: str, path: str | Path) -> str:
    """The first heading of a text in Markdown or reStructuredText, else the name of its file, as words."""
    found = HEADING.search(text[:HEAD])
    if found:
        return (found[1] or found[2]).strip("`* ")
    return Path(printable(path)).stem.replace("_", " ").replace("-", " ")


def documents_of_text(text: str, path: str) -> Iterator[Document]:
    """A text with its passages, in parts if it is long. Places begin with the path of its file."""
    name, spans, path = name_of(text, path), split_passages(text), printable(path)
    places, line, end = [], 1, 0
    for first, _ in spans:
        line += text.count("\n", end, first)
        end = first
        places.append(f"{path}:{line}")
    begin = 0
    for n, (_, end) in enumerate(spans):
        start = spans[begin][0]
        if n + 1 == len(spans) or spans[n + 1][1] - start > LONGEST_DOCUMENT:
            of_part = tuple((first - start, last - start) for first, last in spans[begin : n + 1])
            yield Document(name, text[start:end], of_part, tuple(places[begin : n + 1]))
            begin = n + 1


def unit_vectors(encoder: "SentenceTransformer", texts: list[str], batch_size: int = 32) -> Tensor:
    """The vectors of texts by an encoder: `(number of texts, size)`, float32, of length 1, on the CPU."""
    options = {"batch_size": batch_size, "convert_to_tensor": True, "show_progress_bar": False}
    return encoder.encode(texts, normalize_embeddings=True, **options).float().cpu()


class Encoder(Protocol):
    """What a search needs of an encoder: unit vectors, float32, on the CPU."""

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Of queries or lines: `(texts, size)`."""

    def encode_documents(self, documents: Sequence[Document]) -> list[Tensor]:
        """Of each document `(passages, size)`."""


class SentenceEncoder:
    """
    An encoder of sentence-transformers.

    Args:
        encoder: set to inference.
        in_pieces: whether passages are read one by one, each with the name of its document in front, and not in one
            pass over the document. Encoders for which `encode_passages` is not made always do.
    """

    def __init__(self, encoder: "SentenceTransformer", in_pieces: bool = False):
        self.encoder, self.in_pieces = encoder.eval(), in_pieces
        try:
            PassageEncoder(encoder)
        except ValueError:  # no LION, or another pooling
            self.in_pieces = True

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        return unit_vectors(self.encoder, list(texts))

    def encode_documents(self, documents: Sequence[Document]) -> list[Tensor]:
        lengths = [len(document.spans) for document in documents]
        if self.in_pieces:
            texts = [f"{x.name}: {x.text[first:end]}" for x in documents for first, end in x.spans]
            return list(unit_vectors(self.encoder, texts).split(lengths))
        names, texts, spans, _ = zip(*documents, strict=True)
        vectors = torch.from_numpy(encode_passages(self.encoder, texts, spans, names=names).vectors)
        return list(torch.nn.functional.normalize(vectors, dim=-1).split(lengths))


class Vectors(Protocol):
    """Vectors of documents by their keys."""

    keys: set[str]

    def add(self, key: str, vectors: Tensor) -> None:
        """Those of a document's passages, `(passages, size)`."""

    def remove(self, key: str) -> None: ...

    def search(self, query: Tensor, top: int) -> list[tuple[float, str, int]]:
        """The most similar passages, the best first: cosine, key, and index of the passage in its document."""


class MemoryVectors:
    """One matrix, all of which is compared with a query."""

    def __init__(self):
        self.vectors: dict[str, Tensor] = {}
        self.matrix: Tensor | None = None

    @property
    def keys(self) -> set[str]:
        return set(self.vectors)

    def add(self, key: str, vectors: Tensor) -> None:
        self.vectors[key], self.matrix = vectors, None

    def remove(self, key: str) -> None:
        del self.vectors[key]
        self.matrix = None

    def search(self, query: Tensor, top: int) -> list[tuple[float, str, int]]:
        if not self.vectors:
            return []
        if self.matrix is None:
            lengths = {key: len(rows) for key, rows in self.vectors.items()}
            self.matrix = torch.cat(list(self.vectors.values()))
            self.vectors = dict(zip(lengths, self.matrix.split(list(lengths.values())), strict=True))  # its memory
            self.places = [(key, n) for key, length in lengths.items() for n in range(length)]
        best = (self.matrix @ query).topk(min(top, len(self.matrix)))
        return [(score, *self.places[n]) for score, n in zip(*map(Tensor.tolist, best), strict=True)]


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

    def read(self, encoder: Encoder) -> Iterator[int]:
        """Read what has not been read. Yields after each batch how many passages it had."""
        for batch in batches(self.missing()):
            for document, vectors in zip(batch, encoder.encode_documents(batch), strict=True):
                self.vectors.add(document.key, vectors)
            yield sum(len(document.spans) for document in batch)

    def search(self, query: Tensor, top: int = 5) -> list[Answer]:
        """The passages nearest to the vector of a query, of those that have been read, the best first."""
        answers = []
        for score, key, n in self.vectors.search(query, top):
            name, text, spans, places = self.documents[key]
            answers.append(Answer(score, name, places[n], text[slice(*spans[n])]))
        return answers


def batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """In their order, as many as have `BATCH_CHARACTERS` together."""
    batch: list[Document] = []
    for document in documents:
        if batch and sum(len(x.text) for x in (*batch, document)) > BATCH_CHARACTERS:
            yield batch
            batch = []
        batch.append(document)
    if batch:
        yield batch
