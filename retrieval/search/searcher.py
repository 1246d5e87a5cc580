# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Answer the requests of `lion search` with an encoder, and with indexes of folders and packages."""

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..documents import Passage, files_at, passages_of, passages_of_docstrings
from ..encoders import READING, SentenceEncoder, load_encoder
from ..folders import files_of_folder, skipped_in_words
from ..sources import commit_of, files_of_model
from .index import Index, delete_damaged
from .snippets import place_of_snippet, snippets


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CANDIDATES = 32  # passages that the encoder reads for a query (benchmarks/bench_answers.py)
LONG = 60  # seconds; how long a job takes is said if it takes longer
MOST_INDEXES = 8  # that are kept in memory
ANSWERS_AT_ONCE = 32  # whose sentences the encoder reads before it looks at the time


def find_files(request: dict) -> tuple[list[str], Callable[[str], Iterable[Passage]], list[tuple[str, str]], str]:
    """
    Return the files to search, what reads one, the files that are skipped with the reason of each, and the folder.

    Raises:
        FileNotFoundError, ValueError: if there are none.
    """
    if request["package"] is not None:
        place, root = request["package"]
        return files_at(place), partial(passages_of_docstrings, folder=root), [], root
    files, root, skipped = files_of_folder(request["folder"], *patterns_of(request))
    return files, partial(passages_of, folder=root), skipped, root


def patterns_of(request: dict) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(request.get("include") or ()), tuple(request.get("exclude") or ())


class Clock:
    """
    Bounds the time of a request.

    Args:
        seconds: the time, or `None` for no bound.
    """

    def __init__(self, seconds: float | None):
        self.begin, self.seconds = time.monotonic(), seconds

    def run(self, steps: Iterable[tuple[int, int]], doing: str) -> Iterator[dict]:
        """
        Yield an event for each step of a job, a pair of what is done and what there is, until the time is over. If the
        job will take more than `LONG` seconds, a message says so once.
        """
        begin, last, is_said = time.monotonic(), time.monotonic(), False
        for done, every in steps:
            now = time.monotonic()
            rest = (now - begin) * (every - done) / max(1, done)
            if not is_said and now - begin > 1 and now - begin + rest > LONG:
                is_said = True
                yield {"message": f"{doing} will take about {in_words(now - begin + rest)}."}
            yield {"progress": [done, every], "doing": doing}
            if self.is_over(now - last):
                break
            last = time.monotonic()

    def is_over(self, seconds: float = 0.0) -> bool:
        """Return whether the time is over, or will be in so many seconds."""
        return self.seconds is not None and time.monotonic() - self.begin + seconds > self.seconds


def in_words(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes} minute{'s' * (minutes > 1)}" if minutes < 100 else f"{round(minutes / 60)} hours"


class Searcher:
    """
    Answers requests with one encoder, which the first request loads.

    Args:
        model, base, options: as `load_encoder` takes them.
    """

    def __init__(self, model: str, base: str | None = None, **options):
        self.model, self.base, self.options, self.files = model, base, options, files_of_model(model, base)
        self.encoder: SentenceEncoder | None = None
        self.commits: list[str | None] = []  # of the encoder and its base, if they are on the Hub
        self.indexes: dict[tuple, Index] = {}

    def answers(self, request: dict) -> Iterator[dict]:
        """
        Index what has changed, let the encoder read the passages that may answer a query, and answer it.

        Args:
            request: a dict of `query` (if empty, nothing is answered), `folder` or `package`
                (`place_of_package`), `top`, `seconds` (or `None`) and `cache_dir`; perhaps `include` and `exclude`,
                lists of patterns of files, and `read_all`, whether the encoder reads all passages.

        Yields:
            Events, dicts: `message` (to show), or `progress` (how much is done and how much there is) with `doing` (in
            words). The last event has `answers`, `passages` (how many there are), `read` (how many the encoder has
            read so far), and `complete` (whether there was time for everything). An answer is a dict of `score` (the
            cosine of the encoder's vectors of passage and query), `document`, `place` (of the snippet), `text` (of the
            passage), `start`, `end` (of the passage, in characters of its file's text), `snippet` (its sentence
            nearest to the query), `snippet_start` and `snippet_end` (in characters of the passage).

        Raises:
            ValueError, OSError, ImportError: with a message for users.
        """
        clock, found = Clock(request["seconds"]), find_files(request)
        for is_first in (True, False):
            index = self.index_of(request)
            try:
                yield from answers_of(index, request, clock, *found)
                return
            except sqlite3.DatabaseError as error:
                if not is_first or isinstance(error, sqlite3.OperationalError):  # a disk or a lock
                    raise OSError(f"{index.path}: {error}") from error
                yield {"message": delete_damaged(index.path, error)}

    def index_of(self, request: dict) -> Index:
        """
        Return the index of the folder or the package of a request, one for each choice of files, so that requests at
        the same time have their own. The first time, load the encoder.

        Raises:
            ValueError: if the encoder has no tokens that `tokens.py` can compare.
        """
        if self.encoder is None:
            self.encoder = with_tokens(load_encoder(self.model, base=self.base, **self.options), self.model)
            revision = self.options.get("revision")
            self.commits = [commit_of(x, revision, is_loaded=True) for x in (self.model, self.base) if x]
        source = request["folder"] if request["package"] is None else ("package", *request["package"])
        about = repr((source, self.model, self.commits, self.files, READING))
        name = hashlib.sha256(about.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        path = Path(request["cache_dir"]) / f"{name}.sqlite"
        key = path, *patterns_of(request)
        index = self.indexes.pop(key, None)
        if index is None or not index.is_there():  # the cache may be deleted
            index = Index(path, SentenceEncoder(self.encoder, in_pieces=True))
        self.indexes[key] = index
        for oldest in list(self.indexes)[:-MOST_INDEXES]:
            del self.indexes[oldest]
        return index


def with_tokens(encoder: "SentenceTransformer", model: str) -> "SentenceTransformer":
    """Return an encoder whose tokens can be read one by one. Raises a ValueError for others."""
    if not callable(getattr(encoder, "tokenizer", None)):  # tokenizers.Tokenizer is not
        raise ValueError(
            f"{model} is no transformer: `lion search` first compares single tokens, so give an encoder whose first "
            "module is a Transformer, as checkpoints/lion-minilm-l6 or sentence-transformers/all-MiniLM-L6-v2."
        )
    return encoder


def answers_of(
    index: Index, request: dict, clock: Clock, files: list[str], read: Callable, skipped: list, root: str
) -> Iterator[dict]:
    """Answer a request, as `Searcher.answers`, with an index and what `find_files` returns."""
    is_part, before = any(patterns_of(request)), copy(index.encoder.cut)
    if index.note:
        yield {"message": index.note}
        index.note = None
    yield from clock.run(index.update(files, read, is_part), "Indexing")
    index.load()
    if words := skipped_in_words(skipped + index.faults()):
        yield {"message": words}
    if not index.keys and not clock.is_over():
        what = "no text" if request["package"] is None else "no docstring of a public name"
        raise ValueError(f"There is nothing to search in {root}: {what}.")
    query, found = request["query"], []
    keys = index.candidates(query, max(CANDIDATES, request["top"])) if query else []
    yield from clock.run(index.read(keys), "Reading")
    if request.get("read_all"):
        yield from clock.run(index.read(index.keys), "Reading everything")
    if query:
        yield from clock.run(best(query, index, request["top"], found), "Choosing sentences")
    if index.note:
        yield {"message": index.note}
        index.note = None
    if lost := index.encoder.cut.since(before).sentence():
        yield {"message": lost}
    read_passages, passages = index.passages()
    yield {"answers": found, "passages": passages, "read": read_passages, "complete": not clock.is_over()}


def best(query: str, index: Index, top: int, found: list[dict]) -> Iterator[tuple[int, int]]:
    """
    Append the answers to a query among the passages that have been read. Of many, yield after each `ANSWERS_AT_ONCE`
    how many are done and how many there are, since their sentences have to be read.
    """
    (of_query,) = index.encoder.encode_queries([query])
    answers = index.search(of_query, top)
    for n in range(0, len(answers), ANSWERS_AT_ONCE):
        some = answers[n : n + ANSWERS_AT_ONCE]
        for answer, (first, end) in zip(some, snippets(index.encoder, of_query, some), strict=True):
            place, snippet = place_of_snippet(answer, first), answer.text[first:end]
            found.append(
                answer._asdict() | {"place": place, "snippet": snippet, "snippet_start": first, "snippet_end": end}
            )
        if len(answers) > ANSWERS_AT_ONCE:
            yield len(found), len(answers)
