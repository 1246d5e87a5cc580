# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Refuse too many requests at once, endless bodies, and requests without the key."""

import asyncio
import hmac

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from .error_format import CLIENT_GONE, ApiError


SECONDS_FOR_BODY = 30
OPEN_ROUTES = ("/", "/health")  # for GET and HEAD of load balancers


class Guard:
    """
    Refuses requests without `Authorization: Bearer KEY`, and those beyond `max_requests` at once. GET and HEAD of
    `OPEN_ROUTES` are always answered.

    Args:
        max_requests: how many requests are served at once.
        key: by default none is needed.
    """

    def __init__(self, app, max_requests: int, key: str | None = None):
        self.app, self.max_requests, self.running = app, max_requests, 0
        self.expected = f"Bearer {key}".encode() if key else b""

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD") and scope["path"] in OPEN_ROUTES:
            await self.app(scope, receive, send)
        elif error := self.refusal(Headers(scope=scope)):
            await error.response()(scope, receive, send)
        else:
            self.running += 1
            try:
                await self.app(scope, receive, send)
            finally:
                self.running -= 1

    def refusal(self, headers: Headers) -> ApiError | None:
        given = headers.get("authorization", "").encode("latin-1")
        if self.expected and not hmac.compare_digest(given, self.expected):
            message = "The server has a key: send `Authorization: Bearer KEY`."
            return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        if self.running >= self.max_requests:
            message = f"The server answers {self.max_requests:,} requests, which are all that it takes at once."
            return ApiError(503, message, code="too_many_requests", retry_after=1, headers={"Connection": "close"})
        return None


async def read_body(request: Request, max_bytes: int) -> bytes:
    """
    Read the body of a request.

    Raises:
        ApiError: if it is too long, it does not end in `SECONDS_FOR_BODY`, or the client goes before.
    """
    too_long = ApiError(413, f"The body has more than {max_bytes:,} bytes: send fewer texts at a time.")
    size = request.headers.get("content-length", "0")
    if size.isdigit() and int(size) > max_bytes:
        raise too_long

    async def read() -> bytes:
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > max_bytes:
                raise too_long
        return bytes(data)

    try:
        return await asyncio.wait_for(read(), SECONDS_FOR_BODY)
    except asyncio.TimeoutError:  # noqa: UP041, which Python 3.10 needs
        message = f"The body did not end within {SECONDS_FOR_BODY} seconds: send it faster."
        raise ApiError(408, message, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise ApiError(499, CLIENT_GONE) from None
