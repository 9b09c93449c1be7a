"""The decisive event explains how a job stands now: a warning in force, its end, or the last change of its grant."""

import pytest
from tests.history.scene import (
    applied,
    failed,
    finished,
    joined,
    launched,
    node_lost,
    on,
    redeclared,
    reported,
    started,
    submitted,
)

from punctual.core.commands import RejectJob, ResizeJob, WarnUser
from punctual.core.events import Message, PauseRequested
from punctual.core.ids import JobId
from punctual.core.reason import Reason
from punctual.history.decision_trace import decision_steps, decisive_step
from punctual.history.job import JobHistory

A = JobId("a")


def warned(at: float, code: str) -> Message:
    return WarnUser(at=at, job=A, reason=Reason(code, code))


def resized(at: float, gpus: int, request: int, why: str) -> list[Message]:
    held = {"n": gpus} if gpus else {}
    command = ResizeJob(at=at, job=A, request=request, grant=on(held), reason=Reason(why, why))
    return [command, applied(at + 0.1, held, request=request)]


RUNS = [joined(0.0), submitted(0.0, deadline_s=100.0), launched(1.0), started(1.0, {"n": 1}), reported(5.0, 5)]
GROWN = resized(6.0, 2, 2, "grown")
SHRUNK = resized(30.0, 1, 3, "shrunk")


@pytest.mark.parametrize(
    ("messages", "at", "said"),
    [
        (RUNS[:2], 0.0, "submitted"),
        ([*RUNS, *GROWN], 6.0, "grown"),
        # What was asked for again, with another pacing line alone, changes nothing.
        ([*RUNS, *GROWN, *resized(9.0, 2, 3, "again")], 6.0, "grown"),
        # A warning that has no bearing on the deadline.
        ([*RUNS, *GROWN, warned(20.0, "unmeasured-phase")], 6.0, "grown"),
        # Late: the warning, however many grants follow it; until it is revoked.
        ([*RUNS, *GROWN, warned(20.0, "infeasible"), *SHRUNK], 20.0, "infeasible"),
        ([*RUNS, *GROWN, warned(20.0, "infeasible"), *SHRUNK, warned(40.0, "feasible")], 30.0, "shrunk"),
        ([*RUNS, *GROWN, warned(20.0, "infeasible"), warned(25.0, "stalled"), *SHRUNK], 25.0, "stalled"),
        ([*RUNS, *GROWN, warned(20.0, "infeasible"), warned(25.0, "stalled"), warned(26.0, "steps-go-on")], 20.0, "infeasible"),
        ([*RUNS, *GROWN, warned(100.0, "deadline-passed")], 100.0, "deadline-passed"),
        ([*RUNS, *GROWN, warned(100.0, "deadline-passed"), redeclared(101.0, deadline_s=200.0)], 6.0, "grown"),
        ([*RUNS, *GROWN, warned(100.0, "deadline-passed"), redeclared(101.0, deadline_s=100.0, weight=2.0)], 100.0, "deadline-passed"),
        # Landed in time against the forecast, and landed late.
        ([*RUNS, *GROWN, warned(20.0, "infeasible"), reported(90.0, 100, landed=True)], 6.0, "grown"),
        ([*RUNS, warned(100.0, "deadline-passed"), reported(101.0, 100, landed=True)], 100.0, "deadline-passed"),
        # It holds nothing: it is neither late nor stalled, but paused, or waits.
        ([*RUNS, warned(20.0, "infeasible"), PauseRequested(at=30.0, job=A), *resized(30.0, 0, 2, "paused")], 30.0, "paused"),
        ([*RUNS, warned(20.0, "stalled"), failed(30.0, retryable=True)], 30.0, "failed"),
        ([*RUNS, node_lost(30.0), warned(31.0, "waits")], 31.0, "waits"),
        ([*RUNS, warned(20.0, "stalled"), failed(30.0, retryable=True), launched(40.0, request=4), started(40.0, {"n": 1}, request=4)], 40.0, "r"),
        # Its end.
        ([*RUNS, warned(20.0, "infeasible"), finished(90.0)], 90.0, "finished"),
        ([*RUNS, warned(20.0, "infeasible"), failed(90.0)], 90.0, "failed"),
        ([*RUNS[:2], RejectJob(at=2.0, job=A, reason=Reason("too-large", "too large"))], 2.0, "too large"),
    ],
)  # fmt: skip
def test_the_decisive_event(messages: list[Message], at: float, said: str) -> None:
    history = JobHistory(A)
    for message in messages:
        history.take(message)
    decisive = decisive_step(history)
    assert decisive is not None
    assert (decisive.elapsed_s, said in decisive.text) == (at, True)
    assert decisive in decision_steps(history)


def test_nothing_is_decisive_before_a_submission() -> None:
    assert decisive_step(JobHistory(A)) is None
