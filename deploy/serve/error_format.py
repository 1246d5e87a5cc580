# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Errors that clients get, always in the format of OpenAI."""

from http import HTTPStatus

import orjson
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response


CLIENT_GONE = "The client has gone."


class JsonResponse(Response):
    """A response in JSON. It may contain NumPy arrays; float32 numbers have as many digits as they need."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


class ApiError(HTTPException):
    """
    An error that the client gets instead of an answer.

    Args:
        status: the HTTP status.
        message: a sentence that names the field, its value and the fix.
        field: the field of the body that is wrong.
        code: a word for programs, such as `"context_length_exceeded"`.
        retry_after: seconds after which the same request may be served.
    """

    def __init__(
        self,
        status: int,
        message: str,
        field: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
        headers: dict[str, str] | None = None,
    ):
        headers = dict(headers or {}) | ({} if retry_after is None else {"Retry-After": str(retry_after)})
        super().__init__(status, message, headers)
        self.field, self.code = field, code

    def response(self) -> JsonResponse:
        kind = "invalid_request_error" if self.status_code < 500 else "server_error"
        error = {"message": self.detail, "type": kind, "param": self.field, "code": self.code}
        return JsonResponse({"error": error}, self.status_code, headers=self.headers)


def error_of_body(error: ValidationError) -> ApiError:
    """Return an error 400 for invalid JSON, else 422 for the first field that is wrong."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    # Of a list that is too long, the first problem is that it is no single text.
    problem = next((one for one in problems if one["type"] == "too_long"), problems[0])
    if problem["type"] == "json_invalid":
        reason = problem["msg"].removeprefix("Invalid JSON: ")
        return ApiError(400, f"The body is no JSON in UTF-8: {reason}.", code="invalid_json")
    field = str(problem["loc"][0]) if problem["loc"] else None
    return ApiError(422, f"{'The body' if field is None else f'`{field}`'}: {problem['msg']}.", field)


async def handle_http_error(request: Request, error: HTTPException) -> JsonResponse:
    """Answer an `ApiError`, or an error of the router (404 and 405)."""
    if not isinstance(error, ApiError):
        where = f"{request.method} {request.url.path}"
        error = ApiError(error.status_code, f"{where}: {HTTPStatus(error.status_code).phrase}.", headers=error.headers)
    return error.response()


async def handle_failure(request: Request, error: Exception) -> JsonResponse:
    """Answer an internal error of the server. Its traceback goes to the log."""
    return ApiError(500, f"The server failed ({type(error).__name__}): its log says more.").response()
