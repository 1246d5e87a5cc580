# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Refuse too many requests at once, endless bodies, and requests without the key, to other hosts or of other pages."""

import asyncio
import hmac
import re
from collections.abc import Collection
from fnmatch import fnmatchcase

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from .error_format import CLIENT_GONE, ApiError


SECONDS_FOR_BODY = 30
OPEN_ROUTES = ("/", "/health")  # for GET and HEAD of load balancers
NAME_AND_PORT = re.compile(r"(\[[^\]]+\]|[^:]+)(:\d*)?")


class HostAndOrigin:
    """
    Refuses requests to other host names, because any page can give a name of its own to this machine (DNS rebinding),
    and, but for GET and HEAD, those of pages from other origins: browsers send a POST of text without asking.

    Args:
        hosts: the names, such as `"localhost"` or `"*.example.com"`; if empty, any.
        origins: origins whose pages are answered beside those of the same host; `"*"` is any.
    """

    def __init__(self, app, hosts: Collection[str], origins: Collection[str]):
        self.app, self.hosts, self.origins = app, [name.strip("[]").lower() for name in hosts], origins

    async def __call__(self, scope, receive, send) -> None:
        error = self.refusal(scope["method"], Headers(scope=scope)) if scope["type"] == "http" else None
        await (self.app if error is None else error.response())(scope, receive, send)

    def refusal(self, method: str, headers: Headers) -> ApiError | None:
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        match = NAME_AND_PORT.fullmatch(host)
        name = match[1].strip("[]") if match else ""
        if self.hosts and not any(fnmatchcase(name, pattern) for pattern in self.hosts):
            message = (
                f"`Host` is {host!r}; this server has {', '.join(self.hosts)}: ask for one of these, or start the "
                f"server with --allowed_hosts {name or 'NAME'}."
            )
            return ApiError(400, message, code="unknown_host")
        is_own = origin is None or origin.partition("://")[2].lower() == host
        if method not in ("GET", "HEAD") and not is_own and not {"*", origin} & set(self.origins):
            message = f"`Origin` is {origin!r}, a page of another host: allow it with --cors_origins {origin}."
            return ApiError(403, message, code="unknown_origin")
        return None


class Guard:
    """
    Refuses requests without `Authorization: Bearer KEY`, and those beyond `max_requests` at once. GET and HEAD of
    `OPEN_ROUTES` are always answered.

    Args:
        max_requests: how many requests are served at once.
        key: not empty; by default none is needed.
    """

    def __init__(self, app, max_requests: int, key: str | None = None):
        self.app, self.max_requests, self.running = app, max_requests, 0
        self.key = None if key is None else key.encode()

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
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_right = scheme.lower() == "bearer" and hmac.compare_digest(given.encode("latin-1").strip(), self.key or b"")
        if self.key is not None and not is_right:
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
