"""A job that its user stopped, and one that was turned away, are told as such: neither has failed or missed anything."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.pieces import JOB, submitted
from tests.history.scene import chain

from punctual.cli._drive import EXIT_MISSED, Outcome, closing_report, closing_report_of_all
from punctual.core.commands import RejectJob
from punctual.core.events import JobFailed, JobFinished, Message
from punctual.core.reason import Reason
from punctual.daemon.run_folder import RunFolder
from punctual.history.run import summarize

FINISHED = JobFinished(at=61.0, job=JOB, landed_at=61.0)
STOPPED = JobFailed(at=9.0, job=JOB, cause="`punctual stop`", is_stopped=True)
STOPPED_BY_SIGNAL = JobFailed(at=9.0, job=JOB, cause="`punctual stop`", exit_code=130, is_stopped=True)
STOPPED_CLEANLY = JobFailed(at=9.0, job=JOB, cause="`punctual stop`", exit_code=0, is_stopped=True)
DUE = JobFailed(at=60.0, job=JOB, cause="its deadline has come", is_stopped=True, is_due=True)
LATE = replace(DUE, cause="it would not be done by its deadline", exit_code=128 + signal.SIGTERM)
KILLED_WHEN_DUE = replace(DUE, exit_code=128 + signal.SIGKILL)
DUE_AND_FAILED = replace(DUE, exit_code=3)
GIVEN_UP_WHEN_DUE = RejectJob(at=60.0, job=JOB, reason=Reason("due", "it was asked to stop: its deadline has come"))
NEVER_STARTED = RejectJob(at=9.0, job=JOB, reason=Reason("stopped", "`punctual stop`"))
TURNED_AWAY = RejectJob(at=9.0, job=JOB, reason=Reason("cannot-promise", "no deadline can be guaranteed"))
FAILED = JobFailed(at=9.0, job=JOB, cause="its process ended with exit code 7", exit_code=7)
LOST = JobFailed(at=9.0, job=JOB, cause="its supervisor was killed")
GIVEN_UP = RejectJob(at=9.0, job=JOB, reason=Reason("no-retries-left", "exit code 7; no retries are left"))


def outcome(end: Message, received: int | None = None) -> Outcome:
    """What becomes of a job with a deadline of a minute that ended with `end`."""
    return Outcome(
        job=JOB,
        run=RunFolder("host", Path("/nowhere"), Path("/nowhere")),
        summary=summarize([submitted(0.0), end], JOB),
        facts={},
        faults=(),
        received=received,
        workers=None,
        device=None,
        controller_cpu_s=0.0,
    )


@pytest.mark.parametrize(
    ("end", "status", "exit_code"),
    [
        (FINISHED, "finished", EXIT_MISSED),
        (STOPPED, "stopped", 128 + signal.SIGTERM),
        (STOPPED_CLEANLY, "stopped", 128 + signal.SIGTERM),
        (DUE, "stopped", EXIT_MISSED),
        (LATE, "stopped", EXIT_MISSED),
        (GIVEN_UP_WHEN_DUE, "stopped", EXIT_MISSED),
        (KILLED_WHEN_DUE, "stopped", EXIT_MISSED),
        (DUE_AND_FAILED, "stopped", 3),
        (STOPPED_BY_SIGNAL, "stopped", 130),
        (NEVER_STARTED, "stopped", 128 + signal.SIGTERM),
        (TURNED_AWAY, "turned away", 2),
        (FAILED, "failed", 7),
        (LOST, "failed", 1),
        (GIVEN_UP, "failed", 1),
    ],
)
def test_each_end_has_its_status_and_exit_code(end: Message, status: str, exit_code: int) -> None:
    ended = outcome(end)
    assert ended.summary.status == status
    assert ended.exit_code(strict=True) == exit_code
    is_missed = status in {"finished", "failed"} or end in (
        DUE,
        LATE,
        GIVEN_UP_WHEN_DUE,
        KILLED_WHEN_DUE,
        DUE_AND_FAILED,
    )
    assert ended.summary.on_time is (False if is_missed else None)


@pytest.mark.parametrize(("own", "exit_code"), [(0, 0), (3, 3), (255, 255), (None, 130), (128 + signal.SIGKILL, 130)])
def test_a_program_that_ended_by_itself_after_a_signal_keeps_its_status(own: int | None, exit_code: int) -> None:
    assert outcome(replace(STOPPED, exit_code=own), received=signal.SIGINT).exit_code(strict=False) == exit_code


@pytest.mark.parametrize("end", [STOPPED, STOPPED_CLEANLY, NEVER_STARTED, TURNED_AWAY])
def test_nothing_that_is_said_of_it_calls_it_a_failure_or_a_miss(end: Message) -> None:
    messages = [submitted(0.0), end]
    ended = outcome(end)
    kinds = [link.kind for link in chain(messages, JOB)]
    reports = [closing_report(ended, None), closing_report_of_all([ended, ended], None)]
    said = ["\n".join(lines) for lines in reports] + kinds
    assert not [text for text in said if "failed" in text or "missed" in text or "late" in text]
    assert all(str(ended.summary.status) in text for text in said[:2])
    assert kinds[-1] == ended.summary.status


def test_what_was_never_started_is_not_told_to_have_used_anything() -> None:
    assert "core-seconds" not in "".join(closing_report(outcome(TURNED_AWAY), None))
