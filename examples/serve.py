# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Serve a sentence encoder over HTTP, with the routes of OpenAI and of text-embeddings-inference.

    python examples/serve.py checkpoints/lion-minilm-l6 --port 8080
    curl localhost:8080/v1/embeddings -H "Content-Type: application/json" -d '{"input": "a lion sleeps"}'
    curl localhost:8080/embed -H "Content-Type: application/json" -d '{"inputs": ["a lion sleeps", "a lion roars"]}'

Requests wait in a queue, and one worker reads it: each time the texts that have waited longest, up to
--max_batch_tokens, those of about the same length together. Also there: /health, /info, and /metrics for Prometheus.
SIGTERM lets the requests that wait end, and then the server.

A request that cannot be served gets a sentence in the format of OpenAI's errors: 400 or 422 for a bad field, 413 for a
text or a body that is too long, 429 for a full queue, 504 after --timeout.
"""

import argparse
import asyncio
import base64
import contextlib
import ctypes
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import prometheus_client
import script_tools  # noqa: F401 (before transformers, which it makes quiet)
import torch
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, StrictInt, StrictStr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from starlette.exceptions import HTTPException

import modeling_lion  # noqa: F401 (the Auto classes know LION from here on)


BODY_BYTES_PER_TOKEN = 16  # of a request; JSON writes some characters in six bytes
PADDING = 1.1  # tokens that are computed for each of a text; less takes more calls, which costs as much
TRIM_EVERY = 10  # seconds between two times that free memory goes back to the system
POLL = 0.25  # seconds between two looks at whether a client still waits


class Encoder(Protocol):
    """What a server needs of an encoder."""

    max_input_tokens: int
    size: int
    vocab_size: int

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """Token ids of every text, special tokens included, of any length."""

    def shorten(self, ids: list[int]) -> list[int]:
        """At most `max_input_tokens` of a text."""

    def embed(self, rows: list[list[int]]) -> list[np.ndarray]:
        """A vector `(size,)` for each text, float32, before any normalization."""


class LionEncoder:
    """
    An encoder of sentence-transformers around a LION. Texts of about the same length are computed together.

    Raises:
        ValueError: if there is no LION in it.
    """

    def __init__(self, folder: str, max_input_tokens: int):
        self.encoder = SentenceTransformer(folder, device="cuda" if torch.cuda.is_available() else "cpu").eval()
        self.model = self.encoder[0].auto_model
        if self.model.config.model_type != "lion":
            raise ValueError(
                f"{folder} is an encoder around {self.model.config.model_type!r}: give one around a LION."
            )
        self.modules = [module for module in self.encoder if not isinstance(module, Normalize)]
        self.max_input_tokens = min(max_input_tokens, self.model.config.longest_text or max_input_tokens)
        self.size, self.vocab_size = self.encoder.get_embedding_dimension(), self.model.config.vocab_size

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        return self.encoder.tokenizer(texts, truncation=False, verbose=False)["input_ids"]

    def shorten(self, ids: list[int]) -> list[int]:
        last = ids[-1:] if ids[-1] in self.encoder.tokenizer.all_special_ids else []
        return ids if len(ids) <= self.max_input_tokens else ids[: self.max_input_tokens - len(last)] + last

    @torch.inference_mode()
    def embed(self, rows: list[list[int]]) -> list[np.ndarray]:
        vectors = {}
        for group in self.groups(rows):
            features = self.encoder.tokenizer.pad({"input_ids": [rows[n] for n in group]}, return_tensors="pt")
            features = dict(features.to(self.model.device))
            for module in self.modules:
                features = module(features)
            vectors |= dict(zip(group, features["sentence_embedding"].float().cpu().numpy(), strict=True))
        return [vectors[n] for n in range(len(rows))]

    def groups(self, rows: list[list[int]]) -> list[list[int]]:
        """Indices of texts that are computed together, with little padding; the longest first."""
        groups, tokens = [], 0
        for n in sorted(range(len(rows)), key=lambda n: -len(rows[n])):
            tokens += len(rows[n])
            if not groups or (len(groups[-1]) + 1) * len(rows[groups[-1][0]]) > PADDING * tokens:
                groups.append([])
                tokens = len(rows[n])
            groups[-1].append(n)
        return groups


class ApiError(HTTPException):
    """What a client is told: the status, a sentence, and the field that it is about."""

    def __init__(self, status: int, message: str, field: str | None = None, code: str | None = None):
        super().__init__(status, message)
        self.field, self.code = field, code

    def response(self) -> JSONResponse:
        kind = "invalid_request_error" if self.status_code < 500 else "server_error"
        error = {"message": self.detail, "type": kind, "param": self.field, "code": self.code}
        return JSONResponse({"error": error}, self.status_code)


class Queue:
    """
    Texts that wait, and the worker that embeds them.

    Args:
        encoder: computes in a thread of its own, one batch at a time.
        max_batch_tokens: of a batch; a longer text is a batch of its own.
        max_queue_tokens: that may wait; a text that finds more than that before it is refused.
    """

    def __init__(self, encoder: Encoder, max_batch_tokens: int, max_queue_tokens: int, metrics: "Metrics"):
        self.encoder, self.metrics = encoder, metrics
        self.max_batch_tokens, self.max_queue_tokens = max_batch_tokens, max_queue_tokens
        self.waiting: deque[tuple[list[int], asyncio.Future]] = deque()
        self.tokens, self.arrived, self.trimmed = 0, asyncio.Event(), 0.0
        self.thread = ThreadPoolExecutor(1)

    def put(self, rows: list[list[int]]) -> list[asyncio.Future]:
        """A future for the vector of each text; an ApiError if the queue is full."""
        tokens = sum(map(len, rows))
        if self.tokens and self.tokens + tokens > self.max_queue_tokens:
            raise ApiError(429, f"{self.tokens:,} tokens are waiting: try again later.", code="queue_full")
        futures = [asyncio.get_running_loop().create_future() for _ in rows]
        self.waiting.extend(zip(rows, futures, strict=True))
        self.count(tokens)
        self.arrived.set()
        return futures

    def count(self, tokens: int) -> None:
        self.tokens += tokens
        self.metrics.waiting.set(self.tokens)

    def next_batch(self) -> list[tuple[list[int], asyncio.Future]]:
        """The texts that have waited longest, without those that nobody waits for any more."""
        batch, tokens = [], 0
        while self.waiting and (not batch or tokens + len(self.waiting[0][0]) <= self.max_batch_tokens):
            row, future = self.waiting.popleft()
            self.count(-len(row))
            if not future.cancelled():
                batch.append((row, future))
                tokens += len(row)
        return batch

    async def work(self) -> None:
        """Embed what waits, until cancelled."""
        while True:
            await self.arrived.wait()
            if not (batch := self.next_batch()):
                self.arrived.clear()
                continue
            await self.answer(batch)
            if time.monotonic() - self.trimmed > TRIM_EVERY:
                self.trimmed = time.monotonic()
                await asyncio.get_running_loop().run_in_executor(self.thread, trim_memory)

    async def answer(self, batch: list[tuple[list[int], asyncio.Future]]) -> None:
        """Embed a batch. Where that fails, each text by itself, so that one fails and not all."""
        rows, futures = zip(*batch, strict=True)
        self.metrics.batches.observe(sum(map(len, rows)))
        try:
            vectors = await asyncio.get_running_loop().run_in_executor(self.thread, self.encoder.embed, list(rows))
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    await self.answer([one])
            elif not futures[0].done():
                futures[0].set_exception(error)
            return
        for future, vector in zip(futures, vectors, strict=True):
            if not future.done():  # the client has gone
                future.set_result(vector)


def trim_memory() -> None:
    """Give free memory back: batches of all sizes leave gaps between what glibc still uses, which else add up."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").malloc_trim(0)


class Metrics:
    """What /metrics shows."""

    def __init__(self):
        self.registry = registry = prometheus_client.CollectorRegistry()
        self.requests = prometheus_client.Counter(
            "lion_requests", "Requests, by route and status.", ("route", "status"), registry=registry
        )
        self.seconds = prometheus_client.Histogram(
            "lion_request_seconds", "Time of a request.", ("route",), registry=registry
        )
        buckets = [2**n for n in range(5, 18)]
        self.batches = prometheus_client.Histogram(
            "lion_batch_tokens", "Tokens of a batch.", buckets=buckets, registry=registry
        )
        self.waiting = prometheus_client.Gauge("lion_waiting_tokens", "Tokens in the queue.", registry=registry)


class OpenAIRequest(BaseModel):
    """Of /v1/embeddings."""

    model_config = ConfigDict(extra="forbid")
    input: StrictStr | list[StrictStr] | list[StrictInt] | list[list[StrictInt]]
    model: StrictStr | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: StrictInt | None = None
    user: StrictStr | None = None


class EmbedRequest(BaseModel):
    """Of /embed."""

    model_config = ConfigDict(extra="forbid")
    inputs: StrictStr | list[StrictStr]
    truncate: bool = False
    normalize: bool = True


class BodyLimit:
    """Refuses longer bodies before anybody reads them."""

    def __init__(self, app, max_bytes: int):
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope, receive, send) -> None:
        received = 0

        async def counted():
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                raise ApiError(413, f"The request has more than {self.max_bytes:,} bytes: send fewer texts.")
            return message

        await self.app(scope, counted if scope["type"] == "http" else receive, send)


def make_server(
    encoder: Encoder,
    name: str,
    max_batch_tokens: int = 16384,
    max_queue_tokens: int = 1_000_000,
    max_texts: int = 256,
    timeout: float = 60.0,
) -> FastAPI:
    """
    The application.

    Args:
        name: of the model, for clients.
        max_texts: of a request; the others as of `main`.
    """
    metrics = Metrics()
    tokenizer = ThreadPoolExecutor(1)  # megabytes of text would stop everything else

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        queue = app.state.queue = Queue(encoder, max_batch_tokens, max_queue_tokens, metrics)
        app.state.worker = asyncio.create_task(queue.work())
        yield
        app.state.worker.cancel()  # uvicorn has waited for all requests
        queue.thread.shutdown()
        tokenizer.shutdown()

    app = FastAPI(title="LION", lifespan=lifespan)
    app.add_middleware(BodyLimit, max_bytes=BODY_BYTES_PER_TOKEN * max_queue_tokens)

    @app.exception_handler(ApiError)
    async def refuse(request: Request, error: ApiError) -> JSONResponse:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def explain(request: Request, error: RequestValidationError) -> JSONResponse:
        problem = error.errors()[0]
        field = next((str(part) for part in problem["loc"][1:]), None)
        return ApiError(422, f"{'The body' if field is None else f'`{field}`'}: {problem['msg']}.", field).response()

    @app.middleware("http")
    async def measure(request: Request, call_next):
        begin, route = time.perf_counter(), request.url.path
        response = await call_next(request)
        if route in ("/embed", "/v1/embeddings"):
            metrics.requests.labels(route, response.status_code).inc()
            metrics.seconds.labels(route).observe(time.perf_counter() - begin)
        return response

    async def embed(request: Request, field: str, given: Sequence, truncate: bool) -> tuple[list[np.ndarray], int]:
        """The vectors of texts or token ids, and the number of tokens."""
        if not 0 < len(given) <= max_texts:
            raise ApiError(400, f"`{field}` has {len(given)} texts; give 1 to {max_texts}.", field)
        if empty := [n for n, x in enumerate(given) if len(x) == 0 or isinstance(x, str) and not x.strip()]:
            raise ApiError(400, f"`{field}` is empty at {empty[0]}; give a text.", field)
        rows = list(given)
        if isinstance(rows[0], str):
            rows = await asyncio.get_running_loop().run_in_executor(tokenizer, encoder.tokenize, rows)
        elif wrong := [x for row in rows for x in row if not 0 <= x < encoder.vocab_size]:
            raise ApiError(400, f"`{field}` has the token {wrong[0]}; give 0 to {encoder.vocab_size - 1}.", field)
        if truncate:
            rows = [encoder.shorten(row) for row in rows]
        if (longest := max(map(len, rows))) > encoder.max_input_tokens:
            message = f"`{field}` has a text of {longest:,} tokens; give at most {encoder.max_input_tokens:,}."
            raise ApiError(413, message, field, "context_length_exceeded")
        futures = app.state.queue.put(rows)
        work = asyncio.gather(*futures)
        stop = time.monotonic() + timeout
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=POLL)
                if not work.done() and time.monotonic() > stop:
                    raise ApiError(504, f"This took longer than {timeout:g} seconds: try again later.", code="timeout")
                if not work.done() and await request.is_disconnected():
                    raise ApiError(499, "The client has gone.")
            return work.result(), sum(map(len, rows))
        except ApiError:
            raise
        except Exception as error:
            print(f"A text of {longest} tokens could not be embedded: {error!r}", flush=True)
            raise ApiError(500, f"This text could not be embedded ({type(error).__name__}).", field) from error
        finally:
            work.cancel()

    @app.post("/v1/embeddings")
    async def openai(body: OpenAIRequest, request: Request) -> JSONResponse:
        if body.model not in (None, name):
            raise ApiError(404, f"`model` is {body.model!r}; this server has {name!r}.", "model", "model_not_found")
        if body.dimensions not in (None, encoder.size):
            raise ApiError(400, f"`dimensions` is {body.dimensions}; this model gives {encoder.size}.", "dimensions")
        is_one = isinstance(body.input, str) or body.input and isinstance(body.input[0], int)
        vectors, tokens = await embed(request, "input", [body.input] if is_one else body.input, truncate=False)
        data = []
        for n, vector in enumerate(normalized(vectors)):
            if body.encoding_format == "base64":
                vector = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            else:
                vector = vector.tolist()
            data.append({"object": "embedding", "index": n, "embedding": vector})
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "data": data, "model": name, "usage": usage})

    @app.post("/embed")
    async def text_embeddings_inference(body: EmbedRequest, request: Request) -> JSONResponse:
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        vectors, _ = await embed(request, "inputs", texts, body.truncate)
        return JSONResponse([vector.tolist() for vector in (normalized(vectors) if body.normalize else vectors)])

    @app.get("/health")
    async def health() -> JSONResponse:
        is_alive = not app.state.worker.done()
        return JSONResponse({"status": "ok" if is_alive else "the worker has ended"}, 200 if is_alive else 503)

    @app.get("/info")
    async def info() -> JSONResponse:
        about = {"model_id": name, "embedding_size": encoder.size, "max_input_length": encoder.max_input_tokens}
        return JSONResponse(about | {"max_batch_tokens": max_batch_tokens, "max_client_batch_size": max_texts})

    @app.get("/metrics")
    async def show_metrics() -> PlainTextResponse:
        return PlainTextResponse(prometheus_client.generate_latest(metrics.registry).decode())

    return app


def normalized(vectors: list[np.ndarray]) -> list[np.ndarray]:
    return [vector / max(np.linalg.norm(vector), 1e-12) for vector in vectors]


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a sentence encoder with a LION in it")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at (default: %(default)s, this machine)")
    parser.add_argument("--port", type=int, default=8080, help="port (default: %(default)s)")
    parser.add_argument("--name", help="of the model, for clients (default: the name of the folder)")
    parser.add_argument("--max_input_tokens", type=int, default=32768, help="of a text (default: %(default)s)")
    parser.add_argument("--max_batch_tokens", type=int, default=16384, help="read at a time (default: %(default)s)")
    parser.add_argument("--max_queue_tokens", type=int, default=1_000_000, help="that wait (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds of a request (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="of the computation (default: what PyTorch takes)")
    arguments = parser.parse_args(args)
    for field in ("max_input_tokens", "max_batch_tokens", "max_queue_tokens", "timeout"):
        if getattr(arguments, field) <= 0:
            raise ValueError(f"--{field} is {getattr(arguments, field)}: give more than 0.")
    if not Path(arguments.model).is_dir():
        raise FileNotFoundError(
            f"{arguments.model} is no folder: give that of a sentence encoder. checkpoints/lion-minilm-l6 is part of "
            "the repository, not of the package (docs/guides/hub.md)."
        )
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    encoder = LionEncoder(arguments.model, arguments.max_input_tokens)
    name = arguments.name or Path(arguments.model).resolve().name
    limits = {field: getattr(arguments, field) for field in ("max_batch_tokens", "max_queue_tokens", "timeout")}
    app = make_server(encoder, name, **limits)
    uvicorn.run(app, host=arguments.host, port=arguments.port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
