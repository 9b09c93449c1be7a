"""Over HTTP: what is answered while the store of the journal is away."""

import pytest
from tests.service.live_service import LiveService, program


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
