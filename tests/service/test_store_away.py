"""Over HTTP: what is answered while the store of the journal is away."""

from pathlib import Path

import pytest
from tests.service.live_service import LiveService, program

from punctual.runtime.runs import messages_of


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
