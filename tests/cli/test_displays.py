"""What people and machines are shown of a job: picture, live view, plain lines, JSON lines, the chain of reasons."""

import io
import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from rich.console import Console
from tests.cli.pieces import HERE, JOB, JobOfBoard, board_of, folded, granted, progressed, started, submitted
from tests.history.scene import chain

from punctual.cli._screens import JsonLines, Lines
from punctual.cli._view import View, panel
from punctual.cli._words import clock
from punctual.cli.ps import budgets
from punctual.core.commands import LaunchJob, RejectJob, ResizeJob, WarnUser
from punctual.core.control import Forecast, PacingLine
from punctual.core.events import (
    GrantFailed,
    JobFailed,
    JobFinished,
    Message,
    PauseRequested,
    PolicyChanged,
    ResumeRequested,
    SpecChanged,
    SteeringResumed,
)
from punctual.core.job import JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.status import JobStatus
from punctual.request.deadlines import Now


def resize(at: float, cores: float, request: int = 2, pacing: PacingLine | None = None) -> ResizeJob:
    reason = Reason("on-line", "34.2 core-seconds are left", {"remaining_core_s": 34.2})
    return ResizeJob(at=at, job=JOB, request=request, grant={HERE: Resources(cores)}, reason=reason, pacing=pacing)


def warning(at: float, code: str) -> WarnUser:
    return WarnUser(at=at, job=JOB, reason=Reason(code, f"text of {code}"))


def deadline(at: float, seconds: float) -> SpecChanged:
    return SpecChanged(at=at, spec=JobSpec(id=JOB, ceiling=Resources(2), deadline_s=seconds))


def resumed(at: float, lost_at: float) -> SteeringResumed:
    return SteeringResumed(at=at, lost_at=lost_at, granted={JOB: {HERE: Resources(2)}})


def drawn(status: JobStatus, now: Now, line: str = "") -> str:
    console = Console(width=90, file=io.StringIO(), color_system=None)
    console.print(panel(status, now, f"{JOB} · remaining-cost", line))
    return console.file.getvalue()  # type: ignore[attr-defined]


class TestView:
    def test_it_shows_progress_line_deadline_forecast_grant_and_reason(self, now: Now) -> None:
        at = now.at - 30
        status = folded(started(at), progressed(at + 3, 1, 1.0), progressed(now.at, 450, 13.0), resize(at, 1.2), at=at)
        forecast = Forecast(finish_s=59.93, std_s=0.05, earliest_finish_s=45.0, feasible=True)
        text = drawn(replace(status, forecast=forecast), now, "epoch 3")
        for part in (
            "step 450 of 1,000, 45.0%", "┃ is at 47.4%", "in 30 s", "● On track: lands ", "± 100 ms; due in 30 s; holds 2 cores",
            "2.00 of 2.00 cores", "13.0 core-seconds used", "34.2 core-seconds are left", "epoch 3",
        ):  # fmt: skip
            assert part in text, f"{part!r} is missing in\n{text}"

    def test_no_forecast_is_shown_as_certain(self, now: Now) -> None:
        forecast = Forecast(finish_s=59.93, std_s=0.0001, earliest_finish_s=45.0, feasible=True)
        measured = replace(folded(started(now.at), progressed(now.at, 450, 13.0)), rate_sps=9.0)
        assert "± 100 ms" in drawn(replace(measured, forecast=forecast), now)
        new = drawn(replace(measured, forecast=forecast, rate_sps=0.0), now)
        assert "Measuring: its speed is not known yet" in new, "nor is one shown that is founded on nothing"

    def test_a_forecast_beyond_the_calendar_is_drawn(self, now: Now) -> None:
        forecast = Forecast(finish_s=1e17, std_s=1.0, earliest_finish_s=1e17, feasible=False)
        measured = replace(folded(started(now.at), progressed(now.at, 450, 13.0)), rate_sps=9.0)
        assert "9999-" in drawn(replace(measured, forecast=forecast), now)

    def test_it_can_be_drawn_before_anything_is_known(self, now: Now) -> None:
        text = drawn(folded(deadline_s=None), now)
        assert "no steps reported yet" in text
        assert "none: the job runs at its ceiling" in text

    def test_whole_lines_scroll_above_and_the_rest_of_a_bar_stays_inside(self) -> None:
        out = io.StringIO()
        view = View(lambda _: None, Console(file=out, width=80, color_system=None))
        view.write(b"loss 0.5 \xe2\x96")
        view.write(b"\x88\n10%\r20%\r30")
        assert out.getvalue() == "loss 0.5 █\n"
        view.write(b"%\ndone\n")
        assert out.getvalue() == "loss 0.5 █\n30%\ndone\n"

    @pytest.mark.parametrize("up", ["\x1b[A", "\r\x1b[1F", "\r\x1b[2K\x1b[1A\x1b[2K"])
    def test_bars_that_are_drawn_again_below_each_other_stay_inside(self, up: str) -> None:
        out = io.StringIO()
        view = View(lambda _: None, Console(file=out, width=80, color_system=None))
        for epoch in range(3):
            for batch in range(5):
                view.write(f"\repochs {epoch}/3\n\rbatches {batch}/5{up}".encode())
            view.write(b"\n\r           \r\x1b[A")
        view.write(b"\repochs 3/3\ntrained\r\n")
        assert out.getvalue() == "epochs 3/3\n"
        view.stop()
        assert out.getvalue() == "epochs 3/3\ntrained\n"


class TestLines:
    def tell(self, *messages: Message, quiet: bool = False) -> list[str]:
        board = board_of()
        told: list[str] = []
        lines = Lines(JobOfBoard(board), told.append, quiet=quiet)
        for message in messages:
            board.fold(message)
            lines.tell(message)
        return [line.split(" punctual: ", 1)[1] for line in told]

    def test_grant_changes_are_told_when_large_and_not_too_often(self) -> None:
        told = self.tell(
            started(0.1), resize(5.0, 1.2), granted(5.0, 1.2), granted(6.0, 0.6), granted(9.0, 1.21),
            granted(19.0, 0.6),
        )  # fmt: skip
        assert told[0].startswith("started job train-3f2a, controller remaining-cost, actuator cgroup-v1; deadline ")
        assert told[1:] == [
            "grant 1.20 cores: 34.2 core-seconds are left",
            "grant 0.60 cores: 34.2 core-seconds are left",
        ]

    def test_deadline_warnings_and_landing_are_told_once(self) -> None:
        told = self.tell(
            deadline(10.0, 50.0), GrantFailed(at=20.0, job=JOB, request=2, granted={}, cause="busy"),
            warning(21.0, "infeasible"), progressed(49.9, 1000, 9.0, landed=True),
            progressed(50.9, 1000, 9.0, landed=True),
        )  # fmt: skip
        assert told[0].endswith("50 s after the start")
        assert told[1:] == [
            "WARNING: the grant could not be changed: busy",
            "WARNING: text of infeasible",
            "landed 100 ms before the deadline",
        ]

    def test_what_a_user_asks_is_told_with_who_and_why(self) -> None:
        spec = JobSpec(id=JOB, ceiling=Resources(2), deadline_s=60.0, weight=2.0)
        told = self.tell(
            started(0.1), PauseRequested(at=1.0, job=JOB, cause="lunch", by="token 'anna'"),
            ResumeRequested(at=2.0, job=JOB), SpecChanged(at=3.0, spec=spec, by="token 'anna'"),
            PolicyChanged(at=4.0, policy="fifo", parameters={"size": "smallest"}, before="promises-first", by="bert"),
            JobFailed(at=5.0, job=JOB, cause="killed"), PolicyChanged(at=6.0, policy="fifo"),
        )  # fmt: skip
        assert told[1:] == [
            "paused by token 'anna': lunch",
            "resumed by the user",
            "the weight was changed by token 'anna': now 2",
            "the policy was changed by bert: now fifo (size=smallest), before promises-first",
        ]

    def test_a_job_that_is_taken_over_was_not_started(self) -> None:
        told = self.tell(resumed(9.0, 5.0), started(9.0), granted(13.0, 0.5))
        assert told[0].startswith("took over job train-3f2a, controller remaining-cost, actuator cgroup-v1; deadline ")
        assert [line.split(":")[0] for line in told[1:]] == ["grant 0.50 cores"]

    def test_quiet_leaves_warnings(self) -> None:
        told = self.tell(started(0.1), warning(1.0, "infeasible"), quiet=True)
        assert told == ["WARNING: text of infeasible"]


def test_json_lines_have_a_type_and_count_from_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    board = board_of(100.0)
    lines = JsonLines(JobOfBoard(board))
    for message in (
        started(100.1), progressed(101.0, 5, 1.0), progressed(101.1, 6, 1.1), resize(102.0, 1.0), granted(102.0, 1.0),
        deadline(103.0, 50.0), warning(104.0, "infeasible"),
    ):  # fmt: skip
        board.fold(message)
        lines.tell(message)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["type"] for line in told] == ["started", "progress", "grant", "deadline", "warning"]
    assert told[1]["elapsed_s"] == pytest.approx(1.0)
    assert told[1]["progress_frac"] == pytest.approx(0.005)
    assert told[2]["reason"] == "34.2 core-seconds are left"
    assert told[3]["deadline_s"] == 50.0


def test_json_lines_tell_what_a_user_asks(capsys: pytest.CaptureFixture[str]) -> None:
    board = board_of()
    lines = JsonLines(JobOfBoard(board))
    for message in (
        PauseRequested(at=1.0, job=JOB, cause="lunch", by="anna"),
        ResumeRequested(at=2.0, job=JOB, by="bert"),
        PolicyChanged(at=3.0, policy="fifo", parameters={"size": "smallest"}, before="promises-first"),
    ):
        board.fold(message)
        lines.tell(message)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["type"] for line in told] == ["pause", "resume", "policy"]
    assert (told[0]["by"], told[0]["cause"], told[0]["text"]) == ("anna", "lunch", "paused by anna: lunch")
    assert (told[1]["by"], told[1]["text"]) == ("bert", "resumed by bert")
    assert (told[2]["policy"], told[2]["parameters"], told[2]["before"]) == (
        "fifo",
        {"size": "smallest"},
        "promises-first",
    )


def test_json_lines_say_that_a_job_was_taken_over(capsys: pytest.CaptureFixture[str]) -> None:
    board = board_of()
    lines = JsonLines(JobOfBoard(board))
    for message in (resumed(9.0, 5.0), started(9.0)):
        board.fold(message)
        lines.tell(message)
    (told,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (told["type"], told["grant_cores"]) == ("resumed", 2.0)


class TestChain:
    LAUNCH = LaunchJob(
        at=0.1, job=JOB, request=1, grant={HERE: Resources(2)}, reason=Reason("start-up", "a job starts at its ceiling"),
        spec=submitted(0.0).spec,
    )  # fmt: skip
    LINE = PacingLine(end_s=60, end_work=1000, s_per_step=0.05)

    def test_a_change_of_grant_is_told_from_reading_to_answer(self) -> None:
        links = chain(
            [submitted(0.0), self.LAUNCH, started(0.15), progressed(5.0, 50, 4.0), resize(5.0, 1.2), granted(5.001, 1.2)],
            JOB,
        )  # fmt: skip
        assert [link.kind for link in links] == ["submitted", "grant", "grant"]
        assert (
            links[1].text
            == "a job starts at its ceiling: asked to launch with 2.00 cores; given 2.00 cores after 50 ms"
        )
        assert links[2].elapsed_s == 5.0
        assert links[2].text == (
            "at step 50 of 1,000 with 4.0 core-seconds used, 34.2 core-seconds are left: "
            "asked to resize to 1.20 cores; given 1.20 cores after 1 ms"
        )

    def test_new_pacing_lines_are_told_only_when_asked_for(self) -> None:
        messages: list[Message] = [submitted(0.0), resize(5.0, 1.2, 2), resize(6.0, 1.2, 3, self.LINE)]
        assert len(chain(messages, JOB)) == 2
        assert len(chain(messages, JOB, every=True)) == 3

    def test_a_failed_change_says_why(self) -> None:
        failed = GrantFailed(at=5.5, job=JOB, request=2, granted={}, cause="busy")
        assert "not given (busy) after 500 ms" in chain([submitted(0.0), resize(5.0, 1.2), failed], JOB)[1].text

    def test_it_says_how_long_nobody_steered(self) -> None:
        links = chain([submitted(0.0), self.LAUNCH, started(0.2), resumed(9.0, 5.0)], JOB)
        assert links[-1].text == "it is steered again, after 4 s in which nobody did"

    def test_what_concerns_all_jobs_is_told_while_this_one_is_there(self) -> None:
        policy = PolicyChanged(at=0.0, policy="fifo", by="me", before="max-min")
        warned = WarnUser(at=0.0, job=None, reason=Reason("policy-failed", "the policy has failed"))
        of_all: list[Message] = [resumed(9.0, 5.0), policy, warned]
        begun: list[Message] = [submitted(0.0), self.LAUNCH, started(0.2)]
        assert len(chain([*begun, *of_all], JOB)) == len(chain(begun, JOB)) + 3
        failed = JobFailed(at=1.0, job=JOB, cause="killed", exit_code=-9, retryable=True)
        assert len(chain([*begun, failed, *of_all], JOB)) == len(chain([*begun, failed], JOB)) + 3
        assert chain([*of_all, *begun], JOB) == chain(begun, JOB)
        ends: list[Message] = [
            JobFinished(at=1.0, job=JOB, landed_at=1.0),
            JobFailed(at=1.0, job=JOB, cause="by hand", exit_code=-15, is_stopped=True),
            RejectJob(at=1.0, job=JOB, reason=Reason("no-retries-left", "it has failed")),
        ]
        for end in ends:
            assert chain([*begun, end, *of_all], JOB) == chain([*begun, end], JOB), end

    def test_other_jobs_are_left_out(self) -> None:
        assert chain([submitted(0.0), self.LAUNCH], JOB)
        assert chain([self.LAUNCH, started(0.2)], type(JOB)("other")) == []


def test_the_list_of_jobs_tells_how_much_memory_is_used_and_who_waits() -> None:
    of_host = {"host": "service", "policy": "fifo", "host_cores": 2.0, "host_free_cores": 0.0}
    of_host |= {"host_memory_bytes": 8 << 30, "host_used_memory_bytes": 3 << 29, "grant_cores": 1.0}
    runs = {**of_host, "job": "a", "state": "running", "forecast_s": 100.0, "elapsed_s": 40.0}
    waits = {
        **of_host,
        "job": "b",
        "state": "queued",
        "forecast_s": None,
        "elapsed_s": 1.0,
        "waits": "it waits for memory",
        "phrase": "waits for room: a ends about 17:40",
    }
    host, waiting = budgets([runs, waits, {**waits, "job": "c"}])
    assert host.endswith("0.00 free; 1.5 GiB of 8 GiB of memory used")
    assert waiting == "2 jobs wait for room: a ends about 17:40; b: it waits for memory"
    assert len(list(budgets([runs]))) == 1


def test_the_list_of_jobs_tells_which_nodes_of_a_host_are_slow() -> None:
    job = {"host": "service", "policy": "promises-first", "host_cores": 8.0, "host_free_cores": 3.0, "grant_cores": 2.5}
    of_service, slow, of_other = budgets([job, {**job, "slow_nodes": {"b": 1.43}}, {**job, "host": "other"}])
    assert of_service == "host service (promises-first): 8 cores, 5.00 held by 2 jobs, 3.00 free"
    assert slow == "node b is slow: steps cost 1.4 times the CPU time there, see `punctual why`"
    assert of_other.startswith("host other")


def test_the_list_of_jobs_tells_what_the_machines_of_a_host_cost() -> None:
    job = {"host": "service", "policy": "least-cost", "host_cores": 8.0, "host_free_cores": 3.0, "grant_cores": 2.5}
    (free,) = budgets([{**job, "host_usd_h": None, "host_spent_usd": None}])
    assert free.endswith("3.00 free")
    (told,) = budgets([{**job, "host_usd_h": 2.76, "host_spent_usd": 0.0123}])
    assert told.endswith("3.00 free; machines for $2.76 an hour, $0.012 spent")


def test_jobs_that_hold_nothing_are_not_told_to_hold_something() -> None:
    job = {"host": "service", "policy": "fifo", "host_cores": 2.0, "host_free_cores": 0.0, "grant_cores": 2.0}
    waits = {**job, "grant_cores": 0.0}
    (told,) = budgets([job, waits, waits])
    assert told == "host service (fifo): 2 cores, 2.00 held by 1 job, 0.00 free; 2 jobs hold nothing"
    (told,) = budgets([job, waits])
    assert told.endswith("; 1 job holds nothing")


def test_the_list_of_jobs_tells_where_they_lie_and_what_is_wrong_with_the_nodes_of_a_cluster() -> None:
    host = {"host": "service", "policy": "fifo", "host_cores": 8.0, "host_free_cores": 3.0, "grant_cores": 2.5}
    past, soon = datetime.now().astimezone() - timedelta(hours=1), datetime.now().astimezone() + timedelta(seconds=60)
    news = {
        "silent_nodes": {"tock": 12.0},
        "lost_nodes_wall": {"tock": soon.isoformat()},
        "leaving_nodes_wall": {"tick": soon.isoformat(), "tack": past.isoformat()},
        "taken_cores": {"tick": 6.0},
    }
    jobs = [
        {**host, **news, "job": "one", "nodes": ["tick", "tock"]},
        {**host, **news, "job": "two", "nodes": ["tock"]},
    ]
    assert list(budgets(jobs))[1:] == [
        "node tick: one",
        "node tock: one, two",
        f"node tock has not answered for 12 s: what is told of its jobs is as old, and at {clock(soon)} it counts as lost",
        f"node tick is leaving at {clock(soon)}: its jobs move, see `punctual why`",
        f"node tack was to leave by {clock(past)}: no job runs there until `punctual node undrain tack`",
        "node tick: other applications of the cluster hold 6 cores",
    ]
    assert len(list(budgets([{**host, "job": "one", "nodes": ["local"]}]))) == 1, "one machine needs no name"
