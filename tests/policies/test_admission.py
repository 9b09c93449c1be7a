"""`earliest-deadline` with admission: who is turned away."""

from dataclasses import replace

from tests.policies.pictures import counts, decide, job

from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.policies.earliest_deadline import EarliestDeadline

EDF = EarliestDeadline(admission=True)
DATED = (("can", 41.0), ("cannot", 39.0))


def decided(*jobs: JobView, carry: object = None) -> Plan:
    return decide(EDF, jobs, {"n": 4}, carry=carry)


def test_who_would_be_late_is_declined() -> None:
    plan = decided(job("a", 4, steps=100.0, deadline_s=24.0))
    assert {name: found.text for name, found in plan.declines.items()} == {
        "a": "declined: it would be late; its deadline is in 24 s"
    }
    assert not plan.grants
    assert not decided(job("a", 4, steps=100.0, deadline_s=25.0)).declines


def test_who_would_make_another_one_late_is_declined() -> None:
    known = job("a", 4, steps=100.0, deadline_s=30.0, on={"n": 4}, preemptible=True)
    plan = decided(known, job("b", 4, steps=40.0, deadline_s=20.0))
    assert plan.declines[next(iter(plan.declines))].text.startswith("declined: 'a' would be late")
    assert counts(plan, [known]) == {"a": 4}


def test_there_is_room_beside_and_after() -> None:
    jobs = [job("a", 2, steps=40.0, deadline_s=20.0), job("b", 2, steps=40.0, deadline_s=21.0), job("c", 4, steps=40.0, deadline_s=31.0)]  # fmt: skip
    plan = decided(*jobs)
    assert not plan.declines
    assert isinstance(plan.carry, dict)
    assert plan.carry["admitted"] == ["a", "b", "c"]
    assert counts(plan, jobs) == {"a": 2, "b": 2}


def test_who_was_let_in_stays() -> None:
    late = job("a", 4, steps=100.0, deadline_s=10.0)
    assert not decided(late, carry={"admitted": ["a"]}).declines
    assert not decided(replace(late, started_at=1.0)).declines


def test_a_late_job_keeps_nobody_out() -> None:
    late = job("a", 4, steps=100.0, deadline_s=10.0, on={"n": 4})
    assert not decided(late, job("b", 4, steps=40.0, deadline_s=40.0)).declines


def test_what_is_not_known_is_let_in() -> None:
    assert not decided(job("a", 4, deadline_s=1.0), job("b", 4, steps=1e9)).declines


def test_a_job_that_holds_neither_devices_nor_cores_is_judged_too() -> None:
    roomy = {"n": Resources(4.0, memory_bytes=8)}
    jobs = [
        job(name, 1, steps=40.0, worker=Resources(memory_bytes=4), deadline_s=deadline_s) for name, deadline_s in DATED
    ]
    plan = decide(EDF, jobs, roomy)
    assert set(plan.grants) == {"can"}
    assert set(plan.declines) == {"cannot"}


def test_without_admission_nobody_is_declined() -> None:
    plan = decide(EarliestDeadline(), [job("a", 4, steps=100.0, deadline_s=24.0)], {"n": 4})
    assert not plan.declines
