# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The process in the background of `lion search`: whom it answers, when it ends, and what is left of one that died."""

import contextlib
import json
import os
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from deploy_lion import cli
from hub_checkpoints import text_checkpoint
from processes import wait_until_free
from retrieval_lion import sources
from retrieval_lion.search import background, searcher


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "zip.txt").write_text("How to open and read a zip archive of files.")
    (tmp_path / "model").mkdir()
    return tmp_path / "texts"


class Told:
    """In the place of a `Searcher`: says what it was asked, slowly if told so, and what became of it."""

    has_encoder = True

    def __init__(self):
        self.closed = threading.Event()
        self.running = 0
        self.steps = {}

    def answers(self, request):
        self.running += 1
        assert self.running == 1  # one thread at a time
        try:
            if "fail" in request:
                raise {"value": ValueError, "key": KeyError}[request["fail"]]("nothing to search")
            for n in range(request["steps"]):
                self.steps[request["query"]] = n
                self.running -= 1
                yield {"progress": [n, request["steps"]]}
                self.running += 1
                time.sleep(0.01)
            self.running -= 1
            yield {"answers": [request["query"]], "progress": [request["steps"], request["steps"]]}
            self.running += 1
        finally:
            self.closed.set()
            self.running -= 1


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server in a thread of this process, where `background.ask("model", …)` finds it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(background, "connected", connect_only)
    path = background.socket_path("model", None)
    with background.Server(str(path), Told(), 0.3) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def connect_only(path, model, base, keep_minutes):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection


def test_the_server_answers_several_at_a_time(server):
    events = [background.ask("model", {"query": name, "steps": 5}, 1) for name in "ab"]
    both = [next(x) for x in events]
    assert both == [{"progress": [0, 5]}] * 2
    for name, more in zip("ab", events, strict=True):
        assert list(more)[-1] == {"answers": [name], "progress": [5, 5]}
    with pytest.raises(ValueError, match="^nothing to search$"):
        next(background.ask("model", {"fail": "value"}, 1))
    with pytest.raises(ValueError, match="^KeyError: 'nothing to search'$"):  # one that nobody foresaw
        next(background.ask("model", {"fail": "key"}, 1))


def test_nothing_is_read_when_nobody_listens(server):
    events = background.ask("model", {"query": "a", "steps": 10**9}, 1)
    next(events)
    events.close()
    assert server.searcher.closed.wait(60) and server.searcher.steps["a"] < 100


def test_a_search_is_closed_in_its_turn(server):
    """It saves then, and a search in another thread would add vectors meanwhile."""
    held = []

    class Saving:
        def answers(self, request):
            try:
                yield {"progress": [0, 1]}
                yield {"answers": [], "progress": [1, 1]}
            finally:
                held.append(server.turn.locked())

    server.searcher = Saving()
    events = server.events({})
    next(events)
    events.close()
    assert held == [True] and not server.turn.locked()
    assert len(list(server.events({}))) == 2 and not server.turn.locked()


def test_the_server_ends_when_nobody_asks(server):
    list(background.ask("model", {"query": "a", "steps": 2}, 1))
    stop = time.monotonic() + 20
    while Path(server.server_address).exists():
        assert time.monotonic() < stop
        time.sleep(0.02)
    with pytest.raises(OSError):
        list(background.ask("model", {"query": "a", "steps": 2}, 1))


def test_a_folder_of_others_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = background.socket_path("model", None).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(background.BackgroundError, match="is open to others: delete it"):
        background.socket_path("model", None)


@pytest.mark.parametrize("state", ["missing", "of others", "too long"])
def test_a_runtime_folder_that_cannot_be_used(state, tmp_path, monkeypatch):
    """Paths of sockets have a limit."""
    runtime = tmp_path / "runtime"
    if state == "too long":
        runtime = tmp_path / ("long" * 20)
        runtime.mkdir()
    if state == "of others":
        runtime.mkdir()
        status = list(runtime.stat())
        status[stat.ST_UID] += 1
        status = os.stat_result(status)
        monkeypatch.setattr(
            os, "stat", lambda path, stat=os.stat, **x: status if path == str(runtime) else stat(path, **x)
        )
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setattr(background.tempfile, "gettempdir", lambda: str(tmp_path))
    assert background.socket_path("model", None).parent.parent == tmp_path


def test_the_process_gets_full_paths(tmp_path, monkeypatch):
    """Also of a base that an adapter names as seen from the current folder."""
    for name in ("here/base", "here/other", "there/adapter"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "there" / "adapter" / sources.ADAPTER).write_text('{"base_model_name_or_path": "base"}')
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path / "here")
    started = []

    def start(command, **options):
        started.append(command)
        raise OSError

    monkeypatch.setattr(background.subprocess, "Popen", start)
    assert cli.main(["search", ".", "query", "--model", "../there/adapter", "--cache_dir", "cache"]) == 1
    (arguments,) = started
    assert arguments[-3:-1] == [str(tmp_path / "there" / "adapter"), str(tmp_path / "here" / "base")]


@pytest.mark.parametrize("options", [[], ["--keep_minutes", "0"]])
def test_who_leaves_is_told_what_goes_on(options, folder, monkeypatch, capsys):
    def interrupted(*args):
        yield {"progress": [1, 9], "doing": "Reading"}
        raise KeyboardInterrupt

    monkeypatch.setattr(background, "ask", interrupted)
    monkeypatch.setattr(searcher.Searcher, "answers", interrupted)
    assert cli.main(["search", str(folder), "query", "--model", str(folder.parent / "model"), *options]) == 130
    assert "What was read is kept; nothing goes on.\n" in capsys.readouterr().err


def test_the_process_counts_the_time_that_it_takes_to_begin(monkeypatch):
    """`--seconds` bounds the whole call."""
    asked = []

    class Slow:
        def __init__(self, *args):
            time.sleep(0.2)

        def answers(self, request):
            asked.append(request["seconds"])
            yield {"answers": []}

    monkeypatch.setattr(searcher, "Searcher", Slow)
    lazy = background.Lazy("model", None)
    assert [*lazy.answers({"seconds": 9.0}), *lazy.answers({"seconds": 9.0})] == [{"answers": []}] * 2
    first, second = asked
    assert 0 < first <= 8.8 and second == 9.0


def connect_when_possible(path: Path) -> socket.socket:
    stop = time.monotonic() + 60
    while True:
        try:
            return connect_only(path, "model", None, 5)
        except OSError:
            assert time.monotonic() < stop
            time.sleep(0.05)


def test_stop_ends_what_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert cli.main(["search", "--stop"]) == 0 and "Ended 0 processes" in capsys.readouterr().err
    path = background.socket_path("model", None)
    command = [sys.executable, "-W", "ignore", "-m", background.__name__, str(path), "model", "", "5"]
    with subprocess.Popen(command), connect_when_possible(path):
        lock = path.with_suffix(".socket.lock")
        assert background.is_locked(lock)
        assert cli.main(["search", "--stop"]) == 0 and "Ended 1 process in" in capsys.readouterr().err
    assert not background.is_locked(lock) and not path.exists()
    assert background.stop() == 0


@pytest.mark.slow
def test_a_process_in_the_background_keeps_the_encoder(folder, tmp_path):
    """From the command line: one process answers two calls, is killed while it reads, and loses nothing."""
    model = text_checkpoint(tmp_path / "lion", "LionModel", pooling="mean")
    for n in range(400):
        (folder / f"{n:03}.txt").write_text(f"# Page {n}\n\n" + "The lion sleeps in the shade. " * 40)
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    call = [sys.executable, "-m", "deploy_lion.cli", "search", str(folder), "a lion at night", "--json"]
    call += ["--model", str(model), "--keep_minutes", "0.2", "--read_all"]
    options = {"env": environment, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    vectors_dir = tmp_path / "cache" / "lion" / "search"
    first = subprocess.Popen(call, **options)
    while not kept(vectors_dir):
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    (lock,) = (tmp_path / f"lion-{os.getuid()}").glob("*.lock")
    killed = holder(lock)
    os.kill(killed, 9)
    _, error = first.communicate(timeout=60)
    assert first.returncode == 1 and "what it read is kept: try again" in error
    assert 0 < kept(vectors_dir) < 401
    second = subprocess.run(call, timeout=300, **options)
    found = json.loads(second.stdout)
    assert found["complete"] and found["passages"] == found["read"] == 401
    process = holder(lock)
    third = subprocess.run(call, timeout=60, **options)
    assert json.loads(third.stdout)["answers"] == found["answers"] and holder(lock) == process != killed
    os.kill(process, 9)  # test_commands_of_the_wheel waits until such a process ends by itself


@pytest.mark.slow
def test_a_process_without_an_encoder_ends(folder, tmp_path):
    model = tmp_path / "broken"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "bert"}')
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    call = [sys.executable, "-m", "deploy_lion.cli", "search", str(folder), "query", "--model", str(model)]
    options = {"env": environment, "text": True, "capture_output": True, "timeout": 120}
    assert subprocess.run([*call, "--keep_minutes", "60"], **options).returncode == 1
    (lock,) = (tmp_path / f"lion-{os.getuid()}").glob("*.lock")
    wait_until_free(lock)


def holder(lock: Path) -> int:
    """The process that has a file open."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if any(os.readlink(x) == str(lock) for x in (process / "fd").iterdir()):
                    return int(process.name)
    raise AssertionError(f"nobody has {lock} open")


def kept(folder: Path) -> int:
    """How many passages a cache has that have been read."""
    for path in folder.glob("*.sqlite"):
        with contextlib.closing(sqlite3.connect(path)) as database, contextlib.suppress(sqlite3.OperationalError):
            return database.execute("SELECT count(*) FROM vectors").fetchone()[0]
    return 0
