# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Two queues of work: one for short requests, and one for all others, which runs at a lower priority.

The first queue computes several batches at once, each on some of the cores: short texts gain more from that than from
one batch on all cores. A busy machine divides its cores among threads, so several threads also get a larger share.

With one queue, every short request would wait for a long text, or for a thousand short ones. The queues are threads of
one process and share the weights. torch and the runtimes release Python's lock while they compute, so the scheduler of
the operating system divides the cores: as soon as a short request arrives, its thread goes first.
"""

import asyncio
import ctypes
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from .engines import Dropped, Engine, Row
from .error_format import ApiError
from .metrics import Metrics


TRIM_EVERY = 10  # seconds after which free memory is given back to the system again
# Added to the niceness of the second queue. Beside a short queue that is always busy, it gets a quarter of a core.
NICER = 5
RETRY_SECONDS = 5  # after which a refused client may try again


def go_second() -> None:
    """Lower the priority of the calling thread, on systems that have one for each thread."""
    if sys.platform == "linux":
        me = threading.get_native_id()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, me, min(19, os.getpriority(os.PRIO_PROCESS, me) + NICER))


@dataclass(eq=False)
class Job:
    """
    The texts of a request in a queue.

    Attributes:
        done: resolved, with `None`, once `outputs` are complete or there is an `error`; cancelled if nobody waits.
        since: the time of arrival.
        outputs: the results, in the order of `rows`; `None` where there is none yet.
        taken: how many of `rows` have been put into a batch.
        missing: how many of `rows` have no output.
    """

    rows: Sequence[Row]
    done: asyncio.Future
    since: float
    outputs: list[np.ndarray | None] = field(default_factory=list)
    error: Exception | None = None
    taken: int = 0
    missing: int = 0

    def __post_init__(self):
        self.outputs, self.missing = [None] * len(self.rows), len(self.rows)


@dataclass(eq=False)
class Computer:
    """
    A thread that computes, with an engine of its own.

    Attributes:
        running: requests in the batch that it computes.
        task: takes batches from the queue until nothing waits.
    """

    thread: ThreadPoolExecutor
    engine: Engine
    running: list[Job] = field(default_factory=list)
    task: asyncio.Task | None = None


class WorkQueue:
    """
    Requests in the order of their arrival, and the threads that compute them. All methods except `__init__` must be
    called in the event loop.

    Args:
        name: "short" or "long".
        make_engine: is called in a thread of the queue, so that threads of a runtime get its priority.
        max_batch_tokens: most tokens to compute at once; a longer text is a batch of its own.
        max_wait: seconds; while a request has waited longer, new ones are refused.
        is_second: run at a lower priority.
        workers: how many threads compute, each a batch at a time.
    """

    def __init__(
        self,
        name: str,
        make_engine: Callable[[], Engine],
        max_batch_tokens: int,
        max_wait: float,
        metrics: Metrics,
        is_second: bool = False,
        workers: int = 1,
    ):
        self.name, self.metrics = name, metrics
        self.max_batch_tokens, self.max_wait = max_batch_tokens, max_wait
        self.jobs: deque[Job] = deque()  # including those that are being computed
        self.computers: list[Computer] = []
        self.trimmed = time.monotonic()
        prepare = go_second if is_second else lambda: None
        # Texts are tokenized while others are computed, at the same priority.
        self.tokenizer = ThreadPoolExecutor(1, f"{name}-tokens", prepare)
        for _ in range(workers):
            thread = ThreadPoolExecutor(1, f"{name}-compute", prepare)
            try:
                self.computers.append(Computer(thread, thread.submit(make_engine).result()))
            except BaseException:
                thread.shutdown()
                self.close()
                raise
            make_engine = self.computers[0].engine.twin

    def put(self, rows: Sequence[Row]) -> Job:
        """Add a request to the queue. Raises an `ApiError` if others have waited too long."""
        job = Job(rows, asyncio.get_running_loop().create_future(), time.monotonic())
        first = next((other for other in self.jobs if other.taken < len(other.rows)), job)
        if (waited := job.since - first.since) > self.max_wait:
            message = (
                f"The server is behind: the first request in the queue has waited for {waited:.0f} seconds, and no "
                f"other is taken after {self.max_wait:g}: try again in {RETRY_SECONDS} seconds."
            )
            raise ApiError(429, message, code="queue_full", retry_after=RETRY_SECONDS)
        self.jobs.append(job)
        self.count()
        idle = next((x for x in self.computers if x.task is None or x.task.done()), None)
        if idle is not None:
            idle.task = asyncio.create_task(self.work(idle))
        return job

    def drop(self, job: Job) -> None:
        """Remove a request from the queue, and cancel its computation unless other requests share it."""
        job.done.cancel()
        self.forget(job)
        for computer in self.computers:
            if computer.running and all(other.done.done() for other in computer.running):
                computer.engine.cancel()

    def close(self) -> None:
        """End the threads. Waiting requests are not computed."""
        self.jobs.clear()
        for computer in self.computers:
            computer.engine.cancel()
            computer.thread.shutdown()
        self.tokenizer.shutdown(cancel_futures=True)

    @property
    def engine(self) -> Engine:
        """The engine whose tokenizer splits texts; it does not pad batches."""
        return self.computers[0].engine

    def count(self) -> None:
        self.metrics.waiting.labels(self.name).set(len(self.jobs))

    def forget(self, job: Job) -> None:
        with suppress(ValueError):
            self.jobs.remove(job)
        self.count()

    def next_batch(self) -> list[tuple[Job, int]]:
        """Return texts of the requests that have waited longest: each as its request and its index there."""
        batch, tokens = [], 0
        for job in self.jobs:
            while job.taken < len(job.rows):
                tokens += len(job.rows[job.taken])
                if batch and tokens > self.max_batch_tokens:
                    return batch
                batch.append((job, job.taken))
                job.taken += 1
        return batch

    async def work(self, computer: Computer) -> None:
        """Compute batches until nothing waits."""
        while batch := self.next_batch():
            try:
                await self.compute(computer, batch)
                if time.monotonic() - self.trimmed > TRIM_EVERY:
                    self.trimmed = time.monotonic()
                    await asyncio.get_running_loop().run_in_executor(computer.thread, trim_memory)
            except Exception as error:  # an internal error fails these requests only, and the queue goes on
                self.fail(batch, error)
                computer.running = []

    async def compute(self, computer: Computer, batch: list[tuple[Job, int]]) -> None:
        """Compute a batch. If that fails, compute each text by itself, so that not all requests fail."""
        batch = [(job, n) for job, n in batch if not job.done.done()]
        if not batch:
            return
        rows, computer.running = [job.rows[n] for job, n in batch], [job for job, _ in batch]
        self.metrics.batches.labels(self.name).observe(sum(map(len, rows)))
        computer.engine.resume()
        try:
            outputs = await asyncio.get_running_loop().run_in_executor(computer.thread, computer.engine.compute, rows)
        except Dropped:
            return
        except Exception as error:
            if len(batch) == 1:
                self.fail(batch, error)
            else:
                for one in batch:
                    await self.compute(computer, [one])
            return
        finally:
            computer.running = []
        for (job, n), output in zip(batch, outputs, strict=True):
            job.outputs[n] = output
            job.missing -= 1
            if not job.missing:
                self.finish(job)

    def fail(self, batch: list[tuple[Job, int]], error: Exception) -> None:
        """Answer the requests of a batch with an error, except those that have been answered."""
        traceback.print_exception(error)
        for job, _ in batch:
            if not job.done.done():
                job.error = error
                self.finish(job)

    def finish(self, job: Job) -> None:
        """Remove a request from the queue, even if it has other texts to compute, and wake whoever awaits it."""
        self.forget(job)
        if not job.done.done():
            job.done.set_result(None)


def trim_memory() -> None:
    """Give free memory back to the system: batches of all sizes leave gaps in glibc's heap, which would add up."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)
