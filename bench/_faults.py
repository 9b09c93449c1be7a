"""Victims of the benchmarks that kill processes, and what must hold after they were hit.

`kills.py` hits workers and agents of one training, or a daemon with what belongs to it; `service_faults.py` a service under its
users. What they hit is a job of `_faults_training.py`.
"""

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from _faults_training import CHECKPOINT_STEPS, Job
from _processes import children, processes_of, wait_for_daemons

from punctual.core.commands import RejectJob
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    Message,
    PauseRequested,
    PlanProposed,
    ResumeRequested,
    SpecChanged,
    SteeringResumed,
    StopRequested,
)
from punctual.core.ids import JobId
from punctual.core.lifecycle import ended_by
from punctual.core.resources import total
from punctual.daemon.run_folder import RunFolder
from punctual.executors.local.cgroup_files import FOLDER, hierarchy

#: Of sums of cores.
ROUNDING_CORES = 1e-6


# Victims.


def pid_of(victim: str, service_pid: int, run: RunFolder, job: str) -> int:
    """Process id of a victim: the service itself, or a helper of it or of a job; 0: it is not there."""
    if victim == "service":
        return service_pid
    if victim == "planner":
        return next((pid for pid in children(service_pid) if b"policy_worker" in words_of(pid)), 0)
    keeper = run.supervisor_pid(JobId(job)) if job else None
    if keeper is None or victim == "keeper":
        return keeper or 0
    return next(iter(children(keeper)), 0)


def watcher_of(daemon_pid: int) -> int:
    """Process that starts a daemon again if it is killed; 0: there is none, or not any more."""
    parent = parent_of(daemon_pid) if daemon_pid else 0
    return parent if b"punctual.api.watcher" in words_of(parent) else 0


def send(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal to a process; whether it was there."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def parent_of(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return 0


def words_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


# What must hold of jobs.


def faults_of_work(place: Path, job: Job, n_taken: int, *, has_finished: bool) -> Iterator[str]:
    """Return what a job's processes have written in `place` that must not be; `n_taken` of them were killed."""
    if (place / "twice").exists():
        yield "two processes at once"
    file = place / "steps"
    lines = file.read_text().splitlines() if file.exists() else []
    n_starts = sum(line.startswith("start ") for line in lines)
    has_crashed = (place / "crashed").exists()
    if n_starts > 1 + has_crashed + n_taken:
        yield f"started {n_starts} times, {n_taken} of its processes were killed"
    if has_finished and has_crashed != (job.crashes_at is not None):
        yield "has not crashed"
    # A process that was killed when it had done its work is started again, and finds nothing to do.
    if lines.count("end") > 1 + n_taken:
        yield "done twice"
    if has_finished and "end" not in lines:
        yield "finished before its end"
    yield from faults_of_steps(lines, job.n_steps if has_finished else None)


def faults_of_steps(lines: Sequence[str], n_steps: int | None) -> Iterator[str]:
    """Return what is wrong with the steps that a job's processes have written down; `n_steps`: all, if it has finished."""
    next_step = 0
    for line in lines:
        if line.startswith("start "):
            start = int(line.split()[1])
            if start > next_step or start < next_step - next_step % CHECKPOINT_STEPS - CHECKPOINT_STEPS:
                yield f"began at {start} after {next_step}"
            next_step = start
        elif line.isdigit():
            if int(line) != next_step:
                yield f"step {line} where {next_step} was due"
            next_step += 1
    if n_steps is not None and next_step != n_steps:
        yield f"finished after {next_step} of {n_steps} steps"


def faults_of_end(name: str, messages: Sequence[Message], n_taken: int, *, may_stop: bool) -> Iterator[str]:
    """Return what is wrong about the end of a job, of which there is one, and which may be that of a job that was stopped.

    One with `n_taken` killed processes may be given up, if it has done no step between two of them.
    """
    ends = [i for i, message in enumerate(messages) if ended_by(message) == name]
    if len(ends) != 1:
        yield f"has ended {len(ends)} times"
    if ends and any(isinstance(message, JobStarted) and message.job == name for message in messages[ends[0] :]):
        yield "started after its end"
    for end in (messages[i] for i in ends[:1] if not may_stop):
        is_given_up = isinstance(end, RejectJob) and end.reason.code == "failed-again" and n_taken > 1
        if not isinstance(end, JobFinished) and not is_given_up:
            yield f"{end}"


# What must hold of the journal.


def faults_of_promises(messages: Sequence[Message]) -> Iterator[str]:
    """Return promises that are forgotten.

    A promise holds until its job ends, is paused or to stop, its deadline is moved or has come, or the job is told that it is lost.
    """
    promised, due_at, submitted_at, paused = dict[str, float](), dict[str, float](), dict[str, float](), set[str]()
    for message in messages:
        if isinstance(message, PauseRequested):
            paused.add(message.job)
            promised.pop(message.job, None)
        elif isinstance(message, ResumeRequested):
            paused.discard(message.job)
        if isinstance(message, JobSubmitted | SpecChanged):
            job = str(message.spec.id)
            submitted_at.setdefault(job, message.at)
            due_at.pop(job, None)
            promised.pop(job, None)
            if message.spec.deadline_s is not None:
                due_at[job] = submitted_at[job] + message.spec.deadline_s
        elif (ended := message.job if isinstance(message, StopRequested) else ended_by(message)) is not None:
            promised.pop(ended, None)
            due_at.pop(ended, None)
        elif isinstance(message, PlanProposed) and message.plan is not None and message.plan.promises is not None:
            told = {str(name): at for name, at in message.plan.promises.items()}
            for name, at in promised.items():
                warning = message.plan.warnings.get(JobId(name))
                is_lost = warning is not None and warning.code == "promise-lost"
                if told.get(name) != at and message.at < at and not is_lost:
                    yield f"job '{name}' was promised {at:.3f}, and plan {message.revision} does not know of it"
            held = {name: at for name, at in told.items() if abs(at - due_at.get(name, -1.0)) < 1e-6}
            promised = {name: at for name, at in held.items() if name not in paused}


def faults_of_grants(messages: Sequence[Message], capacity_cores: float) -> Iterator[str]:
    """Return grants that gave out more than the machine has.

    A new service may find more: nobody had held jobs to their quotas. It may also have found one that ended before it says so.
    """
    granted, ended = dict[str, float](), set[str]()
    for message in messages:
        before = sum(granted.values())
        if isinstance(message, SteeringResumed):
            found = {job: total(allocation.values()).cores for job, allocation in message.granted.items()}
            granted = {job: cores for job, cores in found.items() if job not in ended}
        elif isinstance(message, JobStarted | GrantApplied | GrantFailed):
            ended.discard(message.job)
            granted[message.job] = total(message.granted.values()).cores
            if sum(granted.values()) > max(before, capacity_cores) + ROUNDING_CORES:
                yield f"{sum(granted.values()):.3f} of {capacity_cores:g} cores were granted, by {message}"
        elif isinstance(message, JobFinished | JobFailed):
            granted.pop(message.job, None)
            ended.add(message.job)


# What is left.


def faults_of_rest(home: Path, run: RunFolder, pids: Sequence[int], jobs: Iterable[str]) -> Iterator[str]:
    """Return what is left when all is over; processes that stay are killed."""
    wait_for_daemons(home)
    for pid in processes_of(home):
        yield f"process {pid} is left: {words_of(pid)!r}"
        send(pid)
    yield from (f"group left: {group}" for group in groups_of(pids))
    yield from (f"socket left: {file}" for file in home.resolve().rglob("*.sock"))
    if run.runtime_dir.exists():
        yield f"live places left: {[file.name for file in run.runtime_dir.iterdir()]}"
    kept = {
        "journal.db",
        "journal.db-wal",
        "journal.db-shm",
        *(f"{job}.log{end}" for job in jobs for end in ("", ".err")),
    }
    yield from (f"file left: {file.name}" for file in run.state_dir.iterdir() if file.name not in kept)


def groups_of(
    pids: Sequence[int], controllers: Sequence[str] = ("cpu", "cpuacct", "freezer", "memory", "")
) -> list[Path]:
    """The control groups that services with these process ids have made."""
    trees = {tree.own / FOLDER for controller in controllers if (tree := hierarchy(controller))}
    return [group for tree in trees for pid in pids for group in tree.glob(f"{pid}-*")]
