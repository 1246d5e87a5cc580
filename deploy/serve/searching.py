# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Answer /search with the index of a folder, as `lion search` does."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from retrieval_lion.search.command import default_cache, show
from retrieval_lion.search.searcher import Searcher
from retrieval_lion.sources import check_folder

from .error_format import ApiError


class FolderSearch:
    """
    The index of a folder, which `lion search` shares, and the thread that searches it: one query after the other.

    Args:
        model, options: the encoder, as `load_encoder` takes them. It is loaded for the search alone.
        folder: files that have changed are read anew by the next query.
        cache_dir: folder of the index; by default that of `lion search`.

    Raises:
        FileNotFoundError: if there is no such folder.
    """

    def __init__(self, model: str, folder: str, cache_dir: Path | None = None, **options):
        self.folder, self.cache_dir = str(check_folder(folder).resolve()), (cache_dir or default_cache()).resolve()
        self.searcher = Searcher(str(Path(model).resolve()) if Path(model).is_dir() else model, **options)
        self.thread = ThreadPoolExecutor(1, "search")

    def request(self, query: str, top: int, seconds: float | None) -> dict:
        of_folder = {"folder": self.folder, "package": None, "cache_dir": str(self.cache_dir)}
        return of_folder | {"query": query, "top": top, "seconds": seconds}

    def prepare(self) -> None:
        """Read the folder, and show progress on the standard error. Raises what `Searcher.answers` raises."""
        show("", self.searcher.answers(self.request("", 1, None)), as_json=False)

    def answer(self, query: str, top: int, is_gone: Callable[[], bool], stop: float) -> Future:
        """
        Search when the queries before are answered.

        Args:
            is_gone: whether nobody waits for the answer any more, so that the search ends.
            stop: the time of `time.monotonic` when the search ends, with what it has found.

        Returns:
            The object that `lion search --json` prints, or an `ApiError`.
        """
        return self.thread.submit(self.find, query, top, is_gone, stop)

    def find(self, query: str, top: int, is_gone: Callable[[], bool], stop: float) -> dict:
        event: dict = {}
        try:
            with closing(self.searcher.answers(self.request(query, top, stop - time.monotonic()))) as events:
                while not is_gone() and "answers" not in event:
                    event = next(events)
        except (ValueError, OSError) as error:
            raise ApiError(500, f"The search failed: {error}", code="search_failed") from error
        return {"query": query} | event

    def close(self) -> None:
        """End the thread after the query that it answers."""
        self.thread.shutdown(cancel_futures=True)
