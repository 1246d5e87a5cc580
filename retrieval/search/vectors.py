# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Vectors of passages: in memory, in files, or in an index of usearch, and the nearest to a query.

Several processes may have the same files: each saves under a lock, and takes in what others have saved before.
"""

import contextlib
import errno
import json
import os
from collections.abc import Iterator, KeysView
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import numpy as np
import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..files import replaced


MOST_PARTS = 64  # files of vectors, which are joined then
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
LOCK_SECONDS = 60  # for which a process waits until another has saved


def lock_of(path: Path) -> FileLock:
    """The lock of files whose names begin with a path; a `filelock.Timeout`, an OSError, if it is not free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path.with_suffix(".lock"), timeout=LOCK_SECONDS)


@contextlib.contextmanager
def held_to_load(lock: FileLock) -> Iterator[None]:
    """A lock; none on a disk that cannot be written, where nobody saves."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock)
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise
        yield


class Vectors(Protocol):
    """Vectors of documents by their keys."""

    @property
    def keys(self) -> KeysView[str]:
        """The keys of all documents: a view, not a copy."""

    def add(self, key: str, vectors: Tensor) -> None:
        """Add the vectors of a document's passages, `(passages, size)`."""

    def remove(self, key: str) -> None: ...

    def search(self, query: Tensor, top: int) -> list[tuple[float, str, int]]:
        """The most similar passages, the best first: cosine, key, and index of the passage in its document."""


class MemoryVectors:
    """One matrix, all of which is compared with a query."""

    def __init__(self):
        self.vectors: dict[str, Tensor] = {}
        self.matrix: Tensor | None = None

    @property
    def keys(self) -> KeysView[str]:
        return self.vectors.keys()

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


class FileVectors(MemoryVectors):
    """
    One matrix, all of which is compared with a query, and files of what was added and removed between two saves.

    Many files, or files of which half the vectors are removed, are joined into one. A process that ends in between
    leaves what was saved before.
    """

    save_every = 0.0

    def __init__(self, path: Path):
        super().__init__()
        self.folder, self.lock = path.with_suffix(".vectors"), lock_of(path)
        self.added: dict[str, Tensor] = {}
        self.removed: set[str] = set()
        self.parts: list[Path] = []
        with held_to_load(self.lock):
            self.load()

    def load(self) -> None:
        """Take in what is saved. Own vectors that are not, and removals, stay."""
        self.vectors, self.matrix, self.parts, self.saved_rows = {}, None, [], 0
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
        for key in self.removed:
            self.vectors.pop(key, None)
        self.vectors |= self.added
        self.rows = sum(map(len, self.vectors.values()))

    def add(self, key: str, vectors: Tensor) -> None:
        self.rows += len(vectors) - len(self.vectors.get(key, ()))
        super().add(key, vectors)
        self.added[key] = vectors

    def remove(self, key: str) -> None:
        self.rows -= len(self.vectors[key])
        super().remove(key)
        self.added.pop(key, None)
        self.removed.add(key)

    def save(self) -> None:
        if not self.added and not self.removed:
            return
        with self.lock:
            if sorted(self.folder.glob("*.safetensors")) != self.parts:  # another process has saved
                self.load()
            self.write()

    def write(self) -> None:
        # What is added from now on, as by another thread, is of the next save.
        added, removed, self.added, self.removed = self.added, self.removed, {}, set()
        rows = self.saved_rows + sum(map(len, added.values()))  # in files, with those that were removed
        is_whole = len(self.parts) + 1 >= MOST_PARTS or rows >= 2 * self.rows
        written = dict(self.vectors) if is_whole else added
        about = {"lengths": {key: len(x) for key, x in written.items()}, "removed": [], "is_whole": is_whole}
        if not is_whole:
            about["removed"] = sorted(removed)
        number = int(self.parts[-1].stem.split("-")[0]) + 1 if self.parts else 0
        part = self.folder / f"{number:09}-{os.getpid()}.safetensors"
        try:
            vectors = torch.cat(list(written.values())) if written else torch.zeros(0, 1)
            with replaced(part) as unfinished:
                save_file({"vectors": vectors}, unfinished, {"about": json.dumps(about)})
        except BaseException:
            self.added = {key: x for key, x in added.items() if key not in self.removed} | self.added
            self.removed |= removed
            raise
        if is_whole:
            for other in self.parts:
                other.unlink(missing_ok=True)
        self.parts = [part] if is_whole else [*self.parts, part]
        self.saved_rows = len(vectors) if is_whole else rows


class UsearchVectors:
    """
    An index of usearch, which compares a query with few of its vectors. It is saved as a whole, with what another
    process has saved meanwhile.

    Raises:
        ImportError: if usearch is not installed.
    """

    save_every = 15.0

    def __init__(self, path: Path):
        try:
            from usearch.index import Index as UsearchIndex
        except ImportError as error:
            raise ImportError("--index usearch needs usearch: pip install usearch") from error
        self.make_index = UsearchIndex
        self.folder, self.names, self.lock = path.parent, path.with_suffix(".usearch.json"), lock_of(path)
        with held_to_load(self.lock):
            self.load()

    def load(self) -> None:
        """Take in what is saved, and nothing else."""
        self.labels: dict[str, list[int]] = {}
        self.index, self.file, self.next_label = None, self.saved_file(), 0
        if self.file is not None:
            saved = json.loads(self.names.read_text())
            self.labels, self.next_label = saved["labels"], saved["next_label"]
            self.index = self.make_index.restore(self.folder / self.file)
        self.places = {label: (key, n) for key, labels in self.labels.items() for n, label in enumerate(labels)}
        self.added: set[str] = set()
        self.removed: set[str] = set()

    def saved_file(self) -> str | None:
        return json.loads(self.names.read_text())["file"] if self.names.is_file() else None

    @property
    def keys(self) -> KeysView[str]:
        return self.labels.keys()

    def add(self, key: str, vectors: Tensor) -> None:
        if self.index is None:
            self.index = self.make_index(ndim=vectors.shape[1], metric="cos", dtype="f32")
        labels = list(range(self.next_label, self.next_label + len(vectors)))
        self.next_label += len(vectors)
        # With several threads usearch (2.26) leaves some vectors where no search finds them.
        self.index.add(np.array(labels, "uint64"), vectors.numpy(), threads=1)
        self.labels[key] = labels
        self.added.add(key)
        self.places |= {label: (key, n) for n, label in enumerate(labels)}

    def remove(self, key: str) -> None:
        self.added.discard(key)
        self.removed.add(key)
        for label in self.labels.pop(key):
            self.index.remove(label)
            del self.places[label]

    def save(self) -> None:
        if not self.added and not self.removed:
            return
        with self.lock:
            if self.saved_file() != self.file:  # another process has saved
                self.join()
            self.write()

    def join(self) -> None:
        """Take in what is saved, and do again what only this process has done."""
        rows = lambda labels: torch.from_numpy(np.stack([self.index.get(label) for label in labels]))
        added = {key: rows(self.labels[key]) for key in self.added}
        removed = self.removed
        self.load()
        for key in (removed | added.keys()) & self.labels.keys():
            self.remove(key)
        for key, vectors in added.items():
            self.add(key, vectors)

    def write(self) -> None:
        # Under a new name, so that the list of names is of one file at every moment.
        before, self.file = self.file, f"{self.names.stem}-{self.next_label}-{uuid4().hex[:12]}"
        with replaced(self.folder / self.file) as unfinished:
            self.index.save(str(unfinished))
        with replaced(self.names) as unfinished:
            saved = {"labels": self.labels, "next_label": self.next_label, "file": self.file}
            unfinished.write_text(json.dumps(saved))
        if before not in (None, self.file):
            (self.folder / before).unlink(missing_ok=True)
        self.added, self.removed = set(), set()

    def search(self, query: Tensor, top: int) -> list[tuple[float, str, int]]:
        if not self.places:
            return []
        found = self.index.search(query.numpy(), min(top, len(self.places)))
        return [(1 - float(x.distance), *self.places[int(x.key)]) for x in found]


VECTORS = {"file": FileVectors, "usearch": UsearchVectors}
SavedVectors = FileVectors | UsearchVectors
