# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
A background process that keeps the encoder of `lion search` loaded between calls, and listens on a Unix socket.

Importing torch and sentence-transformers takes about ten seconds of a CPU core; a query alone takes almost none. So
the first call starts the process, later calls ask it, and it ends after some minutes without requests. This module
imports only the standard library.
"""

import contextlib
import hashlib
import json
import os
import signal
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


START_SECONDS = 30  # time for the process to listen; it loads the encoder later
STOP_SECONDS = 10  # time for a process to end
# Bytes of a folder with sockets: their paths may have 107 on Linux and 103 on macOS, of which names take 24.
LONGEST_FOLDER = 83 if sys.platform == "linux" else 79


class BackgroundError(OSError):
    """The background process could not be started, or ended before it answered."""


def is_possible() -> bool:
    """Return whether this system has Unix sockets."""
    return hasattr(socket, "AF_UNIX")


def socket_folder() -> Path:
    """
    Return the folder of sockets, which only this user can open.

    Raises:
        BackgroundError: if the folder belongs to somebody else.
    """
    parents, runtime = [tempfile.gettempdir(), "/tmp"], os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isdir(runtime) and os.stat(runtime).st_uid == os.getuid():  # not as after `su`
        parents.insert(0, runtime)
    folders = (Path(parent, f"lion-{os.getuid()}").absolute() for parent in parents)
    folder = next(x for x in folders if len(os.fsencode(x)) <= LONGEST_FOLDER)
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise BackgroundError(f"{folder} is open to others: delete it, or give --keep_minutes 0.")
    return folder


def socket_path(model: str, base: str | None) -> Path:
    """
    Return the socket of the process for a model (`base`: of an adapter). The name depends on the version of this
    package, the Python and the state of the model's files.
    """
    about = repr((model, base, files_of_model(model, base), sys.executable, version("lion-transformers")))
    name = hashlib.sha256(about.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return socket_folder() / f"{name}.socket"


def stop() -> int:
    """End all background processes of this user, whatever they do. Returns how many there were."""
    count = 0
    for path in socket_folder().glob("*.lock"):
        if not is_locked(path):
            continue
        if process := int(path.read_text() or 0):  # 0: it is about to write its number
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
                count += 1
        end = time.monotonic() + STOP_SECONDS
        while is_locked(path):
            if time.monotonic() > end:
                raise BackgroundError(f"process {process} does not end.")
            time.sleep(0.05)
        path.with_suffix("").unlink(missing_ok=True)
    return count


def is_locked(path: Path) -> bool:
    """Return whether a process has the lock."""
    import fcntl

    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def ask(model: str, request: dict, keep_minutes: float) -> Iterator[dict]:
    """
    Send a request to the background process of a model. If none runs, start one.

    Args:
        model: a full path, or a name on the Hub.
        request: as `Searcher.answers` takes it.
        keep_minutes: a new process ends after this many minutes without a request.

    Yields:
        The events of `Searcher.answers`.

    Raises:
        BackgroundError: if the process ends before its last answer.
        ValueError: if the process raises an error, with its message.
    """
    base = base_of_adapter(model)  # may be relative to the current folder, and the process has another one
    path = socket_path(model, base)
    for attempt in (1, 2):  # an idle process may end just after it is found
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
    """Connect to the process that listens at a path, or start one."""
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
        # If two calls start a process at the same time, one process ends, and the other one answers both.
        if time.monotonic() > stop or process.poll() not in (None, 0):
            raise BackgroundError(f"the process in the background does not start: see {log_of(path)}.")
        time.sleep(0.05)


class Handler(socketserver.StreamRequestHandler):
    """Answers one request."""

    def handle(self) -> None:
        request = json.loads(self.rfile.readline() or "null")
        if request is None:
            return
        gone = BrokenPipeError, ConnectionResetError
        with self.server.busy(), contextlib.closing(self.server.events(request)) as events, contextlib.suppress(*gone):
            for event in events:
                self.wfile.write(json.dumps(event).encode() + b"\n")


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """
    Serves a `Searcher`, and ends after some seconds without a request, or when no encoder can be loaded.

    Args:
        path: path of the socket.
        searcher: a `Lazy`, used by one thread at a time; searches take turns after each batch.
        keep_seconds: time without requests after which the server ends.
    """

    daemon_threads = True

    def __init__(self, path: str, searcher, keep_seconds: float):
        super().__init__(path, Handler)
        self.searcher, self.keep_seconds = searcher, keep_seconds
        self.turn, self.counts = threading.Lock(), threading.Lock()
        self.running, self.last = 0, time.monotonic()  # requests, and when the last one ended

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        with self.counts:
            self.running += 1
        try:
            yield
        finally:
            with self.counts:
                self.running, self.last = self.running - 1, time.monotonic()

    def events(self, request: dict) -> Iterator[dict]:
        """
        Yield the events of the searcher; an error is the last one. Closing this iterator waits for its turn, and
        closes that of the searcher.
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
                if "error" in event and not self.searcher.has_encoder:
                    self.keep_seconds = 0
                yield event
                if "error" in event:
                    return
        finally:
            with self.turn:
                answers.close()

    def service_actions(self) -> None:
        """End the server if it is idle. `serve_forever` calls this twice a second."""
        with self.counts:
            is_over = not self.running and time.monotonic() - self.last > self.keep_seconds
        if is_over:
            Path(self.server_address).unlink(missing_ok=True)  # no new connections
            threading.Thread(target=self.shutdown).start()


class Lazy:
    """
    Makes a `Searcher` at the first request, so that errors of importing and loading reach the client.

    Args:
        model, base: as `Searcher` takes them.

    Attributes:
        has_encoder: whether an encoder is loaded.
    """

    def __init__(self, model: str, base: str | None):
        self.model, self.base, self.searcher = model, base, None

    @property
    def has_encoder(self) -> bool:
        return self.searcher is not None and self.searcher.encoder is not None

    def answers(self, request: dict) -> Iterator[dict]:
        begin = time.monotonic()
        if self.searcher is None:
            from . import searcher

            self.searcher = searcher.Searcher(self.model, self.base)
            if request["seconds"] is not None:
                request = request | {"seconds": request["seconds"] - (time.monotonic() - begin)}
        yield from self.searcher.answers(request)


def main() -> None:
    """Run the process: `python -m retrieval_lion.search.background SOCKET MODEL BASE MINUTES`."""
    path, model, base, minutes = sys.argv[1:]
    keep_freed_memory()
    import fcntl

    with open(f"{path}.lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process runs or starts
            return
        lock.truncate(0)
        print(os.getpid(), file=lock, flush=True)
        Path(path).unlink(missing_ok=True)  # left by a killed process
        with Server(path, Lazy(model, base or None), 60 * float(minutes)) as server:
            server.serve_forever()


if __name__ == "__main__":
    main()
