"""The daemon of a round of `host_kills.py`: ``TOLD``, a JSON object with the round and what this daemon is to do.

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

from _faults_scenarios import SCENARIOS, Round
from _faults_training import MOVED, After, Job

from punctual.core.errors import InvalidSpec
from punctual.core.events import GrantFailed, JobStarted, JobWarned, NodeJoined, NodeLost, ProgressReported
from punctual.core.ids import JobId
from punctual.core.protocols import Message
from punctual.core.recent_messages import Reason
from punctual.core.status import JobStatus
from punctual.daemon import local_host as composed
from punctual.daemon import restore
from punctual.daemon.capacity import capacity_here
from punctual.daemon.daemon import Daemon
from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.host_executor import HERE
from punctual.daemon.host_options import HostOptions
from punctual.daemon.local_host import LocalHost
from punctual.daemon.run_folder import run_named
from punctual.daemon.sweeping import sweep
from punctual.executors.local import executor as local
from punctual.executors.local.launch import JobProcess
from punctual.journal.sqlite import SqliteJournal
from punctual.request.job_options import JobOptions
from punctual.request.spec_change import SpecChange
from punctual.request.submission import Submission, submission_of

RUN = "kills"
#: What an executor might have to say.
_WARNING = Reason("unreadable-progress", "said for the sake of the round")


class Kill:
    """Waits for the message at which processes are to be killed, and has them killed there, once."""

    def __init__(self, kind: str, nth: int, moment: str) -> None:
        self.kind, self._n_left, self._moment = kind, nth, moment

    def look(self, messages: Iterable[Message], moment: str) -> None:
        """`moment`: before the messages are *unwritten*, *written* and not performed, or *performed*."""
        for message in messages:
            if moment == self._moment and type(message).__name__ == self.kind:
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

    def __init__(self, host: LocalHost, kill: Kill, folder: Path, round_: Round) -> None:
        self._host, self._kill, self._folder, self._is_stubborn = host, kill, folder, round_.stubborn
        self._jobs = round_.jobs()
        self._n_started = 0
        self._n_first = sum(job.arrives is None for job in self._jobs.values())
        self._submitted: set[str] = set()
        #: What was said to this host already: it comes to it with its next event.
        self._said: set[tuple[str, str]] = set()
        self._loses_node = kill.kind == NodeLost.__name__
        self._warns = kill.kind == JobWarned.__name__
        host.subscribe(self.listen)

    def submit_first(self) -> None:
        """Submit the jobs that are there from the beginning."""
        for name, job in self._jobs.items():
            if job.arrives is None:
                self._submit(name)

    def listen(self, message: Message) -> None:
        self._kill.look([message], "performed")
        if isinstance(message, JobStarted):
            self._n_started += 1
            if self._loses_node and self._n_started == self._n_first:
                self._loses_node = False
                (self._folder / "node-lost").touch()
                self._host.post(NodeLost(at=self._host.now(), node=HERE))
        if self._warns and isinstance(message, JobStarted):
            self._warns = False
            self._host.post(JobWarned(at=self._host.now(), job=message.job, reason=_WARNING))
        if isinstance(message, NodeLost):
            self._host.post(NodeJoined(at=self._host.now(), node=HERE, capacity=capacity_here()))
        if isinstance(message, ProgressReported):
            self._go_on({status.id: status for status in self._host.jobs()})

    def _go_on(self, known: dict[JobId, JobStatus]) -> None:
        """Do what is to be done by now."""

        def is_time(after: After | None) -> bool:
            status = None if after is None else known.get(JobId(after[0]))
            return status is not None and after is not None and (status.ended or status.steps_done >= after[1])

        for name, job in self._jobs.items():
            status = known.get(JobId(name))
            if status is None:
                if is_time(job.arrives):
                    self._submit(name)
            elif status.state == "running":
                if is_time(job.stops) and self._is_new(name, "stop"):
                    self._host.stop(status.id, "by the user")
                is_moved = job.moves is not None and status.spec.deadline_s == job.moved_s
                if is_moved:
                    (self._folder / name / MOVED).touch()
                if is_time(job.moves) and not is_moved and not status.landed and self._is_new(name, "move"):
                    self._host.change(status.id, SpecChange(deadline_s=job.moved_s))

    def _is_new(self, name: str, what: str) -> bool:
        is_new = (name, what) not in self._said
        self._said.add((name, what))
        return is_new

    def _submit(self, name: str) -> None:
        """Submit the job unless the host has it; what it has accepted is written down."""
        if not self._host.knows(JobId(name)) and name not in self._submitted:
            self._submitted.add(name)
            is_stubborn = self._is_stubborn and self._jobs[name].is_stubborn
            self._host.submit(
                submission(name, self._jobs[name], self._folder, self._host.now(), is_stubborn=is_stubborn)
            )
            with (self._folder / "submitted").open("a") as accepted:
                accepted.write(f"{name}\n")


def submission(name: str, job: Job, folder: Path, at: float, *, is_stubborn: bool) -> Submission:
    place = folder / name
    most_cores = job.cores or capacity_here().cores
    options = JobOptions(
        program=job.command(place, is_stubborn=is_stubborn), name=name,
        deadline=None if job.deadline_s is None else f"{job.deadline_s}s",
        cores=None if job.workers else f"{most_cores}..{most_cores}" if job.is_rigid else f"{most_cores}",
        workers="{}..{}".format(*job.workers) if job.workers else None,
        retries=job.n_retries, checkpoint_dir=str(place), until="loss<1e-9" if job.has_goal else None,
    )  # fmt: skip
    checked = submission_of(options, at, capacity_here())
    return replace(checked, spec=replace(checked.spec, preemptible=job.preemptible))


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
    round_ = Round(**told["round"])
    kill = Kill(told["kind"], told["nth"], told["moment"])
    KillingJournal.kill = kill
    composed.SqliteJournal = restore.SqliteJournal = KillingJournal  # type: ignore[misc]
    folder, run = Path(told["folder"]), run_named(RUN)
    if told["kind"] == GrantFailed.__name__ and not told["resumes"]:
        local.JobProcess = NoRoom()  # type: ignore[misc, assignment]
    if not told["resumes"]:
        options = HostOptions(actuator=round_.actuator, policy=SCENARIOS[round_.scenario].policy)
        with Daemon(DaemonRequest(options=options, name=RUN)) as daemon:
            daemon.begin()
            Driver(daemon.host, kill, folder, round_).submit_first()
            daemon.run()
        return 0
    if told["sweeps"]:
        sweep()
    if not run.open_jobs():
        sweep()
        return 0
    try:
        with Daemon(DaemonRequest(run=RUN)) as daemon:
            daemon.begin()
            Driver(daemon.host, kill, folder, round_)
            daemon.run()
    except InvalidSpec as error:
        if run.open_jobs() or "has ended" not in str(error):
            raise
        sweep()
    return 0


def _job_of(message: Message) -> str | None:
    named = getattr(message, "spec", None) or getattr(message, "timer", None) or message
    job = getattr(named, "id", None) or getattr(named, "job", None)
    return None if not job else str(job)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
