"""A span of OpenTelemetry for each request."""

from opentelemetry.trace import SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from punctual.api.app import PREFIX
from punctual.api.guard import Application, Message, Receive, Scope, Send

_PROPAGATOR = TraceContextTextMapPropagator()


def traced(app: Application, tracer: Tracer) -> Application:
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
