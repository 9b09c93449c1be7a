"""The harness of the benchmarks that kill processes: victims, what must hold after they were hit, and how that is told.

`kills.py` hits workers, agents, daemons and commands of one training, `host_kills.py` a host and its helpers at each kind of
message, `service_faults.py` a service under its users. What they hit is a job of `_faults_training.py`.
"""

import os
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from _common import (
    PageOf,
    Results,
    conclude,
    markdown_table,
    on_record,
    parser,
    print_table,
    stamp,
    stamp_text,
    write_results,
)
from _faults_training import CHECKPOINT_STEPS, Job
from _processes import children, processes_of, wait_until

from punctual.core.ids import JobId
from punctual.daemon.run_folder import RunFolder
from punctual.executors.local.cgroup_files import FOLDER
from punctual.executors.local.mounts import hierarchy

#: How long processes that are ending may be there after the last host.
_ENDING_S_MAX = 60.0


# Victims.


def pid_of(victim: str, host_pid: int, run: RunFolder, job: str) -> int:
    """Process id of a victim: the host or service itself, or a helper of it or of a job; 0: it is not there."""
    if victim in ("host", "service"):
        return host_pid
    if victim == "planner":
        return next((pid for pid in children(host_pid) if b"policy_worker" in words_of(pid)), 0)
    keeper = run.keeper_pid(JobId(job)) if job else None
    if keeper is None:
        return 0
    if victim == "keeper":
        return keeper
    if victim == "guard":
        parent = parent_of(keeper)
        return parent if b"supervisor.py" in words_of(parent) else 0
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


# What must hold of jobs.


def faults_of_work(
    place: Path, job: Job, n_taken: int, *, has_finished: bool, is_node_lost: bool = False
) -> Iterator[str]:
    """Return what a job's processes have written in `place` that must not be; `n_taken` of them were killed."""
    if (place / "twice").exists():
        yield "two processes at once"
    file = place / "steps"
    lines = file.read_text().splitlines() if file.exists() else []
    n_starts = sum(line.startswith("start ") for line in lines)
    has_crashed = (place / "crashed").exists()
    if n_starts > 1 + has_crashed + n_taken + is_node_lost:
        yield f"started {n_starts} times, {n_taken} of its processes were killed"
    if has_finished and has_crashed != (job.crashes_at is not None):
        yield "has not crashed"
    # A process that was killed when it had done its work is started again, and finds nothing to do.
    if lines.count("end") > 1 + n_taken + (is_node_lost and not has_finished):
        yield "done twice"
    if has_finished and "end" not in lines:
        yield "finished before its end"
    if not job.workers:
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


# What is left.


def faults_of_rest(home: Path, run: RunFolder, host_pids: Sequence[int], jobs: Iterable[str]) -> Iterator[str]:
    """Return what is left when all is over; processes that stay are killed."""
    yield from faults_of_processes(home)
    yield from (f"group left: {group}" for group in groups_of(host_pids))
    yield from (f"socket left: {file}" for file in home.resolve().rglob("*.sock"))
    yield from faults_of_files(run, jobs)


def parent_of(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return 0


def words_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def faults_of_processes(home: Path) -> list[str]:
    """Return the processes that stay, and kill them."""
    wait_until(lambda: not processes_of(home), _ENDING_S_MAX, 0.05)
    alive = processes_of(home)
    faults = [f"process {pid} is left: {words_of(pid)!r}" for pid in alive]
    for pid in alive:
        send(pid)
    return faults


def groups_of(
    hosts: Sequence[int], controllers: Sequence[str] = ("cpu", "cpuacct", "freezer", "memory", "")
) -> list[Path]:
    """The control groups that hosts with these process ids have made."""
    trees = {tree.own / FOLDER for controller in controllers if (tree := hierarchy(controller))}
    return [group for tree in trees for pid in hosts for group in tree.glob(f"{pid}-*")]


def faults_of_files(run: RunFolder, jobs: Iterable[str]) -> Iterator[str]:
    """Return files of a run that should be gone when all its jobs have ended."""
    if run.runtime_dir.exists():
        yield f"live places left: {[file.name for file in run.runtime_dir.iterdir()]}"
    kept = {"journal.db", "journal.db-wal", "journal.db-shm", "run.json", "jobs.jsonl"}
    kept |= {f"{job}.{ending}" for job in jobs for ending in ("log", "facts.json")}
    yield from (f"file left: {file.name}" for file in run.state_dir.iterdir() if file.name not in kept)


# What is told.


@dataclass(frozen=True)
class Part:
    """Runs of one kind: how they are made, their table, what did not hold in them, and notes below the table."""

    measure: Callable[[Namespace], Results]
    heads: Sequence[str]
    rows: Callable[[Results], list[list[str]]]
    short: Callable[[Results], list[str]]
    notes: Callable[[Results], list[str]] = lambda _: []


#: Parts by name; one without a name is all of its results.
Parts = Mapping[str, Part]


def parts_of(parts: Parts, results: Results) -> dict[str, Results]:
    """Return the results of each part that was measured."""
    return {name: results[name] if name else results for name in parts if not name or name in results}


def page_of(parts: Parts, results: Results, figure: Callable[[dict[str, Results]], str]) -> str:
    """Return the key figure, and the table, the notes and the stamp of each part."""
    found = parts_of(parts, results)
    lines = [f"{figure(found)}.", ""]
    for name, part in found.items():
        lines += [*markdown_table(parts[name].heads, parts[name].rows(part)), ""]
        for note in parts[name].notes(part):
            lines += [note, ""]
        lines += [stamp_text(part), ""]
    return "\n".join(lines)


def parser_of(description: str, parts: Parts) -> ArgumentParser:
    """Return a command line that takes one part, and a seed."""
    made = parser(description)
    made.set_defaults(part=None)
    if len(parts) > 1:
        made.add_argument("--part", choices=tuple(parts), help="measure this one alone; the others are as on record")
    made.add_argument("--seed", type=int, default=0)
    return made


def conclude_parts(
    name: str, parts: Parts, options: Namespace, figure: Callable[[dict[str, Results]], str], page: PageOf | None
) -> int:
    """Measure the parts that are asked for, write them unless `page` is None, print tables and the last line."""
    made = {key: parts[key].measure(options) for key in parts if options.part in (None, key)}
    for key, part in made.items():
        print_table(parts[key].heads, parts[key].rows(part))
        print()
    if page is not None:
        before = {} if options.quick else parts_of(parts, on_record(name))
        nested = {**before, **{key: {"stamp": stamp(), **part} for key, part in made.items()}}
        write_results(name, nested.get("", nested), page, quick=options.quick)
    short = [f"{key}: {fault}" if key else fault for key, part in made.items() for fault in parts[key].short(part)]
    return conclude(figure(made), short)
