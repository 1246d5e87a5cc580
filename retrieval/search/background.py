# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
A process in the background that keeps an encoder between two calls of `lion search`, behind a Unix socket.

Importing torch and sentence-transformers takes some ten seconds of a CPU core, and reading nothing anew takes none. So
the first call starts the process, later ones ask it, and it ends when nobody has asked for some minutes. This module
imports the standard library only.
"""

import contextlib
import hashlib
import json
import os
import socket
import socketserver
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from ..memory import keep_freed_memory
from ..sources import base_of_adapter, files_of_model


START_SECONDS = 30  # until the process listens; it loads the encoder later


class BackgroundError(OSError):
    """The process cannot be started, or ended before it had answered."""


def is_possible() -> bool:
    """Whether this system has Unix sockets."""
    return hasattr(socket, "AF_UNIX")


def socket_path(model: str, base: str | None) -> Path:
    """
    Where the process for a model, and the base that it changes, listens: in a folder that only this user can open.
    Another version of this package, another Python or other times of the model's files are another process.

    Raises:
        BackgroundError: if the folder belongs to somebody else.
    """
    parent = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isdir(parent) or os.stat(parent).st_uid != os.getuid():  # as after `su`
        parent = tempfile.gettempdir()
    folder = Path(parent, f"lion-{os.getuid()}").absolute()
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise BackgroundError(f"{folder} is open to others: delete it, or give --keep_minutes 0.")
    about = repr((model, base, files_of_model(model, base), sys.executable, version("lion-transformers")))
    return folder / f"{hashlib.sha256(about.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.socket"


def ask(model: str, request: dict, keep_minutes: float) -> Iterator[dict]:
    """
    Send a request to the process of a model, which is started if it does not run.

    Args:
        model: a full path, or a name on the Hub.
        request: of `Searcher.answers`.
        keep_minutes: after how many minutes without a request a new process ends.

    Yields:
        What `Searcher.answers` does.

    Raises:
        BackgroundError: if the process ends before its last answer.
        ValueError: what the process raised; its message is for people.
    """
    base = base_of_adapter(model)  # seen from the current folder, which the process does not have
    path = socket_path(model, base)
    for attempt in (1, 2):  # it may end, because nobody has asked, just when it is found
        with connected(path, model, base, keep_minutes) as connection:
            is_empty = True
            with contextlib.suppress(ConnectionError), connection.makefile("rw", encoding="utf-8") as stream:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                for line in stream:
                    event, is_empty = json.loads(line), False
                    if "error" in event:
                        raise ValueError(event["error"])
                    yield event
                    if "answers" in event:
                        return
        if not is_empty or attempt == 2:
            raise BackgroundError(
                f"the process in the background has ended, and what it read is kept: try again, or see {log_of(path)}."
            )


def log_of(path: Path) -> Path:
    return path.with_suffix(".log")


def connected(path: Path, model: str, base: str | None, keep_minutes: float) -> socket.socket:
    """A connection to the process that listens at a path, or to a new one."""
    process, stop = None, time.monotonic() + START_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
            return connection
        except OSError:
            connection.close()
        if process is None:
            command = [sys.executable, "-W", "ignore", "-m", __name__, str(path), model, base or "", str(keep_minutes)]
            with log_of(path).open("w") as log:
                options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": path.parent}
                process = subprocess.Popen(command, start_new_session=True, **options)
        # Another call may have started one at the same time: then this one ends, and that one answers.
        if time.monotonic() > stop or process.poll() not in (None, 0):
            raise BackgroundError(f"the process in the background does not start: see {log_of(path)}.")
        time.sleep(0.05)


class Handler(socketserver.StreamRequestHandler):
    """Answers one request."""

    def handle(self) -> None:
        request = json.loads(self.rfile.readline() or "null")
        if request is None:
            return
        with self.server.busy(), contextlib.closing(self.server.events(request)) as events:
            try:
                for event in events:
                    self.wfile.write(json.dumps(event).encode() + b"\n")
            except (BrokenPipeError, ConnectionResetError):
                self.server.read_on(events)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """
    Serves a `Searcher` until nobody has asked for some seconds.

    Args:
        path: of the socket.
        searcher: one thread at a time runs in it; a search gives way to others after each batch.
        keep_seconds: until the end, and how long a search goes on at most whose client has gone.
    """

    daemon_threads = True

    def __init__(self, path: str, searcher, keep_seconds: float):
        super().__init__(path, Handler)
        self.searcher, self.keep_seconds = searcher, keep_seconds
        self.turn, self.counts = threading.Lock(), threading.Condition()
        self.running, self.left, self.last = 0, 0, time.monotonic()  # requests, and those whose clients have gone

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        with self.counts:
            self.running += 1
        try:
            yield
        finally:
            with self.counts:
                self.running, self.last = self.running - 1, time.monotonic()
                self.counts.notify_all()

    def events(self, request: dict) -> Iterator[dict]:
        """
        Events of the searcher; an error is the last one. What was read is saved if it is closed, and no other request
        adds vectors meanwhile.
        """
        answers = self.searcher.answers(request)
        try:
            while True:
                with self.turn:
                    try:
                        event = next(answers)
                    except StopIteration:
                        return
                    except (ValueError, OSError, ImportError) as error:
                        event = {"error": str(error)}
                    except Exception as error:
                        traceback.print_exc()  # to the log
                        event = {"error": f"{type(error).__name__}: {error}"}
                yield event
                if "error" in event:
                    return
        finally:
            with self.turn:
                answers.close()

    def read_on(self, events: Iterator[dict]) -> None:
        """
        Read what is left for one who has gone, while nobody asks, and no longer than the process is kept without
        requests.
        """
        stop = time.monotonic() + self.keep_seconds
        with self.counts:
            self.left += 1
            self.counts.notify_all()
        try:
            for _ in events:
                with self.counts:
                    is_free = self.counts.wait_for(lambda: self.running <= self.left, stop - time.monotonic())
                if not is_free or time.monotonic() > stop:
                    return
        finally:
            with self.counts:
                self.left -= 1

    def service_actions(self) -> None:
        """Called by `serve_forever` twice a second."""
        with self.counts:
            is_over = not self.running and time.monotonic() - self.last > self.keep_seconds
        if is_over:
            Path(self.server_address).unlink(missing_ok=True)  # so that nobody comes any more
            threading.Thread(target=self.shutdown).start()


def main() -> None:
    """The process: `python -m retrieval_lion.search.background SOCKET MODEL BASE MINUTES`."""
    path, model, base, minutes = sys.argv[1:]
    keep_freed_memory()

    class Lazy:
        """A `Searcher` that is imported by the first request, so that an error of it reaches who asked."""

        searcher = None

        def answers(self, request: dict) -> Iterator[dict]:
            try:
                if self.searcher is None:
                    from .searcher import Searcher

                    self.searcher = Searcher(model, base or None)
                yield from self.searcher.answers(request)
            except Exception:
                if self.searcher is None or self.searcher.encoder is None:
                    server.keep_seconds = 0  # nothing is loaded that the next call could use
                raise

    import fcntl

    with open(f"{path}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another one runs, or begins
            return
        Path(path).unlink(missing_ok=True)  # of one that was killed
        with Server(path, Lazy(), 60 * float(minutes)) as server:
            server.serve_forever()


if __name__ == "__main__":
    main()
