# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""No request stalls the others: neither a long one, nor one that fails, nor one whose client has gone."""

import asyncio
import gc
import http.client
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from importlib import import_module
from operator import attrgetter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import script_environment
from deploy_lion.export.export_checkpoint import export_checkpoint
from deploy_lion.serve import queues, request_guards
from deploy_lion.serve.app import make_app
from deploy_lion.serve.engines import Dropped
from deploy_lion.serve.loading import load_engine
from deploy_lion.serve.settings import Settings
from hub_checkpoints import linear_checkpoint
from served import Slow, running, sentence_encoder
from starlette.testclient import TestClient


def until(is_true, seconds=30.0):
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.005)


def slow_app(slow, **settings):
    return make_app(slow, "slow", Settings(**settings))


def words(count: int, **fields) -> dict:
    return {"inputs": "a " * count, "normalize": False, **fields}


def test_short_requests_go_before_a_long_one():
    """The long one is still computed when they are answered; it has a thread of a lower priority."""
    long_go, slow = threading.Event(), Slow()
    slow.go.set()

    class Stuck(Slow):
        def compute(self, rows):
            self.niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
            assert long_go.wait(30)
            return super().compute(rows)

    stuck = Stuck(slow.batches)
    stuck.go.set()
    slow.twin = lambda: stuck
    with TestClient(slow_app(slow, short_tokens=10, timeout=1000)) as client, ThreadPoolExecutor(2) as pool:
        long = pool.submit(client.post, "/embed", json=words(11))
        many = pool.submit(client.post, "/embed", json={"inputs": ["a"] * 11})
        for count in (1, 2, 10):
            assert client.post("/embed", json=words(count)).json()[0][0] == count
        assert slow.batches == [[1], [2], [10]] and not long.done() and not many.done()
        long_go.set()
        assert long.result().status_code == many.result().status_code == 200
    if sys.platform == "linux":
        assert stuck.niceness == min(19, os.getpriority(os.PRIO_PROCESS, 0) + queues.NICER)


def test_batches_are_full():
    slow = Slow()
    app = slow_app(slow, max_batch_tokens=10, timeout=1000)
    with TestClient(app) as client, ThreadPoolExecutor(8) as pool:
        first = pool.submit(client.post, "/embed", json=words(1))
        until(lambda: slow.batches)
        more = []
        for count in (4, 6, 3, 12):
            more.append(pool.submit(client.post, "/embed", json=words(count)))
            until(lambda: len(app.state.service.short.jobs) == len(more) + 1)
        slow.go.set()
        assert first.result().status_code == 200
        assert [x.result().json()[0][0] for x in more] == [4, 6, 3, 12]
    assert slow.batches == [[1], [4, 6], [3], [12]]


def test_several_batches_of_the_short_queue_are_computed_at_once():
    """Each by an engine of its own: who leaves stops one of them."""
    engines = []

    class One(Slow):
        def twin(self):
            engines.append(One())
            return engines[-1]

    engines.append(One())
    app = slow_app(engines[0], workers=3, max_batch_tokens=1, timeout=1000)
    first, second, third, _ = engines  # the last one is that of the long queue
    with TestClient(app) as client, ThreadPoolExecutor(8) as pool:
        queue = app.state.service.short
        waiting = [pool.submit(client.post, "/embed", json=words(count)) for count in (1, 2, 3)]
        until(lambda: first.batches and second.batches and third.batches)
        waiting.append(pool.submit(client.post, "/embed", json=words(2)))
        until(lambda: len(queue.jobs) == 4)
        busy = sorted(engines[:3], key=lambda engine: engine.batches)
        assert [engine.batches for engine in busy] == [[[1]], [[2]], [[3]]]
        job = next(computer.running[0] for computer in queue.computers if computer.engine is busy[2])
        client.portal.call(queue.drop, job)
        until(lambda: busy[2].batches == [[3], [2]])  # what waited; `resume` has cleared the flag
        for engine in engines:
            engine.go.set()
        assert [waiting[n].result().json()[0][0] for n in (0, 1, 3)] == [1, 2, 2]
        assert [len(engine.batches) for engine in busy] == [1, 1, 2]


def test_the_short_queue_takes_little_at_once():
    """As many tokens as a short request may have, so that who comes next waits for no more."""
    slow = Slow()
    app = slow_app(slow, short_tokens=20, timeout=1000)
    with TestClient(app) as client, ThreadPoolExecutor(8) as pool:
        pool.submit(client.post, "/embed", json=words(1))
        until(lambda: slow.batches)
        more = []
        for _ in range(3):
            more.append(pool.submit(client.post, "/embed", json={"inputs": ["a " * 10] * 2}))
            until(lambda: len(app.state.service.short.jobs) == len(more) + 1)
        slow.go.set()
        assert all(x.result().status_code == 200 for x in more)
    assert slow.batches == [[1], [10, 10], [10, 10], [10, 10]]


def test_nothing_is_taken_while_a_request_has_waited_for_half_the_time(monkeypatch):
    """What is computed does not wait; and as soon as the first in the queue is taken, others are, too."""
    slow, clock = Slow(), [0.0]
    monkeypatch.setattr(queues, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    app = slow_app(slow, timeout=60)
    jobs = app.state.service.short.jobs
    with TestClient(app) as client, ThreadPoolExecutor(8) as pool:
        waiting = []
        for second in (0.0, 40.0, 69.0):
            clock[0] = second
            waiting.append(pool.submit(client.post, "/embed", json=words(7)))
            until(lambda: slow.batches and len(jobs) == len(waiting))
        assert 'lion_waiting_requests{queue="short"} 3.0' in client.get("/metrics").text
        clock[0] = 71.0
        full = client.post("/embed", json=words(3))
        assert full.status_code == 429 and full.headers["Retry-After"] == str(queues.RETRY_SECONDS)
        assert full.json()["error"]["code"] == "queue_full" and "has waited for 31 seconds" in full.text
        slow.go.set()
        assert [x.result().status_code for x in waiting] == [200] * 3
        assert client.post("/embed", json=words(3)).status_code == 200
    assert slow.batches == [[7], [7, 7], [3]]


@pytest.mark.slow
def test_many_clients_at_once_are_answered_and_nothing_is_lost(caplog):
    """With answers or 503, and the log has no exception that nobody retrieved."""
    slow = Slow()
    slow.go.set()
    app = slow_app(slow, max_requests=20, timeout=1000)
    with caplog.at_level(logging.ERROR), TestClient(app) as client, ThreadPoolExecutor(100) as pool:
        statuses = list(pool.map(lambda n: client.post("/embed", json=words(10)).status_code, range(300)))
        gc.collect()
    assert set(statuses) <= {200, 503} and statuses.count(200) == sum(map(len, slow.batches)) >= 20
    assert not app.state.service.short.jobs and caplog.records == []


def test_one_text_that_fails_stops_no_other(capsys):
    slow = Slow()
    slow.go.set()
    with TestClient(slow_app(slow, timeout=1000)) as client:
        answer = client.post("/embed", json={"inputs": ["a " * 13, "a"]})
        assert answer.status_code == 500 and "FloatingPointError" in answer.json()["error"]["message"]
        assert client.post("/embed", json=words(1)).status_code == 200
        assert slow.batches == [[13, 1], [13], [1]] and "thirteen" in capsys.readouterr().err
        assert client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize("place", ["engine.resume", "engine.compute", "metrics.batches.labels"])
def test_a_mistake_of_the_server_ends_no_queue(place, monkeypatch, capsys):
    """The requests of that batch get 500, and the next ones what they asked for."""
    slow = Slow()
    slow.go.set()
    app = slow_app(slow, timeout=2.0)
    queue = app.state.service.short
    with TestClient(app) as client:
        fail = lambda *arguments: (_ for _ in ()).throw(ArithmeticError("unexpected"))
        with monkeypatch.context() as patch:
            *owner, name = place.split(".")
            patch.setattr(attrgetter(".".join(owner))(queue), name, fail)
            answer = client.post("/embed", json={"inputs": ["a", "a a"]})
        assert answer.status_code == 500 and "ArithmeticError" in answer.json()["error"]["message"]
        assert "unexpected" in capsys.readouterr().err and not queue.jobs and not queue.computers[0].running
        assert client.post("/embed", json=words(3)).json()[0][0] == 3
        assert client.get("/health").json() == {"status": "ok"}


def test_time_runs_out():
    slow = Slow()
    with TestClient(slow_app(slow, timeout=0.3)) as client:
        answer = client.post("/embed", json=words(1))
        assert answer.status_code == 504 and "longer than 0.3 seconds" in answer.json()["error"]["message"]
        until(lambda: slow.is_cancelled.is_set())  # and is dropped in the midst of it
        assert client.post("/embed", json=words(2)).status_code == 504
        slow.go.set()
        assert client.post("/embed", json=words(3)).status_code == 200
    assert slow.batches == [[1], [2], [3]]


def send(port: int, body: bytes, head: str = "") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    head = head or f"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def test_who_has_gone_is_not_waited_for():
    """Neither in the queue, nor in the midst of a computation."""
    slow = Slow()
    app = slow_app(slow, timeout=1000)
    with running(app) as port:
        computed = send(port, json.dumps(words(7)).encode())
        until(lambda: slow.batches == [[7]])
        queued = send(port, json.dumps(words(8)).encode())
        until(lambda: len(app.state.service.short.jobs) == 2)
        queued.close()
        until(lambda: len(app.state.service.short.jobs) == 1)
        assert not slow.is_cancelled.is_set()
        computed.close()
        until(lambda: not app.state.service.short.jobs)
        slow.go.set()
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/embed", json.dumps(words(9)))
        assert json.load(connection.getresponse())[0][0] == 9
        connection.close()
    assert slow.batches == [[7], [9]]


def test_bodies_must_end(monkeypatch, capsys, caplog):
    monkeypatch.setattr(request_guards, "SECONDS_FOR_BODY", 0.3)
    slow = Slow()
    with running(slow_app(slow, timeout=1000)) as port:
        with send(port, b"{", "POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n") as connection:
            answer = connection.makefile("rb").read()  # to its end: the connection is closed
        assert answer.startswith(b"HTTP/1.1 408") and b"did not end within 0.3 seconds" in answer
        # A client that goes before its body has ended is no fault of the server.
        send(port, b"{", "POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n").close()
        # A request whose body has ended is not cut.
        with send(port, json.dumps(words(3)).encode()) as connection:
            time.sleep(0.5)
            slow.go.set()
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert "Traceback" not in capsys.readouterr().err + caplog.text


def test_requests_beyond_the_limit_are_refused_and_their_connections_closed():
    """Idle connections do not count, `/health` is answered, and as soon as one is free, the next is served."""
    slow = Slow()
    body = json.dumps(words(3)).encode()
    app = slow_app(slow, max_requests=2, timeout=1000)
    with running(app) as port, ExitStack() as stack:
        for head in ("POST", "GET /", "P", "G"):
            stack.enter_context(send(port, b"", head))
        served = [stack.enter_context(send(port, body)) for _ in range(2)]
        until(lambda: len(app.state.service.short.jobs) == 2)
        with send(port, body) as third, third.makefile("rb") as answer:
            head, _, error = answer.read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in head.lower()
        assert json.loads(error)["error"]["code"] == "too_many_requests"
        with send(port, b"", "GET /health HTTP/1.1\r\nHost: a\r\n\r\n") as balancer:
            assert balancer.recv(100).startswith(b"HTTP/1.1 200")
        slow.go.set()
        assert all(connection.recv(100).startswith(b"HTTP/1.1 200") for connection in served)
        with send(port, body) as fourth:
            assert fourth.recv(100).startswith(b"HTTP/1.1 200")
    assert sum(slow.batches, []) == [3, 3, 3]


def test_a_long_body_is_not_read():
    with running(slow_app(Slow(), max_body_bytes=1000, timeout=1000)) as port:
        for encoding in ("Content-Length: 100000", "Transfer-Encoding: chunked"):
            head = f"POST /embed HTTP/1.1\r\nHost: a\r\n{encoding}\r\n\r\n"
            connection = send(port, b"7D0\r\n" + b"a" * 2000 if "chunked" in encoding else b"", head)
            answer = connection.recv(1000) + connection.recv(1000)  # head and body
            assert answer.startswith(b"HTTP/1.1 413") and b"more than 1,000 bytes" in answer
            connection.close()


def test_a_computation_ends_when_it_is_cancelled(tmp_path):
    """A computation of torch ends in the thread that computes, and in no other."""
    engine = load_engine(str(sentence_encoder(tmp_path)))
    check_cancelling(engine, engine.padder, "pad", threading.Event())


@pytest.mark.slow
@pytest.mark.parametrize("to", ["onnx", "openvino"])
def test_graphs_end_when_they_are_cancelled(to, tmp_path, traced_once):
    """The runtime ends it, at whichever moment; else the graph would be computed for ever here."""
    source = linear_checkpoint(tmp_path / "model", "BertModel", hidden_size=128, num_hidden_layers=6)
    export_checkpoint(source, tmp_path / "graph", to, lengths=(16,))
    engine = load_engine(str(tmp_path / "graph"))
    graph = engine.modules[0].model
    compute, stop = graph.compute, threading.Event()

    def compute_for_ever(feeds):
        found = compute(feeds)
        while not stop.is_set():
            found = compute(feeds)
        return found

    graph.compute = compute_for_ever
    check_cancelling(engine, graph, "compute", stop)
    graph.compute = compute
    # What was cancelled before it began does not run, either.
    engine.cancel()
    with pytest.raises(Exception, match="(?i)terminate|cancel"):
        graph(input_ids=torch.ones(1, 5, dtype=torch.int64))
    engine.resume()
    assert len(engine.compute(engine.tokenize(["A lion."]))) == 1


def check_cancelling(engine, owner, name: str, stop: threading.Event):
    """
    Cancel what computes without end. `owner.name` is called in each round, which tells that it has begun: there is no
    time that this depends on. `stop` ends what was not cancelled.
    """
    rows = engine.tokenize(["The lion roars at night. " * 200] * 2)
    begun, call = threading.Event(), getattr(owner, name)

    def called(*args, **options):
        begun.set()
        return call(*args, **options)

    def compute_for_ever():
        while not stop.is_set():
            engine.compute(rows)

    setattr(owner, name, called)
    with ThreadPoolExecutor(1) as pool:
        try:
            ended = pool.submit(compute_for_ever)
            assert begun.wait(300)
            engine.cancel()
            with pytest.raises(Dropped):
                ended.result(300)
        finally:
            stop.set()
        engine.resume()
        np.testing.assert_array_equal(pool.submit(engine.compute, rows[:1]).result()[0], engine.compute(rows[:1])[0])


def threads_of_queues() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(("short-", "long-"))]


def test_a_queue_that_cannot_begin_leaves_no_threads():
    slow = Slow()
    slow.twin = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        make_app(slow, "slow")
    assert threads_of_queues() == []


def test_closing_ends_the_threads():
    slow = Slow()
    app = slow_app(slow, timeout=1000)
    service = app.state.service

    async def ask():
        service.short.put(slow.tokenize(["a a a"]))
        while not slow.batches:
            await asyncio.sleep(0.01)
        service.close()

    asyncio.run(ask())
    assert threads_of_queues() == []


def test_a_missing_package_is_named(monkeypatch, capsys):
    main = import_module("deploy_lion.cli").main
    monkeypatch.setattr("deploy_lion.serve.command.NEEDED", ("no_such_module",))
    assert main(["serve", "folder"]) == 1 and "no_such_module cannot be imported" in capsys.readouterr().err
    assert main(["serve", "folder", "--timeout", "0"]) == 1 and "--timeout is 0.0" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_ends_when_its_requests_have(tmp_path):
    """A process of `lion serve`, ended by SIGTERM."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "deploy_lion.cli", "serve", str(sentence_encoder(tmp_path))]
    server = subprocess.Popen(
        [*command, "--port", str(port), "--threads", "1", "--timeout", "900"], env=script_environment()
    )

    def post(body: dict) -> list:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/embed", json.dumps(body))
        found = json.load(connection.getresponse())
        connection.close()
        return found

    def answers() -> bool:
        assert server.poll() is None
        with suppress(ConnectionError):
            return len(post({"inputs": "a lion"})) == 1

    until(answers, 120)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(post, {"inputs": ["lion " * 5000] * 4}) for _ in range(3)]
        time.sleep(1)
        server.terminate()
        assert [len(x.result()) for x in waiting] == [4, 4, 4]
    assert server.wait(30) in (0, -signal.SIGTERM)


def test_a_port_that_cannot_be_used_is_refused_before_the_model_is_loaded(capsys):
    main = import_module("deploy_lion.cli").main
    with socket.create_server(("127.0.0.1", 0)) as other:
        for port in (other.getsockname()[1], 99_999):
            assert main(["serve", "folder", "--port", str(port)]) == 1
            assert f"--host 127.0.0.1 --port {port} cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "hosts", "others"),
    [
        ([], ["localhost:8080", "127.0.0.1:80", "[::1]:8080"], ["evil.example", "localhost.evil.example"]),
        (["--host", "127.0.0.2"], ["127.0.0.2:8080", "localhost"], ["127.0.0.3"]),
        (["--allowed_hosts", "lion.example"], ["lion.example"], ["localhost"]),
        (["--host", "0.0.0.0"], ["localhost", "lion.example"], []),
        (["--host", ""], ["localhost", "lion.example"], []),
    ],
)
def test_hosts_and_the_key_of_the_command(options, hosts, others, monkeypatch, capsys):
    """A server for this machine answers to names of this machine: any page can give its own name to it."""

    def serve(app, **options):
        with TestClient(app) as client:
            for key in (None, "secret"):
                headers = {"Authorization": f"Bearer {key}"}
                for host in hosts:
                    answer = client.get("/info", headers=headers | {"Host": host})
                    assert answer.status_code == (401 if key is None else 200)
                for host in others:
                    assert client.get("/info", headers=headers | {"Host": host}).status_code == 400

    main = import_module("deploy_lion.cli").main
    monkeypatch.setattr("uvicorn.run", serve)
    monkeypatch.setattr("deploy_lion.serve.loading.load_engine", lambda *args, **options: Slow())
    monkeypatch.setenv("LION_API_KEY", "secret\n")
    assert main(["serve", "folder", "--port", "0", "--workers", "1", *options]) == 0
    assert "with a key)" in capsys.readouterr().out


def test_an_empty_key_is_refused(monkeypatch, capsys):
    """It would be none."""
    main = import_module("deploy_lion.cli").main
    assert main(["serve", "folder", "--api_key", ""]) == 1 and "--api_key is empty" in capsys.readouterr().err
    monkeypatch.setenv("LION_API_KEY", " ")
    assert main(["serve", "folder"]) == 1 and "LION_API_KEY is empty" in capsys.readouterr().err
