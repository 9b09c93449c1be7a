"""Whatever fails while one job is launched, commanded, observed or ended, the host and its other jobs go on."""

import errno
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.live_jobs import PACED

from punctual.core.commands import JobCommand, ResizeJob, StopJob
from punctual.core.events import Event, GrantApplied, GrantFailed, JobStarted, JobWarned, Message
from punctual.core.ids import JobId
from punctual.core.protocols import Sink
from punctual.daemon.capacity import capacity_here
from punctual.daemon.contained import Contained
from punctual.daemon.host import Host
from punctual.daemon.opening import new_host
from punctual.executors.job_facts import JobFacts
from punctual.executors.local.actuator import Actuator, JobGroup
from punctual.executors.local.executor import LocalExecutor
from punctual.executors.local.grant import JobGrant
from punctual.executors.local.job_run import JobRun
from punctual.executors.local.launch import JobProcess
from punctual.executors.local.output import LogTail, ProcessSettings
from punctual.executors.local.progress import PageProgress
from punctual.executors.local.supervisor_client import SupervisorLink
from punctual.request.job_options import JobOptions
from punctual.request.submission import Submission, submission_of

ERRORS: list[Callable[[], Exception]] = [
    lambda: OSError(errno.EIO, "Input/output error"),
    lambda: RuntimeError("can't start new thread"),
    lambda: OverflowError("cannot convert float infinity to integer"),
    lambda: struct.error("argument out of range"),
    MemoryError,
    lambda: ZeroDivisionError("by nothing"),
    lambda: TypeError("signed integer is greater than maximum"),
    lambda: ValueError("filedescriptor out of range in select()"),
    lambda: KeyError("what"),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    lambda: AssertionError("never"),
    lambda: RecursionError("too deep"),
]

#: The calls by which a job is started, changed, looked at and ended.
CALLS: list[tuple[type, str]] = [
    *((LocalExecutor, name) for name in ("perform", "observe", "facts")),
    *((JobRun, name) for name in ("start", "resize", "observe", "renew", "stop", "terminate", "facts")),
    *((JobRun, name) for name in ("_see_through", "_begin", "_put", "_end", "_report", "_answer")),
    *(
        (JobProcess, name)
        for name in ("start", "_start_supervisor", "_launch_request", "_environment", "wait", "finish")
    ),
    *((JobProcess, name) for name in ("renew", "read_usage", "sample", "end", "clear_away")),
    *((JobGrant, name) for name in ("__init__", "put", "_pause", "_settle_pause", "_resume", "_check_devices")),
    *(
        (PageProgress, name)
        for name in ("latest", "landed_at", "new_phases", "new_losses", "pace", "heartbeat", "begin")
    ),
    *((JobGroup, name) for name in ("grant", "used_core_s", "final_core_s")),
    *((SupervisorLink, name) for name in ("send", "read", "renew", "await_end", "terminate", "finish")),
    (JobProcess, "follow"),
    (LogTail, "finish"),
]
#: Those of them that are made once the job is stopped or has ended.
AT_THE_END = {
    "stop",
    "terminate",
    "end",
    "_end",
    "facts",
    "finish",
    "final_core_s",
    "landed_at",
    "clear_away",
}
N_BROKEN = 6
N_STEPS = 8

HEALTHY = f"for i in $(seq {N_STEPS}); do echo step $i/{N_STEPS}; sleep 0.1; done"
#: It ends by itself once there is the file of its argument, for the case that it cannot be stopped.
BROKEN = """
import os, sys, time, punctual
for i in punctual.track(range(150), total_steps=150):
    if os.path.exists(sys.argv[1]):
        break
    end = time.process_time() + 0.005
    while time.process_time() < end: pass
    time.sleep(0.02)
"""


class Saboteur:
    """Has one call fail for each of some jobs, always."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.calls: dict[JobId, tuple[type, str]] = {}
        self.n_failures: Counter[JobId] = Counter()
        #: What belongs to which job.
        self._job_of: dict[int, JobId] = {}
        self.links: list[SupervisorLink] = []
        made, started, opened = JobProcess.__init__, JobProcess._start_supervisor, Actuator.open
        paged: Callable[..., None] = PageProgress.__init__

        def make(process: JobProcess, context: Any, launch: Any, *more: Any) -> None:
            def begin(progress: PageProgress, *given: Any) -> None:
                paged(progress, *given)
                self._job_of[id(progress)] = launch.job

            patch.setattr(PageProgress, "__init__", begin)
            made(process, context, launch, *more)

        def start(process: JobProcess, settings: ProcessSettings) -> SupervisorLink:
            link = started(process, settings)
            self._job_of[id(link)] = process._launch.job
            self.links.append(link)
            return link

        def open_group(actuator: Actuator, job: JobId, supervisor_pid: int) -> JobGroup:
            group = opened(actuator, job, supervisor_pid)
            self._job_of[id(group)] = job
            return group

        patch.setattr(JobProcess, "__init__", make)
        patch.setattr(JobProcess, "_start_supervisor", start)
        patch.setattr(Actuator, "open", open_group)

    def breaks(self, kind: type, name: str, error: Callable[[], Exception]) -> None:
        job, original = JobId(f"broken-{kind.__name__}-{name.strip('_')}".lower()), getattr(kind, name)
        self.calls[job] = kind, name

        def call(subject: Any, *args: Any, **kwargs: Any) -> Any:
            if self._about(subject, args) == job:
                self.n_failures[job] += 1
                raise error()
            return original(subject, *args, **kwargs)

        self._patch.setattr(kind, name, call)

    def _about(self, subject: Any, args: tuple[Any, ...]) -> JobId | None:
        match subject:
            case LocalExecutor():  # a launch without an answer is said again after a while that is too long here
                told = args[0]
                return told.job if isinstance(told, ResizeJob) else JobId(told) if isinstance(told, str) else None
            case JobGrant():
                return args[0].id if args and hasattr(args[0], "ceiling") else subject._spec.id
            case JobRun() | JobProcess():
                return subject._launch.job
            case LogTail():
                return JobId(subject.path.stem)
        return self._job_of.get(id(subject))


@pytest.fixture
def saboteur(monkeypatch: pytest.MonkeyPatch) -> Iterator[Saboteur]:
    with monkeypatch.context() as patch:
        made = Saboteur(patch)
        yield made
    for link in made.links:  # to close it may have been what failed
        link.close()


def submission(name: str, *argv: str, **more: Any) -> Submission:
    cores = f"0.01..{capacity_here().cores}"
    options = JobOptions(program=list(argv), name=name, deadline="60s", cores=cores, **more)
    return submission_of(options, time.monotonic(), capacity_here(), inherited={})


def pause_and_resume(host: Host, jobs: set[JobId]) -> Callable[[Message], None]:
    """Have each of `jobs` paused once it runs, and resumed after whatever is answered."""
    paused: set[JobId] = set()

    def on_message(message: Message) -> None:
        job = getattr(message, "job", None)
        if job in jobs and isinstance(message, JobStarted) and job not in paused:
            paused.add(job)
            host.pause(job)
        elif job in paused and isinstance(message, GrantApplied | GrantFailed | JobWarned) and host.status(job).pause:
            host.resume(job)

    return on_message


@pytest.mark.parametrize("i_first", range(0, len(CALLS), N_BROKEN))
def test_a_call_that_fails_for_one_job_ends_neither_the_host_nor_another_job(
    saboteur: Saboteur, i_first: int, tmp_path: Path
) -> None:
    may_end = tmp_path / "may-end"
    for i, (kind, name) in enumerate(CALLS[i_first : i_first + N_BROKEN], start=i_first):
        saboteur.breaks(kind, name, ERRORS[i % len(ERRORS)])
    healthy = {JobId(f"healthy-{i}") for i in range(4)}
    with new_host("host", replace(PACED, jobs_at_once=len(healthy) + N_BROKEN)) as host:
        # One that stands still and cannot be told to end does not end.
        paused = {job for job, (_, name) in saboteur.calls.items() if name not in ("stop", "terminate")}
        host.subscribe(pause_and_resume(host, paused))
        for job in healthy:
            host.submit(submission(job, "sh", "-c", HEALTHY, progress_regex="auto"))
        for job in saboteur.calls:
            host.submit(submission(job, sys.executable, "-c", BROKEN, str(may_end), retries=0))
        host.run(
            lambda: (
                all(map(host.has_ended, healthy))
                and all(
                    saboteur.n_failures[job]
                    or host.has_ended(job)
                    or (name in AT_THE_END and host.status(job).steps_done > 0)
                    for job, (_, name) in saboteur.calls.items()
                )
            )
        )
        for job in saboteur.calls:
            host.stop(job, "enough")
        host.run(lambda: all(saboteur.n_failures[job] or host.has_ended(job) for job in saboteur.calls))
        may_end.touch()
        host.run(host.all_ended)
        assert {job: (host.status(job).state, host.status(job).steps_done) for job in healthy} == dict.fromkeys(
            healthy, ("finished", N_STEPS)
        )
    assert {job: saboteur.n_failures[job] > 0 for job in saboteur.calls} == dict.fromkeys(saboteur.calls, True)


class Failing:
    """An executor each of whose calls raises."""

    actuator = actuator_reason = "none"

    def perform(self, command: JobCommand, sink: Sink) -> None:
        raise OverflowError("too far")

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        raise ZeroDivisionError("by nothing")

    def renew(self, is_paused_by_user: Callable[[JobId], bool] = lambda _: False) -> None:
        raise MemoryError

    def facts(self, job: JobId) -> JobFacts:
        raise KeyError(job)

    def release(self) -> None: ...

    def close(self) -> None: ...


def test_what_fails_is_told_once_of_each_job(caplog: pytest.LogCaptureFixture) -> None:
    contained, events = Contained(Failing()), list[Event]()
    for _ in range(3):
        for job in (JobId("a"), JobId("b")):
            contained.perform(StopJob(at=1.0, job=job, cause="enough"), events.append)
            contained.observe(job, 2.0, events.append)
            assert contained.facts(job) == JobFacts()
        contained.renew()
    told = [(event.job, event.reason.code) for event in events if isinstance(event, JobWarned)]
    assert told == [("a", "not-commanded"), ("a", "not-observed"), ("b", "not-commanded"), ("b", "not-observed")]
    assert len(events) == 4
    assert "OverflowError: too far" in str(events[0])
    assert len(caplog.records) == 7
