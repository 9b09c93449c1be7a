"""Jobs of a journal, played again: the same policy does the same, another one does something else."""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from punctual.core.cluster import Node
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    Event,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    Message,
    NodeJoined,
    NodeLost,
    PauseRequested,
    PolicyChanged,
    ProgressReported,
    ResumeRequested,
    SpecChanged,
    StopRequested,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.speed import Shape
from punctual.journal.compaction import CompactionRules
from punctual.journal.sqlite import SqliteJournal
from punctual.sim import parts
from punctual.sim.api import simulate
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.recorded import ProportionalSpeed, RecordedLoad, recorded_load
from punctual.sim.recording import AS_IT_WAS
from punctual.sim.result import Result
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import AllReduceTruth
from punctual.sim.traces import read

HERE = Node(NodeId("here"), Resources(cores=2.0, memory_bytes=2**30))
RAN = "promises-first"


def spec(i_job: int, **declared: Any) -> JobSpec:
    fields = {
        "work_steps": 100.0,
        "deadline_s": 60.0 + 45.0 * (i_job % 4),
        "preemptible": True,
        "startup_s": 2.0,
        **declared,
    }
    return JobSpec(id=JobId(f"job-{i_job}"), floor=Resources(cores=0.1), ceiling=Resources(cores=2.0), **fields)


def jobs(n_jobs: int = 5) -> list[SimJob]:
    """Jobs whose last half costs twice as much; together they are too much for the machine."""
    return [
        SimJob(10.0 * i, spec(i), cheap, 100.0, phases=((0.0, cheap), (50.0, dear)))
        for i, cheap, dear in (
            (i, ProportionalSpeed(step_cost=cost), ProportionalSpeed(step_cost=2 * cost))
            for i, cost in ((i, 0.3 + 0.1 * (i * 7 % 5)) for i in range(n_jobs))
        )
    ]


def lived(**changes: Any) -> list[Message]:
    """The messages of a host with these jobs."""
    messages: list[Message] = []
    parts_of_it = {
        "nodes": [HERE],
        "policy": parts.kind("policies", RAN)(),
        "controllers": parts.by_default("controllers", ["remaining-cost"]),
        "physics": Physics(resize_s=0.1),
        "listeners": [messages.append],
    }
    Simulation(changes.pop("jobs", None) or jobs(), **{**parts_of_it, **changes}).run()
    return messages


def journal_of(messages: Iterable[Message], folder: Path) -> Path:
    path = folder / f"journal-{secrets.token_hex(4)}.db"
    with SqliteJournal(path) as journal:
        journal.append(messages)
    return path


def replay(messages: Iterable[Message], folder: Path, *others: str, **trace: Any) -> Result:
    """Simulate the jobs of a journal under the policy that ran, and under others."""
    trace = {"file": str(journal_of(messages, folder)), **trace}
    return simulate(policies=list(others), trace=trace, out=folder / "out")


def landings(messages: list[Message]) -> dict[JobId, float]:
    return {message.job: message.landed_at for message in messages if isinstance(message, JobFinished)}


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    return lived()


def total_cost(job: SimJob) -> float:
    ends = [*(begin for begin, _ in job.phases[1:]), job.work_steps]
    return sum(
        100.0 / truth.rate_sps(Shape(cores=100.0)) * (end - begin)
        for (begin, truth), end in zip(job.phases, ends, strict=True)
    )


def test_each_job_has_the_work_that_it_turned_out_to_need(messages: list[Message]) -> None:
    load = recorded_load(messages)
    assert not load.left_out
    assert not load.estimated
    assert [job.spec for job in load.jobs] == [job.spec for job in jobs()]
    assert [job.submitted_at for job in load.jobs] == [job.submitted_at for job in jobs()]
    for recorded, true in zip(load.jobs, jobs(), strict=True):
        assert total_cost(recorded) == pytest.approx(total_cost(true), rel=1e-6)
    assert (load.startup_s, load.resize_s) == pytest.approx((2.0, 0.1))


def test_the_same_policy_lands_jobs_where_they_landed_and_another_does_not(
    messages: list[Message], tmp_path: Path
) -> None:
    played = replay(messages, tmp_path, "fifo")
    live, again, fifo = played.runs
    assert [live.policy, again.policy, fifo.policy] == [AS_IT_WAS, f"{RAN}, replayed", "fifo"]
    assert dict(zip(live.jobs["id"], live.jobs["landed_at"], strict=True)) == pytest.approx(landings(messages))
    # A stretch between two reports has one speed: that is the model's accuracy here.
    assert list(again.jobs["landed_at"]) == pytest.approx(list(live.jobs["landed_at"]), abs=1.0)
    assert max(abs(fifo.jobs["landed_at"] - live.jobs["landed_at"])) > 30.0
    agreement = played.faithfulness
    assert agreement is not None
    assert (agreement.n_landed, agreement.n_same) == (5, 5)


def test_a_journal_is_a_trace_like_others(messages: list[Message], tmp_path: Path) -> None:
    path = journal_of(messages, tmp_path)
    trace = read(path)
    assert (trace.format, trace.bad.n_rows) == ("live-journal", 0)
    assert [(job.id, job.deadline_s) for job in trace] == [(job.spec.id, job.spec.deadline_s) for job in jobs()]
    failing: list[Message] = [reported(20.0, 10.0), JobFailed(at=11.0, job=JobId("job-0"), cause="exit 1", exit_code=1)]
    trace = read(journal_of(messages_of(*failing), tmp_path))
    assert list(trace) == []
    assert "job 'job-0': it failed" in trace.bad.rows[0].reason


def test_on_another_machine_no_node_comes_or_goes_as_it_did(messages: list[Message], tmp_path: Path) -> None:
    twice = simulate(trace=str(journal_of(messages, tmp_path)), cluster=[{"cores": 4.0}], policies=[], out=tmp_path)
    live, again = twice.runs
    assert list(again.jobs["on_time"]).count(True) > list(live.jobs["on_time"]).count(True)


def test_a_journal_that_was_thinned_out_is_played_too(messages: list[Message], tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        journal.append(messages)
        last = journal.last_sequence
        journal.thin(CompactionRules().take(journal.rows_from(1, last)), last)
    with SqliteJournal(tmp_path / "journal.db", read_only=True) as journal:
        kept = [message for _, message in journal.read_from(1)]
    assert len(kept) < len(messages) / 2
    whole, thinned = recorded_load(messages), recorded_load(kept)
    assert [total_cost(job) for job in thinned.jobs] == pytest.approx([total_cost(job) for job in whole.jobs])
    played = replay(kept, tmp_path)
    live, again = played.runs
    assert list(again.jobs["landed_at"]) == pytest.approx(list(live.jobs["landed_at"]), abs=5.0)


def test_of_a_journal_the_jobs_of_a_period_are_played(messages: list[Message], tmp_path: Path) -> None:
    """Submitted every 10 s: three of the five, beside which the others held the machine."""
    played = replay(messages, tmp_path, "fifo", start_s=10.0, end_s=40.0)
    for run in played.runs:
        assert list(run.jobs["id"]) == ["job-1", "job-2", "job-3"]
        assert list(run.jobs["submitted_at"]) == [10.0, 20.0, 30.0]
    assert played.load is not None
    assert (played.load.n_outside, played.load.left_out) == (2, {})
    live = played.runs[0].jobs
    assert list(live["landed_at"]) == [landings(messages)[job] for job in live["id"]]
    with pytest.raises(InvalidSpec, match="5 that were not submitted in the time asked for"):
        replay(messages, tmp_path, start_s=1e9)


def test_where_the_policy_was_changed_the_one_before_is_replayed_first(tmp_path: Path) -> None:
    messages = lived(
        policy=parts.kind("policies", "fifo")(), events=[PolicyChanged(at=25.0, policy=RAN, before="fifo")]
    )
    played = replay(messages, tmp_path)
    assert [run.policy for run in played.runs] == [AS_IT_WAS, "fifo and others, replayed"]
    live, again = played.runs
    assert list(again.jobs["landed_at"]) == pytest.approx(list(live.jobs["landed_at"]), abs=5.0)


def test_a_training_that_declares_its_steps_once_it_runs_does_so_again(tmp_path: Path) -> None:
    undeclared = [
        SimJob(job.submitted_at, spec(i, work_steps=None), job.truth, 100.0, phases=job.phases, declared_steps=100.0)
        for i, job in enumerate(jobs(2))
    ]
    messages = lived(jobs=undeclared)
    played = replay(messages, tmp_path)
    live, again = played.runs
    # Steered to their deadlines, which nobody can who does not know how much is left.
    assert all(job["landed_at"] > job["submitted_at"] + 0.9 * job["deadline_s"] for job in live.jobs.to_dicts())
    assert list(again.jobs["landed_at"]) == pytest.approx(list(live.jobs["landed_at"]), abs=1.0)


def test_what_users_did_is_done_again(tmp_path: Path) -> None:
    job = JobId("job-1")
    events: list[Event] = [
        SpecChanged(at=30.0, spec=spec(0, deadline_s=300.0)),
        PauseRequested(at=35.0, job=job),
        ResumeRequested(at=90.0, job=job),
        StopRequested(at=40.0, job=JobId("job-2"), cause="no more"),
    ]
    messages = lived(events=events)
    load = recorded_load(messages)
    assert [event for event in load.events if not isinstance(event, NodeJoined)] == sorted(
        events, key=lambda event: event.at
    )
    assert load.estimated.keys() == {"job-2"}
    live, again = replay(messages, tmp_path).runs
    assert list(again.jobs["status"]) == list(live.jobs["status"])
    assert list(again.jobs["deadline_s"]) == list(live.jobs["deadline_s"])


def test_a_machine_that_was_given_up_before_it_joined_is_no_node_of_the_replay(tmp_path: Path) -> None:
    messages = lived()
    i = next(i for i, message in enumerate(messages) if message.at >= 30.0)
    messages.insert(i, NodeLost(at=30.0, node=NodeId("spot-0")))
    live, again = replay(messages, tmp_path).runs
    assert list(again.jobs["landed_at"]) == pytest.approx(list(live.jobs["landed_at"]), abs=5.0)


def messages_of(*more: Message, **declared: Any) -> Iterator[Message]:
    yield NodeJoined(at=0.0, node=HERE.id, capacity=HERE.capacity)
    yield JobSubmitted(at=0.0, spec=spec(0, **declared))
    yield from more


def load_of(*more: Message, **declared: Any) -> RecordedLoad:
    return recorded_load(messages_of(*more, **declared))


def reported(steps: float, core_s: float, process_at: float = 0.0) -> ProgressReported:
    at = process_at + core_s
    return ProgressReported(
        at=at, job=JobId("job-0"), steps_done=steps, steps_total=100.0, unit_at=at, used_core_s=core_s
    )


def test_a_job_that_goes_on_is_estimated_from_the_steps_it_has_done() -> None:
    load = load_of(reported(20.0, 10.0))
    assert load.estimated == {"job-0": "not ended: the steps left cost as much as those done"}
    assert total_cost(load.jobs[0]) == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ((), "not ended, and nothing says what it would have needed"),
        (
            (reported(20.0, 10.0), JobFailed(at=11.0, job=JobId("job-0"), cause="exit 1", exit_code=1)),
            "it failed: what it would have needed is not known",
        ),
    ],
)
def test_a_job_whose_work_is_not_known_is_left_out_and_told(
    more: tuple[Message, ...], why: str, tmp_path: Path
) -> None:
    assert load_of(*more).left_out == {"job-0": why}
    with pytest.raises(InvalidSpec) as error:
        replay(messages_of(*more), tmp_path, "fifo")
    assert error.value.must == "a journal must have jobs whose work is known"
    assert why in error.value.remedy


def test_a_job_that_told_of_no_steps_takes_what_it_held() -> None:
    started = JobStarted(at=1.0, job=JobId("job-0"), request=1, granted={HERE.id: Resources(cores=0.5)})
    load = load_of(started, JobFinished(at=11.0, job=JobId("job-0"), landed_at=11.0))
    assert load.estimated == {"job-0": "it told of no steps: its work is what it held until its end"}
    assert (load.jobs[0].work_steps, load.jobs[0].truth.rate_sps(Shape(cores=0.5))) == (100.0, pytest.approx(10.0))


def test_a_job_is_no_faster_than_it_was_seen_to_be_where_its_grant_did_not_hold_it_back() -> None:
    started = JobStarted(at=0.0, job=JobId("job-0"), request=1, granted={HERE.id: Resources(cores=2.0)})
    landed = JobFinished(at=51.0, job=JobId("job-0"), landed_at=50.0)
    (job,) = load_of(started, reported(0.0, 0.0), reported(50.0, 25.0), reported(100.0, 50.0), landed).jobs
    assert job.truth.rate_sps(Shape(cores=2.0)) == job.truth.rate_sps(Shape(cores=1.0)) == pytest.approx(2.0)


def test_what_a_failed_process_had_done_already_is_not_counted_twice() -> None:
    again = [reported(10.0, 5.0, 13.0), reported(20.0, 9.0, 13.0), reported(100.0, 49.0, 13.0)]
    failed = JobFailed(at=12.0, job=JobId("job-0"), cause="exit 1", retryable=True)
    landed = JobFinished(at=63.0, job=JobId("job-0"), landed_at=63.0)
    (job,) = load_of(reported(0.0, 0.0), reported(20.0, 10.0), failed, *again, landed).jobs
    # 20 steps for 10 core-seconds, and from where the second process was as far, 80 for 40.
    assert total_cost(job) == pytest.approx(50.0)


def test_a_lost_node_costs_a_job_nothing_while_it_waits() -> None:
    gpu, job = Resources(gpus=1), JobId("job-0")
    held = {HERE.id: gpu}
    messages: list[Message] = [
        JobSubmitted(at=0.0, spec=replace(spec(0), worker=gpu, counts=(1, 2), floor=gpu, ceiling=gpu * 2)),
        JobStarted(at=0.0, job=job, request=1, granted=held),
        reported(40.0, 40.0),
        NodeLost(at=40.0, node=HERE.id),
        JobStarted(at=100.0, job=job, request=5, granted=held),
        reported(40.0, 0.0, 100.0),
        reported(100.0, 60.0, 100.0),
        JobFinished(at=160.0, job=job, landed_at=160.0),
    ]
    (played,) = recorded_load(messages).jobs
    assert isinstance(played.truth, ProportionalSpeed)
    assert played.truth.step_cost == pytest.approx(1.0)


def test_a_job_with_devices_takes_the_time_for_which_it_held_workers(tmp_path: Path) -> None:
    law = AllReduceTruth(step_s=1.0, communication_frac=0.0)
    gpu = Resources(gpus=1)
    trained = JobSpec(
        id=JobId("devices"), worker=gpu, counts=(1, 2), floor=gpu, ceiling=gpu * 2, work_steps=100.0, controller=None
    )
    node = Node(NodeId("here"), Resources(cores=8.0, gpus=2, memory_bytes=2**30))
    messages = lived(jobs=[SimJob(0.0, trained, law, 100.0)], nodes=[node])
    (job,) = recorded_load(messages).jobs
    assert isinstance(job.truth, ProportionalSpeed)
    assert (job.truth.by_workers, job.truth.step_cost) == (True, pytest.approx(1.0))
    live, again = replay(messages, tmp_path).runs
    assert list(again.jobs["landed_at"]) == pytest.approx(list(live.jobs["landed_at"]))
