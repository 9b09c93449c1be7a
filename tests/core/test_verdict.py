"""What is said of a job against its deadline: a table of what is known and what follows."""

from dataclasses import replace
from math import inf

import pytest

from punctual.core.control import Forecast
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.status import JobStatus
from punctual.core.verdict import RemainingTime, Verdict, remaining_time, slack_s, verdict

#: Submitted at 100, due 1000 seconds later.
STATUS = JobStatus(
    spec=JobSpec(id=JobId("a"), ceiling=Resources(1.0), deadline_s=1000.0), submitted_at=100.0, state="running"
)


def expecting(finish_s: float, std_s: float = 0.0, earliest_s: float = 0.0, *, feasible: bool = True) -> JobStatus:
    forecast = Forecast(finish_s=finish_s, std_s=std_s, earliest_finish_s=earliest_s, feasible=feasible)
    return replace(STATUS, forecast=forecast, steps_done=10.0, steps_total=1000.0, rate_sps=1.0)


LANDED = replace(STATUS, landed=True, landed_at=1090.0)
FAILED = replace(expecting(900.0), state="failed", ended_at=500.0)
STOPPED = replace(FAILED, state="stopped")
TURNED_AWAY = replace(FAILED, state="turned away")


@pytest.mark.parametrize(
    ("status", "at", "said"),
    [
        (STATUS, 200.0, None),
        (replace(STATUS, spec=replace(STATUS.spec, deadline_s=None)), 200.0, None),
        (STATUS, 1100.5, "missed"),
        (expecting(999.0, earliest_s=500.0), 200.0, "on_track"),
        (expecting(1000.0, std_s=5.0, earliest_s=500.0), 200.0, "on_track"),  # steered to its deadline
        (expecting(999.0, std_s=10.0, earliest_s=990.0), 200.0, "at_risk"),  # late at full speed, if it goes badly
        (expecting(1100.0, std_s=10.0, earliest_s=500.0), 200.0, "at_risk"),  # others have what it needs
        (expecting(1100.0, earliest_s=1100.0, feasible=False), 200.0, "infeasible"),
        (expecting(inf, earliest_s=500.0), 200.0, "at_risk"),  # it holds nothing
        (LANDED, 1095.0, "met"),
        (LANDED, 5000.0, "met"),
        (replace(LANDED, landed_at=1101.0), 1102.0, "missed"),
        (FAILED, 600.0, None),  # its state says it; the deadline is still to come
        (FAILED, 1100.5, "missed"),
        (STOPPED, 600.0, None),
        (STOPPED, 1100.5, None),
        (TURNED_AWAY, 1100.5, None),
        (replace(LANDED, state="stopped"), 1100.5, "met"),  # it was leaving already
    ],
)
def test_verdicts(status: JobStatus, at: float, said: Verdict | None) -> None:
    assert verdict(status, at) == said


def test_the_remaining_time_counts_from_now_and_is_never_below_zero() -> None:
    assert remaining_time(expecting(500.0), 200.0) == RemainingTime(400.0, 400.0, 400.0)
    spread = remaining_time(expecting(500.0, std_s=300.0), 200.0)
    assert spread is not None
    assert (spread.low_s, spread.high_s) == (0.0, 400.0 + 300.0 * 1.645)
    assert remaining_time(expecting(500.0), 10_000.0) == RemainingTime(0.0, 0.0, 0.0)
    assert remaining_time(LANDED, 200.0) == RemainingTime(0.0, 0.0, 0.0)
    assert remaining_time(FAILED, 600.0) is None
    assert remaining_time(STATUS, 200.0) is None


def test_slack_is_what_is_left_at_full_speed() -> None:
    assert slack_s(expecting(999.0, earliest_s=400.0), 200.0) == 600.0
    assert slack_s(LANDED, 200.0) == 10.0
    assert slack_s(STATUS, 200.0) is None
    assert slack_s(FAILED, 200.0) is None


def test_the_slack_of_a_job_that_holds_nothing_shrinks_as_time_passes() -> None:
    paused = replace(expecting(999.0, earliest_s=400.0), state="paused", forecast_at=300.0)
    assert [slack_s(paused, at) for at in (300.0, 500.0, 950.0)] == [600.0, 400.0, -50.0]
    assert [verdict(paused, at) for at in (800.0, 950.0)] == ["on_track", "at_risk"]
    running = replace(paused, state="running", granted={NodeId("local"): Resources(1.0)})
    assert slack_s(running, 950.0) == 600.0
