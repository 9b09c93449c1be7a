"""Over HTTP: what is answered while the journal cannot be read."""

from itertools import count
from pathlib import Path

import pytest
from tests.api.live_service import LiveService, live_service, program
from tests.waiting import wait_until

from punctual.api import event_routes
from punctual.api.limits import Limits
from punctual.client.client import Client
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import messages_of
from punctual.journal.compaction import Row
from punctual.journal.errors import StoreUnreachable
from punctual.journal.sqlite import About, SqliteJournal


def test_what_was_accepted_is_in_the_journal(service: LiveService, tmp_path: Path) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "go"), "name": "a"})
    for verb, kind in (("pause", "PauseRequested"), ("resume", "ResumeRequested"), ("stop", "StopRequested")):
        assert service.caller.post(f"/jobs/a/{verb}").status == 202
        assert kind in [type(message).__name__ for message in messages_of(service.host.run_folder)]


def test_a_stream_of_events_that_cannot_begin_is_refused(
    service: LiveService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreUnreachable("the store must be reachable", "one that is away", "a test", "Wait.")

    monkeypatch.setattr(RunFolder, "read_journal", away)
    reply = service.caller.get("/events")
    assert (reply.status, reply.headers["Retry-After"], reply.json()["must"]) == (
        503,
        "1",
        "the store must be reachable",
    )
    assert caplog.records == []


def test_the_journal_is_closed_where_a_stream_of_events_is_refused_and_where_its_reader_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[SqliteJournal] = []
    close = SqliteJournal.close

    def noted(journal: SqliteJournal) -> None:
        closed.append(journal)
        close(journal)

    with live_service(limits=Limits(n_streams_each=1)) as service:
        monkeypatch.setattr(SqliteJournal, "close", noted)
        client = Client(service.served.url)
        with client.events(after=0) as events:
            assert next(events).sequence >= 1
            assert (service.caller.get("/events").status, len(closed)) == (429, 1)
        wait_until(lambda: len(closed), lambda n: n == 2)


def test_a_stream_of_events_goes_on_once_the_store_is_back(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_routes, "_SILENCE_S", 1e6)  # it does not wait for the next sign of life
    rows_from, n_asked = SqliteJournal.rows_from, count(1)

    def away_at_first(journal: SqliteJournal, sequence: int, n_rows: int, *about: About) -> list[Row]:
        if next(n_asked) <= 2:
            raise StoreUnreachable("the store must be reachable", "one that is away", "a test", "Wait.")
        return rows_from(journal, sequence, n_rows, *about)

    monkeypatch.setattr(SqliteJournal, "rows_from", away_at_first)
    client = Client(service.served.url)
    client.submit(program(), name="a")
    with client.events(job="a", after=0) as events:
        kinds = [next(events).kind]
        while kinds[-1] != "JobFinished":
            kinds.append(next(events).kind)
    assert kinds[0] == "JobSubmitted", "and what came while it was away is told"
    assert next(n_asked) > 3
