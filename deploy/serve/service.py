# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Compute the texts of a request: check limits, queue the work, stop after a timeout or when the client leaves."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import cache

import numpy as np
from starlette.requests import Request

from .engines import CHARACTERS_PER_TOKEN, Engine, Input, Row
from .error_format import CLIENT_GONE, ApiError
from .metrics import Metrics
from .queues import WorkQueue
from .settings import Settings


# Characters to tokenize at once. Between two pieces, lengths are checked, and whether the client is still there.
PIECE = 2**16
FOR_WORK = 0.9  # of the time of a request is for work that ends by itself
SHORT_CHARACTERS = 8  # per token of a short request, an estimate before the tokens are known


class Service:
    """Two queues around an engine, and the limits of requests."""

    def __init__(self, engine: Engine, settings: Settings):
        self.about, self.settings, self.metrics = engine.about, settings, Metrics()
        most, wait = settings.max_batch_tokens, settings.timeout / 2
        # A request that has just missed a batch of the short queue waits for that one.
        self.short = WorkQueue(
            "short", lambda: engine, min(most, settings.short_tokens), wait, self.metrics, workers=settings.workers
        )
        try:
            self.long = WorkQueue("long", engine.twin, most, wait, self.metrics, is_second=True)
        except BaseException:
            self.short.close()  # its thread would keep the process alive
            raise

    def close(self) -> None:
        self.short.close()
        self.long.close()

    async def compute(
        self, request: Request, field: str, given: Sequence[Input | list[int]], side: str | None
    ) -> tuple[np.ndarray, int]:
        """
        Compute the texts, pairs or token ids of a request.

        Args:
            field: the name of their field in the body, for errors.
            side: at which end a text that is too long is cut; `None` refuses it.

        Returns:
            An array `(texts, size)`, float32, and the number of tokens.

        Raises:
            ApiError: if the request is wrong or takes too long, the client leaves, or the model fails.
        """
        self.check(field, given, side)
        gone = asyncio.ensure_future(until_gone(request))
        stop = asyncio.get_running_loop().time() + self.settings.timeout
        try:
            queue = self.short if characters(given) <= SHORT_CHARACTERS * self.settings.short_tokens else self.long
            work = asyncio.get_running_loop().run_in_executor(
                queue.tokenizer, self.tokenize, queue, field, given, side, gone.done
            )
            rows = await self.first(work, gone, stop)
            tokens = sum(map(len, rows))
            request.state.cut = [row.cut for row in rows if row.cut]
            queue = self.short if tokens <= self.settings.short_tokens else self.long
            job = queue.put(rows)
            try:
                await self.first(job.done, gone, stop)
            finally:
                if job.done.cancelled() or not job.done.done():
                    queue.drop(job)
        finally:
            gone.cancel()
        if job.error is not None:
            name = type(job.error).__name__
            raise ApiError(500, f"A text of `{field}` could not be computed ({name}): the log says more.", field)
        return np.stack(job.outputs), tokens

    async def run(self, request: Request, submit: Callable[[Callable[[], bool], float], Future]):
        """
        Return the result of work that `submit` starts in a thread, which is told how to see that nobody waits for it
        any more, and when it has to end (`time.monotonic`). Raises an ApiError if it takes too long.
        """
        gone = asyncio.ensure_future(until_gone(request))
        stop = asyncio.get_running_loop().time() + self.settings.timeout
        try:
            work = submit(gone.done, time.monotonic() + FOR_WORK * self.settings.timeout)
            return await self.first(asyncio.wrap_future(work), gone, stop)
        finally:
            gone.cancel()

    async def first(self, work: asyncio.Future, gone: asyncio.Future, stop: float):
        """Return the result of `work`. Raises an ApiError if the client leaves first, or at time `stop`."""
        left = max(0.0, stop - asyncio.get_running_loop().time())
        await asyncio.wait({work, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        work.cancel()
        if gone.done():
            raise ApiError(499, CLIENT_GONE)
        raise ApiError(
            504,
            f"This took longer than {self.settings.timeout:g} seconds: send fewer or shorter texts at a time, or "
            "start the server with a longer --timeout.",
            code="timeout",
        )

    def check(self, field: str, given: Sequence[Input | list[int]], side: str | None) -> None:
        """Refuse requests that are known to be wrong before their texts are tokenized."""
        settings, about = self.settings, self.about
        if not 0 < len(given) <= settings.max_texts:
            raise ApiError(400, f"`{field}` has {len(given):,} texts; give 1 to {settings.max_texts:,}.", field)
        is_blank = cache(lambda text: not text or text.isspace())  # the query of all pairs is looked at once
        for n, one in enumerate(given):
            if isinstance(one, list):
                self.check_ids(field, n, one)
                continue
            texts = (one,) if isinstance(one, str) else one
            if any(map(is_blank, texts)):
                raise ApiError(400, f"`{field}` is empty at {n}; give a text.", field)
            most = CHARACTERS_PER_TOKEN * about.max_input_tokens
            if side is None and (size := sum(map(len, texts))) > most:
                message = (
                    f"`{field}` has a text of {size:,} characters; give at most {most:,}, for the "
                    f'{about.max_input_tokens:,} tokens of this model, or `"truncate": true`.'
                )
                raise ApiError(413, message, field, "context_length_exceeded")

    def check_ids(self, field: str, n: int, ids: list[int]) -> None:
        if not self.settings.accept_token_ids:
            message = (
                f"`{field}` has token ids, and those of another tokenizer would give wrong vectors: send texts "
                "(LangChain: check_embedding_ctx_length=False), or start the server with --accept_token_ids."
            )
            raise ApiError(400, message, field, "token_ids_refused")
        if not ids:
            raise ApiError(400, f"`{field}` is empty at {n}; give a text.", field)
        if wrong := [x for x in ids if not 0 <= x < self.about.vocab_size]:
            raise ApiError(400, f"`{field}` has the token {wrong[0]}; give 0 to {self.about.vocab_size - 1}.", field)

    def tokenize(self, queue: WorkQueue, field: str, given: Sequence, side: str | None, is_gone) -> list[Row]:
        """Tokenize texts, pairs or token ids. Raises an ApiError if one is too long, or the client has gone."""
        most, rows = self.about.max_input_tokens, []
        for piece in pieces(given):
            if is_gone():
                raise ApiError(499, CLIENT_GONE)
            if isinstance(piece[0], list):
                ends = {"left": slice(-most, None), "right": slice(most), None: slice(None)}
                found = queue.engine.rows_of_ids([ids[ends[side]] for ids in piece])
                for row, ids in zip(found, piece, strict=True):
                    row.cut = len(ids) - len(row)
            else:
                found = queue.engine.tokenize(piece, side)
            for row in found:
                if len(row) > most:
                    message = (
                        f'`{field}` has a text of {len(row):,} tokens; give at most {most:,}, or `"truncate": true`.'
                    )
                    raise ApiError(413, message, field, "context_length_exceeded")
            rows += found
        return rows


async def until_gone(request: Request) -> None:
    """Wait until the client leaves. The body has been read, so no other message can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def characters(given: Sequence[Input | list[int]]) -> int:
    return sum(len(one) if isinstance(one, str | list) else sum(map(len, one)) for one in given)


def pieces(given: Sequence) -> Iterator[Sequence]:
    """Split a list into parts of about `PIECE` characters."""
    first, size = 0, 0
    for n, one in enumerate(given):
        size += characters([one])
        if size > PIECE:
            yield given[first : n + 1]
            first, size = n + 1, 0
    if first < len(given):
        yield given[first:]
