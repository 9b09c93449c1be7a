"""Trainings on three real Ray nodes of this machine, and a node that is lost in the middle.

All times are in seconds from the beginning, all work is in core-seconds.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from _contention_jobs import TOLERANCE_FRAC, Load
from _ray_nodes import RayNodes

from punctual.core.events import NodeLost
from punctual.core.ids import JobId
from punctual.core.protocols import Message
from punctual.daemon.host_options import HostOptions
from punctual.daemon.local_host import LocalHost, local_host
from punctual.executors.local.job_signals import descendants
from punctual.executors.local.process_tree import cpu_clock_ns
from punctual.request.job_options import JobOptions
from punctual.request.spec_change import SpecChange
from punctual.request.submission import submission_of

CORES, N_NODES = 0.5, 3
#: Trainings that fit on three nodes, each of which has half a core; and that fit on two of them for the rest of the time.
LOADS = (
    Load(name="long", app="regression", work_core_s=22.0, deadline_s=110.0),
    Load(name="near", app="regression", work_core_s=12.0, deadline_s=50.0),
    Load(name="tightened", app="regression", at=2.0, work_core_s=14.0, deadline_s=110.0, moved_at=20.0, moved_s=-20.0),
    Load(name="plain", app="regression", at=4.0, work_core_s=10.0, deadline_s=80.0),
    Load(name="background", app="regression", at=6.0, work_core_s=6.0, deadline_s=None),
    Load(name="urgent", app="regression", at=12.0, work_core_s=7.0, deadline_s=40.0),
)
#: When the node of `long` is lost, and after how long that counts; with it there is more time.
LOST_AT, LOST_AFTER_S = 18.0, 12.0
_MORE_TIME = {"fits": 1.0, "a node is lost": 1.5}
_RUN_S_MAX = 400.0


@dataclass(kw_only=True)
class Seen:
    """Outcome of the trainings, by name: how late as a share of the deadline (None: it has none), and how they ended."""

    kind: str
    late_frac: dict[str, float | None] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    lost_noticed_s: float | None = None
    quotes_s: list[float] = field(default_factory=list)
    lasted_s: float = 0.0
    bridge_cores: float = 0.0

    @property
    def dated(self) -> dict[str, float]:
        return {name: late for name, late in self.late_frac.items() if late is not None}

    @property
    def n_on_time(self) -> int:
        return sum(late <= TOLERANCE_FRAC for late in self.dated.values())


def step_core_s(folder: Path, few: int = 20, many: int = 80) -> float:
    """Return what a step costs here, from a short and a longer training: in this process it would cost a part of that."""
    used = {n: _used_core_s([*_training(n, folder / f"{n}.weights")]) for n in (few, many)}
    return (used[many] - used[few]) / (many - few)


def _used_core_s(command: Sequence[str]) -> float:
    process = subprocess.Popen(command)
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime


def _training(n_steps: int, weights: Path) -> tuple[str, ...]:
    return sys.executable, str(Path(__file__).with_name("_regression.py")), str(n_steps), str(weights)


class Play:
    """The trainings of one play, and what their users do, beside the thread that steers them."""

    def __init__(self, kind: str, host: LocalHost, nodes: RayNodes, folder: Path, each_core_s: float) -> None:
        self.seen = Seen(kind=kind)
        self._host, self._nodes, self._folder, self._each_core_s = host, nodes, folder, each_core_s
        self._begun_at = time.monotonic()
        self._killed_at = 0.0
        self._is_over = False
        host.subscribe(self._listen)

    def run(self) -> Seen:
        acts: list[tuple[float, Callable[[Load], None], Load]] = []
        acts += [(load.at, self._submit, load) for load in self._loads()]
        acts += [(load.moved_at, self._move, load) for load in self._loads() if load.moved_at is not None]
        if self.seen.kind != "fits":
            acts.append((LOST_AT, self._lose, LOADS[0]))
        before_s = _bridge_core_s()
        threading.Thread(target=self._act, args=(sorted(acts, key=lambda act: act[0]),), daemon=True).start()
        self._host.run_for(_RUN_S_MAX, lambda: self._is_over and self._host.all_ended())
        self.seen.lasted_s = time.monotonic() - self._begun_at
        self.seen.bridge_cores = (_bridge_core_s() - before_s) / self.seen.lasted_s
        for load in self._loads():
            self._note(load)
        return self.seen

    def _loads(self) -> Sequence[Load]:
        more = _MORE_TIME[self.seen.kind]
        return [replace(load, deadline_s=load.deadline_s and more * load.deadline_s) for load in LOADS]

    def _act(self, acts: Sequence[tuple[float, Callable[[Load], None], Load]]) -> None:
        for at, act, load in acts:
            time.sleep(max(0.0, self._begun_at + at - time.monotonic()))
            act(load)
        self._is_over = True

    def _submit(self, load: Load) -> None:
        n_steps = max(2, round(load.work_core_s / self._each_core_s))
        options = JobOptions(
            program=list(_training(n_steps, self._folder / f"{load.name}.weights")), name=load.name,
            deadline=None if load.deadline_s is None else f"{load.deadline_s}s", cores=f"{CORES}", retries=1,
        )  # fmt: skip
        self._host.submit(submission_of(options, time.monotonic(), self._host.capacity))

    def _move(self, load: Load) -> None:
        assert load.deadline_s is not None
        self._host.change(JobId(load.name), SpecChange(deadline_s=load.deadline_s + load.moved_s))

    def _lose(self, load: Load) -> None:
        """Let the node fail on which the training lies."""
        (node,) = self._host.status(JobId(load.name)).granted
        group = self._nodes.group_of(node, [each.id for each in self._host.nodes()])
        self._killed_at = time.monotonic()
        group.kill()

    def _listen(self, message: Message) -> None:
        if isinstance(message, NodeLost):
            self.seen.lost_noticed_s = time.monotonic() - self._killed_at
            threading.Thread(target=self._quote_all, daemon=True).start()

    def _quote_all(self) -> None:
        """Ask for a quote for each job with a deadline that works."""
        begun_at = time.monotonic()
        for status in self._host.jobs():
            if not status.ended and status.spec.deadline_s is not None:
                self._host.quote(status.id)
                self.seen.quotes_s.append(time.monotonic() - begun_at)

    def _note(self, load: Load) -> None:
        status, name = self._host.status(JobId(load.name)), load.name
        self.seen.states[name] = status.state
        due_s = None if load.deadline_s is None else load.deadline_s + load.moved_s
        landed_s = None if status.landed_at is None else status.landed_at - status.submitted_at
        late = None if due_s is None else (float("inf") if landed_s is None else landed_s / due_s - 1.0)
        self.seen.late_frac[name] = late
        self.seen.warnings[name] = sorted(status.warnings)


def _bridge_core_s() -> float:
    """Return what the process has used that talks to Ray."""
    pids = [
        pid for pid in descendants(os.getpid()) if "runtime.ray_process" in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    return sum(cpu_clock_ns(pid) or 0 for pid in pids) / 1e9


def played(kind: str, nodes: RayNodes, folder: Path, each_core_s: float) -> Seen:
    options = HostOptions(engine="ray", address=nodes.address, lost_after_s=LOST_AFTER_S)
    name = kind.replace(" ", "-")
    (folder / name).mkdir()
    with local_host(name, options, output_of=lambda _: _drop) as host:
        host.run_for(60.0, lambda: sum(node.capacity.cores >= 0.9 * CORES for node in host.nodes()) == N_NODES)
        return Play(kind, host, nodes, folder / name, each_core_s).run()


def _drop(_: bytes) -> None:
    """Drop the output of jobs."""
