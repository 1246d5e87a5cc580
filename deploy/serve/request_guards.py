# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What a stranger cannot do to the server: endless headers, bodies and connections, or requests without the key."""

import asyncio
import hmac

import h11
from starlette.datastructures import Headers
from uvicorn.protocols.http.h11_impl import H11Protocol

from .error_format import ApiError


SECONDS_FOR_HEADERS = 10
SECONDS_FOR_BODY = 30
SPARE_CONNECTIONS = 100  # beyond those that are served: without a request, or to be told that there are too many
OPEN_ROUTES = ("/", "/health")  # of GET and HEAD, for load balancers


def is_open(scope) -> bool:
    """Whether a request is answered to everybody and at any time."""
    return scope["type"] != "http" or scope["method"] in ("GET", "HEAD") and scope["path"] in OPEN_ROUTES


class LimitedProtocol(H11Protocol):
    """
    Closes connections that do not send the whole header of a request in `SECONDS_FOR_HEADERS`, and those whose request
    is one too many, with an answer. If `SPARE_CONNECTIONS` more are open, each new one ends the one that has waited
    longest without a request.

    Args:
        max_connections: whose requests are served at once; `None` for any number.
        options: of uvicorn's protocol.
    """

    def __init__(self, *args, max_connections: int | None = None, **options):
        super().__init__(*args, **options)
        self.max_connections, self.timer = max_connections, None
        self.requests, self.idle_since = 0, 0.0
        if max_connections is not None:
            self.served_app, self.app = self.app, self.serve

    async def serve(self, scope, receive, send) -> None:
        """The application, or an error if it has as many requests as it takes."""
        if is_open(scope):
            await self.served_app(scope, receive, send)
            return
        if sum(x.requests for x in self.connections) >= self.max_connections:
            message = f"The server answers {self.max_connections:,} connections, which are all that it takes at once."
            error = ApiError(503, message, code="too_many_connections", retry_after=1, headers={"Connection": "close"})
            await error.response()(scope, receive, send)
            return
        self.requests += 1
        try:
            await self.served_app(scope, receive, send)
        finally:
            self.requests -= 1

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        if self.max_connections is not None and len(self.connections) > self.max_connections + SPARE_CONNECTIONS:
            idle = [x for x in self.connections if x.cycle is None or x.cycle.response_complete]
            oldest = min(idle, key=lambda x: x.idle_since)
            self.connections.discard(oldest)  # it is lost only after others may have come
            oldest.transport.abort()
        self.watch()

    def on_response_complete(self) -> None:
        self.idle_since = self.loop.time()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.watch()

    def connection_lost(self, exc) -> None:
        super().connection_lost(exc)
        self.unwatch()

    def watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self.unwatch()
        elif self.timer is None:
            self.timer = self.loop.call_later(SECONDS_FOR_HEADERS, self.transport.abort)

    def unwatch(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class BodyLimit:
    """Refuses bodies of more bytes before anybody reads them, and those that do not come to an end."""

    def __init__(self, app, max_bytes: int):
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        size = Headers(scope=scope).get("content-length", "0")
        if size.isdigit() and int(size) > self.max_bytes:
            await self.too_long().response()(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        received, is_complete, end = 0, False, loop.time() + SECONDS_FOR_BODY

        async def limited():
            nonlocal received, is_complete
            try:
                message = await asyncio.wait_for(receive(), None if is_complete else max(0.0, end - loop.time()))
            except TimeoutError:
                raise ApiError(
                    408,
                    f"The body did not end within {SECONDS_FOR_BODY} seconds: send it faster.",
                    headers={"Connection": "close"},
                ) from None
            received += len(message.get("body", b""))
            is_complete = not message.get("more_body", False)
            if received > self.max_bytes:
                raise self.too_long()
            return message

        await self.app(scope, limited, send)

    def too_long(self) -> ApiError:
        return ApiError(413, f"The body has more than {self.max_bytes:,} bytes: send fewer texts at a time.")


class KeyCheck:
    """Refuses requests without `Authorization: Bearer KEY`."""

    def __init__(self, app, key: str):
        self.app, self.expected = app, f"Bearer {key}".encode()

    async def __call__(self, scope, receive, send) -> None:
        given = "" if is_open(scope) else Headers(scope=scope).get("authorization", "")
        if is_open(scope) or hmac.compare_digest(given.encode("latin-1"), self.expected):
            await self.app(scope, receive, send)
            return
        error = ApiError(
            401,
            "The server has a key: send `Authorization: Bearer KEY`.",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error.response()(scope, receive, send)
