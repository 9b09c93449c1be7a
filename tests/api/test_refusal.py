"""What is told over HTTP of a job that was turned away."""

from datetime import datetime
from pathlib import Path

from tests.api.live_service import LiveService, program
from tests.waiting import wait_until

from punctual.core.units import span


def test_a_refusal_names_the_earliest_deadline_that_would_have_been_accepted(
    service: LiveService, tmp_path: Path
) -> None:
    assert service.caller.send("PUT", "/policy", {"name": "promises-first"}).status == 200
    asked = {
        "program": program(tmp_path / "go"),
        "name": "a",
        "deadline": "1m",
        "work": "10h",
        "cores": "1",
        "guarantee": True,
    }
    assert service.caller.post("/jobs", asked).status == 201
    told = wait_until(lambda: service.caller.get("/jobs/a").json(), lambda told: told["state"] == "turned away")
    earliest_s = (
        datetime.fromisoformat(told["earliestDeadline"]) - datetime.fromisoformat(told["submitted"])
    ).total_seconds()
    assert 36_000 <= earliest_s <= 2 * 36_000
    assert f"the earliest that can be is in {span(earliest_s)} (`--deadline {earliest_s:.0f}s`)" in told["cause"]
    again = {**asked, "name": "b", "deadline": f"{earliest_s:g}s"}
    assert service.caller.post("/jobs", again).status == 201
    promised = wait_until(lambda: service.caller.get("/jobs/b").json(), lambda told: told["promisedUntil"] is not None)
    assert promised["state"] in ("queued", "starting", "running")


def test_of_other_jobs_it_names_none(service: LiveService) -> None:
    assert service.caller.post("/jobs", {"program": program(), "name": "a", "deadline": "1m"}).status == 201
    assert service.caller.get("/jobs/a").json()["earliestDeadline"] is None
