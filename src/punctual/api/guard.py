"""Guard before every route: checks a request's origin, caller, length and rate."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from math import ceil

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from punctual.api.frozen import FOLDER
from punctual.api.host_names import HostNames
from punctual.api.limits import Limits, RequestRate
from punctual.api.problems import RETRY, Refused, problem
from punctual.api.tokens import OWNER, ROLES, Role, Token, Tokens
from punctual.core.errors import InvalidSpec

_LOG = logging.getLogger(__name__)

#: Headers of every answer that does not set its own, as those with a file of the page do.
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
]
#: Media types of the page's files.
_MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: Policy that forbids foreign and inline content; the page makes requests to its own service only.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
#: Seconds between two looks whether the token of an answer that goes on is still good.
_TOKEN_S = 1.0
_NO_TOKEN = {"WWW-Authenticate": 'Bearer realm="punctual"', "Connection": "close"}


@dataclass(frozen=True, slots=True)
class Caller:
    """Sender of a request.

    * `name`: name of the token; empty: the service's own user, over its socket.
    * `created_at`: when the token was made, in seconds since 1970.
    """

    name: str
    role: Role
    created_at: float = 0.0

    def may(self, role: Role) -> bool:
        """Whether its role includes `role`."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def __str__(self) -> str:
        return f"token '{self.name}'" if self.name else "the owner"


#: Caller at the socket of the service's own user; other users' connections are ended before.
SELF = Caller("", "operator")


@dataclass(frozen=True, slots=True)
class RequestGuard:
    """Passes on to `app` the requests that are allowed.

    * `tokens`: tokens of admitted callers; None: all callers, who must be the service's own user.
    * `host_names`: names under which the service may be asked. A page that a browser has from elsewhere cannot have its
      name point here and read the answers; None: any.
    """

    app: ASGIApp
    limits: Limits
    rate: RequestRate
    tokens: Tokens | None
    host_names: HostNames | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # the server leaves the body out
            scope = {**scope, "method": "GET", "is_head": True}
        with_headers, request = _with_headers(send), Request(scope)
        try:
            _check_form(request)
            self._check_place(request)
            if request.method == "GET" and (file := _page_files().get(request.url.path)) is not None:
                await file(scope, receive, with_headers)
                return
            caller = await self._caller(request)
            self._check_rate(caller)
            body = await self._body(request, receive)
        except Refused as error:
            await problem(error.status_code, error.detail, error.headers)(scope, receive, with_headers)
            return
        scope.setdefault("state", {})["caller"] = caller
        if self.tokens is None:
            await self.app(scope, _replayed(body, receive), with_headers)
        else:
            await self._answer_while_known(request, _replayed(body, receive), with_headers)

    async def _answer_while_known(self, request: Request, receive: Receive, send: Send) -> None:
        """Pass a request on, and break its answer off soon after its token's end: a stream never ends by itself."""
        is_under_way = False

        async def noted(message: Message) -> None:
            nonlocal is_under_way
            is_under_way = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        answer = asyncio.ensure_future(self.app(request.scope, receive, noted))
        try:
            while not answer.done() and not (is_under_way and await self._has_ended(request)):
                await asyncio.wait([answer], timeout=_TOKEN_S)
        finally:
            is_broken_off = answer.cancel()  # not where it has ended by itself
            await asyncio.wait([answer])
        if is_broken_off:  # the reader is to know that there is more
            raise ConnectionAbortedError("the token of an answer has ended before it")
        answer.result()

    def _check_place(self, request: Request) -> None:
        """Refuse requests from pages of other sites, or to names that are not the service's."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        own_address, _ = request.scope.get("server") or (None, None)
        if self.host_names is not None and not self.host_names.has(host, own_address):
            raise Refused(403, "the header Host must name this service (`punctual up --host-name NAME` adds a name)")
        if origin is not None and origin.lower() != f"{request.scope['scheme']}://{host}".lower():
            raise Refused(403, "requests of pages of other origins are refused")
        is_followed = (
            request.headers.get("sec-fetch-mode") == "navigate" and request.headers.get("sec-fetch-dest") == "document"
        )
        if is_followed and request.method == "GET" and request.url.path == "/":
            return  # a link to the page, in a notebook or a mail: it has nothing about jobs, and no page may frame it
        if request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
            raise Refused(403, "requests of pages of other sites are refused")

    async def _caller(self, request: Request) -> Caller:
        if self.tokens is None:
            return SELF
        token = await self._token(request)
        if token is None:
            detail = f"a token is needed that is known and has not expired (`punctual token`; the first is '{OWNER}')"
            raise Refused(401, detail, _NO_TOKEN)
        return Caller(token.name, token.role, token.created_at)

    async def _has_ended(self, request: Request) -> bool:
        """Whether the token of an answer that goes on is good no more; one that cannot be looked up is good."""
        with suppress(Refused):
            return await self._token(request) is None
        return False

    async def _token(self, request: Request) -> Token | None:
        """Return the valid token of a request; None: it has none."""
        assert self.tokens is not None
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        try:
            # In a thread, none of those for routes: another process may have locked the file, or its disk is slow.
            return await asyncio.to_thread(self.tokens.of, text.strip()) if kind.lower() == "bearer" else None
        except InvalidSpec as error:  # of which strangers are to know nothing
            _LOG.warning("the tokens cannot be read: %s", error)
            raise Refused(503, "the tokens cannot be read now; `punctual doctor` says why", RETRY) from error

    def _check_rate(self, caller: Caller) -> None:
        wait_s = self.rate.wait_s(caller.name)
        if wait_s:
            raise Refused(429, "too many requests of this token", {"Retry-After": str(ceil(wait_s))})

    async def _body(self, request: Request, receive: Receive) -> bytes:
        too_long = Refused(413, f"a body may have {self.limits.body_bytes} bytes", {"Connection": "close"})
        if int(request.headers.get("content-length") or 0) > self.limits.body_bytes:
            raise too_long
        pieces, n_bytes = [], 0
        try:
            async with asyncio.timeout(self.limits.request_s):
                while True:
                    message = await receive()
                    pieces.append(message.get("body", b""))
                    n_bytes += len(pieces[-1])
                    if n_bytes > self.limits.body_bytes:
                        raise too_long
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return b"".join(pieces)
        except TimeoutError:
            raise Refused(400, "the body did not come in time", {"Connection": "close"}) from None


@cache
def _page_files() -> dict[str, Response]:
    """Return the page's files by path, which need no token: they have nothing about jobs. No request reaches the disk."""
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    files = {
        f"/page/{path.name}": Response(path.read_bytes(), media_type=_MEDIA_TYPES[path.suffix], headers=headers)
        for path in FOLDER.iterdir()
        if path.suffix in _MEDIA_TYPES
    }
    return {"/": files["/page/index.html"], **files}


def _check_form(request: Request) -> None:
    """Refuse what other readers of the request could read in another way, or what only a proxy is asked."""
    if not request.scope["path"].startswith("/"):
        raise Refused(400, "the target of a request must be a path, such as `/v1/jobs`: this service is no proxy")
    for name in ("host", "origin", "authorization", "content-length", "idempotency-key"):
        if len(request.headers.getlist(name)) > 1:
            raise Refused(400, f"the header {name} must be given once")
    if "content-length" in request.headers and "transfer-encoding" in request.headers:
        raise Refused(400, "the length of a body must be told in one way", {"Connection": "close"})
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        detail = "a body must be sent as it is, without `Content-Encoding`"
        raise Refused(415, detail, {"Accept-Encoding": "identity"})


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", []))
            named = {name for name, _ in given}
            message["headers"] = [*given, *(header for header in _HEADERS if header[0] not in named)]
        await send(message)

    return sent


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body again, and then the messages of `receive`, such as a disconnect."""
    is_told = False

    async def told() -> Message:
        nonlocal is_told
        if is_told:
            return await receive()
        is_told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return told
