# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The server has the vectors of sentence-transformers, in the formats of others, and explains what it cannot serve."""

import base64
import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from deploy_lion.serve import app as serve_app
from deploy_lion.serve import bodies
from deploy_lion.serve.app import make_app
from deploy_lion.serve.engines import CHARACTERS_PER_TOKEN
from deploy_lion.serve.loading import load_engine
from deploy_lion.serve.settings import Settings
from pydantic import ValidationError
from sentence_transformers import SentenceTransformer
from served import sentence_encoder
from starlette.testclient import TestClient


TEXTS = ["The lion sleeps.", "A lion roars at night. " * 30, "It hunts", "At dawn, with its pride. " * 7]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(sentence_encoder(tmp_path_factory.mktemp("serve")))


@pytest.fixture(scope="module")
def reference(folder):
    return SentenceTransformer(folder, device="cpu")


@pytest.fixture(scope="module")
def engine(folder):
    return load_engine(folder, max_input_tokens=300)


@pytest.fixture
def client(engine):
    with TestClient(make_app(engine, "lion", Settings(max_batch_tokens=64, max_texts=8, short_tokens=100))) as client:
        yield client


def vectors_of(response) -> np.ndarray:
    assert response.status_code == 200, response.text
    return np.array([row["embedding"] for row in response.json()["data"]])


def test_vectors_are_those_of_sentence_transformers(client, reference):
    """In batches of any lengths, of one request or of many at once, in both queues."""
    expected = reference.encode(TEXTS)
    for route in ("/v1/embeddings", "/embeddings"):
        np.testing.assert_allclose(vectors_of(client.post(route, json={"input": TEXTS})), expected, atol=1e-5)
    for route in ("/embed", "/"):
        np.testing.assert_allclose(client.post(route, json={"inputs": TEXTS}).json(), expected, atol=1e-5)
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(lambda text: client.post("/v1/embeddings", json={"input": text}), TEXTS * 3)
        found = np.concatenate([vectors_of(answer) for answer in answers])
    np.testing.assert_allclose(found, np.concatenate([expected] * 3), atol=1e-5)
    metrics = client.get("/metrics").text
    for queue in ("short", "long"):
        assert f'lion_batch_tokens_count{{queue="{queue}"}}' in metrics


@pytest.mark.slow
def test_many_texts_in_one_request(engine, reference):
    texts = [f"The lion {'roars ' * (n % 7)}" for n in range(2048)]
    with TestClient(make_app(engine, "lion")) as client:
        found = vectors_of(client.post("/v1/embeddings", json={"input": texts}))
        np.testing.assert_allclose(found, reference.encode(texts), atol=1e-5)
        assert client.post("/embed", json={"inputs": [*texts, "a"]}).status_code == 400


def test_texts_are_grouped_by_length(engine):
    rows = [[1] * n for n in (100, 9, 10, 95, 300, 9, 10)]
    groups = engine.groups(rows)
    assert [[len(rows[n]) for n in group] for group in groups] == [[300], [100, 95], [10, 10, 9, 9]]


def test_formats(client, engine):
    plain = client.post("/v1/embeddings", json={"input": TEXTS[0], "model": "lion", "dimensions": 32, "user": "me"})
    (expected,) = vectors_of(plain)
    (row,) = engine.tokenize(TEXTS[:1])
    assert plain.json()["usage"] == {"prompt_tokens": len(row), "total_tokens": len(row)}
    coded = client.post("/v1/embeddings", json={"input": TEXTS[0], "encoding_format": "base64"}).json()["data"][0]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(coded["embedding"]), "<f4"), expected, atol=1e-6)
    (raw,) = client.post("/embed", json={"inputs": TEXTS[0], "normalize": False}).json()
    assert abs(np.linalg.norm(raw) - 1) > 1e-3
    np.testing.assert_allclose(raw / np.linalg.norm(raw), expected, atol=1e-6)


def test_null_is_a_field_that_is_not_there_and_others_are_ignored(client, reference):
    names = ("model", "encoding_format", "dimensions", "user", "prompt_name", "input_type", "truncate", "nonsense")
    body = {"input": TEXTS[0], **dict.fromkeys(names), "anything": {"else": 1}}
    expected = reference.encode(TEXTS[:1])
    np.testing.assert_allclose(vectors_of(client.post("/v1/embeddings", json=body)), expected, atol=1e-5)
    names = ("normalize", "truncate", "truncation_direction", "prompt_name", "dimensions")
    body = {"inputs": TEXTS[0], **dict.fromkeys(names), "parameters": {}}
    np.testing.assert_allclose(client.post("/embed", json=body).json(), expected, atol=1e-5)


def test_prompts(client, reference):
    by_name = {name: reference.encode(TEXTS[:2], prompt_name=name) for name in ("query", "document")}
    for name, types in (
        ("query", ("query", "search_query")),
        ("document", ("document", "passage", "search_document")),
    ):
        found = client.post("/embed", json={"inputs": TEXTS[:2], "prompt_name": name}).json()
        np.testing.assert_allclose(found, by_name[name], atol=1e-5)
        for kind in types:
            found = vectors_of(client.post("/v1/embeddings", json={"input": TEXTS[:2], "input_type": kind}))
            np.testing.assert_allclose(found, by_name[name], atol=1e-5)
    answer = client.post("/embed", json={"inputs": "a", "prompt_name": "poem"})
    assert answer.status_code == 400 and "are: document, query" in answer.json()["error"]["message"]
    assert client.post("/embed", json={"inputs": " ", "prompt_name": "query"}).status_code == 400
    assert client.post("/v1/embeddings", json={"input": "a", "input_type": "poem"}).status_code == 200


@pytest.mark.parametrize(
    ("route", "body", "status", "message"),
    [
        ("/embed", {"inputs": []}, 400, "`inputs` has 0 texts; give 1 to 8"),
        ("/embed", {"inputs": ["a"] * 9}, 400, "`inputs` has 9 texts; give 1 to 8"),
        ("/embed", {"inputs": ["a", " "]}, 400, "`inputs` is empty at 1"),
        ("/embed", {"inputs": [""] * (bodies.MOST_ITEMS + 1)}, 422, "`inputs`: List should have at most 131072 items"),
        ("/embed", {"inputs": 3}, 422, "`inputs`: Input should be a valid string"),
        ("/embed", {"inputs": None}, 422, "`inputs`: Field required"),
        ("/embed", {"input": "a"}, 422, "`inputs`: Field required"),
        ("/embed", {"inputs": "a", "truncation_direction": "up"}, 422, "`truncation_direction`: Input should be"),
        ("/embed", {"inputs": "lion " * 900}, 413, "a text of 902 tokens; give at most 300"),
        ("/embed", {"inputs": "lion " * 2000}, 413, "a text of 10,000 characters; give at most 4,800"),
        ("/v1/embeddings", {"input": "lion " * 900}, 413, "a text of 902 tokens; give at most 300"),
        ("/v1/embeddings", {"input": [5, 6]}, 400, "`input` has token ids, and those of another tokenizer"),
        ("/v1/embeddings", {"input": [[5], [6]]}, 400, "`input` has token ids"),
        ("/v1/embeddings", {"input": []}, 400, "`input` has 0 texts"),
        ("/v1/embeddings", {"input": "a", "model": "bert"}, 404, "start the server with --name"),
        ("/v1/embeddings", {"input": "a", "dimensions": 8}, 400, "`dimensions` is 8; this model gives 32"),
        (
            "/v1/embeddings",
            {"input": "a", "encoding_format": "hex"},
            422,
            "`encoding_format`: Input should",
        ),
        ("/v1/embeddings", [1], 422, "The body: Input should be an object"),
        ("/search", {"query": "a"}, 404, "start it with --search FOLDER"),
        ("/v2/embed", {"texts": ["lion " * 900], "truncate": "NONE"}, 413, "`texts` has a text of 902 tokens"),
        ("/v2/embed", {"texts": ["a"], "embedding_types": ["int8"]}, 422, "`embedding_types`: Input should be"),
        ("/predict", {"inputs": "a"}, 404, "/predict is no route of this server, whose model embeds texts"),
        ("/nowhere", {}, 404, "POST /nowhere: Not Found"),
        ("/health", {}, 405, "POST /health: Method Not Allowed"),
        ("/embed", b"{", 400, "The body is no JSON in UTF-8: EOF"),
        ("/embed", b'{"inputs": "\xff"}', 400, "The body is no JSON in UTF-8: invalid unicode"),
        ("/embed", b'{"inputs": "\\ud800"}', 400, "The body is no JSON in UTF-8: unexpected end of hex escape"),
    ],
)
def test_bad_requests(client, route, body, status, message):
    """In the format of OpenAI's errors."""
    answer = client.post(route, content=body if isinstance(body, bytes) else json.dumps(body))
    assert answer.status_code == status and set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and message in error["message"]
    assert error["type"] == "invalid_request_error" and error["message"].isprintable()
    assert client.post("/embed", json={"inputs": "still there"}).status_code == 200
    assert f'status="{status}"' in client.get("/metrics").text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (bodies.OpenAIEmbeddings, '"input": '),
        (bodies.OpenAIEmbeddings, '"input": [[1], '),
        (bodies.TeiEmbed, '"inputs": [[1], '),
        (bodies.TeiPredict, '"inputs": [["a"], '),
        (bodies.Classify, '"input": '),
        (bodies.CohereEmbed, '"texts": '),
        (bodies.CohereEmbed, '"texts": ["a"], "embedding_types": '),
        (bodies.Rerank, '"query": "a", "texts": '),
        (bodies.Rerank, '"query": "a", "documents": '),
    ],
)
def test_the_first_wrong_item_ends_the_validation(body, field):
    """pydantic would make an error for each of them, and for each kind of list."""
    items = "[" + ", ".join(["3.5"] * 1000) + "]"
    with pytest.raises(ValidationError) as error:
        body.model_validate_json("{" + field + items + "]" * field.endswith(", ") + "}")
    assert error.value.error_count() < 10


def test_a_query_is_looked_at_once(engine):
    """And not once for each text, which would take half a minute in which nothing else is answered."""
    service, begin = make_app(engine, "lion").state.service, time.monotonic()
    service.check("texts", [(" " * 4_000_000 + "lion", "a")] * 2000, "right")
    assert time.monotonic() - begin < 5
    service.close()


def test_a_failure_of_the_server_is_explained(engine, monkeypatch):
    app = make_app(engine, "lion")
    with TestClient(app, raise_server_exceptions=False) as client:
        monkeypatch.setattr(type(app.state.service), "check", lambda *args: 1 / 0)
        answer = client.post("/embed", json={"inputs": "a"})
        assert 'lion_requests_total{route="/embed",status="500"} 1.0' in client.get("/metrics").text
    assert answer.status_code == 500 and answer.json()["error"]["type"] == "server_error"
    assert "ZeroDivisionError" in answer.json()["error"]["message"]


def test_texts_are_too_long_before_their_tokens_are_counted(client, monkeypatch):
    """Their characters are counted first: a text of megabytes would take seconds."""
    service = client.app.state.service
    for queue in (service.short, service.long):
        monkeypatch.setattr(queue.engine, "tokenize", None)
    answer = client.post("/embed", json={"inputs": ["a", "a" * (CHARACTERS_PER_TOKEN * 300 + 1)]})
    assert answer.status_code == 413 and answer.json()["error"]["code"] == "context_length_exceeded"


def test_token_ids(engine):
    (row,) = engine.tokenize(TEXTS[:1])
    ids = row.fields["input_ids"]
    with TestClient(make_app(engine, "lion", Settings(accept_token_ids=True))) as client:
        expected = vectors_of(client.post("/v1/embeddings", json={"input": TEXTS[0]}))
        for given in (ids, [ids]):
            np.testing.assert_allclose(vectors_of(client.post("/v1/embeddings", json={"input": given})), expected)
        for given, message in (([5, 10**6], "has the token 1000000; give 0 to"), ([[5], []], "is empty at 1")):
            answer = client.post("/v1/embeddings", json={"input": given})
            assert answer.status_code == 400 and message in answer.json()["error"]["message"]


@pytest.mark.parametrize("direction", ["Right", "left"])
def test_long_texts_are_shortened_where_that_is_asked_for(direction, client, engine, reference):
    """To the tokens that sentence-transformers keeps, also if most of the text is blank."""
    tokenizer = engine.model.tokenizer
    blank = "lion " + " " * 20_000 + "The lion roars. " * 200 + " " * 20_000 + "at night"
    for text in ("lion at night " * 3000, blank):
        ids = tokenizer(text, truncation=False, verbose=False)["input_ids"]
        kept = [*ids[:299], ids[-1]] if direction == "Right" else [ids[0], *ids[-299:]]
        (row,) = engine.tokenize([text], direction.lower())
        assert row.fields["input_ids"] == kept
    body = {"inputs": TEXTS[0] * 500, "truncate": True, "truncation_direction": direction}
    answer = client.post("/embed", json=body)
    (found,), cut = answer.json(), len(tokenizer(TEXTS[0] * 500, truncation=False, verbose=False)["input_ids"]) - 300
    assert answer.headers["x-cut-texts"] == "1" and abs(int(answer.headers["x-cut-tokens"]) - cut) < 0.01 * cut
    body = {"input": [TEXTS[0], TEXTS[1] * 5, TEXTS[1] * 3], "truncate": True, "truncation_direction": direction}
    answer = client.post("/v1/embeddings", json=body)
    cut = [max(0, len(ids) - 300) for ids in tokenizer(body["input"], truncation=False, verbose=False)["input_ids"]]
    assert answer.json()["usage"]["cut_tokens"] == sum(cut) == int(answer.headers["x-cut-tokens"])
    assert answer.json()["usage"]["cut_texts"] == sum(x > 0 for x in cut) > 0
    answer = client.post("/v1/embeddings", json={"input": TEXTS[:1], "truncate": True})
    assert "x-cut-tokens" not in answer.headers and "cut_tokens" not in answer.json()["usage"]
    if direction == "Right":
        reference.max_seq_length = 300
        np.testing.assert_allclose(found, reference.encode(TEXTS[0] * 500), atol=1e-5)
        reference.max_seq_length = 100_000


@pytest.mark.parametrize("end", ["START", "END"])
def test_cohere_cuts_texts_at_one_end(end, client, engine):
    text = " ".join(["lion", "roars", "at", "night"] * 300)
    answer = client.post("/v2/embed", json={"texts": [text], "truncate": end}).json()
    side = {"START": "left", "END": "right"}[end]
    expected = client.post("/embed", json={"inputs": text, "truncate": True, "truncation_direction": side}).json()
    np.testing.assert_allclose(answer["embeddings"]["float"], expected, atol=1e-6)
    assert answer["meta"]["billed_units"]["input_tokens"] == 300
    if end == "END":  # the default
        assert client.post("/v2/embed", json={"texts": [text]}).json()["embeddings"] == answer["embeddings"]


def test_vectors_are_coded_once_for_cohere(client, monkeypatch):
    coded, in_base64 = [], serve_app.in_base64
    monkeypatch.setattr(serve_app, "in_base64", lambda vectors: coded.append(1) or in_base64(vectors))
    body = {"texts": TEXTS[:1], "embedding_types": ["base64", "float", "base64"]}
    found = client.post("/v2/embed", json=body).json()["embeddings"]
    assert list(found) == ["base64", "float"] and coded == [1]


def test_models_and_health(client):
    card = client.get("/v1/models").json()["data"][0]
    assert card["id"] == "lion" and client.get("/v1/models/lion").json() == card
    assert client.get("/v1/models/other").status_code == 404
    for route in ("/health", "/"):
        assert client.get(route).json() == {"status": "ok"} and client.head(route).status_code == 200
    assert client.get("/info").json()["max_input_length"] == 300


def test_the_key(engine):
    with TestClient(make_app(engine, "lion", api_key="secret")) as client:
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "secret"}):
            for ask in (client.get, client.post):
                answer = ask("/v1/models", headers=headers)
                assert answer.status_code == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
                assert answer.json()["error"]["code"] == "invalid_api_key"
        assert client.get("/health").status_code == 200 and client.post("/", json={"inputs": "a"}).status_code == 401
        for scheme in ("Bearer", "bearer"):
            headers = {"Authorization": f"{scheme} secret"}
            assert client.post("/embed", json={"inputs": "a"}, headers=headers).status_code == 200
    with TestClient(make_app(engine, "lion", api_key="clé-à")) as client:  # its last byte is a space in latin-1
        assert client.get("/v1/models", headers={"Authorization": "Bearer clé-à ".encode()}).status_code == 200


def test_pages_of_other_origins_and_other_hosts(engine):
    page = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    own, text = {"Origin": "http://lion.example"}, {"Origin": "https://page.example", "Content-Type": "text/plain"}
    ask = lambda client, headers: client.post("/embed", content='{"inputs": "a"}', headers=headers)
    with TestClient(make_app(engine, "lion"), base_url="http://lion.example") as client:
        assert "access-control-allow-origin" not in client.options("/embed", headers=page).headers
        assert client.get("/health", headers={"Host": "anything"}).status_code == 200
        assert client.get("/health", headers=page).status_code == ask(client, own).status_code == 200
        answer = ask(client, text)  # which browsers send without asking first
        assert answer.status_code == 403 and answer.json()["error"]["code"] == "unknown_origin"
        assert "`Origin` is 'https://page.example'" in answer.text and "--cors_origins https://page.ex" in answer.text
    options = {"cors_origins": ["https://page.example"], "allowed_hosts": ["lion.example", "*.lion.example", "::1"]}
    with TestClient(make_app(engine, "lion", **options, api_key="secret"), base_url="http://lion.example") as client:
        answer = client.options("/embed", headers=page)
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "https://page.example"
        other = client.options("/embed", headers=page | {"Origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers
        assert other.status_code == 403 and other.json()["error"]["type"] == "invalid_request_error"
        for host in ("LION.example:80", "a.lion.example", "[::1]:8080"):
            assert client.get("/health", headers={"Host": host}).status_code == 200
        assert ask(client, text | {"Authorization": "Bearer secret"}).status_code == 200
        for host in ("other.example", "lion.example.evil.example", "[::2]", "::1", ""):
            answer = client.get("/health", headers={"Host": host})
            assert answer.status_code == 400 and answer.json()["error"]["code"] == "unknown_host"
        assert "--allowed_hosts other.example" in client.get("/health", headers={"Host": "other.example"}).text
