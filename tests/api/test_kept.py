"""What the service keeps of answers is what it would make anew."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from tests.api.live_service import LiveService, program
from tests.history.scene import chain
from tests.waiting import wait_until

from punctual.api.context import HistoryCache
from punctual.api.standing import standing_json
from punctual.api.status_json_cache import StatusJsonCache
from punctual.core.ids import JobId
from punctual.core.status import JobStatus
from punctual.daemon.runs import messages_of
from punctual.history.decision_trace import decision_steps
from punctual.history.judge import Wait
from punctual.request.deadlines import Now

A = JobId("a")


def test_texts_of_a_job_are_made_again_only_once_something_has_changed(service: LiveService) -> None:
    service.caller.post("/jobs", {"program": program(), "name": "a", "deadline": "10m"})
    wait_until(lambda: service.host.has_ended(A))
    made: list[JobStatus] = []

    def make(status: JobStatus, now: Now, wait: Wait) -> bytes:
        made.append(status)
        return standing_json(service.host, status, now)

    kept, now, status = StatusJsonCache(service.host, make), service.host.clocks(), service.host.status(A)
    assert kept.of_all([status], now) == [standing_json(service.host, status, now)]
    kept.of_all([status], Now(now.at + 5, now.wall + timedelta(seconds=5)))
    assert made == [status]
    changed = replace(status, cause="another")
    assert b"another" in kept.of_all([changed], now)[0]
    moved = Now(now.at, now.wall + timedelta(hours=1))  # the clock was set
    assert kept.of_all([changed], moved) == [standing_json(service.host, changed, moved)]
    assert made == [status, changed, changed]


def test_a_chain_that_is_kept_goes_on_with_the_journal(service: LiveService, tmp_path: Path) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "go"), "name": "a", "deadline": "10m"})
    wait_until(lambda: service.host.status(A).state == "running")
    kept = HistoryCache(service.host.run_folder)
    with kept.of(A) as history:
        before = decision_steps(history)
    assert before[0].kind == "submitted"
    (tmp_path / "go").touch()
    wait_until(lambda: service.host.has_ended(A))
    with kept.of(A) as history:
        after = decision_steps(history)
        assert decision_steps(history, 1) == after[-1:]
    assert after[-1].kind == "finished"
    assert after == chain(messages_of(service.host.run_folder, [A]), A)


def test_a_text_without_a_forecast_is_made_again_when_the_deadline_has_passed(service: LiveService) -> None:
    service.caller.post("/jobs", {"program": program(), "name": "a", "deadline": "10m"})
    wait_until(lambda: service.host.has_ended(A))
    ended = service.host.status(A)
    status = replace(ended, state="queued", started_at=None, landed_at=None, ended_at=None, forecast=None)
    kept = StatusJsonCache(service.host, lambda status, now, wait: standing_json(service.host, status, now, wait))
    now, deadline_at = service.host.clocks(), status.deadline_at
    assert deadline_at is not None
    assert b'"verdict":null' in kept.of_all([status], now)[0]
    later_s = deadline_at - now.at + 1
    assert (
        b'"verdict":"missed"' in kept.of_all([status], Now(now.at + later_s, now.wall + timedelta(seconds=later_s)))[0]
    )
