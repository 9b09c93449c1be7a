"""Answers to failed requests: `application/problem+json`."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from punctual.client.schema import FaultText, Problem
from punctual.core.errors import InvalidSpec
from punctual.core.failures import short_of
from punctual.daemon.control_socket import ControlFailed
from punctual.journal.errors import JournalTaken, JournalUnusable, StoreUnreachable
from punctual.request.redaction import redacted

_LOG = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_GOT_LENGTH_MAX = 200
#: Fields whose values are never repeated.
_SECRET_FIELDS = {"env", "program"}
_NOT_REPEATED = "a value that is not repeated here"
RETRY = {"Retry-After": "1"}


class Refused(HTTPException):
    """Raised to refuse a request for another reason than its content: its status, why, and headers of the answer."""


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **parts: Any) -> Response:
    """Make an answer that explains why the request was refused."""
    told = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, **parts)
    # Escaped: what was got may hold characters that cannot be encoded.
    text = json.dumps(told.model_dump(by_alias=True, exclude_none=True))
    return Response(text, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return a route's declaration of answers with `statuses`, and those that every route may give."""
    every = (400, 401, 403, 413, 422, 429, 503)
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({*every, *statuses})
    }


@contextmanager
def within(part: str) -> Iterator[None]:
    """Attribute mistakes found in the block to a part of the request, such as `job`, or an option in it."""
    try:
        yield
    except InvalidSpec as error:
        for each in error.all():
            each.option = part if each.option is None else f"{part}/{each.option}"
        raise


def install(app: FastAPI) -> None:
    """Register handlers that answer with problems if a route raises."""

    @app.exception_handler(InvalidSpec)
    async def _invalid(_: Request, error: InvalidSpec) -> Response:
        retry_may_help = isinstance(error, JournalTaken | StoreUnreachable)
        status = 503 if retry_may_help or isinstance(error, JournalUnusable) else 422
        first, *others = [_fault(each) for each in error.all()]
        return problem(status, str(error), RETRY if retry_may_help else None, **first.model_dump(), others=others)

    @app.exception_handler(ControlFailed)
    async def _unavailable(_: Request, error: ControlFailed) -> Response:
        return problem(503, str(error), RETRY)

    for kind in (OSError, RuntimeError, MemoryError):
        app.add_exception_handler(kind, _short)

    @app.exception_handler(HTTPException)
    async def _refused(request: Request, error: HTTPException) -> Response:
        is_unrouted = not isinstance(error, Refused) and error.status_code in {404, 405}
        hint = "; `/v1/openapi.json` lists all routes" if is_unrouted else ""
        headers = {"Allow": ", ".join(_methods(request))} if error.status_code == 405 else error.headers
        return problem(error.status_code, f"{error.detail}{hint}", headers)

    @app.exception_handler(RequestValidationError)
    async def _unreadable(_: Request, error: RequestValidationError) -> Response:
        return _misread(error)


def _methods(request: Request) -> list[str]:
    """Return the methods with which a request's path can be asked for: more than one route may have it."""
    scopes = {method: {**request.scope, "method": method} for method in ("GET", "PATCH", "POST", "PUT")}
    routes = request.app.routes
    fits = [name for name, scope in scopes.items() if any(each.matches(scope)[0] is Match.FULL for each in routes)]
    return sorted([*fits, *(["HEAD"] if "GET" in fits else [])])


async def _short(_: Request, error: Exception) -> Response:
    """Answer that resources are short, as when no thread is left for a route; other failures are raised again."""
    what = short_of(error)
    if not what:
        raise error
    return problem(503, f"the service has to wait for {what}; jobs go on. Try again soon", RETRY)


def _misread(error: RequestValidationError) -> Response:
    if isinstance(error.body, bytes):  # it was not read, because it is not said to be JSON
        return problem(415, "the body must be JSON, and be called so: `Content-Type: application/json`")
    first, *others = [_fault_of(each) for each in error.errors()]
    return problem(422, f"{first.must}: got {first.got}", **first.model_dump(), others=others)


def _fault(error: InvalidSpec) -> FaultText:
    names = () if error.option is None else error.option.replace("-", "_").split("/")
    field = "".join(f"/{to_camel(name)}" for name in names) or None
    return FaultText.model_validate({**error.as_fields(), "field": field})


def _fault_of(error: Mapping[str, Any]) -> FaultText:
    """Convert an error of pydantic: it names the innermost field, and shows nothing of a secret one."""
    place, *path = error["loc"]
    fields = [part for part in path if isinstance(part, str)]  # the others are places in lists
    secret = next((name for name in fields if name in _SECRET_FIELDS), None)
    name = secret or (fields[-1] if fields else place)
    return FaultText(
        must=f"`{name}`: {error['msg']}",
        got=_said(error.get("input")) if fields and secret is None else _NOT_REPEATED,
        where=f"the request's {place}",
        remedy="See /v1/openapi.json for what the request may hold.",
        field=_pointer(path) if fields and place == "body" else None,
    )


def _pointer(path: Sequence[str | int]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _said(value: object) -> str:
    """Return the value that was got, unless it has parts."""
    if isinstance(value, dict | list):
        return _NOT_REPEATED
    text = " ".join(redacted([value])) if isinstance(value, str) else repr(value)
    return text if len(text) <= _GOT_LENGTH_MAX else f"{text[:_GOT_LENGTH_MAX]}…"
