"""Traces and metrics of a service for OpenTelemetry, sent over OTLP as its environment variables tell."""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Thread

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import Tracer

from punctual import __version__
from punctual.api.log_limit import LogLimit
from punctual.api.metrics_text import Metric, job_metrics, metrics
from punctual.api.spans import SpanReader
from punctual.api.status_json_cache import StatusJsonCache
from punctual.api.telemetry_options import is_exported
from punctual.daemon.host import Host
from punctual.daemon.logs import LogFormatter


@contextmanager
def telemetry(host: Host) -> Iterator[Tracer]:
    """Send the host's telemetry while the block runs, in threads that steer nothing; yield the tracer for requests."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    processors = [BatchSpanProcessor(OTLPSpanExporter())] if is_exported("traces") else []
    readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if is_exported("metrics") else []
    with _seldom_complaining(), observed(host, processors, readers) as tracer:
        yield tracer


@contextmanager
def observed(host: Host, processors: Sequence[SpanProcessor], readers: Sequence[MetricReader]) -> Iterator[Tracer]:
    """Send telemetry to any processors of spans and readers of metrics."""
    known = {"service.name": "punctual", "service.version": __version__, "service.instance.id": host.run_folder.name}
    resource = Resource.create(known).merge(OTELResourceDetector().detect())
    traces = TracerProvider(resource=resource, shutdown_on_exit=False)
    for processor in processors:
        traces.add_span_processor(processor)
    meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    _Gauges(host).add_to(meters)
    tracer = traces.get_tracer("punctual", __version__)
    try:
        with SpanReader(host, tracer):
            yield tracer
    finally:
        ends = [Thread(target=provider.shutdown, daemon=True) for provider in (traces, meters)]
        for thread in ends:
            thread.start()
        # Seconds for sending the rest in the end: an absent collector delays nothing.
        give_up_at = time.monotonic() + 2.0
        for thread in ends:
            thread.join(max(0.0, give_up_at - time.monotonic()))


class _Gauges:
    """Each metric of the service as a gauge."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._cache = StatusJsonCache(host, job_metrics)
        self._read: dict[str, Metric] = {}
        self._read_at = float("-inf")

    def add_to(self, meters: MeterProvider) -> None:
        meter = meters.get_meter("punctual", __version__)
        for name, metric in self._metrics().items():
            meter.create_observable_gauge(name, [partial(self._observe, name)], description=metric.text)

    def _observe(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(sample.value, sample.labels) for sample in self._metrics()[name].samples]

    def _metrics(self) -> dict[str, Metric]:
        # Seconds for which a collection's metrics are reused: a collector reads them one after the other.
        if time.monotonic() > self._read_at + 1.0:
            self._read = {metric.name: metric for metric in metrics(self._host, self._cache)}
            self._read_at = time.monotonic()
        return self._read


@contextmanager
def _seldom_complaining() -> Iterator[None]:
    log = logging.getLogger("opentelemetry")
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("punctual: OpenTelemetry: %(message)s"))
    # Seconds between two logged complaints of an exporter, which complains each time that a collector does not
    # answer.
    handler.addFilter(LogLimit(600.0))
    log.addHandler(handler)
    propagated, log.propagate = log.propagate, False
    try:
        yield
    finally:
        log.propagate = propagated
        log.removeHandler(handler)
