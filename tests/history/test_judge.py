"""How jobs stand in words: a table of what is known and what is said."""

from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest
from tests.core.test_verdict import FAILED, LANDED, STATUS, STOPPED, TURNED_AWAY, expecting

from punctual.core.events import PauseRequested
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.pools import Lack, PoolSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.status import JobStatus
from punctual.core.verdict import JobKind
from punctual.daemon.status_reader import standing
from punctual.history.judge import NO_WAIT, Wait, attention, expected_waits, figures, headline, judge
from punctual.request.deadlines import Now

ON_TRACK = expecting(958.0, std_s=2.0, earliest_s=500.0)
AT_RISK = expecting(999.0, std_s=10.0, earliest_s=990.0)
LATE = expecting(1400.0, std_s=2.0, earliest_s=1400.0, feasible=False)
HOLDING = {NodeId("n"): Resources(0.6)}
UNDATED = replace(ON_TRACK, spec=replace(STATUS.spec, deadline_s=None))
QUEUED = replace(STATUS, state="queued")
A, B = JobId("a"), JobId("b")


def clock(at: float, *, about: bool = False) -> str:
    return f"{'about ' * about}@{at:.0f}"


@pytest.mark.parametrize(
    ("status", "at", "kind", "word", "phrase", "said"),
    [
        (ON_TRACK, 200.0, "good", "on track", "lands 42 s early", "On track: lands @1058, ± 3.3 s; due in 15 min"),
        (replace(ON_TRACK, granted=HOLDING), 200.0, "good", "on track", "lands 42 s early", "On track: lands @1058, ± 3.3 s; due in 15 min; holds 0.6 of 2 cores, promised"),
        (expecting(999.9, earliest_s=500.0), 200.0, "good", "on track", "lands on time", "On track: lands @1100, ± 100 ms; due in 15 min"),
        (AT_RISK, 200.0, "risk", "at risk", "may be 15 s late", "At risk: lands @1099, ± 16 s; due in 15 min"),
        (LATE, 200.0, "late", "will be late", "lands 6 min 40 s late", "Late: lands @1500, ± 3.3 s, 6 min 40 s after its deadline; due in 15 min"),
        (LATE, 1130.0, "late", "late", "lands 6 min 40 s late", "Late: lands @1500, ± 3.3 s, 6 min 40 s after its deadline; due 30 s ago"),
        (STATUS, 200.0, "measuring", "measuring", "no progress yet", "Measuring: its speed is not known yet; due in 15 min"),
        (replace(ON_TRACK, rate_sps=0.0), 200.0, "measuring", "measuring", "measures its speed", "Measuring: its speed is not known yet; due in 15 min"),
        (replace(STATUS, state="starting"), 200.0, "measuring", "measuring", "starts", "Measuring: its speed is not known yet; due in 15 min"),
        (STATUS, 1101.0, "late", "late", "deadline passed", "Late: deadline passed; due 1 s ago"),
        (expecting(inf, earliest_s=inf, feasible=False), 200.0, "late", "will be late", "never lands at this pace", "Late: never lands at this pace; due in 15 min"),
        (UNDATED, 200.0, "free", "no deadline", "shares what is free", "Running: lands @1058, ± 3.3 s"),
        (replace(STATUS, spec=UNDATED.spec), 200.0, "free", "no deadline", "shares what is free", "Running: shares what is free"),
        (replace(ON_TRACK, warnings={"stalled": "none"}), 200.0, "risk", "stalled", "no step for a while", "Stalled: no step for a while; due in 15 min"),
        (replace(ON_TRACK, state="paused"), 200.0, "paused", "paused", "paused", "Paused: due in 15 min"),
        (replace(QUEUED, pause=PauseRequested(at=0.0, job=A)), 200.0, "paused", "paused", "paused", "Paused: due in 15 min"),
        (QUEUED, 200.0, "waiting", "waiting", "waits for room", "Waits for room; due in 15 min"),
        (replace(QUEUED, spec=replace(STATUS.spec, after=(B,))), 200.0, "waiting", "waiting", "starts after b", "Starts after b; due in 15 min"),
        (LANDED, 1095.0, "met", "met", "landed 10 s early", "Met: landed 10 s early"),
        (replace(LANDED, landed_at=1100.25, ended_at=1101.0, state="finished"), 1105.0, "missed", "missed", "landed 250 ms late", "Missed: landed 250 ms late; took 17 min"),
        (replace(LANDED, spec=UNDATED.spec, ended_at=1090.0, state="finished"), 1105.0, "done", "done", "took 16 min", "Done: took 16 min"),
        (replace(FAILED, exit_code=3), 600.0, "failed", "failed", "exit status 3", "Failed: exit status 3; took 6 min 40 s"),
        (replace(FAILED, exit_code=None, cause="it was killed by signal 9; the host lacks memory\nmore"), 600.0, "failed", "failed", "it was killed by signal 9", "Failed: it was killed by signal 9; took 6 min 40 s"),
        (STOPPED, 600.0, "stopped", "stopped", "stopped", "Stopped: took 6 min 40 s"),
        (TURNED_AWAY, 600.0, "stopped", "turned away", "turned away", "Turned away: took 6 min 40 s"),
    ],
)  # fmt: skip
def test_a_job_is_judged(status: JobStatus, at: float, kind: JobKind, word: str, phrase: str, said: str) -> None:
    judged = judge(status, at, clock)
    assert (judged.kind, judged.word, judged.phrase) == (kind, word, phrase)
    assert headline(status, judged, at, clock, most_cores=2.0, is_promised=bool(status.granted)) == said


def test_a_job_that_goes_no_faster_with_more_has_no_forecast_of_twice_its_speed() -> None:
    """It holds 0.6 cores and uses less than half of them: at one step a second 990 are left."""
    idle = replace(expecting(150.0, earliest_s=140.0), granted=HOLDING, usage_cores=0.05)
    assert judge(idle, 200.0, clock).kind == "measuring"
    assert judge(replace(idle, usage_cores=0.5), 200.0, clock).kind == "good"
    assert judge(replace(idle, is_held_back=True), 200.0, clock).kind == "good"
    ending = replace(idle, steps_done=998.0)  # it has stayed on its line until its last steps
    assert judge(ending, 249.5, clock).kind == "good"


# What a waiting job waits for.


def running(name: str, lands_s: float, **more: Any) -> JobStatus:
    status = expecting(lands_s, earliest_s=1.0)
    return replace(
        status, **{"spec": replace(status.spec, id=JobId(name)), "granted": HOLDING, "usage_cores": 0.6, **more}
    )


def ended(name: str) -> JobStatus:
    spec = replace(LANDED.spec, id=JobId(name))
    return replace(LANDED, spec=spec, landed_at=150.0, ended_at=151.0, state="finished")


def waiting(
    name: str, *, after: tuple[JobId, ...] = (), memory: bool = False, facts: dict[str, float] | None = None
) -> JobStatus:
    asked = Resources(memory_bytes=1 << 30 if memory else 0)
    spec = JobSpec(id=JobId(name), ceiling=Resources(1.0) + asked, floor=asked, deadline_s=5000.0, after=after)
    reason = Reason("waits", "it waits", facts) if facts else None
    return JobStatus(spec=spec, submitted_at=100.0, reason=reason)


FOR_A_PLACE = {"n_jobs": 2.0}


@pytest.mark.parametrize(
    ("jobs", "wait"),
    [
        ([running("a", 500.0), running("b", 400.0), waiting("w", facts=FOR_A_PLACE)], Wait(500.0, B, 500.0)),
        # It needs more than a place.
        ([running("a", 500.0), running("b", 400.0), waiting("w", memory=True, facts=FOR_A_PLACE)], Wait(None, B, 500.0)),
        ([running("a", 500.0), running("b", 400.0), waiting("w", facts={"needed_bytes": 1.0})], Wait(None, B, 500.0)),
        # All becomes free.
        ([running("b", 400.0), waiting("w", facts={"needed_bytes": 1.0})], Wait(500.0, B, 500.0)),
        # Whose turn it is the policy chooses.
        ([running("b", 400.0), waiting("w", facts=FOR_A_PLACE), waiting("x", facts=FOR_A_PLACE)], Wait(None, B, 500.0)),
        ([running("b", 400.0), waiting("w", facts=FOR_A_PLACE), replace(ON_TRACK, state="paused")], Wait(None, B, 500.0)),
        # One that is not measured yet may end first.
        ([running("a", 500.0, rate_sps=0.0), running("b", 400.0), waiting("w", facts=FOR_A_PLACE)], None),
        ([running("a", inf), waiting("w", facts=FOR_A_PLACE)], None),
        ([waiting("w", facts=FOR_A_PLACE)], None),
        # Nobody says that it waits for the end of a job.
        ([running("b", 400.0), waiting("w")], None),
        ([running("a", 500.0), running("b", 400.0), waiting("w", after=(A, B))], Wait(600.0)),
        ([running("a", 500.0, rate_sps=0.0), running("b", 400.0), waiting("w", after=(A, B))], Wait()),
        ([waiting("w", after=(A,))], Wait()),
        ([ended("a"), running("b", 400.0), waiting("w", after=(A, B))], Wait(500.0, after=(B,))),
        # After those that have ended it waits as any other.
        ([ended("a"), running("b", 400.0), waiting("w", after=(A,), facts=FOR_A_PLACE)], Wait(500.0, B, 500.0, after=())),
        ([ended("a"), waiting("w", after=(A,))], Wait(after=())),
    ],
)  # fmt: skip
def test_the_start_of_a_waiting_job_is_told_only_where_it_is_known(jobs: list[JobStatus], wait: Wait | None) -> None:
    assert expected_waits(jobs, 200.0).get(JobId("w")) == wait


@pytest.mark.parametrize(
    ("wait", "phrase"),
    [
        (NO_WAIT, "waits for room"),
        (Wait(None, B, 500.0), "waits for room: b ends about about @500"),
        (Wait(500.0, B, 500.0), "waits for room: starts about about @500, when b ends"),
    ],
)
def test_a_waiting_job_says_why_and_when(wait: Wait, phrase: str) -> None:
    assert judge(QUEUED, 200.0, clock, wait).phrase == phrase
    after = replace(QUEUED, spec=replace(STATUS.spec, after=(B,)))
    assert judge(after, 200.0, clock, replace(wait, after=())).phrase == phrase


SPOT, TINY = (
    PoolSpec(name=name, capacity=Resources(cores), market="spot") for name, cores in (("spot", 4.0), ("tiny", 0.01))
)


@pytest.mark.parametrize(
    ("lacks", "phrase"),
    [
        ([Lack(SPOT, 2, 0, 7.0)], "waits for 2 machines of pool 'spot', starting since @7"),
        (
            [Lack(SPOT, 0, 3, 7.0, "the quota\n is used up\n", 60.0)],
            "waits for 3 machines of pool 'spot' since @7: the quota is used up; asked for again at @60",
        ),
        (
            [Lack(SPOT, 0, 0, 7.0)],
            "waits for a machine of pool 'spot' since @7: no more can be had; asked for again when there are more",
        ),
        ([Lack(SPOT, 0, 0, 7.0), Lack(SPOT, 1, 0, 8.0)], "waits for a machine of pool 'spot', starting since @8"),
        ([Lack(TINY, 1, 0, 7.0)], "waits for room"),
    ],
)
def test_a_job_that_waits_for_machines_says_which_since_when_why_and_when_they_are_asked_for_again(
    lacks: list[Lack], phrase: str
) -> None:
    job = waiting("w")
    job = replace(job, spec=replace(job.spec, floor=Resources(1.0)))
    wait = expected_waits([job], 100.0, lacks).get(job.id, NO_WAIT)
    judged = judge(job, 100.0, clock, wait)
    assert judged.phrase == phrase
    assert headline(job, judged, 100.0, clock).startswith(phrase.capitalize()[:1] + phrase[1:])


def test_a_job_for_which_no_machine_is_bought_says_why_and_what_is_not_there() -> None:
    job = waiting("w")
    job = replace(job, spec=replace(job.spec, floor=Resources(1.0)))
    lacks = [Lack(SPOT, 0, 0, 7.0)]
    missing = "waits for a machine of pool 'spot' since @7: no more can be had; asked for again when there are more"
    for code, phrase in (("too-dear", f"so it is; {missing}"), ("budget-spent", "so it is")):
        unbought = {job.id: Reason(code, "so it is")}
        wait = expected_waits([job], 100.0, lacks, unbought)[job.id]
        judged = judge(job, 100.0, clock, wait)
        assert judged.phrase == phrase
        assert headline(job, judged, 100.0, clock).startswith(phrase.capitalize()[:1] + phrase[1:])
        assert standing(job, Now(100.0, datetime.now(UTC)), wait)["waits"] == "so it is"
    assert wait.roughly(60.0) != NO_WAIT.roughly(60.0)


def test_jobs_are_counted_by_how_they_stand() -> None:
    kinds: list[JobKind] = [
        "good",
        "good",
        "late",
        "measuring",
        "waiting",
        "met",
        "missed",
        "done",
        "failed",
        "stopped",
    ]
    assert [text for _, text in figures(kinds)] == [
        "2 on track, 1 measuring, 1 waiting", "0 at risk", "1 late", "3 done today (1 late), 1 failed",
    ]  # fmt: skip
    assert min(kinds, key=attention) == "late"
