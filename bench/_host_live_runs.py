"""The rows of `bench/host.py` that need live jobs: what a host with many of them costs, and how soon a report has an effect."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from _host_live import BACKGROUND, BETWEEN_S

from punctual.core.events import GrantApplied, ProgressReported, SpecChanged
from punctual.executors.local.job_signals import descendants
from punctual.executors.local.process_tree import cpu_clock_ns
from punctual.journal.sqlite import SqliteJournal

SCRIPT = Path(__file__).with_name("_host_live.py")
#: After so many seconds a job of `_host_live` is past its warm-up, and its controller tracks its deadline.
SETTLE_S = 10.0
#: Deadlines at which such a job needs about 0.012 and 0.016 cores: each change of one to the other changes its grant.
DEADLINES_S = (10_000.0, 7500.0)
#: With less than 500 s left there are two ticks a second.
LAST_MINUTES_S = 400.0


@dataclass(frozen=True)
class Usage:
    """Usage of a kind of process: cores on average, and resident MB of all of them at the end."""

    n_processes: int
    cores: float
    rss_mb: float


@dataclass
class LiveRun:
    """Measurements of one host.

    `n_jobs` have a deadline. `report_s` and `change_s` have, for each of the `n_moved` deadlines that changed a grant, the
    seconds from the report that it rests on, and from the moved deadline, to the instant at which the executor had it in force.
    """

    n_jobs: int
    actuator: str = ""
    window_s: float = 0.0
    usage: dict[str, Usage] = field(default_factory=dict)
    last_minutes_cores: float | None = None
    n_reports: int = 0
    n_moved: int = 0
    report_s: list[float] = field(default_factory=list)
    change_s: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, kept: dict[str, Any]) -> "LiveRun":
        """A run as a file of results has it."""
        named = {one.name: kept[one.name] for one in fields(cls)}
        return cls(**named | {"usage": {kind: Usage(**usage) for kind, usage in kept["usage"].items()}})

    @property
    def reports_per_job_s(self) -> float:
        return self.n_reports / self.n_jobs / self.window_s


class LiveHost:
    """A host in a process of its own, all of whose jobs run."""

    def __init__(self, n_jobs: int, home: Path) -> None:
        command = [sys.executable, str(SCRIPT), str(n_jobs)]
        environment = {**os.environ, "PUNCTUAL_HOME": str(home)}
        self.n_jobs = n_jobs
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._facts: dict[str, str] = {}
        self._n_moved = 0

    def await_jobs(self) -> None:
        assert self._process.stdout is not None
        self._facts = json.loads(self._process.stdout.readline())

    @property
    def pid(self) -> int:
        return self._process.pid

    def measured(self, window_s: float) -> LiveRun:
        """Return what the host uses while its jobs just run."""
        run = LiveRun(self.n_jobs, self._facts["actuator"])
        kinds = kinds_of(self.pid)
        before, begun_at = cpu_s(kinds), time.monotonic()
        time.sleep(window_s)
        after, ended_at = cpu_s(kinds), time.monotonic()
        run.window_s = ended_at - begun_at
        for kind, pids in kinds.items():
            run.usage[kind] = Usage(len(pids), (after[kind] - before[kind]) / run.window_s, sum(map(rss_mb, pids)))
        run.n_reports = sum(
            isinstance(message, ProgressReported) and message.job != BACKGROUND and begun_at <= message.at < ended_at
            for message in self._messages()
        )
        return run

    def move_deadlines(self, deadline_s: float) -> None:
        """Give each job another deadline, and wait for what follows."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([deadline_s] * self.n_jobs) + "\n")
        self._process.stdin.flush()
        self._n_moved += self.n_jobs
        time.sleep(self.n_jobs * BETWEEN_S + 1.0)  # without looking, which would be in the host's way
        while self._n_changed() < self._n_moved and self._process.poll() is None:
            time.sleep(0.5)

    def note_changes(self, run: LiveRun) -> None:
        """Note how long the grants took that followed a moved deadline."""
        run.n_moved = self._n_moved
        moved_at: dict[str, float] = {}
        reported_at: dict[str, float] = {}
        for message in self._messages():
            if isinstance(message, SpecChanged):
                moved_at[message.spec.id] = message.at
            elif isinstance(message, ProgressReported):
                reported_at[message.job] = message.at
            elif isinstance(message, GrantApplied) and message.job in moved_at:
                run.report_s.append(message.at - reported_at[message.job])
                run.change_s.append(message.at - moved_at.pop(message.job))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _n_changed(self) -> int:
        """Return how many deadlines have been moved, without reading the messages, which would be in the host's way."""
        with SqliteJournal(Path(self._facts["journal"]), read_only=True) as journal:
            return sum(kind == "SpecChanged" for _, kind, _ in journal.rows_from(1, 10**9))

    def _messages(self) -> Iterator[Any]:
        with SqliteJournal(Path(self._facts["journal"]), read_only=True) as journal:
            for _, message in journal.read_from(1):
                yield message


def measure(n_jobs: int, home: Path, window_s: float, *, quick: bool) -> list[LiveRun]:
    """A host with one job beside one with `n_jobs`: both see the same machine."""
    with closing(LiveHost(1, home / "single")) as single, closing(LiveHost(n_jobs, home / "many")) as many:
        single.await_jobs()
        many.await_jobs()
        time.sleep(SETTLE_S)
        # Both over the same seconds.
        with ThreadPoolExecutor() as pool:
            runs = list(pool.map(lambda host: host.measured(window_s), (many, single)))
        for deadline_s in DEADLINES_S[: 1 if quick else 2]:
            many.move_deadlines(deadline_s)
        many.note_changes(runs[0])
        if not quick:
            many.move_deadlines(LAST_MINUTES_S)
            runs[0].last_minutes_cores = many.measured(window_s).usage["host"].cores
    return runs


def kinds_of(host_pid: int) -> dict[str, list[int]]:
    """The host and all processes below it, by what they are; `planner` is what runs a policy that takes long."""
    kinds: dict[str, list[int]] = {"host": [host_pid], "planner": [], "keepers": [], "jobs": []}
    for pid in descendants(host_pid):
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
        kind = "keepers" if "supervisor.py" in words else "planner" if "policy_worker" in words else "jobs"
        kinds[kind].append(pid)
    return kinds


def cpu_s(kinds: dict[str, list[int]]) -> dict[str, float]:
    return {kind: sum(cpu_clock_ns(pid) or 0 for pid in pids) / 1e9 for kind, pids in kinds.items()}


def rss_mb(pid: int) -> float:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) * 1024 / 1e6


def median_ms(values_s: list[float]) -> float | None:
    return 1e3 * statistics.median(values_s) if values_s else None
