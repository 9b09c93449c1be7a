"""A service of its own home on a small disk, and what can be done to it.

As a program, ``FILE ARGUMENT...``, it is `punctual ARGUMENT...` that kills itself at the message that FILE names, once: before
the message is in the journal (*unwritten*), when it is there and nothing has been done about it (*written*), or after (*performed*).
"""

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import _faults_training
from _faults import groups_of
from _faults_training import Job

from punctual.client.client import Client, ServiceFailed
from punctual.client.schema import JobStanding
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted, Message, PauseRequested, ResumeRequested, SpecChanged, StopRequested
from punctual.core.lifecycle import ended_by
from punctual.daemon.paths import HOME_VARIABLE
from punctual.daemon.run_folder import RunFolder, run_named
from punctual.executors.local.cgroup_files import COMMAND_GROUP
from punctual.journal.sqlite import SqliteJournal

# Users: what they ask between faults, and what was acknowledged.

#: The job that is there from the first fault of a session to its last: it waits until it is let go.
ANCHOR = "anchor"
#: A job, the one that waits, and one that crashes half-way, is started again and has a deadline that can be promised.
_JOB = Job(n_steps=80, compute_s=0.004, sleep_s=0.05)
_ANCHOR = replace(_JOB, n_steps=60, waits_at=30)
_CRASHING = replace(_JOB, crashes_at=43)
#: So many jobs beside it are open when a fault comes.
N_OPEN = 3
_ANSWER_S_MAX = 20.0
#: What two wishes for deadlines differ in, in seconds, so that each can be told from all others.
_DEADLINE_STEP_S = 1000.0
#: Between the clock by which a service reads a deadline and the instant that its journal has for it.
_READING_S = 60.0
_KINDS = {
    "pause": PauseRequested, "resume": ResumeRequested, "stop": StopRequested, "change": SpecChanged,
}  # fmt: skip


@dataclass
class Wish:
    """Something that was asked of the service.

    Attributes
    ----------
    from_at, to_at
        Monotonic instants between which it was asked and answered.
    """

    kind: str
    job: str
    mark: str
    deadline_s: float
    from_at: float
    to_at: float = 0.0
    is_acknowledged: bool = False  # The service has said that it is so; else it has refused, or was not heard.
    may_be_done: bool = True


class Users:
    """Ask a service for things over HTTP, and write down what it has acknowledged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.wishes: list[Wish] = []
        self.jobs: dict[str, Job] = {}
        #: Asks nothing but how jobs stand.
        self.client = Client(timeout_s=_ANSWER_S_MAX)

    def submit(self, name: str) -> None:
        """Submit a job; said again with the same key until it is acknowledged."""
        job = _ANCHOR if name == ANCHOR else _CRASHING if name.endswith("0") else _JOB
        self.jobs[name] = job
        place, deadline = self._folder / name, {"deadline": "60s"} if job.crashes_at else {}
        self._wish("submit", name, lambda _: self.client.submit(
            job.command(place), idempotency_key=name, name=name, checkpoint_dir=str(place), retries=9,
            env={"PYTHONPATH": str(Path(_faults_training.__file__).parent)}, **deadline,
        ))  # fmt: skip

    def open_jobs(self) -> list[str]:
        """Return the jobs that have not ended, without the one that waits."""
        return [job.name for job in self.client.jobs() if job.ended is None and job.name != ANCHOR]

    def act(self, rng: random.Random, jobs: Sequence[str]) -> None:
        """Ask for something that is drawn."""
        kind = rng.choices(("pause", "resume", "change", "stop"), (3, 3, 3, 1))[0]
        self._wish(kind, rng.choice([*jobs, *([ANCHOR] if kind == "change" else [])]), self._ways()[kind])

    def let_go(self, job: JobStanding) -> None:
        """Have nothing hold up a job: no pause, and no deadline for which it may take its time."""
        with suppress(InvalidSpec, ServiceFailed):
            if job.ended is None and job.state in ("paused", "queued"):
                self.client.resume(job.name)
        with suppress(InvalidSpec, ServiceFailed):
            if job.ended is None and job.deadline is not None:
                self.client.change(job.name, deadline=None)

    def _ways(self) -> dict[str, Callable[[Wish], object]]:
        client = self.client
        return {
            "pause": lambda wish: client.pause(wish.job, wish.mark),
            "resume": lambda wish: client.resume(wish.job),
            "change": lambda wish: client.change(wish.job, deadline=f"{wish.deadline_s:.0f}s"),
            "stop": lambda wish: client.stop(wish.job, wish.mark),
        }

    def _wish(self, kind: str, job: str, way: Callable[[Wish], object]) -> None:
        number = len(self.wishes) + 1
        wish = Wish(kind, job, f"wish {number}.", 1e4 + number * _DEADLINE_STEP_S, time.monotonic())
        self.wishes.append(wish)
        try:
            way(wish)
            wish.is_acknowledged = True
        except InvalidSpec:
            wish.may_be_done = False
        except ServiceFailed as error:
            wish.may_be_done = error.status in {None, 503}
        wish.to_at = time.monotonic()

    # What must hold since.

    def faults(self, messages: Sequence[Message]) -> Iterator[str]:
        """Yield wishes that the journal lacks though they were acknowledged, or has twice."""
        for wish in self.wishes:
            n_times = self._n_times(wish, messages)
            if wish.is_acknowledged and not n_times and not self._had_ended(wish, messages):
                yield f"job '{wish.job}': an acknowledged {wish.kind} is forgotten"
            if n_times > 1:
                yield f"job '{wish.job}': {wish.kind} was done {n_times} times"

    def paused(self) -> list[str]:
        """The jobs that stand paused for sure: nothing was asked since that may have been done."""
        last = {wish.job: wish for wish in self.wishes if wish.kind in ("pause", "resume") and wish.may_be_done}
        return [job for job, wish in last.items() if wish.kind == "pause" and wish.is_acknowledged]

    def was_submitted(self, name: str) -> bool:
        """Whether the service has acknowledged the job."""
        return any(wish.kind == "submit" and wish.job == name and wish.is_acknowledged for wish in self.wishes)

    def was_stopped(self, name: str) -> bool:
        """Whether somebody asked that, heard or not."""
        return any(wish.kind == "stop" and wish.job == name and wish.may_be_done for wish in self.wishes)

    def _n_times(self, wish: Wish, messages: Sequence[Message]) -> int:
        if wish.kind == "submit":
            return sum(isinstance(message, JobSubmitted) and message.spec.id == wish.job for message in messages)
        return sum(_is_about(wish, message, messages) for message in messages)

    def _had_ended(self, wish: Wish, messages: Sequence[Message]) -> bool:
        """Whether there was nothing to be done about the job any more; its stop is then acknowledged as well."""
        return wish.kind == "stop" and any(
            ended_by(message) == wish.job and message.at <= wish.to_at for message in messages
        )


def _is_about(wish: Wish, message: Message, messages: Sequence[Message]) -> bool:
    if not isinstance(message, _KINDS[wish.kind]):
        return False
    if isinstance(message, PauseRequested | StopRequested):
        return message.job == wish.job and message.cause.endswith(wish.mark)
    if isinstance(message, ResumeRequested):
        return message.job == wish.job and wish.from_at <= message.at <= wish.to_at
    assert isinstance(message, SpecChanged)
    if message.spec.id != wish.job or message.spec.deadline_s is None:
        return False
    submitted_at = next(told.at for told in messages if isinstance(told, JobSubmitted) and told.spec.id == wish.job)
    return abs(submitted_at + message.spec.deadline_s - message.at - wish.deadline_s) < _READING_S


# A service of its own home on a small disk.

#: A service that says nothing for so long hangs.
PATIENCE_S = 60.0
_DISK_BYTES = 24 << 20
#: What each process of a service reads at its start: its wall clock shows what a file says beside it. The monotonic clock
#: stays as it is. (libfaketime 0.9.10 has `time.sleep` of Python 3.11 fail.)
_FAKE_CLOCK = """
import pathlib, time
_file, _real = pathlib.Path(__file__).with_name("by_s"), time.time
time.time = lambda: _real() + float(_file.read_text())
"""


class LiveService:
    """`punctual up`, started again whenever it is gone; `pids` are those of all that there were."""

    def __init__(self, folder: Path, actuator: str) -> None:
        self.folder, self.home = folder, folder / "home"
        self._options = ["--actuator", actuator]
        self._clock, self._output = folder / "clock" / "by_s", folder / "service.log"
        self._kill_at = folder / "kill-at"
        self._clock.parent.mkdir()
        self._clock.with_name("sitecustomize.py").write_text(_FAKE_CLOCK)
        self.step_clock(0)
        self.pids: list[int] = []
        self._outputs = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self.run: RunFolder = run_named("daemon")

    # Its process.

    def start(self) -> str | None:
        """Start it, and return once it answers; else what it says why it does not."""
        said_before = self._output.stat().st_size if self._output.exists() else 0
        with self._output.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, __file__, self._kill_at, "up", "--listen", "127.0.0.1:0", "--json", *self._options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output, env=self._environment(),
            )  # fmt: skip
        assert process.stdout is not None
        self._outputs.callback(process.stdout.close)
        self.pids.append(process.pid)
        line = b""
        if select.select([process.stdout], [], [], PATIENCE_S)[0]:
            line = process.stdout.readline()
        if line:
            self._process = process
            return None
        process.kill()
        code = process.wait()
        return f"ended with {code}: {self._output.read_bytes()[said_before:].decode(errors='replace')[-2000:]}"

    def is_there(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def replace(self) -> tuple[str | None, "subprocess.Popen[bytes]"]:
        """Start another one beside the one that there is: why that did not start, and the one before."""
        before = self.process
        return self.start(), before

    def end(self) -> str | None:
        """End it as its user does; what is wrong about that."""
        if not self.is_there():
            return "the service was not there at the end"
        self.process.terminate()
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return "the service did not end"
        return None if code == 0 else f"the service ended with {code}"

    def close(self) -> None:
        """Close what its processes have written to."""
        self._outputs.close()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill_at(self, kind: str, moment: str) -> None:
        """Have the service kill itself at the next message of this kind; no kind: not at all."""
        written = self._kill_at.with_suffix(".new")
        written.write_text(f"{kind} {moment}")
        written.replace(self._kill_at)

    def said(self) -> str:
        """The last of what its processes have said."""
        return self._output.read_text(errors="replace")[-3000:] if self._output.exists() else ""

    def _environment(self) -> dict[str, str]:
        places = [str(self._clock.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return {**os.environ, HOME_VARIABLE: str(self.home), "PYTHONPATH": os.pathsep.join(filter(None, places))}

    def quotas_cores(self) -> dict[str, float]:
        """Return the cores that the control groups of its jobs allow them; without a quota that is the whole machine.

        A job that stands still is allowed nothing, whatever its quota says.
        """
        spared = {group.name for group in groups_of(self.pids, ("freezer", "")) if _is_frozen(group)}
        spared |= {f"{pid}-{COMMAND_GROUP}" for pid in self.pids}  # the service itself
        cores: dict[str, float] = {}
        for group in groups_of(self.pids, ("cpu",)):
            quota, period = (_said(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
            moving = [pid for pid in _said(group / "cgroup.procs").split() if not _is_stopped(pid)]
            if group.name not in spared and quota and period and moving:
                cores[group.name] = (os.cpu_count() or 1) if int(quota) < 0 else int(quota) / int(period)
        return cores

    # Its world.

    def step_clock(self, by_s: int) -> None:
        """Have the wall clock of services show another time, from now on."""
        written = self._clock.with_suffix(".new")
        written.write_text(f"{by_s:+d}\n")
        written.replace(self._clock)

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Fill the disk meanwhile."""
        filler = self.home / "filler"
        with filler.open("ab", buffering=0) as file:
            for n_bytes in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while file.write(b"x" * n_bytes):
                        pass
        try:
            yield
        finally:
            filler.unlink()

    @contextmanager
    def read_only_store(self) -> Iterator[None]:
        """Let nothing be opened for writing where journals are; open files stay so."""
        place = str((self.home / "state").resolve())
        _mount("--bind", place, place)
        try:
            _mount("-o", "remount,bind,ro", place)
            yield
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """The home in `folder` lies on a small disk meanwhile."""
    place = folder / "disk"
    place.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={_DISK_BYTES},mode=700", "tmpfs", str(place))
    try:
        (folder / "home").symlink_to(place)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _is_frozen(group: Path) -> bool:
    return _said(group / "freezer.state") == "FROZEN" or "frozen 1" in _said(group / "cgroup.events")


def _is_stopped(pid: str) -> bool:
    """Whether a signal has it stand still, as jobs are paused where there is no freezer."""
    return _said(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] == ["T"]


def _said(file: Path) -> str:
    """Return the text of a control group's file; empty: the group is gone."""
    with suppress(OSError):
        return file.read_text().strip()
    return ""


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def code_of(process: "subprocess.Popen[bytes]") -> int | None:
    """Return its exit status; None: it does not end."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(PATIENCE_S)
    return None


# The program.

MOMENTS = ("unwritten", "written", "performed")


def main(kill_at: Path, *arguments: str) -> None:
    from punctual.cli import main as command

    append, is_due = SqliteJournal.append, False

    def kill() -> None:
        kill_at.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

    def killing(journal: SqliteJournal, messages: Iterable[Message]) -> int:
        nonlocal is_due
        rows = list(messages)
        kind, _, moment = _said(kill_at).partition(" ")
        comes = any(type(message).__name__ == kind for message in rows)
        if is_due or (comes and moment == "unwritten"):
            kill()
        sequence = append(journal, rows)
        if comes and moment == "written":
            kill()
        is_due = comes  # what follows from a message is written after it was done
        return sequence

    SqliteJournal.append = killing  # type: ignore[method-assign, assignment]
    sys.argv = ["punctual", *arguments]
    command()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
