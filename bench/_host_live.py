"""The rows of `bench/host.py` that need live jobs: what a host with many of them costs, and how soon a report has an effect."""

import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from _processes import rss_bytes
from _service_load import UP, LiveService, cpu_s

from punctual.core.events import GrantApplied, ProgressReported, SpecChanged

#: Steps of 2 ms of computing and some sleep: fifty such jobs, held to what they need, leave most of two cores to the host. Those
#: with a deadline could use twice what they need for it; the one without uses next to nothing of the rest.
JOB = """
import sys, time, punctual
n_steps, sleep_s = int(sys.argv[1]), float(sys.argv[2])
for _ in punctual.track(range(n_steps), total_steps=n_steps):
    until = time.process_time() + 0.002
    while time.process_time() < until:
        pass
    time.sleep(sleep_s)
"""
N_STEPS, BACKGROUND = 60_000, "background"
#: After so many seconds a job is past its warm-up, and its controller tracks its deadline.
SETTLE_S = 10.0
#: At which such a job needs about 0.012 and 0.016 cores: each change of one to the other changes its grant.
DEADLINES = ("10000s", "7500s")
#: With less than 500 s left there are two ticks a second.
LAST_MINUTES = "400s"


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


class LiveHost(LiveService):
    """A service with jobs that have a deadline and, beside several, one without: else what they do not need were theirs as well."""

    def __init__(self, n_jobs: int, home: Path) -> None:
        super().__init__(home, [*UP, "--jobs-at-once", str(n_jobs + 1)])
        self.n_jobs = n_jobs
        cores = self.cluster()["capacity"]["cores"]
        program = [sys.executable, "-c", JOB, str(N_STEPS)]
        limit = f"{min(0.01, cores / n_jobs)}..{cores / n_jobs}"
        self.names = [self.give([*program, "0.1"], deadline="4h", cores=limit) for _ in range(n_jobs)]
        if n_jobs > 1:
            self.give([*program, "0.2"], name=BACKGROUND, cores=f"0.01..{cores}")
        self.await_running(n_jobs + (n_jobs > 1))

    def measured(self, window_s: float) -> LiveRun:
        """Return what the host uses while its jobs just run."""
        run = LiveRun(self.n_jobs)
        kinds = {kind: pids for kind, pids in self.processes().items() if pids or kind == "planner"}
        before, begun_at = cpu_s(kinds), time.monotonic()
        time.sleep(window_s)
        after, ended_at = cpu_s(kinds), time.monotonic()
        run.window_s = ended_at - begun_at
        for kind, pids in kinds.items():
            run.usage[kind] = Usage(
                len(pids), (after[kind] - before[kind]) / run.window_s, sum(map(rss_bytes, pids)) / 1e6
            )
        run.n_reports = sum(
            isinstance(message, ProgressReported) and message.job != BACKGROUND and begun_at <= message.at < ended_at
            for message in self.messages()
        )
        return run

    def move_deadlines(self, deadline: str) -> None:
        """Give each job another deadline, one after another so that each change is decided by itself, and wait for what follows."""
        self.caller.close()  # the service ends one that is idle for long
        for name in self.names:
            self.caller.ask("PATCH", f"/v1/jobs/{name}", {"deadline": deadline})
            time.sleep(0.05)
        time.sleep(1.0)

    def note_changes(self, run: LiveRun) -> None:
        """Note how long the grants took that followed a moved deadline."""
        moved_at: dict[str, float] = {}
        reported_at: dict[str, float] = {}
        for message in self.messages():
            if isinstance(message, SpecChanged):
                moved_at[message.spec.id] = message.at
                run.n_moved += 1
            elif isinstance(message, ProgressReported):
                reported_at[message.job] = message.at
            elif isinstance(message, GrantApplied) and message.job in moved_at:
                run.report_s.append(message.at - reported_at[message.job])
                run.change_s.append(message.at - moved_at.pop(message.job))

    def messages(self) -> Iterator[Any]:
        with self.run.read_journal() as journal:
            for _, message in journal.read_from(1):
                yield message


def measure(n_jobs: int, home: Path, window_s: float, *, quick: bool) -> list[LiveRun]:
    """A host with one job beside one with `n_jobs`: both see the same machine."""
    with ExitStack() as ending:
        single, many = (LiveHost(n, home / f"{n}") for n in (1, n_jobs))
        ending.callback(single.end)
        ending.callback(many.end)
        time.sleep(SETTLE_S)
        # Both over the same seconds.
        with ThreadPoolExecutor() as pool:
            runs = list(pool.map(lambda host: host.measured(window_s), (many, single)))
        for deadline in DEADLINES[: 1 if quick else 2]:
            many.move_deadlines(deadline)
        many.note_changes(runs[0])
        if not quick:
            many.move_deadlines(LAST_MINUTES)
            runs[0].last_minutes_cores = many.measured(window_s).usage["host"].cores
    return runs


def median_ms(values_s: list[float]) -> float | None:
    return 1e3 * statistics.median(values_s) if values_s else None
