# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The clients that people have get the vectors of sentence-transformers from the server.

Each test needs its client. The extra `dev` has openai, langchain-openai and cohere; for the others, `pip install
langchain-huggingface llama-index-embeddings-openai-like llama-index-embeddings-text-embeddings-inference haystack-ai
litellm chromadb`.
"""

import asyncio
import base64
import gc
import importlib
from functools import partial

import numpy as np
import pytest
from deploy_lion.serve.app import make_app
from deploy_lion.serve.loading import load_engine
from hub_checkpoints import text_checkpoint
from sentence_transformers import CrossEncoder, SentenceTransformer
from served import running, sentence_encoder
from transformers import pipeline


# What clients warn of themselves, and what they leave open, is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")
KEY, NAME = "secret", "lion"
TEXTS = ["The lion sleeps.", "A lion roars at night. " * 30, "It hunts"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(sentence_encoder(tmp_path_factory.mktemp("clients")))


@pytest.fixture(scope="module")
def address(folder):
    with running(make_app(load_engine(folder), NAME, api_key=KEY)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def expected(folder):
    return SentenceTransformer(folder, device="cpu").encode(TEXTS)


@pytest.fixture(autouse=True)
def online(monkeypatch):
    """huggingface_hub asks nobody while this is set; the only address is that of the server here."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


@pytest.fixture(autouse=True)
def collected():
    """What a client leaves open warns at its end here, where that is ignored, and not in another test."""
    yield
    gc.collect()


def client_of(module: str, name: str | None = None):
    """A name of a module, or the module; skips where the client is not installed."""
    found = pytest.importorskip(module, reason=f"the client {module} is not installed")
    return found if name is None else getattr(found, name)


def same(vectors, expected):
    np.testing.assert_allclose(np.array(vectors, dtype=np.float64), expected, atol=1e-5)


def test_openai(address, expected):
    openai = client_of("openai")
    client = openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0)
    for options in ({}, {"encoding_format": "float"}, {"dimensions": 32, "user": "me"}):
        answer = client.embeddings.create(model=NAME, input=TEXTS, **options)
        same([row.embedding for row in answer.data], expected)
    same([client.embeddings.create(model=NAME, input=TEXTS[0]).data[0].embedding], expected[:1])
    assert [model.id for model in client.models.list()] == [NAME] and client.models.retrieve(NAME).id == NAME
    for error, options in (
        (openai.NotFoundError, {"model": "other", "input": "a"}),
        (openai.BadRequestError, {"model": NAME, "input": [[5, 6]]}),
        (openai.UnprocessableEntityError, {"model": NAME, "input": 3}),
    ):
        with pytest.raises(error) as caught:
            client.embeddings.create(**options)
        assert caught.value.type == "invalid_request_error" and caught.value.body["message"]
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{address}/v1", api_key="other", max_retries=0).models.list()

    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY) as client:
            return await asyncio.gather(*[client.embeddings.create(model=NAME, input=text) for text in TEXTS])

    same([answer.data[0].embedding for answer in asyncio.run(ask())], expected)


def test_huggingface_hub(address, expected):
    client = client_of("huggingface_hub").InferenceClient(base_url=address, api_key=KEY)
    same(client.feature_extraction(TEXTS[0]), expected[:1])
    same(client.feature_extraction(TEXTS), expected)
    same(client.feature_extraction(TEXTS[0], normalize=True, truncate=True, truncation_direction="left"), expected[:1])
    prompted = client.feature_extraction(TEXTS[0], prompt_name="query")
    assert abs(prompted - expected[:1]).max() > 1e-3


def test_huggingface_hub_classifies(tmp_path):
    client_class = client_of("huggingface_hub").InferenceClient
    folder = str(
        text_checkpoint(tmp_path, "LionForSequenceClassification", id2label={0: "cat", 1: "lion", 2: "zebra"})
    )
    expected = pipeline("text-classification", folder, device="cpu", top_k=None)([TEXTS[0]])[0]
    with running(make_app(load_engine(folder), NAME)) as port:
        found = client_class(base_url=f"http://127.0.0.1:{port}").text_classification(TEXTS[0])
    assert [x.label for x in found] == [x["label"] for x in expected]
    np.testing.assert_allclose([x.score for x in found], [x["score"] for x in expected], atol=1e-5)


def test_langchain_openai(address, expected):
    """Its default sends token ids of OpenAI's tokenizer, which are refused."""
    embeddings_class = client_of("langchain_openai", "OpenAIEmbeddings")
    options = {"model": NAME, "base_url": f"{address}/v1", "api_key": KEY, "max_retries": 0}
    client = embeddings_class(**options, check_embedding_ctx_length=False)
    same(client.embed_documents(TEXTS), expected)
    same([client.embed_query(TEXTS[0])], expected[:1])
    many = client.embed_documents([TEXTS[0]] * 1000)
    same(many, np.repeat(expected[:1], 1000, axis=0))


def test_langchain_huggingface(address, expected):
    embeddings_class = client_of("langchain_huggingface", "HuggingFaceEndpointEmbeddings")
    client = embeddings_class(model=address, huggingfacehub_api_token=KEY)
    same(client.embed_documents(TEXTS), expected)
    same([client.embed_query(TEXTS[0])], expected[:1])


def test_llama_index_openai(address, expected):
    embedding_class = client_of("llama_index.embeddings.openai_like", "OpenAILikeEmbedding")
    client = embedding_class(model_name=NAME, api_base=f"{address}/v1", api_key=KEY, embed_batch_size=2)
    same(client.get_text_embedding_batch(TEXTS), expected)
    same([client.get_query_embedding(TEXTS[0])], expected[:1])


def test_llama_index_tei(address, expected):
    embedding_class = client_of("llama_index.embeddings.text_embeddings_inference", "TextEmbeddingsInference")
    client = embedding_class(model_name=NAME, base_url=address, auth_token=KEY)
    same(client.get_text_embedding_batch(TEXTS), expected)


def test_haystack(address, expected):
    embedders = client_of("haystack.components.embedders")
    secret = importlib.import_module("haystack.utils").Secret.from_token(KEY)
    document_class = importlib.import_module("haystack").Document
    options = {"model": NAME, "api_base_url": f"{address}/v1", "api_key": secret}
    documents = embedders.OpenAIDocumentEmbedder(**options, progress_bar=False).run(
        [document_class(content=x) for x in TEXTS]
    )
    same([document.embedding for document in documents["documents"]], expected)
    same([embedders.OpenAITextEmbedder(**options).run(TEXTS[0])["embedding"]], expected[:1])


def test_litellm(address, expected):
    """It sends `encoding_format: null`."""
    litellm = client_of("litellm")
    answer = litellm.embedding(f"openai/{NAME}", input=TEXTS, api_base=f"{address}/v1", api_key=KEY)
    same([row["embedding"] for row in answer.data], expected)


def test_chroma(address, expected):
    embedding_functions = client_of("chromadb.utils.embedding_functions")
    client_of("openai")
    function = embedding_functions.OpenAIEmbeddingFunction(api_key=KEY, api_base=f"{address}/v1", model_name=NAME)
    same(function(TEXTS), expected)
    collection = client_of("chromadb").EphemeralClient().create_collection("texts", embedding_function=function)
    collection.add(ids=["a", "b", "c"], documents=TEXTS)
    found = collection.query(query_texts=[TEXTS[2]], n_results=3)["ids"][0]
    assert found == ["abc"[n] for n in np.argsort(((expected - expected[2]) ** 2).sum(axis=1))]


def test_cohere(tmp_path):
    cohere = client_of("cohere")
    folder = str(text_checkpoint(tmp_path, "LionForSequenceClassification", num_labels=1, pooling="mean"))
    documents = [text[:40] for text in TEXTS]
    scores = CrossEncoder(folder, device="cpu").predict([("lion", text) for text in documents])
    order = np.argsort(-scores)
    with running(make_app(load_engine(folder), NAME, api_key=KEY)) as port:
        client = cohere.Client(api_key=KEY, base_url=f"http://127.0.0.1:{port}")
        results = client.rerank(model=NAME, query="lion", documents=documents, top_n=2).results
        second = cohere.ClientV2(api_key=KEY, base_url=f"http://127.0.0.1:{port}")
        again = second.rerank(model=NAME, query="lion", documents=documents, top_n=2).results
    assert [x.index for x in results] == order[:2].tolist()
    np.testing.assert_allclose([x.relevance_score for x in results], scores[order[:2]], atol=1e-5)
    assert [(x.index, x.relevance_score) for x in again] == [(x.index, x.relevance_score) for x in results]


def test_cohere_embeds(address, folder, expected):
    """By version 2 of its API, with the prompt for the type of the texts."""
    cohere = client_of("cohere")
    client, encoder = cohere.ClientV2(api_key=KEY, base_url=address), SentenceTransformer(folder, device="cpu")
    ask = partial(client.embed, model=NAME, texts=TEXTS)
    answer = ask(input_type="clustering", embedding_types=["float", "base64"])
    same(answer.embeddings.float_, expected)
    assert answer.id and answer.texts == TEXTS and answer.meta.billed_units.input_tokens > len(TEXTS)
    coded = [np.frombuffer(base64.b64decode(x), "<f4") for x in answer.embeddings.base64]
    same(coded, expected)
    for kind, prompt in (("search_query", "query"), ("search_document", "document")):
        found = ask(input_type=kind, embedding_types=["float"]).embeddings.float_
        same(found, encoder.encode(TEXTS, prompt_name=prompt))
    assert ask(input_type="clustering").embeddings.base64 is None
    with pytest.raises(cohere.NotFoundError) as caught:
        client.embed(model="embed-v4.0", texts=TEXTS, input_type="clustering")
    assert "start the server with --name" in str(caught.value.body)
    for options in ({"embedding_types": ["int8"]}, {"truncate": "MIDDLE"}):
        with pytest.raises(cohere.UnprocessableEntityError):
            ask(input_type="clustering", **options)
    with pytest.raises(cohere.BadRequestError):
        ask(input_type="clustering", output_dimension=8)
