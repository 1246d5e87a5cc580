# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Processes for calls that may hang or end them, and which end with the process that starts them."""

import ctypes
import multiprocessing
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection


STARTED = 120.0  # seconds that a new process may take to begin
SET_PDEATHSIG = 1  # of Linux's prctl
PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


class CallFailed(Exception):
    """A call raised an error, took too long, or ended its process."""


class TooLong(CallFailed):
    """A call took longer than it was allowed."""


def end_with_parent() -> None:
    """Let Linux kill this process when the one that started it ends, however that ends."""
    if PRCTL is not None:
        PRCTL(SET_PDEATHSIG, signal.SIGKILL)


def answer_calls(connection: Connection) -> None:
    """Answer the calls that come through a connection, until one fails or nobody asks any more."""
    end_with_parent()
    connection.send(None)
    try:
        while True:
            function, arguments = connection.recv()
            connection.send((function(*arguments), ""))
    except (EOFError, KeyboardInterrupt):
        return
    except Exception as error:  # after which a GPU may refuse everything that this process asks
        traceback.print_exc()
        connection.send((None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"))


class Worker:
    """Calls functions, one at a time, in a process of its own; after a call that fails, in a new one."""

    def __init__(self):
        self.process = None

    def __call__(self, seconds: float, function: Callable, *arguments):
        """
        The result of a function, which has to be at the top of a module.

        Raises:
            TooLong: after so many seconds.
            CallFailed: if the function raises an error or ends its process.
        """
        try:
            if self.process is None:
                self.start()
            self.connection.send((function, arguments))
            if not self.connection.poll(max(0.0, seconds)):
                raise TooLong(f"no answer after {seconds:.0f} s")
            result, error = self.connection.recv()
        except (EOFError, OSError):
            error = "the process has ended"
        except TooLong:
            self.end()
            raise
        if error:
            self.end()
            raise CallFailed(error)
        return result

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=answer_calls, args=(other,), daemon=True)
        self.process.start()
        other.close()
        if not self.connection.poll(STARTED):
            raise TooLong(f"a process did not begin in {STARTED:.0f} s")
        self.connection.recv()

    def end(self) -> None:
        """Kill the process, whatever it does."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.join(5)  # longer only if the driver of a GPU holds it


class Workers:
    """Several of them, which take calls in their order."""

    def __init__(self, count: int):
        self.count, self.threads, self.own, self.all = count, ThreadPoolExecutor(count), threading.local(), []

    def submit(self, seconds: float, function: Callable, *arguments) -> Future:
        """The result to come of a function, or the error of `Worker`."""
        return self.threads.submit(self.call, seconds, function, *arguments)

    def call(self, *arguments):
        if not hasattr(self.own, "worker"):
            self.own.worker = Worker()
            self.all.append(self.own.worker)
        return self.own.worker(*arguments)

    def end(self) -> None:
        """Drop the calls that have no result, and end all processes."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        for worker in self.all:
            worker.end()
