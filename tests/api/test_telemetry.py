"""Traces and metrics for OpenTelemetry: what is in them, that they arrive, and that a collector that is away harms nothing."""

import errno
import socket
import sqlite3
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Event, current_thread
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tests.api.collector import collector
from tests.api.live_service import LiveService, live_service, program, steered_host
from tests.waiting import wait_until

from punctual.api import spans
from punctual.api.telemetry import observed, telemetry
from punctual.api.telemetry_options import check_telemetry, is_configured
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFinished
from punctual.core.ids import JobId
from punctual.core.resources import Resources
from punctual.daemon.run_folder import RunFolder
from punctual.journal.errors import StoreUnreachable
from punctual.journal.sqlite import SqliteJournal
from punctual.request.job_options import JobOptions
from punctual.request.submission import Submission, submission_of


@pytest.fixture(autouse=True)
def no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said about OpenTelemetry where the tests run is about something else."""
    for name in (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_TRACES_EXPORTER",
        "OTEL_SDK_DISABLED",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def service(exported: InMemorySpanExporter, reader: InMemoryMetricReader) -> Iterator[LiveService]:
    """A service whose spans and metrics stay here."""
    observing = lambda host: observed(host, [SimpleSpanProcessor(exported)], [reader])  # noqa: E731
    with live_service(observing=observing) as live:
        yield live


def named(spans: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def awaited(exported: InMemorySpanExporter, name: str) -> Any:
    return wait_until(lambda: named(exported.get_finished_spans(), name))[0]


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# What spans say.


def test_a_job_is_a_span_from_its_submission_to_its_end(service: LiveService, exported: InMemorySpanExporter) -> None:
    service.caller.post("/jobs", {"program": program(), "name": "a", "deadline": "10m"})
    span, status = awaited(exported, "job"), service.host.status(JobId("a"))
    assert span.start_time is not None
    assert span.end_time is not None
    assert status.ended_at is not None
    now = service.host.clocks()
    assert span.start_time / 1e9 == pytest.approx(now.wall_of(status.submitted_at).timestamp(), abs=0.1)
    assert span.end_time / 1e9 == pytest.approx(now.wall_of(status.ended_at).timestamp(), abs=0.1)
    said = told(span)
    assert (said["punctual.job.name"], said["punctual.job.status"]) == ("a", "finished")
    assert said["punctual.job.deadline_seconds"] == pytest.approx(600.0)
    assert said["punctual.job.on_time"]
    names = [event.name for event in span.events]
    assert {"submitted", "grant", "started", "landed", "finished"} <= set(names)
    assert span.status.status_code is StatusCode.UNSET
    assert span.resource.attributes["service.name"] == "punctual"


def test_a_job_whose_messages_are_gone_keeps_no_other_from_being_told(
    service: LiveService, exported: InMemorySpanExporter
) -> None:
    now = service.host.now()
    service.host.post(JobFinished(at=now, job=JobId("removed"), landed_at=now))
    service.caller.post("/jobs", {"program": program(), "name": "a"})
    assert told(awaited(exported, "job"))["punctual.job.name"] == "a"


def test_a_job_that_fails_is_a_span_with_the_cause(service: LiveService, exported: InMemorySpanExporter) -> None:
    service.caller.post("/jobs", {"program": ["false"], "name": "a"})
    span = awaited(exported, "job")
    assert (told(span)["punctual.job.exit_code"], span.status.status_code) == (1, StatusCode.ERROR)
    assert span.status.description


def test_phases_are_events_of_the_job(service: LiveService, exported: InMemorySpanExporter, tmp_path: Path) -> None:
    training = tmp_path / "training.py"
    training.write_text(
        "import time, punctual\n"
        "for _ in punctual.track(range(3)):\n"
        "    time.sleep(0.2)\n"
        "    with punctual.phase('evaluation'):\n"
        "        time.sleep(0.2)\n"
    )
    service.caller.post("/jobs", {"program": [program()[0], str(training)], "name": "a", "deadline": "10m"})
    span = awaited(exported, "job")
    phases = [event for event in span.events if event.name == "phase"]
    assert phases
    assert all(event.attributes["name"] == "evaluation" for event in phases)
    assert all(span.start_time < event.timestamp < span.end_time for event in phases)
    # Of too many events the first that were added are dropped: those are the changes of grants.
    names = [event.name for event in span.events]
    assert max(i for i, name in enumerate(names) if name == "grant") < names.index("phase") < names.index("submitted")


def test_each_plan_is_a_span_with_what_the_policy_decided(service: LiveService, exported: InMemorySpanExporter) -> None:
    service.caller.post("/jobs", {"program": program(), "name": "a"})
    said = told(awaited(exported, "plan"))
    assert said["punctual.plan.policy"] == "proportional"
    assert said["punctual.plan.status"] in {"feasible", "optimal"}


def test_each_request_is_a_span_named_by_its_route(service: LiveService, exported: InMemorySpanExporter) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert service.caller.get("/jobs/none?secret=x", {"traceparent": parent}).status == 422
    span = awaited(exported, "GET /v1/jobs/{job}")
    assert told(span)["http.response.status_code"] == 422
    assert f"{span.context.trace_id:032x}" == parent.split("-")[1]
    assert "secret" not in span.to_json()
    service.caller.token = None
    service.caller.get("/jobs")
    assert told(awaited(exported, "GET"))["http.response.status_code"] == 401  # the route was not looked for


# What metrics say.


def test_metrics_are_those_that_prometheus_reads(
    service: LiveService, reader: InMemoryMetricReader, tmp_path: Path
) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "never"), "name": "a", "deadline": "10m"})

    def collected() -> dict[tuple[Any, ...], float]:
        data: Any = reader.get_metrics_data()
        return {
            (metric.name, *sorted(point.attributes.items())): point.value
            for metric in data.resource_metrics[0].scope_metrics[0].metrics
            for point in metric.data.data_points
        }

    points = wait_until(collected, lambda points: points["punctual_jobs", ("state", "running")] == 1)
    names = {line.split("{")[0] for line in service.caller.get("/metrics").body.decode().splitlines() if line[0] != "#"}
    assert {name for name, *_ in points} <= names | {"punctual_job_verdict"}
    assert {"punctual_jobs", "punctual_node_capacity_cores", "punctual_job_granted_cores"} <= {
        name for name, *_ in points
    }


# That they arrive.


def test_a_collector_gets_spans_and_metrics_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        assert is_configured()
        with live_service(observing=telemetry) as service:
            service.caller.post("/jobs", {"program": program(), "name": "a"})
            wait_until(lambda: service.host.has_ended(JobId("a")))
        names = {span.name for span in server.spans}
        assert {"job", "plan", "POST /v1/jobs"} <= names  # what was left is sent in the end
        assert "punctual_jobs" in server.metrics


def test_only_what_is_wanted_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
        with steered_host() as host, telemetry(host):
            pass
        assert server.metrics
        assert not server.spans


# That nothing comes to harm.


def test_a_collector_that_is_away_is_told_of_once_and_harms_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        told_of: list[str] = []

        def complaints() -> list[str]:
            told_of.append(capsys.readouterr().err)
            return [line for line in "".join(told_of).splitlines() if "OpenTelemetry" in line]

        with live_service(observing=telemetry) as service:
            for name in "abc":
                service.caller.post("/jobs", {"program": program(), "name": name})
                wait_until(partial(service.host.has_ended, JobId(name)))
            wait_until(complaints)
        loggers = len(complaints())
        assert loggers <= 3  # each part of the library once, however often it has tried
        assert "Traceback" not in "".join(told_of)


def test_a_collector_that_never_answers_holds_up_neither_jobs_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as server:
        server.is_silent = True
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1000000")
        with live_service(observing=telemetry) as service:
            service.caller.get("/jobs")
            wait_until(lambda: server.n_asked)
            service.caller.post("/jobs", {"program": program(), "name": "a"})
            wait_until(lambda: service.host.has_ended(JobId("a")))
        assert not server.spans  # it has ended, though the collector has not answered yet


def submission(service: LiveService, name: str) -> Submission:
    options = JobOptions(program=program(), name=name)
    return submission_of(options, service.host.now(), Resources(cores=1.0), inherited={})


class _Stuck(SpanExporter):
    """Never comes back."""

    def __init__(self) -> None:
        self.is_over = Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_over.wait()
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


def test_the_thread_that_steers_waits_for_no_export(tmp_path: Path) -> None:
    """The reader itself hangs in its exporter, and jobs are steered on."""
    stuck = _Stuck()
    try:
        with live_service(observing=lambda host: observed(host, [SimpleSpanProcessor(stuck)], [])) as service:
            for name in "ab":
                service.host.submit(submission(service, name))
                wait_until(partial(service.host.has_ended, JobId(name)))
            stuck.is_over.set()
    finally:
        stuck.is_over.set()


def test_a_journal_that_is_away_is_read_once_it_is_back(
    exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, n_refused = spans.messages_of, 0

    def refused(*arguments: Any) -> Any:
        nonlocal n_refused
        n_refused += 1
        if n_refused < 3:
            raise StoreUnreachable("the database must answer", "nothing", "a journal", "Wait.")
        return real(*arguments)

    monkeypatch.setattr(spans, "messages_of", refused)
    monkeypatch.setattr(spans, "_POLL_INTERVAL_S", 0.02)
    with live_service(observing=lambda host: observed(host, [SimpleSpanProcessor(exported)], [])) as service:
        service.caller.post("/jobs", {"program": program(), "name": "a"})
        assert told(awaited(exported, "job"))["punctual.job.name"] == "a"
    assert n_refused >= 3


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "a test"), sqlite3.OperationalError("a test")])
def test_a_journal_for_which_no_descriptor_is_free_is_read_later(
    exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    real, n_refused = RunFolder.read_journal, 0

    def refused(run: RunFolder) -> SqliteJournal:
        nonlocal n_refused
        if current_thread().name == "punctual-spans" and n_refused < 3:
            n_refused += 1
            raise error
        return real(run)

    monkeypatch.setattr(RunFolder, "read_journal", refused)
    monkeypatch.setattr(spans, "_POLL_INTERVAL_S", 0.02)
    with live_service(observing=lambda host: observed(host, [SimpleSpanProcessor(exported)], [])) as service:
        service.caller.post("/jobs", {"program": program(), "name": "a"})
        assert told(awaited(exported, "job"))["punctual.job.name"] == "a"
    assert n_refused == 3


# What is asked for.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318"),
        ("OTEL_METRICS_EXPORTER", "prometheus"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidSpec, match=name) as refused:
        check_telemetry()
    assert value in refused.value.got
    assert refused.value.remedy


def test_it_is_off_unless_the_environment_names_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_configured()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://localhost:4318/v1/metrics")
    assert is_configured()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not is_configured()
