# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The server has the vectors of sentence-transformers; what it cannot serve is a sentence, and stops nobody else."""

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import script_environment
from hub_checkpoints import text_checkpoint
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from starlette.testclient import TestClient


TEXTS = ["The lion sleeps.", "A lion roars at night. " * 30, "It hunts", "At dawn, with its pride. " * 7]


@pytest.fixture(scope="module")
def serve():
    return import_module("serve")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    parent = tmp_path_factory.mktemp("serve")
    torch.manual_seed(0)
    model = Transformer(str(text_checkpoint(parent / "model", "LionModel", pooling="mean")), max_seq_length=100_000)
    SentenceTransformer(modules=[model, Pooling(32), Normalize()], device="cpu").save(str(parent / "encoder"))
    return parent / "encoder"


@pytest.fixture(scope="module")
def loaded(serve, folder):
    return serve.LionEncoder(str(folder), max_input_tokens=300)


@pytest.fixture
def client(serve, loaded):
    with TestClient(serve.make_server(loaded, "lion", max_batch_tokens=64, max_texts=8)) as client:
        yield client


def vectors_of(response) -> np.ndarray:
    assert response.status_code == 200, response.text
    return np.array([row["embedding"] for row in response.json()["data"]])


def test_vectors_are_those_of_sentence_transformers(client, folder):
    """In batches of any lengths, of one request or of many at once."""
    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(vectors_of(client.post("/v1/embeddings", json={"input": TEXTS})), expected, atol=1e-5)
    np.testing.assert_allclose(client.post("/embed", json={"inputs": TEXTS}).json(), expected, atol=1e-5)
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda text: client.post("/v1/embeddings", json={"input": text}), TEXTS * 3)
        found = np.concatenate([vectors_of(answer) for answer in answers])
    np.testing.assert_allclose(found, np.concatenate([expected] * 3), atol=1e-5)


def test_texts_are_grouped_by_length(loaded):
    rows = [[1] * n for n in (100, 9, 10, 95, 300, 9, 10)]
    groups = loaded.groups(rows)
    assert [[len(rows[n]) for n in group] for group in groups] == [[300], [100, 95], [10, 10, 9, 9]]


def test_formats(client, loaded, folder):
    plain = client.post("/v1/embeddings", json={"input": TEXTS[0], "model": "lion", "dimensions": 32, "user": "me"})
    (expected,) = vectors_of(plain)
    (ids,) = loaded.tokenize(TEXTS[:1])
    assert plain.json()["usage"] == {"prompt_tokens": len(ids), "total_tokens": len(ids)}
    coded = client.post("/v1/embeddings", json={"input": TEXTS[0], "encoding_format": "base64"}).json()["data"][0]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(coded["embedding"]), "<f4"), expected, atol=1e-6)
    for given in (ids, [ids]):
        np.testing.assert_allclose(vectors_of(client.post("/v1/embeddings", json={"input": given})), expected[None])
    (raw,) = client.post("/embed", json={"inputs": TEXTS[0], "normalize": False}).json()
    assert abs(np.linalg.norm(raw) - 1) > 1e-3
    np.testing.assert_allclose(raw / np.linalg.norm(raw), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("route", "body", "status", "message"),
    [
        ("/embed", {"inputs": []}, 400, "`inputs` has 0 texts; give 1 to 8"),
        ("/embed", {"inputs": ["a"] * 9}, 400, "`inputs` has 9 texts; give 1 to 8"),
        ("/embed", {"inputs": ["a", " "]}, 400, "`inputs` is empty at 1"),
        ("/embed", {"inputs": 3}, 422, "`inputs`: Input should be a valid string"),
        ("/embed", {"input": "a"}, 422, "`inputs`: Field required"),
        ("/embed", {"inputs": "a", "truncat": True}, 422, "`truncat`: Extra inputs"),
        ("/embed", {"inputs": "lion " * 2000}, 413, "a text of 2,002 tokens; give at most 300"),
        ("/v1/embeddings", {"input": "lion " * 2000}, 413, "a text of 2,002 tokens; give at most 300"),
        ("/v1/embeddings", {"input": [5, 10**6]}, 400, "`input` has the token 1000000; give 0 to"),
        ("/v1/embeddings", {"input": [[5], []]}, 400, "`input` is empty at 1"),
        ("/v1/embeddings", {"input": []}, 400, "`input` has 0 texts"),
        ("/v1/embeddings", {"input": "a", "model": "bert"}, 404, "`model` is 'bert'; this server has 'lion'"),
        ("/v1/embeddings", {"input": "a", "dimensions": 8}, 400, "`dimensions` is 8; this model gives 32"),
        (
            "/v1/embeddings",
            {"input": "a", "encoding_format": "hex"},
            422,
            "`encoding_format`: Input should be 'float'",
        ),
        ("/v1/embeddings", [1], 422, "The body: Input should be a valid dictionary"),
    ],
)
def test_bad_requests(client, route, body, status, message):
    answer = client.post(route, json=body)
    assert answer.status_code == status and message in answer.json()["error"]["message"]
    assert client.post("/embed", json={"inputs": "still there"}).status_code == 200
    assert f'status="{status}"' in client.get("/metrics").text


def test_a_body_that_is_no_json(client):
    assert client.post("/embed", content=b"{").status_code == 422
    assert client.post("/embed", content=b"\xff" * 100).status_code in (400, 422)


def test_long_texts_are_shortened_where_that_is_asked_for(client, loaded):
    short = loaded.shorten(loaded.tokenize(["lion " * 2000])[0])
    assert len(short) == 300 and short[-1] == loaded.encoder.tokenizer.sep_token_id
    (found,) = client.post("/embed", json={"inputs": "lion " * 2000, "truncate": True}).json()
    np.testing.assert_allclose(found, vectors_of(client.post("/v1/embeddings", json={"input": short}))[0], atol=1e-6)


class Slow:
    """Waits for `go` before it gives vectors of lengths; fails for 13 tokens. Each text has a token for each word."""

    max_input_tokens, size, vocab_size = 1000, 2, 50

    def __init__(self):
        self.go, self.batches = threading.Event(), []

    def tokenize(self, texts):
        return [[1] * len(text.split()) for text in texts]

    def embed(self, rows):
        self.batches.append([len(row) for row in rows])
        assert self.go.wait(30)
        if any(len(row) == 13 for row in rows):
            raise FloatingPointError("thirteen")
        return [np.array([len(row), 1.0], dtype=np.float32) for row in rows]


def test_the_queue_is_limited_and_batches_are_full(serve):
    slow = Slow()
    app = serve.make_server(slow, "slow", max_batch_tokens=10, max_queue_tokens=25)
    with TestClient(app) as client, ThreadPoolExecutor(8) as pool:
        first = pool.submit(client.post, "/embed", json={"inputs": "a"})
        while not slow.batches:
            time.sleep(0.01)
        more = []
        for words in (4, 6, 3, 12):
            more.append(pool.submit(client.post, "/embed", json={"inputs": "a " * words, "normalize": False}))
            while app.state.queue.tokens < sum((4, 6, 3, 12)[: len(more)]):
                time.sleep(0.01)
        full = client.post("/embed", json={"inputs": "a"})
        assert full.status_code == 429 and "25 tokens are waiting" in full.json()["error"]["message"]
        slow.go.set()
        assert first.result().status_code == 200
        assert [x.result().json()[0][0] for x in more] == [4, 6, 3, 12]
    assert slow.batches == [[1], [4, 6], [3], [12]]


def test_one_text_that_fails_stops_no_other(serve, capsys):
    slow = Slow()
    slow.go.set()
    with TestClient(serve.make_server(slow, "slow")) as client:
        answer = client.post("/embed", json={"inputs": ["a " * 13, "a"]})
        assert answer.status_code == 500 and "FloatingPointError" in answer.json()["error"]["message"]
        assert client.post("/embed", json={"inputs": "a"}).status_code == 200
        # The answer to the first request need not wait for the text that did not fail.
        assert slow.batches == [[13, 1], [13], [1], [1]] and "thirteen" in capsys.readouterr().out
        assert client.get("/health").json() == {"status": "ok"}


def test_time_runs_out(serve):
    slow = Slow()
    with TestClient(serve.make_server(slow, "slow", timeout=0.3)) as client:
        answer = client.post("/embed", json={"inputs": "a"})
        assert answer.status_code == 504 and "longer than 0.3 seconds" in answer.json()["error"]["message"]
        late = client.post("/embed", json={"inputs": "a a"})  # waits behind it, and is taken out of the queue
        assert late.status_code == 504
        slow.go.set()
        assert client.post("/embed", json={"inputs": "a a a"}).status_code == 200
    assert slow.batches == [[1], [3]]


def test_who_has_gone_is_not_waited_for(serve):
    slow = Slow()

    async def go():
        queue = serve.Queue(slow, 10, 100, serve.Metrics())
        (gone, here) = queue.put([[1], [1, 1]])
        gone.cancel()
        worker = asyncio.create_task(queue.work())
        slow.go.set()
        vector = await here
        worker.cancel()
        return vector

    assert asyncio.run(go())[0] == 2 and slow.batches == [[2]]


def test_a_long_body_is_not_read(serve):
    with TestClient(serve.make_server(Slow(), "slow", max_queue_tokens=10)) as client:
        answer = client.post("/embed", json={"inputs": "a" * 1000})
        assert answer.status_code == 413 and "more than 160 bytes" in answer.json()["error"]["message"]


def test_other_encoders_are_refused(serve, tmp_path):
    with pytest.raises(FileNotFoundError, match="is no folder: give that of a sentence encoder"):
        serve.main([str(tmp_path / "gone")])
    with pytest.raises(ValueError, match="--timeout is 0"):
        serve.main([str(tmp_path), "--timeout", "0"])


@pytest.mark.slow
def test_a_server_ends_when_its_requests_have(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).parents[2] / "examples" / "serve.py"
    server = subprocess.Popen(
        [sys.executable, str(script), str(folder), "--port", str(port), "--threads", "1"],
        env=os.environ | script_environment(),
        stderr=subprocess.DEVNULL,
    )

    def post(body: dict) -> list:
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/embed", data, headers)
        return json.load(urllib.request.urlopen(request, timeout=60))

    for _ in range(120):
        try:
            assert len(post({"inputs": "a lion"})) == 1
            break
        except urllib.error.URLError:
            assert server.poll() is None
            time.sleep(0.5)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(post, {"inputs": ["lion " * 20_000] * 4}) for _ in range(3)]
        time.sleep(0.5)
        server.send_signal(signal.SIGTERM)
        assert [len(x.result()) for x in waiting] == [4, 4, 4]
    assert server.wait(30) in (0, -signal.SIGTERM)
