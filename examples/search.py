# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Search by meaning: through the documentation of your own Python, or through your own files.

    python examples/search.py "how do I read a zip file"        # the docstrings of the standard library
    python examples/search.py --package torch "smaller learning rate over time"
    python examples/search.py --folder ~/notes                  # .txt, .md and .rst files, docstrings of .py files
    python examples/search.py                                   # asks for one query after the other

The encoder is a LION in checkpoints/, or another sentence encoder in a folder. A LION reads a text file in one pass,
with the name of the file in front of each passage; --pieces reads passages one by one, as other encoders always do. Of
a docstring the name and the first paragraph are read, and private names are left out.

Vectors are kept in a file, so that texts are read once; `--index usearch` keeps them in an index for millions of
passages (pip install ".[search]"). Reading ends after --seconds, or with Ctrl-C: the next run goes on.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import sysconfig
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import bitsandbytes_log  # noqa: F401 (before transformers)
import numpy as np
import torch
from docstrings import docstrings, module_name, python_files, split_paragraphs
from hub_upload_lion.app.search import places_of, read_text, unit_vectors
from safetensors import safe_open
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm import tqdm

from modeling_lion import encode_passages, split_passages
from modeling_lion.attention.numerics import has_fast_bfloat16
from modeling_lion.layout.passages import LONGEST


CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
MODEL = CHECKPOINTS / "lion-minilm-l6"
PASSAGE_MODEL = CHECKPOINTS / "lion-minilm-l6-passages"  # has learnt to read documents in one pass
INDEX_DIR = Path(__file__).parents[1] / "outputs" / "search"
TEXT_FILES = (".txt", ".md", ".rst")
BATCH_CHARACTERS = 40_000  # read together; some seconds, behind which reading can stop
LONGEST_DOCUMENT = 100_000  # characters; of a longer file, parts are documents
SAVE_EVERY = 15  # seconds
WIDTH = 100  # of a line that is shown


class Entry(NamedTuple):
    """A passage that can be found, and where: module.function, or file:line."""

    place: str
    first_line: str


class Document(NamedTuple):
    """What is read at once: a text with a name, the first and last characters of its passages, and their entries."""

    name: str
    text: str
    spans: tuple[tuple[int, int], ...]
    entries: tuple[Entry, ...]

    @property
    def key(self) -> str:
        """Changes with what is read, and with nothing else."""
        return hashlib.sha256(repr(self[:3]).encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Answer(NamedTuple):
    score: float
    place: str
    first_line: str


class Encoder(Protocol):
    """What a search needs of an encoder: unit vectors, float32, on the CPU."""

    def encode_query(self, query: str) -> Tensor:
        """`(size,)`"""

    def encode_documents(self, documents: list[Document]) -> list[Tensor]:
        """Of each document `(passages, size)`."""


class SentenceEncoder:
    """
    An encoder of sentence-transformers.

    Args:
        folder: of the encoder.
        in_pieces: whether passages are read one by one, each with the name of its document in front, and not in one
            pass over the document. Encoders that are no LION always do.

    Raises:
        FileNotFoundError: if there is no such folder.
    """

    def __init__(self, folder: str | Path, in_pieces: bool):
        check_encoder(folder)
        # Where the CPU multiplies bfloat16, it reads twice as fast, and 99 % of the nearest neighbours are the same.
        dtype = torch.bfloat16 if not torch.cuda.is_available() and has_fast_bfloat16() else torch.float32
        self.encoder = SentenceTransformer(str(folder), model_kwargs={"dtype": dtype}).eval()
        config = getattr(getattr(self.encoder[0], "auto_model", None), "config", None)
        self.in_pieces = in_pieces or getattr(config, "model_type", None) != "lion"

    def encode_query(self, query: str) -> Tensor:
        return unit_vectors(self.encoder, [query])[0]

    def encode_documents(self, documents: list[Document]) -> list[Tensor]:
        lengths = [len(document.spans) for document in documents]
        if self.in_pieces:
            texts = [f"{x.name}: {x.text[first:end]}" for x in documents for first, end in x.spans]
            return list(unit_vectors(self.encoder, texts).split(lengths))
        names, texts, spans, _ = zip(*documents, strict=True)
        vectors = torch.from_numpy(encode_passages(self.encoder, texts, spans, names=names).vectors)
        return list(torch.nn.functional.normalize(vectors, dim=-1).split(lengths))


def files_of_package(package: str | None) -> tuple[list[str], str]:
    """
    The Python files of a package or module, `None` for the standard library, and the folder it is imported from.

    Raises:
        ValueError: if there is no such package, or it has no Python files.
    """
    if package is None:
        folder = os.path.realpath(sysconfig.get_path("stdlib"))
        return python_files([folder]), folder
    found = importlib.util.find_spec(package) if package.isidentifier() else None
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        raise ValueError(f"--package {package}: this Python has no Python files under that name; give an import name.")
    origin = Path(found.origin)
    if not found.submodule_search_locations:
        return [str(origin)], str(origin.parent)
    return python_files([str(origin.parent)]), str(origin.parents[1])


def files_of_folder(folder: str | Path) -> tuple[list[str], str]:
    """
    The Python and text files in a folder and below, without hidden ones and links that lead out of it, and the folder.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if it has no such files.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"--folder {folder} does not exist, or is no folder: give one with files to search.")
    visible = (
        path for path in folder.rglob("*") if not any(x.startswith(".") for x in path.relative_to(folder).parts)
    )
    root = folder.resolve()
    own = (path for path in visible if path.is_file() and path.resolve().is_relative_to(root))
    files = sorted(str(path) for path in own if path.suffix in (".py", *TEXT_FILES))
    if not files:
        raise ValueError(f"--folder {folder} has no files to search: none ends with .py, {', '.join(TEXT_FILES)}.")
    return files, str(folder)


def documents_of(file: str, folder: str) -> Iterator[Document]:
    """What is read of a file: a text with its passages, or each public name of a Python file with a docstring."""
    if not file.endswith(".py"):
        try:
            text = read_text(file)
        except (ValueError, OSError) as error:
            print(f"Left out: {error}")
            return
        spans = split_passages(text)
        places = places_of(text, spans, os.path.relpath(file, folder))
        entries = [Entry(place, shown(text[slice(*span)])) for place, span in zip(places, spans, strict=True)]
        begin = 0
        for n, (_, end) in enumerate(spans):
            start = spans[begin][0]
            if n + 1 == len(spans) or spans[n + 1][1] - start > LONGEST_DOCUMENT:
                of_part = tuple((a - start, b - start) for a, b in spans[begin : n + 1])
                yield Document(Path(file).stem, text[start:end], of_part, tuple(entries[begin : n + 1]))
                begin = n + 1
        return
    for docstring in docstrings(file, module_name(file, folder)):
        paragraphs = split_paragraphs(docstring.text)
        if paragraphs and not any(part.startswith("_") for part in docstring.name.split(".")):
            text = paragraphs[0][:LONGEST]
            yield Document(docstring.name, text, ((0, len(text)),), (Entry(docstring.name, shown(docstring.text)),))


def shown(text: str) -> str:
    """The first line of a text, or as much of it as fits into a line of the answers."""
    line = " ".join(text.strip().splitlines()[0].split())
    short = textwrap.shorten(line, WIDTH, placeholder=" …")
    return short if len(short) > WIDTH // 2 or len(line) <= WIDTH else f"{line[: WIDTH - 2]} …"  # few spaces


class Vectors(Protocol):
    """Vectors of documents by their keys, in a file."""

    keys: set[str]

    def add(self, key: str, vectors: Tensor) -> None:
        """Those of a document's passages, `(passages, size)`."""

    def remove(self, key: str) -> None: ...

    def save(self) -> None: ...

    def search(self, query: Tensor, top: int) -> list[tuple[float, str, int]]:
        """The most similar passages, the best first: cosine, key, and index of the passage in its document."""


class MatrixVectors:
    """One matrix in a safetensors file, all of which is compared with a query."""

    def __init__(self, path: Path):
        self.path = path.with_suffix(".safetensors")
        self.vectors: dict[str, Tensor] = {}
        self.matrix: Tensor | None = None
        if self.path.is_file():
            with safe_open(self.path, "pt") as file:
                lengths = json.loads(file.metadata()["lengths"])
                rows = file.get_tensor("vectors").split(list(lengths.values()))
            self.vectors = dict(zip(lengths, rows, strict=True))

    @property
    def keys(self) -> set[str]:
        return set(self.vectors)

    def add(self, key: str, vectors: Tensor) -> None:
        self.vectors[key], self.matrix = vectors, None

    def remove(self, key: str) -> None:
        del self.vectors[key]
        self.matrix = None

    def save(self) -> None:
        lengths = json.dumps({key: len(rows) for key, rows in self.vectors.items()})
        with replaced(self.path) as unfinished:
            save_file({"vectors": torch.cat(list(self.vectors.values()))}, unfinished, {"lengths": lengths})

    def search(self, query: Tensor, top: int) -> list[tuple[float, str, int]]:
        if self.matrix is None:
            self.matrix = torch.cat(list(self.vectors.values()))
            self.places = [(key, n) for key, rows in self.vectors.items() for n in range(len(rows))]
        best = (self.matrix @ query).topk(min(top, len(self.matrix)))
        return [(score, *self.places[n]) for score, n in zip(*map(Tensor.tolist, best), strict=True)]


class UsearchVectors:
    """
    An index of usearch, which compares a query with few of its vectors.

    Raises:
        ImportError: if usearch is not installed.
    """

    def __init__(self, path: Path):
        try:
            from usearch.index import Index as UsearchIndex
        except ImportError as error:
            raise ImportError('--index usearch needs usearch: pip install ".[search]"') from error
        self.make_index = UsearchIndex
        self.folder, self.names = path.parent, path.with_suffix(".usearch.json")
        self.labels: dict[str, list[int]] = {}
        self.index, self.file, self.next_label = None, None, 0
        if self.names.is_file():
            saved = json.loads(self.names.read_text())
            self.labels, self.next_label, self.file = saved["labels"], saved["next_label"], saved["file"]
            self.index = UsearchIndex.restore(self.folder / self.file)
        self.places = {label: (key, n) for key, labels in self.labels.items() for n, label in enumerate(labels)}

    @property
    def keys(self) -> set[str]:
        return set(self.labels)

    def add(self, key: str, vectors: Tensor) -> None:
        if self.index is None:
            self.index = self.make_index(ndim=vectors.shape[1], metric="cos", dtype="f32")
        labels = list(range(self.next_label, self.next_label + len(vectors)))
        self.next_label += len(vectors)
        self.index.add(np.array(labels, "uint64"), vectors.numpy())
        self.labels[key] = labels
        self.places |= {label: (key, n) for n, label in enumerate(labels)}

    def remove(self, key: str) -> None:
        for label in self.labels.pop(key):
            self.index.remove(label)
            del self.places[label]

    def save(self) -> None:
        # Under a new name, so that the list of names is of one file at every moment.
        before, self.file = self.file, f"{self.names.stem}-{self.next_label}-{os.getpid()}"
        with replaced(self.folder / self.file) as unfinished:
            self.index.save(str(unfinished))
        with replaced(self.names) as unfinished:
            saved = {"labels": self.labels, "next_label": self.next_label, "file": self.file}
            unfinished.write_text(json.dumps(saved))
        if before not in (None, self.file):
            (self.folder / before).unlink(missing_ok=True)

    def search(self, query: Tensor, top: int) -> list[tuple[float, str, int]]:
        found = self.index.search(query.numpy(), min(top, len(self.places)))
        return [(1 - float(x.distance), *self.places[int(x.key)]) for x in found]


VECTORS = {"file": MatrixVectors, "usearch": UsearchVectors}


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file to write, which takes the place of another when all of it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    yield unfinished
    unfinished.replace(path)


class Index:
    """
    Documents, and the vectors of those that have been read.

    Args:
        files, folder: what to search; names of modules and files begin in the folder.
        vectors: those that are kept; what is no longer there is removed from them.

    Raises:
        ValueError: if there is nothing to search.
    """

    def __init__(self, files: list[str], folder: str, vectors: Vectors):
        # Names of several definitions, as one for each platform, come once for each text.
        found = {document.key: document for file in files for document in documents_of(file, folder)}
        self.documents, self.vectors = found, vectors
        if not found:
            raise ValueError(f"There is nothing to search in {folder}: no text, and no docstring of a public name.")
        for key in vectors.keys - found.keys():
            vectors.remove(key)

    def __str__(self) -> str:
        read, every = (sum(len(self.documents[key].spans) for key in x) for x in (self.vectors.keys, self.documents))
        return f"Searching {read:,} of {every:,} passages{'' if read == every else '; run again to read on'}."

    def read(self, encoder: Encoder, seconds: float, show_progress: bool = True) -> None:
        """
        Read the documents that have not been read, the outermost names first, and save on the way. After so many
        seconds, or Ctrl-C, no new batch begins, but one is read.
        """
        stop, next_save = time.monotonic() + seconds, time.monotonic() + SAVE_EVERY
        missing = [self.documents[key] for key in self.documents.keys() - self.vectors.keys]
        missing.sort(key=lambda document: (document.entries[0].place.count("."), document))
        if not missing:
            return
        has_read = False
        with (
            contextlib.suppress(KeyboardInterrupt),
            tqdm(
                total=sum(len(x.spans) for x in missing), desc="Reading", unit=" passages", disable=not show_progress
            ) as progress,
        ):
            for batch in batches(missing):
                for document, vectors in zip(batch, encoder.encode_documents(batch), strict=True):
                    self.vectors.add(document.key, vectors)
                    progress.update(len(vectors))
                has_read = True
                if time.monotonic() > stop:
                    break
                if time.monotonic() > next_save:  # so that a run that is killed has read something
                    self.vectors.save()
                    next_save = time.monotonic() + SAVE_EVERY
        if not self.vectors.keys:
            raise KeyboardInterrupt
        if has_read:
            self.vectors.save()

    def search(self, query: str, encoder: Encoder, top: int = 5) -> list[Answer]:
        """The most similar of what has been read, by cosine, the best first."""
        found = self.vectors.search(encoder.encode_query(query), top)
        return [Answer(score, *self.documents[key].entries[n]) for score, key, n in found]


def batches(documents: list[Document]) -> Iterator[list[Document]]:
    """In their order, as many as have `BATCH_CHARACTERS` together."""
    batch, characters = [], 0
    for document in documents:
        characters += len(document.text)
        if batch and characters > BATCH_CHARACTERS:
            yield batch
            batch, characters = [], len(document.text)
        batch.append(document)
    yield batch


def check_encoder(folder: str | Path) -> None:
    """Raise a FileNotFoundError if there is no such folder of an encoder."""
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            f"{folder} is no folder: give that of a sentence encoder (--model). The default, "
            "in checkpoints/, is part of the repository, not of the package: run this in a complete "
            "checkout, or give the folder of a copy (docs/guides/hub.md)."
        )


def index_path(folder: Path, source: str, model: str | Path, in_pieces: bool) -> Path:
    """Of what is searched with a model as it is now, without an ending."""
    files = sorted(path for path in Path(model).rglob("*") if path.is_file())
    stats = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files]
    return folder / hashlib.sha256(repr((source, stats, in_pieces)).encode()).hexdigest()[:16]


def print_answers(query: str, answers: list[Answer]) -> None:
    print(f"\n  {query}")
    width = max(len(answer.place) for answer in answers)
    for answer in answers:
        print(f"    {answer.score:.2f}  {answer.place:{width}}  {answer.first_line}")


def main(args: list[str] | None = None) -> list[Answer]:
    """Run with these arguments, or those of the command line; returns the last answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("query", nargs="?", help="what to look for; asked for if it is not given")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--package", help="search the docstrings of this package; not given: the standard library")
    what.add_argument("--folder", help="search the files in this folder and below")
    parser.add_argument("--model", default=PASSAGE_MODEL, help="folder of the sentence encoder")
    parser.add_argument("--pieces", action="store_true", help="read passages one by one")
    parser.add_argument("--top", type=int, default=5, help="answers to show")
    parser.add_argument("--seconds", type=float, default=45, help="stop reading after so many; the next run goes on")
    parser.add_argument("--index", choices=list(VECTORS), default="file", help="what keeps the vectors")
    parser.add_argument("--index_dir", type=Path, default=INDEX_DIR, help="where vectors are kept")
    arguments = parser.parse_args(args)
    if arguments.top < 1:
        raise ValueError(f"--top is {arguments.top}: give at least 1.")

    encoder = SentenceEncoder(arguments.model, arguments.pieces)
    if arguments.folder is None:
        files, folder = files_of_package(arguments.package)
    else:
        files, folder = files_of_folder(arguments.folder)
    source = str(Path(folder).resolve()) if arguments.package is None else arguments.package
    path = index_path(arguments.index_dir, source, arguments.model, arguments.pieces)
    index = Index(files, folder, VECTORS[arguments.index](path))
    index.read(encoder, arguments.seconds)
    print(index)

    answers = []
    asked = iter(lambda: input("\nquery (empty to end): ").strip(), "")
    for query in asked if arguments.query is None else [arguments.query]:
        answers = index.search(query, encoder, arguments.top)
        print_answers(query, answers)
    return answers


if __name__ == "__main__":
    main()
