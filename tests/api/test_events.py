"""Events are the messages of the journal, and can be gone on with from any of them."""

import http.client
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.api.live_service import LiveService, live_service, program
from tests.waiting import PATIENCE_S, wait_until

from punctual.api import event_routes
from punctual.client.client import Client, JobEvent
from punctual.daemon.runs import messages_of


def until_end(client: Client, **options: Any) -> list[JobEvent]:
    """Events up to the first end of a job."""
    told = []
    with client.events(**options) as events:
        for event in events:
            told.append(event)
            if event.kind in {"JobFinished", "JobFailed"}:
                return told
    raise AssertionError("the stream ended before a job did")


def test_events_are_told_as_they_happen_and_again_from_any_number(service: LiveService, tmp_path: Path) -> None:
    client, awaited = Client(service.served.url), tmp_path / "go"
    client.submit(program(awaited), name="a")
    events = client.events(job="a", after=0)
    first = next(events)
    assert (first.kind, first.job) == ("JobSubmitted", "a")
    awaited.touch()
    live = [first]
    while live[-1].kind != "JobFinished":
        live.append(next(events))
    events.close()
    sequences = [event.sequence for event in live]
    assert sequences == sorted(set(sequences))
    for last in (0, sequences[0], sequences[-2]):
        again = until_end(client, job="a", after=last)
        behind = [event for event in live if event.sequence > last]
        assert [(event.sequence, event.message) for event in again] == [(e.sequence, e.message) for e in behind]


def test_a_browser_goes_on_where_it_was(service: LiveService) -> None:
    client = Client(service.served.url)
    client.submit(program(), name="a")
    told = until_end(client, after=0)
    connection = http.client.HTTPConnection(service.served.url.removeprefix("http://"), timeout=PATIENCE_S)
    headers = {"Authorization": f"Bearer {service.caller.token}", "Last-Event-ID": str(told[1].sequence)}
    connection.request("GET", "/v1/events?after=0", headers=headers)
    response = connection.getresponse()
    assert response.headers["Content-Type"].startswith("text/event-stream")
    lines = iter(response.readline, b"")
    identity = next(line for line in lines if line.startswith(b"id:"))
    assert int(identity[3:]) == told[2].sequence
    assert json.loads(next(line for line in lines if line.startswith(b"data:"))[5:])["kind"] == told[2].kind
    connection.close()


def test_kinds_can_be_chosen_and_timers_are_left_out_otherwise(service: LiveService) -> None:
    client = Client(service.served.url)
    client.submit(program(), name="a").wait()
    told = until_end(client, after=0)
    assert not [event for event in told if event.kind in {"TimerFired", "SetTimer"}]
    journal = messages_of(service.host.run_folder)
    kinds = ["JobSubmitted", "JobFinished"]
    chosen = until_end(client, after=0, kind=kinds)
    assert [event.kind for event in chosen] == [name for m in journal if (name := type(m).__name__) in kinds]


def test_a_kind_that_there_is_not_is_refused_with_the_one_that_was_meant(service: LiveService) -> None:
    refused = service.caller.get("/events?kind=JobStarted&kind=JobFinishd")
    assert refused.status == 422
    assert refused.json()["got"] == "'JobFinishd'"
    assert "`JobFinished`" in refused.json()["remedy"]


@pytest.mark.parametrize("headers", [{}, {"Last-Event-ID": str(10**15)}])
def test_behind_the_last_message_is_from_now_on(service: LiveService, headers: dict[str, str]) -> None:
    """A reader of a journal that is gone, or of another service, hears all the same what happens here."""
    place = service.caller.place
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=PATIENCE_S)
    sent = {"Authorization": f"Bearer {service.caller.token}", **headers}
    connection.request("GET", f"/v1/events?kind=JobSubmitted&after={10**15}", headers=sent)
    response = connection.getresponse()
    service.caller.post("/jobs", {"program": program(), "name": "a"})
    assert b"event: JobSubmitted\n" in iter(response.readline, b"")
    connection.close()


def test_events_of_a_job_that_there_is_not_are_refused(service: LiveService) -> None:
    for job in ["nosuch", "", "%00"]:
        assert service.caller.get(f"/events?job={job}").status == 404, job


def test_streams_end_with_the_service() -> None:
    ended = threading.Event()
    with live_service() as service:
        events = Client(service.served.url).events(after=0)
        next(events)

        def read() -> None:
            list(events)
            ended.set()

        threading.Thread(target=read, daemon=True).start()
    assert ended.wait(100)


def test_a_stream_shows_that_it_lives_while_only_what_was_not_asked_for_happens(
    service: LiveService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_routes, "_SILENCE_S", 0.5)
    client = Client(service.served.url)
    client.submit(program(tmp_path / "go"), name="a", deadline="1h")
    connection = http.client.HTTPConnection(service.served.url.removeprefix("http://"), timeout=PATIENCE_S)
    connection.request("GET", "/v1/events?kind=NodeLost", headers={"Authorization": f"Bearer {service.caller.token}"})
    lines = iter(connection.getresponse().readline, b"")
    first = service.host.n_written
    assert next(line for line in lines if line.startswith(b":")) == b": nothing new\n"
    wait_until(lambda: service.host.n_written, lambda n_written: n_written > first)
    connection.close()
