# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Metrics for Prometheus, at /metrics."""

import time
from collections.abc import Collection

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """Counters of one server."""

    def __init__(self):
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "lion_requests", "Requests, by route and status.", ("route", "status"), registry=registry
        )
        self.seconds = Histogram("lion_request_seconds", "Time of a request.", ("route",), registry=registry)
        buckets = [2**n for n in range(5, 18)]
        self.batches = Histogram(
            "lion_batch_tokens", "Tokens that were computed at once.", ("queue",), buckets=buckets, registry=registry
        )
        self.waiting = Gauge(
            "lion_waiting_requests", "Requests in the queue, with those in work.", ("queue",), registry=registry
        )

    def page(self) -> bytes:
        return generate_latest(self.registry)


class Measured:
    """ASGI middleware that counts and times requests by route. Unknown paths count as "other"."""

    def __init__(self, app, metrics: Metrics, routes: Collection[str]):
        self.app, self.metrics, self.routes = app, metrics, routes

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, route = time.perf_counter(), scope["path"] if scope["path"] in self.routes else "other"
        status = 500  # which Starlette sends after an exception, outside of this middleware

        async def noted(message):
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            self.metrics.requests.labels(route, status).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - begin)
