# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
An index of passages, in an SQLite database: their words and tokens, by which all are scored in a moment, and the
vectors of those that the encoder has read.
"""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..characters import EAST_ASIAN, without_surrogates
from ..documents import Passage
from ..encoders import SentenceEncoder
from ..files import state_of
from ..formats.section import SkippedFile
from .tokens import TokenScores, fused, token_vectors, tokens_of


LOCK_SECONDS = 60  # how long a process waits while another one writes
TICK = 2 * 10**9  # nanoseconds: the coarsest resolution of file times, that of FAT
FILES_BYTES = 500_000  # of files that are indexed at once: about a second
BATCH = 16  # passages that are read at once: a fraction of a second
LISTED = 1000  # passages that are ranked by words, or as many as are asked for
QUERY = 2000  # characters of a query by which these are chosen; it takes milliseconds for each word
WORD = re.compile(r"\w+")
WITHOUT_SPACES = re.compile(f"[{EAST_ASIAN}]{{2,}}")
TABLES = """
PRAGMA page_size = 16384;
CREATE TABLE IF NOT EXISTS files (file BLOB PRIMARY KEY, state TEXT, fault TEXT);
CREATE TABLE IF NOT EXISTS passages (
    number INTEGER PRIMARY KEY AUTOINCREMENT, file BLOB, key BLOB, document TEXT, text TEXT, place TEXT,
    first INTEGER, tokens BLOB
);
CREATE INDEX IF NOT EXISTS passages_of_file ON passages (file);
CREATE INDEX IF NOT EXISTS passages_of_key ON passages (key);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(
    document, text, content='passages', content_rowid='number', tokenize='porter'
);
CREATE TABLE IF NOT EXISTS tokens (token INTEGER PRIMARY KEY, vector BLOB);
CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB);
"""


class Answer(NamedTuple):
    """
    A passage.

    Attributes:
        score: the cosine of the encoder's vectors of the passage and of the query.
        document, place, text: the name of its document, where to find it, and its text.
        start, end: the index of its first character in the text of its file, and of the one behind its last.
    """

    score: float
    document: str
    place: str
    text: str
    start: int
    end: int


class Index:
    """
    Passages of files. Several processes may share the database: each change is a transaction.

    Args:
        path: the database, or `None` for one in memory.
        encoder: reads tokens and passages; the database is of this encoder only.

    Attributes:
        note: why an existing index is made anew, or that it cannot be written; `None` otherwise.
        inode: of the database's file, which `is_there` looks for.

    Raises:
        OSError: if the database cannot be opened.
    """

    def __init__(self, path: Path | None, encoder: SentenceEncoder):
        self.path, self.encoder, self.note = path, encoder, None
        self.files: set[bytes] | None = None  # that are searched, if not all
        self.keys: list[bytes] = []  # of their passages
        self.vectors: dict[bytes, Tensor] = {}
        self.matrix: Tensor | None = None
        self.version = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.connect()
        except sqlite3.OperationalError as error:
            raise OSError(f"{path}: {error}") from error
        except sqlite3.DatabaseError as error:
            self.note = delete_damaged(path, error)
            self.connect()

    def connect(self) -> None:
        name = ":memory:" if self.path is None else str(self.path)
        # One thread at a time uses it.
        self.database = sqlite3.connect(name, LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        self.database.create_function("in_words", 1, in_words, deterministic=True)
        self.database.executescript(TABLES)
        self.inode = None if self.path is None else inode_or_none(self.path)
        self.load()

    def is_there(self) -> bool:
        """Return whether the file of the database is still the one that was opened."""
        return self.path is None or inode_or_none(self.path) == self.inode

    def is_searched(self, file: bytes) -> bool:
        return self.files is None or file in self.files

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Changes are committed together, or rolled back if an error occurs."""
        try:
            self.database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.database.execute("COMMIT")
            except BaseException:
                if self.database.in_transaction:  # SQLite has rolled back itself where the disk is full
                    self.database.execute("ROLLBACK")
                raise
        except sqlite3.OperationalError as error:  # disk or lock
            raise OSError(f"{self.path}: {error}") from error

    def load(self) -> None:
        """
        Take in what the database has, if another process or `update` has changed it. The encoder reads tokens that
        are new.
        """
        (version,) = self.database.execute("PRAGMA data_version").fetchone()
        if version == self.version:
            return
        rows = self.database.execute("SELECT number, key, tokens, file FROM passages ORDER BY number")
        rows = [row for *row, file in rows if self.is_searched(file)]
        self.row_of = {number: row for row, (number, *_) in enumerate(rows)}
        self.keys = [key for _, key, _ in rows]
        vectors = dict(self.database.execute("SELECT key, vector FROM vectors"))
        kept = {key: vectors[key] for key in self.keys if key in vectors}
        self.vectors = {key: torch.frombuffer(bytearray(x), dtype=torch.float32) for key, x in kept.items()}
        self.matrix, self.version = None, version
        tokens, self.scores = [np.frombuffer(x, np.uint32).reshape(2, -1) for *_, x in rows], None
        if rows:
            vectors = self.vectors_of_tokens(np.unique(np.concatenate([ids for ids, _ in tokens])))
            self.scores = TokenScores(vectors, tokens)

    def vectors_of_tokens(self, tokens: np.ndarray) -> dict[int, np.ndarray]:
        """Return the vector of each token. Those that are new are read and saved."""
        known = self.database.execute("SELECT token, vector FROM tokens")
        known = {token: np.frombuffer(vector, np.float16) for token, vector in known}
        if new := [token for token in tokens.tolist() if token not in known]:
            known |= zip(new, token_vectors(self.encoder.encoder, new), strict=True)
            self.keep("tokens", {token: known[token] for token in new})
        return known

    def update(
        self, files: Sequence[str], read: Callable[[str], Iterable[Passage]], is_part: bool = False
    ) -> Iterator[tuple[int, int]]:
        """
        Index files that have changed, and forget those that are gone.

        Args:
            files: all files, or those to search.
            read: reads one, or raises a SkippedFile or an OSError.
            is_part: whether these are some of the files, and only they are to be searched. Others stay in the index.

        Yields:
            After some files, how many bytes of changed files have been indexed, and how many there are.
        """
        known = dict(self.database.execute("SELECT file, state FROM files"))
        states = {os.fsencode(file): (file, state_or_none(file)) for file in files}
        changed = deque((name, *x) for name, x in states.items() if known.get(name) != json.dumps(x[1]))
        gone = set() if is_part else known.keys() - states.keys()
        chosen = {*states} if is_part else None
        if chosen != self.files:
            self.files, self.version = chosen, None
        if not changed and not gone:
            self.load()
            return
        every, done = sum(state[0] if state else 0 for *_, state in changed), 0
        try:
            with self.transaction():
                for name in gone:
                    self.remove(name)
            while changed:
                size = 0
                with self.transaction():
                    while changed and size < FILES_BYTES:
                        name, file, state = changed.popleft()
                        self.replace(name, file, state, read)
                        size += state[0] if state else 0
                done += size
                yield done, every
            with self.transaction():
                self.database.execute("DELETE FROM vectors WHERE key NOT IN (SELECT key FROM passages)")
        except OSError as error:  # of the database: those of files are faults
            if not self.keys:
                raise
            self.note = f"What has changed is not indexed ({error})."
        finally:
            self.version = None
            self.load()

    def replace(self, name: bytes, file: str, state: list[int] | None, read: Callable) -> None:
        """Index a file anew, within a transaction."""
        self.remove(name)
        now, passages, fault, is_lasting = time.time_ns(), [], None, True
        try:
            passages.extend(read(file))  # and keep what was read before an error
        except SkippedFile as error:
            fault, is_lasting = error.reason, error.is_lasting
        except OSError as error:
            fault, is_lasting = error.strerror or str(error), False
        # A file that has just changed can change again and keep its times: it is read next time, too.
        is_certain = state is not None and is_lasting and max(state[1:3]) < now - TICK
        row = name, json.dumps(state) if is_certain else "", fault
        self.database.execute("INSERT INTO files VALUES (?, ?, ?)", row)
        texts = [x.text if x.name is None else f"{x.name}: {x.text}" for x in passages]
        for passage, tokens in zip(passages, tokens_of(self.encoder.encoder, texts), strict=True):
            tokens = tokens if tokens.size else np.array([[0], [1]], np.uint32)
            columns = "file, key, document, text, place, first, tokens"
            inserted = self.database.execute(
                f"INSERT INTO passages ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, passage.key, *passage, tokens.tobytes()),
            )
            words = inserted.lastrowid, passage.name, passage.text
            statement = "INSERT INTO words (rowid, document, text) VALUES (?, in_words(?), in_words(?))"
            self.database.execute(statement, words)

    def remove(self, name: bytes) -> None:
        """Remove a file, within a transaction."""
        self.database.execute(
            "INSERT INTO words (words, rowid, document, text) "
            "SELECT 'delete', number, in_words(document), in_words(text) FROM passages WHERE file = ?",
            (name,),
        )
        self.database.execute("DELETE FROM passages WHERE file = ?", (name,))
        self.database.execute("DELETE FROM files WHERE file = ?", (name,))

    def faults(self) -> list[tuple[str, str]]:
        """Return the files that could not be read, and why."""
        rows = self.database.execute("SELECT file, fault FROM files WHERE fault IS NOT NULL ORDER BY file")
        return [(os.fsdecode(file), fault) for file, fault in rows if self.is_searched(file)]

    def passages(self) -> tuple[int, int]:
        """Return how many passages the encoder has read, and how many there are."""
        return sum(key in self.vectors for key in self.keys), len(self.keys)

    def candidates(self, query: str, count: int) -> list[bytes]:
        """
        Return the keys of the passages that are most likely to answer a query, best first, of all passages: by BM25
        and by the vectors of their tokens. Of long queries, the first `QUERY` characters choose.
        """
        query = query[:QUERY]
        listed = max(LISTED, count)
        rows = fused(self.by_words(query, listed), self.by_tokens(query, listed))
        best = dict.fromkeys(self.keys[row] for row in rows)
        if best and len(best) < count:
            best |= dict.fromkeys(self.keys)
        return list(best)[:count]

    def by_words(self, query: str, listed: int = LISTED) -> list[int]:
        """Return the rows of so many passages with words of a query, the best by BM25 first."""
        words = dict.fromkeys(WORD.findall(in_words(without_surrogates(query))))
        wanted = " OR ".join(f'"{word}"' for word in words)
        statement = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?"
        limit = listed if self.files is None else -1  # passages of other files have ranks, too
        found = self.database.execute(statement, (wanted, limit)) if words else ()
        return [self.row_of[number] for (number,) in found if number in self.row_of][:listed]

    def by_tokens(self, query: str, listed: int = LISTED) -> list[int]:
        """Return the rows of so many passages whose tokens are nearest to those of a query."""
        ((tokens, _),) = tokens_of(self.encoder.encoder, [query])
        if self.scores is None or not len(tokens):
            return []
        scores = self.scores.of_query(tokens.tolist(), token_vectors(self.encoder.encoder, tokens))
        return np.argsort(-scores, kind="stable")[:listed].tolist()

    def read(self, keys: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """
        Let the encoder read passages that it has not read. Their vectors are kept.

        Yields:
            After each batch, how many of these have been read, and how many there are.
        """
        unread = [key for key in dict.fromkeys(keys) if key not in self.vectors]
        for n in range(0, len(unread), BATCH):
            batch = self.get(unread[n : n + BATCH])
            vectors = self.encoder.encode_documents([passage.as_document() for passage in batch])
            found = {passage.key: rows[0] for passage, rows in zip(batch, vectors, strict=True)}
            self.vectors |= found
            self.matrix = None
            self.keep("vectors", {key: x.numpy() for key, x in found.items()})
            yield min(n + BATCH, len(unread)), len(unread)

    def keep(self, table: str, vectors: dict) -> None:
        """Save vectors in a table, by their keys. If they cannot be saved they stay in memory, and `note` says so."""
        rows = [(key, x.tobytes()) for key, x in vectors.items()]
        try:
            with self.transaction():
                self.database.executemany(f"REPLACE INTO {table} VALUES (?, ?)", rows)
        except OSError as error:
            self.note = f"What is read is not kept ({error})."

    def get(self, keys: Sequence[bytes]) -> list[Passage]:
        """Return one passage for each key that there is."""
        statement = "SELECT document, text, place, first FROM passages WHERE key = ? LIMIT 1"
        return [Passage(*row) for key in keys for row in self.database.execute(statement, (key,))]

    def search(self, query: Tensor, top: int = 5) -> list[Answer]:
        """Return the passages nearest to a query's vector `(size,)` among those that have been read, best first."""
        if not self.vectors:
            return []
        if self.matrix is None:
            self.matrix = torch.stack(list(self.vectors.values()))
        best = (self.matrix @ query).topk(min(top, len(self.matrix)))
        keys = list(self.vectors)
        answers = []
        # A property and its setter may have the same place.
        statement = (
            "SELECT file, document, place, text, MIN(first) FROM passages WHERE key = ? "
            "GROUP BY file, document, place, text ORDER BY MIN(number)"
        )
        for score, n in zip(*map(Tensor.tolist, best), strict=True):
            for file, document, place, text, first in self.database.execute(statement, (keys[n],)):
                if self.is_searched(file):  # equal passages of other files have the same key
                    answers.append(Answer(score, document, place, text, first, first + len(text)))
        return answers[:top]


def in_words(text: str | None) -> str | None:
    """Write Chinese and Japanese, which have no spaces between words, as pairs of neighbouring characters."""
    return text and WITHOUT_SPACES.sub(lambda x: f" {' '.join(map(''.join, pairwise(x[0])))} ", text)


def state_or_none(file: str) -> list[int] | None:
    """Return `state_of` a file, `None` if it is gone."""
    try:
        return list(state_of(file))
    except OSError:
        return None


def inode_or_none(path: Path) -> int | None:
    """Return the number of a file, `None` if it is gone."""
    state = state_or_none(str(path))
    return state and state[-1]


def delete_damaged(path: Path, error: Exception) -> str:
    """Delete an index. Errors are ignored, as on a disk that cannot be written. Returns a message."""
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return f"{path} is damaged ({error}): the index is made anew."
