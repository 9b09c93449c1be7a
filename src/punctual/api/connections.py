"""Connections of the service, and the thread that serves them."""

import asyncio
import logging
import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any

import uvicorn
from h11 import ProtocolError
from opentelemetry.trace import SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from punctual.api.app import PREFIX, make_app
from punctual.api.context import ServiceContext
from punctual.api.guard import RequestGuard
from punctual.api.host_names import HostNames
from punctual.api.limits import LimitedSocket
from punctual.api.log_limit import LogLimit
from punctual.api.tokens import Tokens
from punctual.daemon.control_socket import peer_of

_LOG = logging.getLogger(__name__)
#: Loggers that get a line, or a traceback, for each caller who sends nonsense.
_OF_SERVER = ("uvicorn.error", "asyncio", "punctual.api.guard", __name__)

_PROPAGATOR = TraceContextTextMapPropagator()


def traced(app: ASGIApp, tracer: Tracer) -> ASGIApp:
    """Wrap `app` with a span for each request, a part of the caller's trace if the request names one."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        method = scope["method"]
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        attributes = {"http.request.method": method, "url.path": scope["path"], "url.scheme": scope["scheme"]}
        parent = _PROPAGATOR.extract(headers)
        with tracer.start_as_current_span(method, parent, SpanKind.SERVER, attributes) as span:

            async def sent(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            await app(scope, receive, sent)
            route = getattr(scope.get("route"), "path_format", None)
            if route is not None:
                route = route if route.startswith(PREFIX) else PREFIX + route  # older and newer FastAPI
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)

    return call


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listening socket, and the callers that it admits; see `punctual.api.guard.RequestGuard`."""

    listening: LimitedSocket
    tokens: Tokens | None
    host_names: HostNames | None
    tls: ssl.SSLContext | None = None


class TimedConnection(H11Protocol):
    """A connection that ends if a request, the first or a later one, takes long to arrive."""

    #: Seconds that a request may take to arrive, from the connection's beginning or its first byte on.
    request_s: float = 10.0
    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_request()

    def _await_request(self) -> None:
        """End the connection soon, unless a request is being answered or one arrives in time."""
        is_answering = not getattr(self.cycle, "response_complete", True)  # None before the first request
        if self._giving_up is None and not is_answering:
            self._giving_up = self.loop.call_later(self.request_s, self.transport.abort)
        elif self._giving_up is not None and is_answering:
            self._giving_up.cancel()
            self._giving_up = None


class OwnConnection(TimedConnection):
    """Connection of a process of the service's own user; any other's is ended before anything is read."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if peer_of(transport.get_extra_info("socket"))[1] != os.geteuid():
            transport.abort()


class _ServerLoop(asyncio.SelectorEventLoop):
    """Event loop whose servers give a caller `handshake_s` seconds to agree on keys; uvicorn has no option for that."""

    def __init__(self, handshake_s: float) -> None:
        super().__init__()
        self._handshake_s = handshake_s

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = self._handshake_s
        return await super().create_server(*args, **options)


@contextmanager
def endpoints_served(context: ServiceContext, endpoints: Sequence[Endpoint]) -> Iterator[None]:
    """Answer at all endpoints, in one thread, while the block runs."""
    app = make_app(context)
    servers = [_server(app, context, endpoint) for endpoint in endpoints]
    for endpoint in endpoints:
        endpoint.listening.n_connections = context.limits.n_connections
    run = partial(_run, servers, endpoints, context.limits.request_s)
    thread = Thread(target=run, name="punctual-service", daemon=True)
    thread.start()
    try:
        yield
    finally:
        context.is_closing.set()
        for server in servers:
            server.should_exit = True
        thread.join()


def _run(servers: Sequence[uvicorn.Server], endpoints: Sequence[Endpoint], handshake_s: float) -> None:
    async def serve_all() -> None:
        await asyncio.gather(
            *(server.serve([endpoint.listening]) for server, endpoint in zip(servers, endpoints, strict=True))
        )

    with _log_limited(), asyncio.Runner(loop_factory=partial(_ServerLoop, handshake_s)) as runner:
        runner.get_loop().set_exception_handler(_log_fault)
        runner.run(serve_all())


@contextmanager
def _log_limited() -> Iterator[None]:
    """Log at most a line a minute from one place, while the block runs."""
    limit = LogLimit(untraced=(OSError, ProtocolError))
    with ExitStack() as ending:
        for name in _OF_SERVER:
            log = logging.getLogger(name)
            log.addFilter(limit)
            ending.callback(log.removeFilter, limit)
        yield


def _log_fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log in one line that a connection failed, or could not be accepted for lack of descriptors; else as usual."""
    error = context.get("exception")
    if isinstance(error, OSError):
        _LOG.warning("%s: %s", context["message"], error)
    else:
        loop.default_exception_handler(context)


def _server(app: Any, context: ServiceContext, endpoint: Endpoint) -> uvicorn.Server:
    kind = OwnConnection if endpoint.tokens is None else TimedConnection
    connection = type("Connection", (kind,), {"request_s": context.limits.request_s})
    guarded: ASGIApp = RequestGuard(app, context.limits, context.rate, endpoint.tokens, endpoint.host_names)
    if context.tracer is not None:
        guarded = traced(guarded, context.tracer)
    config = uvicorn.Config(
        guarded,
        http=connection,
        ws="none",
        lifespan="off",
        loop="asyncio",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        # Seconds that requests may still take when the server is to end.
        timeout_graceful_shutdown=2,
    )
    config.load()
    config.ssl = endpoint.tls
    return uvicorn.Server(config)
