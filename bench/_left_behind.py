"""What jobs have done, and what is left of them, where somebody has disturbed their host."""

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from _host_kills_training import CHECKPOINT_STEPS

from punctual.daemon.paths import HOME_VARIABLE
from punctual.daemon.run_folder import RunFolder
from punctual.executors.local.cgroup_files import FOLDER
from punctual.executors.local.mounts import hierarchy

#: How long processes that are ending may be there after the last host.
_ENDING_S_MAX = 60.0


def faults_of_steps(lines: Sequence[str], n_steps: int | None) -> Iterator[str]:
    """What is wrong with the steps that a job's processes have written down; `n_steps`: all, if it has finished."""
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


def parent_of(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return 0


def words_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def processes_of(home: Path) -> list[int]:
    """The processes that have this home."""
    told = os.fsencode(f"{HOME_VARIABLE}={home}")
    alive = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with suppress(OSError):
                if told in (process / "environ").read_bytes().split(b"\0"):
                    alive.append(int(process.name))
    return alive


def faults_of_processes(home: Path) -> list[str]:
    """Those that stay when all is over, which are then killed."""
    give_up_at = time.monotonic() + _ENDING_S_MAX
    while (alive := processes_of(home)) and time.monotonic() < give_up_at:
        time.sleep(0.05)
    faults = [f"process {pid} is left: {words_of(pid)!r}" for pid in alive]
    for pid in alive:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return faults


def groups_of(
    hosts: Sequence[int], controllers: Sequence[str] = ("cpu", "cpuacct", "freezer", "memory", "")
) -> list[Path]:
    """The control groups that hosts with these process ids have made."""
    trees = {tree.own / FOLDER for controller in controllers if (tree := hierarchy(controller))}
    return [group for tree in trees for pid in hosts for group in tree.glob(f"{pid}-*")]


def faults_of_groups(hosts: Sequence[int]) -> list[str]:
    """Those that are left."""
    return [f"group left: {group}" for group in groups_of(hosts)]


def faults_of_files(run: RunFolder, jobs: Iterable[str]) -> Iterator[str]:
    """Files of a run that should be gone when all its jobs have ended."""
    if run.runtime_dir.exists():
        yield f"live places left: {[file.name for file in run.runtime_dir.iterdir()]}"
    kept = {"journal.db", "journal.db-wal", "journal.db-shm", "run.json", "jobs.jsonl"}
    kept |= {f"{job}.{ending}" for job in jobs for ending in ("log", "facts.json")}
    yield from (f"file left: {file.name}" for file in run.state_dir.iterdir() if file.name not in kept)
