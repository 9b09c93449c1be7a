"""A job that runs is paused, for one that is more urgent or by its user; it keeps its memory, and goes on afterwards."""

import sys
import time
from pathlib import Path

import pytest
from tests.daemon.live_jobs import TRAINING, pid_of_waiting
from tests.forked_python import ForkedPython
from tests.waiting import PATIENCE_S, wait_until

from punctual.core.commands import ResizeJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import GrantApplied, JobFinished, JobStarted, Message, PauseRequested, ResumeRequested
from punctual.core.ids import JobId
from punctual.daemon.capacity import capacity_here
from punctual.daemon.control_client import standings
from punctual.daemon.host_options import HostOptions
from punctual.daemon.opening import new_host
from punctual.daemon.restore import resumed_host
from punctual.daemon.run_folder import run_named
from punctual.daemon.runs import messages_of
from punctual.executors.local.launch import JobProcess
from punctual.request.job_options import JobOptions
from punctual.request.submission import Submission, submission_of

PATIENT, URGENT = JobId("patient"), JobId("urgent")


def whole_machine(job: JobId, *, workers: bool, awaited: Path | None, deadline_s: float) -> Submission:
    """A training that runs with all cores or not at all."""
    n_cores = capacity_here().cores
    options = JobOptions(
        program=[sys.executable, "-c", TRAINING, "10", str(awaited or ""), "0"], name=job, deadline=f"{deadline_s}s",
        workers="1" if workers else None, cores=None if workers else f"{n_cores}..{n_cores}",
    )  # fmt: skip
    return submission_of(options, time.monotonic(), capacity_here())


@pytest.mark.parametrize(
    ("policy", "workers"), [("earliest-deadline", False), ("earliest-deadline", True), ("promises-first", True)]
)
def test_an_urgent_job_pauses_another_which_then_goes_on(policy: str, workers: bool, tmp_path: Path) -> None:
    go = tmp_path / "go"
    messages: list[Message] = []

    def on_message(message: Message) -> None:
        messages.append(message)
        if isinstance(message, JobFinished) and message.job == URGENT:
            go.touch()

    options = HostOptions(actuator="pacing", policy=policy)
    with new_host("host", options) as host:
        give_up_at = host.now() + PATIENCE_S
        host.subscribe(on_message)
        host.submit(whole_machine(PATIENT, workers=workers, awaited=go, deadline_s=36000.0))
        host.run(lambda: pid_of_waiting(go) > 0)
        host.submit(whole_machine(URGENT, workers=workers, awaited=None, deadline_s=600.0))
        host.run(lambda: host.all_ended() or host.now() > give_up_at)
        go.touch()
        assert {status.id: status.state for status in host.jobs()} == {PATIENT: "finished", URGENT: "finished"}
    ends = [message.job for message in messages if isinstance(message, JobFinished)]
    assert ends == [URGENT, PATIENT]
    grants = [bool(message.grant) for message in messages if isinstance(message, ResizeJob) and message.job == PATIENT]
    assert False in grants
    assert grants[-1]
    assert [message.job for message in messages if isinstance(message, JobStarted)] == [PATIENT, URGENT]


def test_the_supervisor_of_a_job_that_its_user_has_paused_knows_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the job would go on after the lease, if the host is killed before it renews that."""
    go, told, told_by_then = tmp_path / "go", list[bool](), list[bool]()
    renew = JobProcess.renew

    def noted(process: JobProcess, *, stays_paused: bool) -> None:
        told.append(stays_paused)
        renew(process, stays_paused=stays_paused)

    def on_message(message: Message) -> None:
        if isinstance(message, GrantApplied) and not message.granted:
            told_by_then.append(bool(told) and told[-1])

    monkeypatch.setattr(JobProcess, "renew", noted)
    with new_host("host", HostOptions(actuator="pacing")) as host:
        host.subscribe(on_message)
        host.submit(whole_machine(PATIENT, workers=False, awaited=go, deadline_s=36000.0))
        host.run(lambda: pid_of_waiting(go) > 0)
        host.pause(PATIENT)
        host.run(lambda: bool(told_by_then))
        host.stop(PATIENT, "enough")
        host.run(host.all_ended)
    assert told_by_then[0], "whoever is told of the pause finds it kept"


#: A host with a job that its user pauses once it has done all its steps but two.
HOST = """
import pathlib, sys
from tests.daemon.live_jobs import PACED, pid_of_waiting, submission
from punctual.daemon.opening import new_host
go = pathlib.Path(sys.argv[1])
with new_host("host", PACED) as host:
    job = host.submit(submission("a", awaited=go))
    host.run(lambda: pid_of_waiting(go) > 0)
    host.pause(job, "lunch", by="anna")
    host.run(host.all_ended)
"""


@pytest.mark.usefixtures("no_successors")
def test_a_job_that_its_user_has_paused_stays_so_under_the_next_host_until_it_is_resumed(tmp_path: Path) -> None:
    go, job = tmp_path / "go", JobId("a")
    with ForkedPython[bytes]([sys.executable, "-c", HOST, str(go)]) as first:
        wait_until(lambda: pid_of_waiting(go))
        told = wait_until(
            lambda: standings(run_named("host")), lambda jobs: [told["state"] for told in jobs] == ["paused"]
        )
        first.kill()
    assert told[0]["paused"] == "paused by anna: lunch"
    go.touch()
    with resumed_host(run_named("host")) as host:
        host.run(lambda: host.knows(job) and host.status(job).state == "paused")
        host.run_for(0.5)
        assert not host.all_ended(), "it would have ended by now if it went on"
        host.resume(job, by="bert")
        host.run(lambda: host.status(job).pause is None)
        with pytest.raises(InvalidSpec, match="only a job that its user has paused"):
            host.resume(job)
        host.run(host.all_ended)
        assert [status.state for status in host.jobs()] == ["finished"]
        with pytest.raises(InvalidSpec, match="only while it works: got a job that has landed"):
            host.pause(job)
    asked = [
        message for message in messages_of(run_named("host")) if isinstance(message, PauseRequested | ResumeRequested)
    ]
    assert [message.by for message in asked] == ["anna", "bert"]
