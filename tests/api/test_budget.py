"""Over HTTP: who held how many cores, and what is planned."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.api.live_service import LiveService, program
from tests.waiting import wait_until

from punctual.api import budget_cache
from punctual.api.budget_cache import BudgetCache
from punctual.api.budget_routes import _shares
from punctual.core.events import JobFinished, JobStarted, JobSubmitted, NodeLost, SteeringResumed
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.daemon.run_folder import create_run
from punctual.journal.sqlite import SqliteJournal

NODE = NodeId("local")


def budget(service: LiveService, query: str = "") -> Any:
    reply = service.caller.get(f"/budget/history{query}")
    assert reply.status == 200, reply.body
    return reply.json()


def ended(service: LiveService, name: str) -> Any:
    return wait_until(lambda: service.caller.get(f"/jobs/{name}").json(), lambda told: told["ended"] is not None)


def test_before_any_job_there_is_nothing_held_and_nothing_planned(service: LiveService) -> None:
    told = budget(service)
    assert (told["held"], told["planned"]) == ([], [])
    assert told["capacityCores"] > 0


def test_what_is_told_as_held_is_what_the_journal_says(service: LiveService, tmp_path: Path) -> None:
    go = tmp_path / "go"
    service.caller.post("/jobs", {"program": program(go), "name": "a", "cores": "1"})
    wait_until(lambda: service.caller.get("/jobs/a").json(), lambda told: (told["grantedCores"] or 0) > 0)
    assert [share["job"] for share in budget(service)["held"]] == ["a"], "also while it holds them"
    go.touch()
    ended(service, "a")
    told = budget(service, "?hours=0.5&points=400")
    (share,) = told["held"]
    lasts_s = (datetime.fromisoformat(told["until"]) - datetime.fromisoformat(told["since"])).total_seconds()
    status = service.host.status(JobId("a"))
    assert status.ended_at is not None
    assert len(share["cores"]) == 400
    assert sum(share["cores"]) * lasts_s / 400 <= 1.01 * (status.ended_at - status.submitted_at) * told["capacityCores"]
    assert share["cores"][0] == 0 < max(share["cores"])
    assert told["planned"] == []


def submitted(job: str) -> JobSubmitted:
    return JobSubmitted(at=0.0, spec=JobSpec(id=JobId(job), ceiling=Resources(4.0)))


def holds(job: str, at: float, cores: float) -> JobStarted:
    return JobStarted(at=at, job=JobId(job), request=1, granted={NODE: Resources(cores)} if cores else {})


def kept_of(*changes: JobStarted | JobFinished) -> BudgetCache:
    """The budget of a run whose journal has these messages, and the submissions of their jobs."""
    messages = [*map(submitted, dict.fromkeys(change.job for change in changes)), *changes]
    run = create_run("host")
    with SqliteJournal(run.journal) as journal:
        journal.append(list(messages))
    return BudgetCache(run)


def test_one_node_s_cores_are_told_alone() -> None:
    there = NodeId("there")
    spread = JobStarted(at=10.0, job=JobId("a"), request=1, granted={NODE: Resources(1.0), there: Resources(2.0)})
    kept, edges_at = kept_of(spread, holds("b", 10.0, 3.0)), np.array([10.0, 20.0])
    told = {node: {job: list(cores) for job, cores in kept.means(edges_at, node).items()} for node in (None, there)}
    assert told == {None: {"a": [3.0], "b": [3.0]}, there: {"a": [2.0]}}


def test_a_node_s_budget_is_its_own(service: LiveService, tmp_path: Path) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "go"), "name": "a", "cores": "1"})
    wait_until(lambda: service.caller.get("/jobs/a").json(), lambda told: (told["grantedCores"] or 0) > 0)
    here, nowhere = budget(service, "?node=local"), service.caller.get("/budget/history?node=nowhere")
    assert [share["job"] for share in here["held"]] == ["a"]
    assert here["capacityCores"] == budget(service)["capacityCores"] > 0
    assert (nowhere.status, "no node 'nowhere'" in nowhere.json()["detail"]) == (404, True)


def test_a_change_is_told_as_the_mean_of_the_part_it_lies_in() -> None:
    changes = [holds("a", at, cores) for at, cores in ((10.0, 2.0), (11.0, 2.0), (15.0, 1.0), (25.0, 0.0))]
    kept = kept_of(*changes, holds("b", 40.0, 3.0))
    means = kept.means(np.array([0.0, 10.0, 20.0, 30.0]))
    assert {job: list(cores) for job, cores in means.items()} == {"a": [0.0, 1.5, 0.5]}
    assert list(kept.means(np.array([30.0, 50.0]))[JobId("b")]) == [1.5]


def test_what_jobs_no_longer_hold_when_a_node_is_lost_or_another_process_steers_is_told_no_more() -> None:
    run, other = create_run("host"), NodeId("other")
    edges_at = np.array([0.0, 10.0, 20.0, 30.0])
    with SqliteJournal(run.journal) as journal:
        journal.append([
            submitted("a"),
            submitted("b"),
            JobStarted(at=0.0, job=JobId("a"), request=1, granted={NODE: Resources(2.0)}),
            JobStarted(at=0.0, job=JobId("b"), request=1, granted={NODE: Resources(2.0), other: Resources(1.0)}),
            NodeLost(at=10.0, node=other),
        ])  # fmt: skip
        kept = BudgetCache(run)
        assert list(kept.means(edges_at)[JobId("b")]) == [3.0, 2.0, 2.0]
        journal.append([SteeringResumed(at=25.0, lost_at=20.0, granted={JobId("b"): {NODE: Resources(1.0)}})])
        means = kept.means(edges_at)
    assert {job: list(cores) for job, cores in means.items()} == {"a": [2.0, 2.0, 0.0], "b": [3.0, 2.0, 1.0]}


def test_where_there_is_no_room_a_job_that_holds_something_is_told_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budget_cache, "_N_CHANGES_MAX", 10)
    kept = kept_of(
        holds("steady", 0.0, 1.0),
        *[holds("ended", float(i), 1.0 - i % 2) for i in range(8)],
        JobFinished(at=8.0, job=JobId("ended"), landed_at=8.0),
        *[holds("changing", 10.0 + i, 1.0 + i % 2) for i in range(40)],
    )
    earlier = {job: list(cores) for job, cores in kept.means(np.array([0.0, 10.0, 40.0])).items()}
    assert earlier == {"steady": [1.0, 1.0]}, "the rest is forgotten"
    means = {job: list(cores) for job, cores in kept.means(np.array([46.0, 48.0, 50.0])).items()}
    assert means == {"steady": [1.0, 1.0], "changing": [1.5, 1.5]}


def test_of_many_jobs_the_largest_are_told_one_by_one() -> None:
    means = {JobId(f"j{n}"): np.array([0.0, float(n + 1)]) for n in range(20)}
    shares = _shares(means)
    assert [share.job for share in shares] == [*(f"j{n}" for n in range(8, 20)), None]
    assert shares[-1].cores == [0.0, sum(range(1, 9))]


def test_a_promise_is_planned_until_it_is_due(service: LiveService) -> None:
    assert service.caller.send("PUT", "/policy", {"name": "promises-first"}).status == 200
    asked = {"program": ["sleep", "100"], "name": "a", "deadline": "20h", "work": "1h", "cores": "1", "guarantee": True}
    assert service.caller.post("/jobs", asked).status == 201
    wait_until(lambda: service.caller.get("/jobs/a").json(), lambda told: told["promisedUntil"] is not None)
    (planned,) = wait_until(lambda: budget(service)["planned"])
    until = datetime.fromisoformat(service.caller.get("/jobs/a").json()["promisedUntil"])
    assert (planned["job"], planned["promised"]) == ("a", True)
    # Both are reckoned from the two clocks, a little later one.
    assert abs(datetime.fromisoformat(planned["until"]) - until) < timedelta(seconds=1)
    assert 0 < planned["cores"] <= 1


def test_a_window_that_cannot_be_is_refused(service: LiveService) -> None:
    assert service.caller.get("/budget/history?hours=1e-300").status == 422
    assert [
        service.caller.get(f"/budget/history?{query}").status for query in ("hours=0", "points=1", "points=501")
    ] == [422] * 3
