"""The host of a round of `host_kills.py`: ``ROUND``, a JSON object.

It runs the jobs of the round, or goes on with them. When the message that the round names comes, it says so on its
standard output, and does nothing until a line has come on its standard input; meanwhile processes are killed, itself
perhaps.
"""

import errno
import faulthandler
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import _host_kills_training

from punctual.core.errors import InvalidSpec
from punctual.core.events import GrantFailed, JobStarted, JobWarned, NodeLost, ProgressReported
from punctual.core.ids import JobId
from punctual.core.loss import LossGoal
from punctual.core.protocols import Message
from punctual.core.status import JobStatus
from punctual.core.story import Reason
from punctual.executors.local import executor as local
from punctual.executors.local.launch import JobProcess
from punctual.runtime import local_host as composed
from punctual.runtime import restore
from punctual.runtime.local_host import HERE, HostOptions, LocalHost, OnOutput, capacity_here, local_host
from punctual.runtime.restore import resumed_host
from punctual.runtime.run_folder import run_named
from punctual.runtime.submission import JobRequest, Submission, checked_submission
from punctual.runtime.sweeping import sweep
from punctual.store.sqlite import SqliteJournal

RUN = "kills"
#: Steps, seconds a step, exit code, cores at most (None: all, and no fewer), deadline in seconds, retries.
JOBS: dict[str, tuple[int, float, int, float | None, float | None, int | None]] = {
    "tracked": (30, 0.02, 0, 0.4, 1.5, None),
    "goal": (20, 0.02, 0, 0.4, None, None),
    "stopped": (100_000, 0.02, 0, 0.4, None, None),
    "failing": (8, 0.02, 3, 0.4, None, 0),
    "urgent": (8, 0.02, 0, None, 0.3, None),
}
#: Is submitted once the others run, and needs the whole machine.
LATE = JobId("urgent")
#: May be paused for others.
PREEMPTIBLE = ("tracked", "goal", "stopped", "failing")
#: Ignores SIGTERM in some of the rounds.
STUBBORN = "goal"
#: What an executor might have to say.
_WARNING = Reason("unreadable-progress", "said for the sake of the round")
#: Steps after which jobs are stopped, or another is submitted.
N_STEPS = 4


class Kill:
    """Waits for the message at which processes are to be killed, and has them killed there, once."""

    def __init__(self, kind: str, nth: int, moment: str) -> None:
        self._kind, self._n_left, self._moment = kind, nth, moment

    def look(self, messages: Iterable[Message], moment: str) -> None:
        """`moment`: before the messages are *unwritten*, *written* and not performed, or *performed*."""
        for message in messages:
            if moment == self._moment and type(message).__name__ == self._kind:
                self._n_left -= 1
                if self._n_left == 0:
                    print(json.dumps({"job": _job_of(message)}), flush=True)
                    sys.stdin.readline()


class KillingJournal(SqliteJournal):
    """A journal during whose writes processes are killed."""

    kill: Kill

    def append(self, messages: Iterable[Message]) -> int:
        rows = list(messages)
        self.kill.look(rows, "unwritten")
        sequence = super().append(rows)
        self.kill.look(rows, "written")
        return sequence


class Driver:
    """Does what users do, whatever the host that they ask knows already."""

    def __init__(self, host: LocalHost, kill: Kill, folder: Path, *, is_stubborn: bool) -> None:
        self._host, self._kill, self._folder, self._is_stubborn = host, kill, folder, is_stubborn
        self._n_started = 0
        self._submitted: set[str] = set()
        self._loses_node = kill._kind == NodeLost.__name__  # noqa: SLF001 -- it is one of our own
        self._warns = kill._kind == JobWarned.__name__  # noqa: SLF001
        host.subscribe(self.listen)

    def submit(self, job: str) -> None:
        """Submit the job unless the host has it; what it has accepted is written down."""
        if all(status.id != job for status in self._host.jobs()) and job not in self._submitted:
            self._submitted.add(job)
            is_stubborn = self._is_stubborn and job == STUBBORN
            self._host.submit(submission(job, self._folder, self._host.now(), is_stubborn=is_stubborn))
            with (self._folder / "submitted").open("a") as accepted:
                accepted.write(f"{job}\n")

    def listen(self, message: Message) -> None:
        self._kill.look([message], "performed")
        if isinstance(message, JobStarted):
            self._n_started += 1
            if self._loses_node and self._n_started == len(JOBS) - 1:
                self._loses_node = False
                (self._folder / "node-lost").touch()
                self._host.post(NodeLost(at=self._host.now(), node=HERE))
        if self._warns and isinstance(message, JobStarted):
            self._warns = False
            self._host.post(JobWarned(at=self._host.now(), job=message.job, reason=_WARNING))
        if isinstance(message, NodeLost):
            self._host.post(composed.NodeJoined(at=self._host.now(), node=HERE, capacity=capacity_here()))
        if isinstance(message, ProgressReported):
            for status in self._host.jobs():
                if status.ended or status.steps_done >= N_STEPS:
                    self._go_on(status)

    def _go_on(self, status: JobStatus) -> None:
        if status.id == "stopped" and status.state == "running":
            self._host.stop(status.id, "by the user")
        if (
            status.id == "tracked"
            and status.spec.deadline_s == JOBS["tracked"][4]
            and not status.landed
            and status.state == "running"
        ):
            self._host.move_deadline(status.id, 2.0)
        if status.id == "goal":
            self.submit(LATE)


def submission(job: str, folder: Path, at: float, *, is_stubborn: bool) -> Submission:
    n_steps, step_s, code, cores, deadline_s, n_retries = JOBS[job]
    numbers = (str(n_steps), str(step_s), str(code), *["stubborn"] * is_stubborn)
    program = (sys.executable, _host_kills_training.__file__, str(folder / job), *numbers)
    request = JobRequest(
        argv=program, submitted_at=at, name=job, inherited=dict(os.environ), deadline_s=deadline_s, ceiling_cores=cores,
        floor_cores=cores or capacity_here().cores, n_retries=n_retries, checkpoint_dir=folder / job,
        goal=LossGoal(target=1e-9) if job == "goal" else None,
    )  # fmt: skip
    checked = checked_submission(request, capacity_here())
    return replace(checked, spec=replace(checked.spec, preemptible=job in PREEMPTIBLE))


class NoRoom:
    """Makes processes of jobs; for the first one there is no room."""

    def __init__(self) -> None:
        self._n_left = 1

    def made(self, *arguments: object) -> JobProcess:
        self._n_left -= 1
        if self._n_left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a page")
        return JobProcess.made(*arguments)  # type: ignore[arg-type]


def main(text: str) -> int:
    faulthandler.enable()
    told = json.loads(text)
    kill = Kill(told["kind"], told["nth"], told["moment"])
    KillingJournal.kill = kill
    composed.SqliteJournal = restore.SqliteJournal = KillingJournal  # type: ignore[misc]
    folder, run = Path(told["folder"]), run_named(RUN)
    if told["kind"] == GrantFailed.__name__ and not told["resumes"]:
        local.JobProcess = NoRoom()  # type: ignore[misc, assignment]
    if not told["resumes"]:
        options = HostOptions(actuator=told["actuator"], policy=told["policy"])
        with local_host(RUN, options, output_of=_unheard) as host:
            driver = Driver(host, kill, folder, is_stubborn=told["stubborn"])
            for job in JOBS:
                if job != LATE:
                    driver.submit(job)
            host.run(host.all_ended)
        return 0
    if told["sweeps"]:
        sweep()
    if not run.open_jobs():
        sweep()
        return 0
    try:
        with resumed_host(run, output_of=_unheard) as host:
            Driver(host, kill, folder, is_stubborn=told["stubborn"])
            host.run(host.all_ended)
    except InvalidSpec as error:
        if run.open_jobs() or "has ended" not in str(error):
            raise
        sweep()
    return 0


def _unheard(_: JobId) -> OnOutput:
    """What jobs write is of no interest."""
    return lambda _: None


def _job_of(message: Message) -> str | None:
    named = getattr(message, "spec", None) or getattr(message, "timer", None) or message
    job = getattr(named, "id", None) or getattr(named, "job", None)
    return None if not job else str(job)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
