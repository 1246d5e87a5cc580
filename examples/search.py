# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Search by meaning: through the documentation of your own Python, or through your own files.

    python examples/search.py "how do I read a zip file"        # the docstrings of the standard library
    python examples/search.py --package torch "smaller learning rate over time"
    python examples/search.py --folder ~/notes                  # .txt, .md and .rst files, docstrings of .py files
    python examples/search.py                                   # asks for one query after the other

The encoder is a LION in checkpoints/, or another sentence encoder in a folder. A LION reads a text file in one pass,
with its heading, or the name of the file, in front of each passage; --pieces reads passages one by one, as other
encoders always do. Of a docstring the name and the first paragraph are read, and private names are left out.

Vectors are kept in files, so that texts are read once; `--index usearch` keeps them in an index for millions of
passages (pip install ".[search]"). Reading ends after --seconds, or with Ctrl-C: the next run goes on.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import sysconfig
import textwrap
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import script_tools  # noqa: F401 (before transformers, which it makes quiet)
import torch
from docstrings import docstrings, module_name, python_files, split_paragraphs
from hub_upload_lion.app.search import (
    TEXT_FILES,
    Answer,
    Document,
    Encoder,
    Index,
    MemoryVectors,
    SentenceEncoder,
    documents_of_text,
    read_text,
)
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm import tqdm

from modeling_lion.attention.numerics import has_fast_bfloat16
from modeling_lion.layout.passages import LONGEST


CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
MODEL = CHECKPOINTS / "lion-minilm-l6"
PASSAGE_MODEL = CHECKPOINTS / "lion-minilm-l6-passages"  # has learnt to read documents in one pass
INDEX_DIR = Path(__file__).parents[1] / "outputs" / "search"
SIGNS = " #=-~*`"  # of headings
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
WIDTH = 100  # of a line that is shown
MOST_PARTS = 64  # files of vectors, which are joined then


def load_encoder(folder: str | Path, in_pieces: bool) -> SentenceEncoder:
    """
    The encoder in a folder.

    Raises:
        FileNotFoundError: if there is no such folder.
    """
    check_encoder(folder)
    # Where the CPU multiplies bfloat16, it reads twice as fast, and 99 % of the nearest neighbours are the same.
    dtype = torch.bfloat16 if not torch.cuda.is_available() and has_fast_bfloat16() else torch.float32
    return SentenceEncoder(SentenceTransformer(str(folder), model_kwargs={"dtype": dtype}), in_pieces)


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
        fault = "is a file" if folder.exists() else "does not exist"
        raise FileNotFoundError(f"--folder {folder} {fault}: give a folder with files to search.")
    visible = (
        path for path in folder.rglob("*") if not any(x.startswith(".") for x in path.relative_to(folder).parts)
    )
    root = folder.resolve()
    own = (path for path in visible if path.is_file() and path.resolve().is_relative_to(root))
    files = sorted(str(path) for path in own if path.suffix.lower() in (".py", *TEXT_FILES))
    if not files:
        raise ValueError(f"--folder {folder} has no files to search: none ends with .py, {', '.join(TEXT_FILES)}.")
    return files, str(folder)


def documents_of(file: str, folder: str) -> Iterator[Document]:
    """What is read of a file: a text with its passages, or each public name of a Python file with a docstring."""
    if not file.lower().endswith(".py"):
        try:
            text = read_text(file)
        except (ValueError, OSError) as error:
            print(f"Left out: {error}")
            return
        yield from documents_of_text(text, os.path.relpath(file, folder))
        return
    for docstring in docstrings(file, module_name(file, folder)):
        paragraphs = split_paragraphs(docstring.text)
        if paragraphs and not any(part.startswith("_") for part in docstring.name.split(".")):
            text = paragraphs[0][:LONGEST]
            yield Document(docstring.name, text, ((0, len(text)),), (docstring.name,))


def make_index(files: Iterable[str], folder: str, vectors: "SavedVectors") -> Index:
    """
    Of the documents in files, the outermost names first; names of modules and files begin in the folder.

    Raises:
        ValueError: if there is nothing to search.
    """
    found = [document for file in files for document in documents_of(file, folder)]
    if not found:
        raise ValueError(f"There is nothing to search in {folder}: no text, and no docstring of a public name.")
    return Index(sorted(found, key=lambda document: (document.places[0].count("."), document)), vectors)


def shown(line: str) -> str:
    """A line, or as much of it as fits into a line of the answers."""
    line = " ".join(line.split())
    short = textwrap.shorten(line, WIDTH, placeholder=" …")
    return short if len(short) > WIDTH // 2 or len(line) <= WIDTH else f"{line[: WIDTH - 2]} …"  # few spaces


class FileVectors(MemoryVectors):
    """
    One matrix, all of which is compared with a query, and files of what was added and removed between two saves.

    Many files, or files with more removed vectors than others, are joined into one. A process that ends in between
    leaves what was saved before.
    """

    save_every = 0.0

    def __init__(self, path: Path):
        super().__init__()
        self.folder = path.with_suffix(".vectors")
        self.added: dict[str, Tensor] = {}
        self.removed: set[str] = set()
        self.saved_rows = 0
        self.parts = []
        for part in sorted(self.folder.glob("*.safetensors")):
            try:
                with safe_open(part, "pt") as file:
                    about = json.loads(file.metadata()["about"])
                    rows = file.get_tensor("vectors").split(list(about["lengths"].values()))
            except SafetensorError:  # of a machine that went down: its documents are read again
                part.unlink()
                continue
            self.parts.append(part)
            if about["is_whole"]:  # the parts before it are about to be deleted
                self.vectors, self.saved_rows = {}, 0
            for key in about["removed"]:
                self.vectors.pop(key, None)
            self.vectors |= zip(about["lengths"], rows, strict=True)
            self.saved_rows += sum(about["lengths"].values())

    def add(self, key: str, vectors: Tensor) -> None:
        super().add(key, vectors)
        self.added[key] = vectors

    def remove(self, key: str) -> None:
        super().remove(key)
        self.added.pop(key, None)
        self.removed.add(key)

    def save(self) -> None:
        if not self.added and not self.removed:
            return
        rows = sum(map(len, self.vectors.values()))
        is_whole = len(self.parts) + 1 >= MOST_PARTS or self.saved_rows > 2 * rows
        written = self.vectors if is_whole else self.added
        about = {"lengths": {key: len(x) for key, x in written.items()}, "removed": [], "is_whole": is_whole}
        if not is_whole:
            about["removed"] = sorted(self.removed)
        number = int(self.parts[-1].stem.split("-")[0]) + 1 if self.parts else 0
        part = self.folder / f"{number:09}-{os.getpid()}.safetensors"
        vectors = torch.cat(list(written.values())) if written else torch.zeros(0, 1)
        with replaced(part) as unfinished:
            save_file({"vectors": vectors}, unfinished, {"about": json.dumps(about)})
        if is_whole:
            for other in self.parts:
                other.unlink(missing_ok=True)
        self.parts = [part] if is_whole else [*self.parts, part]
        self.saved_rows = rows if is_whole else self.saved_rows + len(vectors)
        self.added, self.removed = {}, set()


class UsearchVectors:
    """
    An index of usearch, which compares a query with few of its vectors. It is saved as a whole.

    Raises:
        ImportError: if usearch is not installed.
    """

    save_every = 15.0

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
        self.is_saved = True

    @property
    def keys(self) -> set[str]:
        return set(self.labels)

    def add(self, key: str, vectors: Tensor) -> None:
        if self.index is None:
            self.index = self.make_index(ndim=vectors.shape[1], metric="cos", dtype="f32")
        labels = list(range(self.next_label, self.next_label + len(vectors)))
        self.next_label += len(vectors)
        self.index.add(np.array(labels, "uint64"), vectors.numpy())
        self.labels[key], self.is_saved = labels, False
        self.places |= {label: (key, n) for n, label in enumerate(labels)}

    def remove(self, key: str) -> None:
        self.is_saved = False
        for label in self.labels.pop(key):
            self.index.remove(label)
            del self.places[label]

    def save(self) -> None:
        if self.is_saved:
            return
        # Under a new name, so that the list of names is of one file at every moment.
        before, self.file = self.file, f"{self.names.stem}-{self.next_label}-{os.getpid()}"
        with replaced(self.folder / self.file) as unfinished:
            self.index.save(str(unfinished))
        with replaced(self.names) as unfinished:
            saved = {"labels": self.labels, "next_label": self.next_label, "file": self.file}
            unfinished.write_text(json.dumps(saved))
        if before not in (None, self.file):
            (self.folder / before).unlink(missing_ok=True)
        self.is_saved = True

    def search(self, query: Tensor, top: int) -> list[tuple[float, str, int]]:
        if not self.places:
            return []
        found = self.index.search(query.numpy(), min(top, len(self.places)))
        return [(1 - float(x.distance), *self.places[int(x.key)]) for x in found]


VECTORS = {"file": FileVectors, "usearch": UsearchVectors}
SavedVectors = FileVectors | UsearchVectors


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file to write, which takes the place of another when all of it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read(index: Index, encoder: Encoder, seconds: float, show_progress: bool = True) -> None:
    """
    Read the documents that have not been read, and save on the way, as often as the vectors say. After so many
    seconds, or Ctrl-C, no new batch begins, but one is read.

    Raises:
        KeyboardInterrupt: if it comes before anything was read.
    """
    vectors = index.vectors
    stop, next_save = time.monotonic() + seconds, time.monotonic() + vectors.save_every
    done, every = index.passages()
    options = {"desc": "Reading", "unit": " passages", "disable": not show_progress or done == every}
    with contextlib.suppress(KeyboardInterrupt), tqdm(total=every - done, **options) as progress:
        for count in index.read(encoder):
            progress.update(count)
            if time.monotonic() > stop:
                break
            if time.monotonic() > next_save:  # so that a run that is killed has read something
                vectors.save()
                next_save = time.monotonic() + vectors.save_every
    if not vectors.keys:
        raise KeyboardInterrupt
    vectors.save()
    done, _ = index.passages()
    print(f"Searching {done:,} of {every:,} passages{'' if done == every else '; run again to read on'}.")


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


def ask(query: str, index: Index, encoder: Encoder, top: int) -> list[Answer]:
    """
    The answers to a query. Prints of each the score, the place, and the nearest line, with the document's name if the
    place does not say it.
    """
    print(f"\n  {query}")
    (of_query,) = encoder.encode_texts([query])
    answers = index.search(of_query, top)
    lines = [nearest_line(encoder, of_query, answer) for answer in answers]
    width = max(len(place) for _, place in lines)
    for (line, place), answer in zip(lines, answers, strict=True):
        name = "" if answer.document == place else f"{answer.document}: "
        print(f"    {answer.score:.2f}  {place:{width}}  {name}{shown(line)}")
    return answers


def asked_queries() -> Iterator[str]:
    """What is typed, line by line, to an empty line or the end of the input."""
    with contextlib.suppress(EOFError):
        yield from iter(lambda: input("\nquery (empty to end): ").strip(), "")


def main(args: list[str] | None = None) -> list[Answer]:
    """Run with these arguments, or those of the command line; returns the last answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("query", nargs="*", help="what to look for; asked for if it is not given")
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

    encoder = load_encoder(arguments.model, arguments.pieces)
    if arguments.folder is None:
        files, folder = files_of_package(arguments.package)
    else:
        files, folder = files_of_folder(arguments.folder)
    source = str(Path(folder).resolve()) if arguments.package is None else arguments.package
    path = index_path(arguments.index_dir, source, arguments.model, arguments.pieces)
    index = make_index(files, folder, VECTORS[arguments.index](path))
    read(index, encoder, arguments.seconds)

    answers = []
    given = " ".join(arguments.query)
    for query in [given] if given else asked_queries():
        answers = ask(query, index, encoder, arguments.top)
    return answers


if __name__ == "__main__":
    main()
