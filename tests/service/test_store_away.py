"""Over HTTP: what is answered while the store of the journal is away."""

from itertools import count
from pathlib import Path

import pytest
from tests.service.live_service import LiveService, program

from punctual.runtime.runs import messages_of
from punctual.service import event_routes
from punctual.service.client import Client
from punctual.store.sqlite import SqliteJournal
from punctual.store.stored import About, StoreUnreachable
from punctual.store.thinning import Row


def test_nothing_can_be_changed_and_it_is_told_why(service: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.host._journal, "is_behind", True)
    for path, body in [("/jobs", {"program": program()}), ("/jobs", {"program": program(), "name": "a"})]:
        reply = service.caller.post(path, body)
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
        told = reply.json()
        assert "must be reachable" in told["must"]
        assert all(told[part] for part in ("got", "where", "remedy"))
    assert service.caller.get("/jobs").json()["jobs"] == []
    monkeypatch.undo()
    assert service.caller.post("/jobs", {"program": program(), "name": "a"}).status == 201


def test_what_was_accepted_is_in_the_journal(service: LiveService, tmp_path: Path) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "go"), "name": "a"})
    for verb, kind in (("pause", "PauseRequested"), ("resume", "ResumeRequested"), ("stop", "StopRequested")):
        assert service.caller.post(f"/jobs/a/{verb}").status == 202
        assert kind in [type(message).__name__ for message in messages_of(service.host.run_folder)]


def test_a_stream_of_events_goes_on_once_the_store_is_back(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_routes, "_SILENCE_S", 1e6)  # it does not wait for the next sign of life
    rows_from, n_asked = SqliteJournal.rows_from, count(1)

    def away_at_first(journal: SqliteJournal, sequence: int, n_rows: int, about: About | None = None) -> list[Row]:
        if next(n_asked) <= 2:
            raise StoreUnreachable("the store must be reachable", "one that is away", "a test", "Wait.")
        return rows_from(journal, sequence, n_rows, about)

    monkeypatch.setattr(SqliteJournal, "rows_from", away_at_first)
    client = Client(service.served.url)
    with client.events(job="a", after=0) as events:
        client.submit(program(), name="a")
        kinds = [next(events).kind]
        while kinds[-1] != "JobFinished":
            kinds.append(next(events).kind)
    assert kinds[0] == "JobSubmitted", "and what came while it was away is told"
    assert next(n_asked) > 3
