"""Lanes of `punctual ps --watch` and of several jobs that one command waits for."""

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from punctual.cli import ps
from punctual.cli._lanes import Lanes, fold_ended
from punctual.core.control import Forecast
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.status import JobStatus
from punctual.daemon.status_reader import standing
from punctual.history.judge import NO_WAIT, expected_waits
from punctual.request.deadlines import Now

NOW = Now(50_000.0, datetime(2026, 11, 27, 14, 32, 10).astimezone())
MINUTE = 60.0


def job(name: str, due: float | None = 40.0, lands: float | None = 39.0, **more: Any) -> JobStatus:
    """A job that has run for 20 minutes; `due`, `lands`: minutes from now."""
    submitted_at = NOW.at - 21 * MINUTE
    ahead = {"due": due, "lands": lands}
    spec = JobSpec(
        id=JobId(name),
        ceiling=Resources(2.0),
        deadline_s=None if due is None else 60 * (due + 21),
        after=more.pop("after", ()),
    )
    finish_s = 0.0 if lands is None else 60 * (lands + 21)
    forecast = Forecast(
        finish_s=finish_s,
        std_s=more.pop("std_s", 20.0),
        earliest_finish_s=finish_s - 30.0,
        feasible=more.pop("feasible", True),
    )
    told: dict[str, Any] = {
        "state": "running", "started_at": submitted_at + 60, "granted": {NodeId("local"): Resources(0.6)},
        "usage_cores": 0.6, "steps_done": 330.0, "steps_total": 1000.0, "rate_sps": 2.0,
        "forecast": None if ahead["lands"] is None else forecast,
    }  # fmt: skip
    return replace(JobStatus(spec=spec, submitted_at=submitted_at), **{**told, **more})


def queued(name: str, **more: Any) -> JobStatus:
    return job(name, lands=None, state="queued", started_at=None, granted={}, **more)


def ended(name: str, due: float = -2.0, **more: Any) -> JobStatus:
    at = NOW.at - 3 * MINUTE
    return job(name, due, None, **{"state": "finished", "granted": {}, "landed_at": at, "ended_at": at, **more})


def rows(*jobs: JobStatus) -> list[dict[str, Any]]:
    waits = expected_waits(jobs, NOW.at)
    host = {"host": "service", "host_cores": 2.0, "host_free_cores": 0.2, "policy": "fifo"}
    return [{**standing(each, NOW, waits.get(each.id, NO_WAIT)), **host} for each in jobs]


def lines_of(told: Sequence[dict[str, Any]], width: int) -> list[str]:
    return [line.plain.rstrip() for line in Lanes(told, NOW.wall, width).lines()]


LATE = job("late-job", 25.0, 31.0, feasible=False)
RISK = job("risky", 42.0, 41.5, std_s=60.0)
GOOD = job("good")
ALL = [GOOD, queued("waits", due=60.0, after=(JobId("good"),)), LATE, ended("past"), job("free", None), RISK]


def test_what_needs_attention_comes_first() -> None:
    head, *lines = lines_of(rows(*ALL), 100)
    assert [line.split()[1] for line in lines] == ["late-job", "risky", "good", "free", "waits", "past"]
    assert [line[0] for line in lines] == list("✖▲●○…✔"), "each kind has a shape of its own"
    assert "now" in head


def test_a_job_that_starts_too_late_comes_before_others_that_wait() -> None:
    told = rows(job("resnet"), queued("soon", due=10.0), queued("hopeless", due=38.0, after=(JobId("resnet"),)))
    assert [row["job"] for row in Lanes(told, NOW.wall, 120).rows] == ["resnet", "hopeless", "soon"]


def test_a_lane_is_solid_up_to_now_whatever_is_done_and_has_the_forecast_and_the_deadline() -> None:
    _, late, risk, *_ = lines_of(rows(*ALL), 100)
    assert late.index("━") < late.index("│") < late.index("─") < late.index("⚑") < late.index("▒"), late
    assert late.rindex("━") + 1 == late.index("│"), late
    (_, slow) = lines_of(rows(job("late-job", 25.0, 31.0, feasible=False, steps_done=1.0)), 100)
    assert slow.count("━") >= 10, "little is done, but much time is gone"
    assert late.endswith("lands 6 min late")
    assert risk.endswith("may be 1 min 9 s late")
    wait = lines_of(rows(*ALL), 100)[5]
    assert "├" in wait, "where it is expected to start"
    assert wait.endswith("starts after good, not before 15:11"), wait


def test_a_forecast_that_cannot_be_believed_yet_is_not_drawn() -> None:
    (_, line) = lines_of(rows(job("new", rate_sps=0.0)), 100)
    assert line.startswith("◌ new")
    assert line.endswith("measures its speed")
    assert "▒" not in line
    assert "─" not in line


@pytest.mark.parametrize("width", [30, 40, 63, 64, 80, 140])
def test_lanes_fit_the_terminal(width: int) -> None:
    long = job("a-long-name-with-a-meaning-at-its-end")
    lanes = Lanes(rows(*ALL, long), NOW.wall, width)
    for line in [*lanes.figures(), *lanes.lines(), *lanes.legend()]:
        assert len(line.plain.rstrip()) <= width, line.plain
    named = next(line.plain for line in lanes.lines() if "a-long" in line.plain or "a-lo" in line.plain)
    assert named.split()[1].endswith("-end") or "end" in named.split()[1]


def test_the_figures_of_the_page_stand_on_top() -> None:
    yesterday = rows(ended("old"))[0]
    yesterday["submitted_wall"] = (NOW.wall - timedelta(days=2)).isoformat()
    text = "\n".join(line.plain for line in Lanes([*rows(*ALL), yesterday], NOW.wall, 120).figures())
    assert text.startswith("● 1 on track, 1 waiting   ▲ 1 at risk   ✖ 1 late   ✓ 1 done today")
    assert "2.4 of 2 cores held" in text


def test_ended_jobs_are_folded_beside_open_ones() -> None:
    past = rows(*(ended(f"past-{i}") for i in range(5)))
    assert fold_ended([*rows(GOOD), *past]) == (rows(GOOD), 5)
    assert fold_ended(past) == (past, 0), "where no other job is they are all there is to see"
    assert fold_ended([*rows(GOOD), *past[:3]])[1] == 0


def test_a_job_of_which_only_the_state_is_known_comes_first() -> None:
    first = lines_of([*rows(LATE), {"job": "orphan", "state": "unsteered"}], 80)[1]
    assert first.split() == ["·", "orphan", "│", "unsteered"]


def test_the_screen_has_what_fits_and_says_what_it_leaves_out() -> None:
    console = Console(width=80, height=12, file=io.StringIO())
    many = [job(f"job-{i}") for i in range(30)]
    shown = ps.screen(console, rows(*many), [], unfolds=False)
    assert len(shown) <= 12
    assert any(line.plain.startswith("and 2") and line.plain.endswith("more jobs") for line in shown)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_without_our_characters_gets_others(encoding: str) -> None:
    """And none is answered with a traceback."""
    text = "from punctual.cli._streams import show_what_can_be_shown, write_line\nshow_what_can_be_shown()\nwrite_line('✖ late ±1 ━▒⚑ é')"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, check=True)
    expected = {"ascii": "X late +-1 =#P ?", "latin-1": "X late ±1 =#P é", "utf-8": "✖ late ±1 ━▒⚑ é"}[encoding]
    assert done.stdout.decode(encoding).strip() == expected
