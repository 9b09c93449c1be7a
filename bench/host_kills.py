"""Kill -9 at every kind of message: is a job lost, run twice, or anything left?

In a round a host with its policy in a worker process runs five small jobs: two with checkpoints that end by themselves
(one of them does not end on SIGTERM in a fifth of the rounds), one that is stopped by its user, one that fails, and one that
is submitted later and for which the others are paused.
When a message of a given kind comes for the n-th time, the host stands still: before the message is in the journal
(*unwritten*), when it is there and nothing has been done about it (*written*), or after (*performed*). Then processes
get SIGKILL: the host, a keeper, a guard, the policy's process, a job, or several of them in any order. A host that was
killed is resumed from its journal, which may be killed again; its users say again what they had said.

The kinds are all events and commands that there are. In rounds about a warning, or the loss of a node, the host posts it itself (jobs of a node
then count as lost), and in those about grants that fail it finds no room for the first page: neither can be had otherwise.

When all is over it must hold that

* the journal tells one end of each job that was submitted, nothing about it afterwards, and the end that it would have had undisturbed
  (a job that may not be retried may also have failed with its process);
* each job that finished did every step, and each of its processes went on from the last checkpoint;
* no two processes of a job were there at once, no job was started again but for a process that was killed, and
  none after its end;
* there is no process left, no control group, and with it no quota, no page, no file of a live run, and no file that only
  an open job needs.
"""

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

import _host_kills_process
from _common import RESULTS, commit, parser, print_table, write_results
from _host_kills_process import JOBS, RUN
from _host_kills_training import CHECKPOINT_STEPS
from simulator import table

from punctual.core.commands import Command
from punctual.core.events import Event, JobFinished, JobStarted
from punctual.core.ids import JobId
from punctual.core.lifecycle import ended_by
from punctual.core.protocols import Message
from punctual.executors.local.cgroup_files import FOLDER
from punctual.executors.local.mounts import hierarchy
from punctual.executors.local.page_files import pages_of
from punctual.runtime.paths import HOME_VARIABLE
from punctual.runtime.run_folder import Run, run_named
from punctual.runtime.runs import messages_of

KINDS = tuple(kind.__name__ for kind in (*get_args(Event), *get_args(Command)))
#: Those of which a round has several.
FREQUENT = {
    "JobSubmitted", "JobStarted", "ProgressReported", "GrantApplied", "PlanProposed", "TimerFired", "PhaseReported",
    "LossReported", "LaunchJob", "ResizeJob", "RequestPlan", "SetTimer",
}  # fmt: skip
MOMENTS = ("unwritten", "written", "performed")
#: Who is killed, in this order; of more than one, the order is drawn.
VICTIMS = (
    ("host",), ("keeper",), ("guard",), ("planner",), ("job",), ("host", "keeper"), ("host", "job"),
    ("host", "keeper", "guard"), ("host", "keeper", "guard", "planner", "job"),
)  # fmt: skip
POLICY = "earliest-deadline"
PATIENCE_S = 120.0
#: How long processes that are ending may be there after the last host.
_ENDING_S_MAX = 15.0
_QUICK_N = 6


@dataclass
class Round:
    """One round, and what became of it."""

    kind: str
    nth: int
    moment: str
    victims: tuple[str, ...]
    actuator: str
    seed: int
    stubborn: bool = False
    n_killed: int = 0
    n_hosts: int = 0
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)


class Place:
    """A home of its own, with the jobs of a round."""

    def __init__(self, folder: Path, round_: Round) -> None:
        self._round, self.folder = round_, folder
        self.environment = {**os.environ, HOME_VARIABLE: str(folder / "home")}
        self.run: Run = run_named(RUN)
        self.host_pids: list[int] = []
        self._rng = random.Random(round_.seed)
        self.n_taken: Counter[str] = Counter()
        self.output = folder / "output"

    def play(self) -> None:
        """Run hosts until one ends by itself."""
        second = self._rng.random() < 0.3
        plans = [(self._round.kind, self._round.nth, self._round.moment, self._round.victims)]
        if self._round.kind == "SteeringResumed":  # there must be one
            plans.insert(0, ("JobStarted", 2, "performed", ("host",)))
        elif second:
            plans.append((self._rng.choice(KINDS), 1, self._rng.choice(MOMENTS), ("host",)))
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            kind, nth, moment, victims = plans.pop(0) if plans else ("", 0, "", ())
            code = self._host(kind, nth, moment, victims, give_up_at)
            if code != -signal.SIGKILL:
                break
        if code:
            self._round.faults.append(f"a host ended with {code}: {self.output.read_text(errors='replace')[-3000:]}")

    def _host(self, kind: str, nth: int, moment: str, victims: Sequence[str], give_up_at: float) -> int:
        told = {
            "kind": kind, "nth": nth, "moment": moment, "folder": str(self.folder), "policy": POLICY,
            "actuator": self._round.actuator, "stubborn": self._round.stubborn, "resumes": bool(self.host_pids), "sweeps": self._rng.random() < 0.5,
        }  # fmt: skip
        command = [sys.executable, _host_kills_process.__file__, json.dumps(told)]
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output
            )
        assert process.stdin is not None
        assert process.stdout is not None
        self.host_pids.append(process.pid)
        self._round.n_hosts += 1
        try:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, give_up_at - time.monotonic()))
            line = process.stdout.readline() if ready else b""
            if line:
                self._kill(process.pid, json.loads(line)["job"], list(victims))
                with suppress(BrokenPipeError):
                    process.stdin.write(b"\n")
                    process.stdin.flush()
            return process.wait(max(1.0, give_up_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it says where it stands
            process.wait()
            return process.returncode
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            with suppress(BrokenPipeError):
                process.stdin.close()

    def _kill(self, host: int, job: str | None, victims: list[str]) -> None:
        self._rng.shuffle(victims)
        pids = {victim: self._pid_of(victim, host, job) for victim in victims}  # before the first of them is gone
        for victim in victims:
            name, pid = pids[victim]
            if pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self._round.n_killed += 1
                    self.n_taken[name] += victim in ("keeper", "job")

    def _pid_of(self, victim: str, host: int, job: str | None) -> tuple[str, int]:
        """The job that it is about, and the process; 0: it is not there."""
        if victim == "host":
            return "", host
        if victim == "planner":
            return "", next((pid for pid in children(host) if b"policy_worker" in words_of(pid)), 0)
        kept = [str(name) for name in self.run.kept_jobs()]
        name = job if job in kept else (kept[0] if kept else "")
        keeper = self.run.keeper_pid(JobId(name)) if name else None
        if keeper is None:
            return name, 0
        if victim == "keeper":
            return name, keeper
        if victim == "guard":
            parent = parent_of(keeper)
            return name, parent if b"keeper.py" in words_of(parent) else 0
        return name, next(iter(children(keeper)), 0)

    # What must hold.

    def check(self) -> None:
        faults = self._round.faults
        messages = messages_of(self.run) if self.run.journal.exists() else []
        accepted = self.folder / "submitted"
        for job in accepted.read_text().split() if accepted.exists() else ():
            faults += [f"job '{job}': {fault}" for fault in self._faults_of(job, messages)]
        faults += self._left()

    def _faults_of(self, job: str, messages: list[Message]) -> Iterator[str]:
        ends = [i for i, message in enumerate(messages) if ended_by(message) == job]
        if not ends:
            yield f"lost: {self.run.jobs().get(JobId(job), 'never recorded')}"
            return
        if len(ends) > 1:
            yield f"ended {len(ends)} times"
        if any(isinstance(message, JobStarted) and message.job == job for message in messages[ends[0] :]):
            yield "started after its end"
        has_finished = isinstance(messages[ends[0]], JobFinished)
        if has_finished == (job in ("stopped", "failing")):
            yield f"{messages[ends[0]]}"
        recorded = self.run.jobs().get(JobId(job))
        if recorded != ("finished" if has_finished else "failed"):
            yield f"recorded as {recorded}"
        yield from self._faults_of_work(job, has_finished)

    def _faults_of_work(self, job: str, has_finished: bool) -> Iterator[str]:
        if (self.folder / job / "twice").exists():
            yield "two processes at once"
        file = self.folder / job / "steps"
        lines = file.read_text().splitlines() if file.exists() else []
        n_starts = sum(line.startswith("start ") for line in lines)
        is_node_lost = (self.folder / "node-lost").exists()
        if n_starts > 1 + self.n_taken[job] + is_node_lost:
            yield f"started {n_starts} times, {self.n_taken[job]} of its processes were killed"
        # A process that was killed when it had done its work is started again, and finds nothing to do.
        if lines.count("end") > 1 + self.n_taken[job] + (is_node_lost and not has_finished):
            yield "done twice"
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
        if has_finished and (next_step != JOBS[job][0] or "end" not in lines):
            yield f"finished after {next_step} of {JOBS[job][0]} steps"

    def _left(self) -> list[str]:
        give_up_at = time.monotonic() + _ENDING_S_MAX
        while (alive := self._processes()) and time.monotonic() < give_up_at:
            time.sleep(0.05)
        faults = [f"process {pid} is left: {words_of(pid)!r}" for pid in alive]
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        controllers = ("cpu", "cpuacct", "freezer", "")
        trees = {tree.own / FOLDER for controller in controllers if (tree := hierarchy(controller))}
        groups = [group for tree in trees for pid in self.host_pids for group in tree.glob(f"{pid}-*")]
        faults += [f"group left: {group}" for group in groups]
        for page in pages_of(self.run.runtime_dir):
            faults.append(f"page left: {page}")
            page.unlink()
        if self.run.runtime_dir.exists():
            faults.append(f"live places left: {[file.name for file in self.run.runtime_dir.iterdir()]}")
        kept = {"journal.db", "run.json", *(f"{job}.log" for job in JOBS)}
        files = [file.name for file in self.run.state_dir.iterdir() if file.name not in kept]
        faults += [f"file left: {name}" for name in files if name not in ("journal.db-wal", "journal.db-shm")]
        return faults

    def _processes(self) -> list[int]:
        """Those of this round."""
        home = os.fsencode(f"{HOME_VARIABLE}={self.folder / 'home'}")
        alive = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                with suppress(OSError):
                    if home in (process / "environ").read_bytes().split(b"\0"):
                        alive.append(int(process.name))
        return alive


def children(pid: int) -> list[int]:
    """The processes that this one has started."""
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] or [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and parent_of(int(entry.name)) == pid
        ]
    return []


def parent_of(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return 0


def words_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def played(round_: Round) -> Round:
    """Play the round and write down what does not hold."""
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="host-kills-"))
    before = os.environ.get(HOME_VARIABLE)
    os.environ[HOME_VARIABLE] = str(folder / "home")
    try:
        place = Place(folder, round_)
        place.play()
        place.check()
    finally:
        if before is None:
            del os.environ[HOME_VARIABLE]
        else:
            os.environ[HOME_VARIABLE] = before
        if not round_.faults:
            shutil.rmtree(folder, ignore_errors=True)
    round_.took_s = time.monotonic() - begun
    return round_


def drawn(seed: int, n_rounds: int | None = None) -> list[Round]:
    """Rounds of every kind of message with every victim, before and after; None: all of them, once."""
    rng = random.Random(seed)
    chosen = [
        (kind, victims, rng.choice(moments))
        for kind in KINDS
        for victims in VICTIMS
        for moments in (("unwritten", "written"), ("performed",))
    ]
    made = [
        Round(
            kind=kind, nth=rng.randint(1, 3) if kind in FREQUENT else 1, moment=moment, victims=victims,
            actuator=rng.choice(("auto", "pacing")), seed=rng.randrange(1 << 30), stubborn=rng.random() < 0.2,
        )
        for kind, victims, moment in chosen
    ]  # fmt: skip
    rng.shuffle(made)
    if n_rounds is None:
        return made
    # First one of each kind that kills the host, then the rest.
    seen: set[str] = set()
    firsts = []
    for round_ in made:
        if "host" in round_.victims and round_.kind not in seen:
            seen.add(round_.kind)
            firsts.append(round_)
    return [*firsts, *(round_ for round_ in made if round_ not in firsts)][:n_rounds]


def _told(round_: Round) -> Round:
    print(json.dumps(asdict(round_)), file=sys.stderr, flush=True)
    return round_


def rows_of(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """By kind of message: rounds, processes killed, takeovers, rounds with a fault, and seconds a round."""
    rows = []
    for kind in KINDS:
        of_kind = [round_ for round_ in rounds if round_.kind == kind]
        rows.append({
            "kind": kind, "n_rounds": len(of_kind), "n_killed": sum(round_.n_killed for round_ in of_kind),
            "n_resumed": sum(round_.n_hosts - 1 for round_ in of_kind),
            "n_without_kill": sum(not round_.n_killed for round_ in of_kind),
            "n_faulty": sum(bool(round_.faults) for round_ in of_kind),
            "round_s": sum(round_.took_s for round_ in of_kind) / max(1, len(of_kind)),
        })  # fmt: skip
    return rows


HEADS = (
    "message",
    "rounds",
    "processes killed",
    "hosts resumed",
    "rounds without a kill",
    "rounds with a fault",
    "s/round",
)


def main() -> int:
    made = parser(__doc__ or "")
    made.add_argument("--rounds", type=int, help="so many; none: every kind with every victim")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--kind", choices=KINDS, help="this kind alone")
    made.add_argument("--victims", help="these alone: `host`, or `host,keeper`")
    options = made.parse_args()
    rounds = drawn(options.seed, _QUICK_N if options.quick else options.rounds)
    if options.kind:
        rounds = [round_ for round_ in drawn(options.seed) if round_.kind == options.kind]
    if options.victims:
        rounds = [round_ for round_ in rounds if round_.victims == tuple(options.victims.split(","))]
    results = [_told(played(round_)) for round_ in rounds[: options.rounds]]
    rows = rows_of(results)
    cells = [[*list(row.values())[:-1], f"{row['round_s']:.1f}"] for row in rows if row["n_rounds"]]
    print_table(HEADS, cells)
    n_faulty = sum(row["n_faulty"] for row in rows)
    last = (
        f"kill -9: {len(results) - n_faulty} of {len(results)} rounds without a fault (target: all), "
        f"{sum(row['n_killed'] for row in rows)} processes killed at "
        f"{sum(bool(row['n_killed']) for row in rows)} of {len(KINDS)} kinds of messages"
    )
    if not options.quick:
        told = {
            "commit": commit(),
            "load": os.getloadavg(),
            "seed": options.seed,
            "rounds": [asdict(r) for r in results],
        }
        write_results("host_kills", told)
        lines = table(list(HEADS), [[str(cell) for cell in row] for row in cells])
        page = "\n".join([f"{last}.", "", *lines, "", f"Measured at revision {commit()}.", ""])
        (RESULTS / "host_kills.md").write_text(page, encoding="utf-8")
    print(last)
    return int(bool(n_faulty))


if __name__ == "__main__":
    sys.exit(main())
