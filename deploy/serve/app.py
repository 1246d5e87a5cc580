# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The routes of the server, as in OpenAI, text-embeddings-inference (TEI), vLLM and Cohere."""

import base64
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version

import numpy as np
from retrieval_lion.encoders import unit
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .bodies import Classify, CohereEmbed, OpenAIEmbeddings, Rerank, Search, TeiEmbed, TeiPredict
from .engines import Engine, with_prompt
from .error_format import ApiError, JsonResponse, handle_failure, handle_http_error
from .metrics import Measured
from .request_guards import Guard, HostAndOrigin
from .searching import FolderSearch
from .service import Service
from .settings import Settings


# Names of prompts for the `input_type` of Cohere, NVIDIA and vLLM. The first one that the model has is taken.
PROMPTS_OF_TYPES = {
    "classification": ("classification",),
    "clustering": ("clustering",),
    "query": ("query",),
    "search_query": ("query",),
    "document": ("document", "passage", "corpus"),
    "passage": ("document", "passage", "corpus"),
    "search_document": ("document", "passage", "corpus"),
}


def make_app(
    engine: Engine,
    name: str,
    settings: Settings | None = None,
    *,
    aliases: Sequence[str] = (),
    api_key: str | None = None,
    cors_origins: Sequence[str] = (),
    allowed_hosts: Sequence[str] = (),
    search: FolderSearch | None = None,
) -> Starlette:
    """
    Make the ASGI application.

    Args:
        engine: the model, from `load_engine`.
        name: the name of the model for clients.
        settings: limits; by default those of `Settings`.
        aliases: other names that clients may use.
        api_key: must be sent as `Authorization: Bearer KEY`, except for `GET /` and `GET /health`; by default none.
        cors_origins: origins whose pages may call the server, beside those of its own host; by default none.
        allowed_hosts: host names that requests may have; by default any.
        search: answers /search; by default nothing does.
    """
    service = Service(engine, settings or Settings())
    routes = Routes(service, name, {name, *aliases}, search)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        service.close()  # uvicorn has waited for all requests
        if search is not None:
            search.close()

    table = routes.table()
    middleware = [
        Middleware(Measured, metrics=service.metrics, routes={route.path for route in table}),
        Middleware(HostAndOrigin, hosts=allowed_hosts, origins=cors_origins),
    ]
    if cors_origins:
        # Other methods are answered as without CORS, with 405.
        middleware.append(
            Middleware(CORSMiddleware, allow_origins=cors_origins, allow_methods=["*"], allow_headers=["*"])
        )
    middleware.append(Middleware(Guard, max_requests=service.settings.max_requests, key=api_key))
    handlers = {HTTPException: handle_http_error, Exception: handle_failure}
    app = Starlette(routes=table, middleware=middleware, exception_handlers=handlers, lifespan=lifespan)
    app.state.service = service
    return app


class Routes:
    """
    The functions that answer requests.

    Args:
        names: names of the model that requests may use.
        search: answers /search, if given.
    """

    def __init__(self, service: Service, name: str, names: set[str], search: FolderSearch | None = None):
        self.service, self.about, self.name, self.names = service, service.about, name, names
        self.folder = search

    def table(self) -> list[Route]:
        by_task: dict[str, dict[str, Callable[[Request], Awaitable[Response]]]] = {
            "embed": {
                "/v1/embeddings": self.openai_embeddings,
                "/embeddings": self.openai_embeddings,
                "/v2/embed": self.cohere_embed,
                "/embed": self.tei_embed,
                "/": self.tei_embed,
            },
            "rerank": {"/rerank": self.rerank, "/v1/rerank": self.rerank, "/v2/rerank": self.rerank, "/": self.rerank},
            "classify": {"/predict": self.tei_predict, "/classify": self.classify, "/": self.tei_predict},
        }
        posts = by_task.pop(self.about.task)
        others = {path for paths in by_task.values() for path in paths} - posts.keys()
        gets = {
            "/": self.health,
            "/health": self.health,
            "/info": self.info,
            "/metrics": self.metrics,
            "/v1/models": self.models,
            "/v1/models/{model:path}": self.model,
        }
        table = [Route(path, self.for_another_task, methods=["POST"]) for path in sorted(others)]
        table += [Route(path, partial(saying_what_was_cut, each), methods=["POST"]) for path, each in posts.items()]
        table.append(Route("/search", self.search, methods=["POST"]))
        return table + [Route(path, each, methods=["GET"]) for path, each in gets.items()]  # and HEAD

    async def openai_embeddings(self, request: Request) -> Response:
        body = await OpenAIEmbeddings.read(request)
        self.check_model(body.model)
        self.check_dimensions(body.dimensions)
        is_one = isinstance(body.input, str) or body.input and isinstance(body.input[0], int)
        given = [body.input] if is_one else body.input
        prompt = self.prompt(body.prompt_name, body.input_type)
        vectors, tokens = await self.service.compute(request, "input", with_prompt(prompt, given), body.side)
        vectors = in_base64(unit(vectors)) if body.encoding_format == "base64" else unit(vectors)
        data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        return JsonResponse({"object": "list", "data": data, "model": self.name, "usage": usage(tokens, request)})

    async def cohere_embed(self, request: Request) -> Response:
        body = await CohereEmbed.read(request)
        self.check_model(body.model)
        self.check_dimensions(body.output_dimension, "output_dimension")
        given = with_prompt(self.prompt(None, body.input_type), body.texts)
        vectors, tokens = await self.service.compute(request, "texts", given, body.side)
        vectors, makers = unit(vectors), {"float": np.ascontiguousarray, "base64": in_base64}
        meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}}
        answer = {"id": str(uuid.uuid4()), "response_type": "embeddings_by_type", "texts": body.texts, "meta": meta}
        kinds = dict.fromkeys(body.embedding_types)  # each once
        return JsonResponse(answer | {"embeddings": {kind: makers[kind](vectors) for kind in kinds}})

    async def search(self, request: Request) -> Response:
        if self.folder is None:
            message = "This server searches no folder: start it with --search FOLDER."
            raise ApiError(404, message, code="no_search")
        body = await Search.read(request)
        check_query(body.query)
        return JsonResponse(await self.service.run(request, partial(self.folder.answer, body.query, body.top)))

    async def tei_embed(self, request: Request) -> Response:
        body = await TeiEmbed.read(request)
        self.check_dimensions(body.dimensions)
        is_one = isinstance(body.inputs, str) or body.inputs and isinstance(body.inputs[0], int)
        given = [body.inputs] if is_one else body.inputs
        given = with_prompt(self.prompt(body.prompt_name), given)
        vectors, _ = await self.service.compute(request, "inputs", given, body.side)
        return JsonResponse(np.ascontiguousarray(unit(vectors) if body.normalize else vectors))

    async def rerank(self, request: Request) -> Response:
        body = await Rerank.read(request)
        self.check_model(body.model)
        field = "texts" if body.documents is None else "documents"
        given = body.texts if body.documents is None else body.documents
        if given is None:
            raise ApiError(422, "`texts`: Field required, or `documents`.", "texts")
        texts = [one if isinstance(one, str) else one.get("text") for one in given]
        if wrong := [n for n, text in enumerate(texts) if not isinstance(text, str)]:
            raise ApiError(422, f"`{field}` has no `text` at {wrong[0]}.", field)
        check_query(body.query)
        (query,) = with_prompt(self.about.default_prompt, [body.query])
        logits, tokens = await self.service.compute(request, field, [(query, x) for x in texts], body.side)
        scores = (logits if body.raw_scores else self.about.scores(logits))[:, 0]
        best = np.argsort(-scores, kind="stable")[: body.top_n].tolist()
        if field == "texts":  # as TEI
            found = [{"index": n, "score": float(scores[n])} for n in best]
            return JsonResponse([one | ({"text": texts[one["index"]]} if body.return_text else {}) for one in found])
        found = [{"index": n, "relevance_score": float(scores[n])} for n in best]
        if body.return_documents:
            found = [one | {"document": {"text": texts[one["index"]]}} for one in found]
        return JsonResponse({"model": self.name, "results": found, "usage": usage(tokens, request)})

    async def tei_predict(self, request: Request) -> Response:
        body = await TeiPredict.read(request)
        # A text, a pair, or a list of such.
        is_one = isinstance(body.inputs, str) or body.inputs and isinstance(body.inputs[0], str)
        given = [body.inputs] if is_one else body.inputs
        texts = with_prompt(self.about.default_prompt, [self.text_or_pair(one) for one in given])
        logits, _ = await self.service.compute(request, "inputs", texts, body.side)
        scores = logits if body.raw_scores else self.about.scores(logits)
        found = [
            [{"label": self.about.labels[n], "score": float(row[n])} for n in np.argsort(-row, kind="stable")]
            for row in scores
        ]
        # At "/", InferenceClient.text_classification expects a list of lists for one text, too.
        return JsonResponse(found[0] if is_one and request.url.path != "/" else found)

    def text_or_pair(self, one: str | list[str]) -> str | tuple[str, str]:
        if isinstance(one, list) and len(one) not in (1, 2):
            message = f"`inputs` has {len(one)} texts in one: give one text or a pair; of several, each in its list."
            raise ApiError(422, message, "inputs")
        return one if isinstance(one, str) else one[0] if len(one) == 1 else (one[0], one[1])

    async def classify(self, request: Request) -> Response:
        body = await Classify.read(request)
        self.check_model(body.model)
        given = [body.input] if isinstance(body.input, str) else body.input
        texts = with_prompt(self.about.default_prompt, given)
        logits, tokens = await self.service.compute(request, "input", texts, body.side)
        scores = np.ascontiguousarray(self.about.scores(logits))
        data = [
            {"index": n, "label": self.about.labels[row.argmax()], "probs": row, "num_classes": self.about.size}
            for n, row in enumerate(scores)
        ]
        return JsonResponse({"object": "list", "model": self.name, "data": data, "usage": usage(tokens, request)})

    async def for_another_task(self, request: Request) -> Response:
        verbs = {"embed": "embeds texts", "rerank": "reranks texts", "classify": "classifies texts"}
        message = f"{request.url.path} is no route of this server, whose model {verbs[self.about.task]}."
        raise ApiError(404, message, code="wrong_task")

    async def health(self, request: Request) -> Response:
        return JsonResponse({"status": "ok"})

    async def info(self, request: Request) -> Response:
        about, settings = self.about, self.service.settings
        kinds = {"embed": "embedding", "classify": "classifier", "rerank": "reranker"}
        of_task = {"pooling": about.pooling}
        if about.task != "embed":
            of_task = {"id2label": {str(n): label for n, label in enumerate(about.labels)}}
            of_task["label2id"] = {label: n for n, label in enumerate(about.labels)}
        answer = {
            "model_id": self.name,
            "model_dtype": about.dtype,
            "model_type": {kinds[about.task]: of_task},
            "architecture": about.model_type,
            "max_input_length": about.max_input_tokens,
            "model_max_length": about.own_limit,
            "max_batch_tokens": settings.max_batch_tokens,
            "max_client_batch_size": settings.max_texts,
            "auto_truncate": False,
            "version": version("lion-transformers"),
        }
        if about.task == "embed":
            answer |= {"embedding_size": about.size, "prompts": sorted(about.prompts)}
        return JsonResponse(answer)

    async def metrics(self, request: Request) -> Response:
        return Response(self.service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def model_card(self) -> dict:
        most = self.about.max_input_tokens
        return {"id": self.name, "object": "model", "created": 0, "owned_by": "lion", "max_model_len": most}

    async def models(self, request: Request) -> Response:
        return JsonResponse({"object": "list", "data": [self.model_card()]})

    async def model(self, request: Request) -> Response:
        self.check_model(request.path_params["model"])
        return JsonResponse(self.model_card())

    def check_model(self, model: str | None) -> None:
        if model is not None and model not in self.names:
            message = (
                f"`model` is {model!r}; this server has {self.name!r}: ask for that, or start the server with "
                "--name and the name that clients use."
            )
            raise ApiError(404, message, "model", "model_not_found")

    def check_dimensions(self, dimensions: int | None, field: str = "dimensions") -> None:
        if dimensions not in (None, self.about.size):
            raise ApiError(400, f"`{field}` is {dimensions}; this model gives {self.about.size}.", field)

    def prompt(self, name: str | None, input_type: str | None = None) -> str:
        """Return the prompt to put in front of texts, by its name or by the type of the texts."""
        prompts = self.about.prompts
        if name is not None:
            if name not in prompts:
                known = ", ".join(sorted(prompts)) or "none"
                raise ApiError(
                    400, f"`prompt_name` is {name!r}; the prompts of this model are: {known}.", "prompt_name"
                )
            return prompts[name]
        names = PROMPTS_OF_TYPES.get(input_type or "", ())
        return next((prompts[one] for one in names if one in prompts), self.about.default_prompt)


def check_query(query: str) -> None:
    if not query.strip():
        raise ApiError(400, "`query` is empty; give a text.", "query")


def in_base64(vectors: np.ndarray) -> list[str]:
    return [base64.b64encode(vector.tobytes()).decode() for vector in vectors.astype("<f4")]


def usage(tokens: int, request: Request) -> dict[str, int]:
    cut = request.state.cut
    more = {"cut_tokens": sum(cut), "cut_texts": len(cut)} if cut else {}
    return {"prompt_tokens": tokens, "total_tokens": tokens} | more


async def saying_what_was_cut(answer: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    """Answer a request, with headers that say how many tokens of how many texts were cut off."""
    response = await answer(request)
    if cut := getattr(request.state, "cut", None):
        response.headers["x-cut-tokens"], response.headers["x-cut-texts"] = str(sum(cut)), str(len(cut))
    return response
