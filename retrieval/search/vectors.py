# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Vectors of passages, in memory and in a database, and the search for those nearest to a query."""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator, KeysView
from pathlib import Path

import torch
from torch import Tensor


LOCK_SECONDS = 60  # how long a process waits while another one saves
TABLE = """
PRAGMA page_size = 16384;
CREATE TABLE IF NOT EXISTS documents (
    number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, passages INTEGER, vectors BLOB
);
"""


class MemoryVectors:
    """Vectors of documents by their keys. A query is compared with all of them, in one matrix product."""

    def __init__(self):
        self.vectors: dict[str, Tensor] = {}
        self.matrix: Tensor | None = None

    @property
    def keys(self) -> KeysView[str]:
        """The keys of all documents: a view, not a copy."""
        return self.vectors.keys()

    def add(self, key: str, vectors: Tensor) -> None:
        """Add the vectors of a document's passages, `(passages, size)`, float32."""
        self.vectors[key], self.matrix = vectors, None

    def remove(self, key: str) -> None:
        del self.vectors[key]
        self.matrix = None

    def search(self, query: Tensor, top: int) -> list[tuple[float, str, int]]:
        """Return the passages most similar to a query `(size,)`, best first: cosine, key, index in the document."""
        if not self.vectors:
            return []
        if self.matrix is None:
            lengths = {key: len(rows) for key, rows in self.vectors.items()}
            self.matrix = torch.cat(list(self.vectors.values()))
            self.vectors = dict(zip(lengths, self.matrix.split(list(lengths.values())), strict=True))  # views
            self.places = [(key, n) for key, length in lengths.items() for n in range(length)]
        best = (self.matrix @ query).topk(min(top, len(self.matrix)))
        return [(score, *self.places[n]) for score, n in zip(*map(Tensor.tolist, best), strict=True)]


class SavedVectors(MemoryVectors):
    """
    `MemoryVectors` that are also saved in an SQLite database.

    Several processes may share the database: each saves what it added and removed, and loads what others saved. If a
    process is killed, what it saved before stays.

    Args:
        path: path of the database, without a suffix.

    Attributes:
        note: why an existing index is made anew; `None` if it is not.

    Raises:
        OSError: if the database cannot be read.
    """

    def __init__(self, path: Path):
        super().__init__()
        self.file, self.note = path.with_suffix(".sqlite"), None
        self.added: dict[str, Tensor] = {}
        self.removed: set[str] = set()
        self.last = 0  # number of the last row that was loaded
        for other in path.parent.glob(f"{path.name}*"):
            if not other.name.startswith(self.file.name):
                self.note = f"{path} is of another version of this package: the index is made anew."
                delete(other)
        if self.file.is_file():
            try:
                self.take_in()
            except sqlite3.DatabaseError as error:
                self.note = f"{self.file} is damaged ({error}): the index is made anew."
                self.vectors, self.last = {}, 0
                delete(self.file)

    def add(self, key: str, vectors: Tensor) -> None:
        super().add(key, vectors)
        self.added[key] = vectors

    def remove(self, key: str) -> None:
        super().remove(key)
        self.added.pop(key, None)
        self.removed.add(key)

    def save(self) -> None:
        """
        Write what was added and removed in one transaction, then load what other processes saved.

        Raises:
            OSError: if the database cannot be written; then it does not change.
        """
        if not self.added and not self.removed:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        rows = ((key, len(x), x.numpy().tobytes()) for key, x in self.added.items())
        with self.transaction() as database:
            database.executemany("DELETE FROM documents WHERE key = ?", [(key,) for key in self.removed])
            database.executemany("REPLACE INTO documents (key, passages, vectors) VALUES (?, ?, ?)", rows)
        self.added, self.removed = {}, set()
        self.take_in()

    def take_in(self) -> None:
        with self.transaction() as database:
            rows = database.execute("SELECT * FROM documents WHERE number > ? ORDER BY number", (self.last,))
            for self.last, key, passages, data in rows:
                super().add(key, torch.frombuffer(bytearray(data), dtype=torch.float32).view(passages, -1))
            (count,) = database.execute("SELECT count(*) FROM documents").fetchone()
            if count < len(self.vectors):  # others have removed some
                saved = {key for (key,) in database.execute("SELECT key FROM documents")}
                for key in self.keys - saved:
                    super().remove(key)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield the database. Changes are committed together, or rolled back if an error occurs."""
        try:
            with contextlib.closing(sqlite3.connect(self.file, timeout=LOCK_SECONDS)) as database, database:
                database.executescript(TABLE)
                yield database
        except sqlite3.OperationalError as error:  # disk or lock
            raise OSError(f"{self.file}: {error}") from error


def delete(path: Path) -> None:
    """Delete a file or a folder. Errors are ignored, as on a disk that cannot be written."""
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
