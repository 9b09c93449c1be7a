"""A collector of OpenTelemetry, as far as OTLP over HTTP needs one."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector(ThreadingHTTPServer):
    """Takes what is sent over OTLP, in a thread; with `is_silent` set it answers nothing until it ends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.spans: list[Any] = []
        self.metrics: list[str] = []
        self.is_silent = False
        self.n_asked = 0
        self.is_over = Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.n_asked += 1
        if self.server.is_silent:
            self.server.is_over.wait()
        elif self.path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.server.spans += [span for scope in resource.scope_spans for span in scope.spans]
        elif self.path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.server.metrics += [metric.name for scope in resource.scope_metrics for metric in scope.metrics]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


@contextmanager
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.is_over.set()
            server.shutdown()
            thread.join()
