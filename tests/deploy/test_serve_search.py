# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""/search answers as `lion search` does, also after files have changed, and stops when nobody waits."""

import json
import threading
import time
from importlib import import_module

import pytest
import torch
from deploy_lion import cli
from deploy_lion.serve.app import make_app
from deploy_lion.serve.loading import load_engine
from deploy_lion.serve.searching import FolderSearch
from deploy_lion.serve.settings import Settings
from hub_checkpoints import text_checkpoint
from served import Slow, sentence_encoder
from starlette.testclient import TestClient


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("lion", "owl", "river"):
        (folder / f"{name}.txt").write_text(f"The {name} at night.")
    return folder


def test_search_has_the_answers_of_lion_search(tmp_path, notes, capsys):
    model = str(sentence_encoder(tmp_path))
    search = FolderSearch(model, str(notes), tmp_path / "cache")
    search.prepare()
    assert "3" in capsys.readouterr().err  # of passages
    request = search.request("The lion", 2, None)
    with TestClient(make_app(load_engine(model), "lion", search=search)) as client:
        for n in range(2):
            *_, expected = import_module("retrieval_lion.search.searcher").Searcher(model).answers(request)
            answer = client.post("/search", json={"query": "The lion", "top": 2})
            assert answer.status_code == 200 and answer.json() == json.loads(
                json.dumps({"query": "The lion"} | expected)
            )
            assert len(answer.json()["answers"]) == 2 and n == any(
                "roars" in found["text"] for found in answer.json()["answers"]
            )
            (notes / "new.txt").write_text("The lion roars.")  # is read by the next query
        assert len(client.post("/v1/embeddings", json={"input": "a"}).json()["data"]) == 1
        for body, status, message in (
            ({"query": " "}, 400, "`query` is empty"),
            ({"query": "a", "top": 0}, 422, "`top`"),
            ({"query": "lion " * 1700}, 422, "`query`: String should have at most 8192 characters"),
            ({}, 422, "`query`: Field required"),
        ):
            error = client.post("/search", json=body)
            assert error.status_code == status and message in error.json()["error"]["message"]
        for path in notes.iterdir():
            path.unlink()
        error = client.post("/search", json={"query": "a"})
        assert error.status_code == 500 and str(notes) in error.json()["error"]["message"]


def test_a_search_ends_when_nobody_waits(tmp_path, notes):
    """It gets less time than the request has, and is closed if it takes longer."""
    search, ended, seconds = FolderSearch("a/model", str(notes), tmp_path), threading.Event(), []

    def answers(request):
        seconds.append(request["seconds"])
        try:
            while True:
                time.sleep(0.01)
                yield {"progress": [0, 1]}
        finally:
            ended.set()

    search.searcher.answers = answers
    with TestClient(make_app(Slow(), "slow", Settings(timeout=0.5), search=search)) as client:
        assert client.post("/search", json={"query": "a"}).status_code == 504
        assert ended.wait(30) and 0 < seconds[0] < 0.5


def test_the_search_loads_its_encoder_as_the_options_say(tmp_path, notes, monkeypatch):
    encoders = []

    def serve(app, **options):
        with TestClient(app, base_url="http://localhost") as client:
            assert client.post("/search", json={"query": "lion"}).status_code == 200

    def make(*args, search, **options):
        encoders.append(search.searcher.encoder)
        return make_app(*args, search=search, **options)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("uvicorn.run", serve)
    monkeypatch.setattr("deploy_lion.serve.app.make_app", make)
    options = ["--dtype", "float16", "--attn_implementation", "chunk", "--device", "cpu", "--port", "0"]
    assert cli.main(["serve", str(sentence_encoder(tmp_path)), "--search", str(notes), *options]) == 0
    (encoder,) = encoders
    assert encoder.dtype == torch.float16 and encoder.device.type == "cpu"
    assert encoder[0].model.config._attn_implementation == "chunk"


def test_what_cannot_be_searched_is_refused(tmp_path, notes, capsys):
    classifier = str(text_checkpoint(tmp_path / "classifier", "LionForSequenceClassification", num_labels=3))
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "model.onnx").touch()
    for arguments, message in (
        ([], "give a model to serve, or --search FOLDER"),
        ([classifier, "--search", str(tmp_path / "gone")], "gone"),
        ([classifier, "--search", str(notes)], "--search needs an encoder, and"),
        ([str(tmp_path / "graph"), "--search", str(notes)], "graph is a graph: give the folder that was exported"),
        ([str(tmp_path / "graph"), "--device", "meta"], "which runs on the CPU: leave --device meta out"),
    ):
        assert cli.main(["serve", *arguments, "--port", "0"]) == 1
        assert message in capsys.readouterr().err
