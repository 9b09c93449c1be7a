"""The rows of `bench/host.py` about journals: what a day of a job takes, and how soon a host is back behind many messages.

The messages are those of the kernel itself: simulated jobs under the controller and the policy of a live host, with a live
host's timers, whose costs of a step change all the time. They go through the journal and its upkeep as in a host, only faster:
a hundred at a time, in virtual time.
"""

import json
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

from punctual import registry
from punctual.controllers.remaining_cost import RemainingCost
from punctual.core.cluster import Node
from punctual.core.events import GrantApplied, Message, ProgressReported
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.scheduler import Periods
from punctual.core.status import StatusBoard
from punctual.daemon.host_executor import HERE
from punctual.daemon.host_options import INLINE_POLICY
from punctual.journal.maintenance import JournalMaintenance, UpkeepLimits
from punctual.journal.sqlite import SqliteJournal
from punctual.journal.state import dumps
from punctual.request.submission import DEFAULT_CONTROLLER
from punctual.sim.job import SimJob
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import CoresTruth

SCRIPT = Path(__file__).with_name("_host_start.py")
DAY_S = 86_400.0
#: How far what a step costs goes at a time: the standard deviation of its logarithm.
_DRIFT_SIGMA = 0.05
#: Messages that are written at a time.
_N_BATCH = 100
#: Part of the cores that jobs need on average, so that their demands can be met.
_LOAD = 0.6


#: Between ticks when less than 500 s are left, and so for all of the journal that a start is measured behind.
TICK_S = 0.5
N_TICKS_MOST = 20_000


class EnoughError(Exception):
    """Raised when enough messages have come."""


def drifting_job(name: str, deadline_s: float, cores: float, drift_s: float) -> SimJob:
    """A job of steps of a core-second, which cost more or less every `drift_s` seconds, and whose ceiling is `cores`."""
    draw = random.Random(name)
    work_steps = _LOAD * cores * deadline_s
    n_pieces = max(1, int(deadline_s / drift_s))
    costs = [draw.lognormvariate(0.0, _DRIFT_SIGMA) for _ in range(n_pieces)]
    phases = tuple((work_steps * i / n_pieces, CoresTruth(step_core_s=cost)) for i, cost in enumerate(costs))
    spec = JobSpec(
        id=JobId(name), ceiling=Resources(cores), floor=Resources(0.1 * cores), work_steps=work_steps, deadline_s=deadline_s,
        controller=DEFAULT_CONTROLLER,
    )  # fmt: skip
    return SimJob(0.0, spec, CoresTruth(step_core_s=1.0), work_steps, phases=phases)


class Writer:
    """Writes messages into a journal as a host does.

    Parameters
    ----------
    n_messages
        After so many, and then as many as come until a snapshot is due, it ends the simulation: where a host that was killed
        left most to be read. None: never.
    """

    def __init__(
        self, journal: SqliteJournal, n_messages: int | None, half_way: tuple[float, Callable[[], None]]
    ) -> None:
        self._journal, self._n_most = journal, n_messages
        self._half_way_at, self._at_half_way = half_way
        self._batch: list[Message] = []
        self.n_messages = self.n_reports = self.n_grants = 0
        self._n_since, self._since_at = 0, 0.0
        self._simulation: Simulation | None = None
        self._board = StatusBoard()
        self._upkeep = JournalMaintenance(journal, self._dumped)
        self._snapshots: list[int] = []

    def follow(self, simulation: Simulation) -> None:
        """Make snapshots of this simulation."""
        self._simulation, self._board = simulation, StatusBoard(simulation.scheduler.forecast)

    def __call__(self, message: Message) -> None:
        self._batch.append(message)
        self._board.fold(message)
        self.n_messages += 1
        self.n_reports += isinstance(message, ProgressReported)
        self.n_grants += isinstance(message, GrantApplied)
        if len(self._batch) >= _N_BATCH:
            self.flush()

    def flush(self) -> None:
        batch, self._batch = self._batch, []
        self._journal.append(batch)
        if batch[-1].at >= self._half_way_at:
            self._half_way_at = inf
            self._at_half_way()
        if self._n_most is None or self.n_messages < self._n_most:
            for message in batch:
                self._upkeep([message])
            self._note_snapshot(batch[-1].at)
        else:
            self._n_since += len(batch)
            if UpkeepLimits().snapshot_is_due(self._n_since, batch[-1].at - self._since_at):
                raise EnoughError

    def close(self) -> None:
        if self._batch:
            self._journal.append(self._batch)
        self._upkeep.close()

    def _note_snapshot(self, at: float) -> None:
        self._n_since += _N_BATCH
        snapshots = self._journal.snapshot_sequences()
        if snapshots != self._snapshots:
            self._snapshots, self._n_since, self._since_at = snapshots, 0, at

    def _dumped(self) -> bytes:
        assert self._simulation is not None
        return dumps((self._simulation.scheduler.dump(), self._board.dump()))


@contextmanager
def written(
    path: Path,
    jobs: list[SimJob],
    n_messages: int | None,
    end_at: float,
    *,
    controller: RemainingCost | None = None,
    half_way: tuple[float, Callable[[], None]] = (inf, lambda: None),
) -> Iterator[Writer]:
    """The journal of these jobs on one machine until `end_at`, as long as it is still open.

    `half_way`: an instant, and what is called when it has come.
    """
    policy = registry.load("policies", INLINE_POLICY)()
    capacity = Resources(sum(job.spec.ceiling.cores for job in jobs))
    with SqliteJournal(path) as journal:
        writer = Writer(journal, n_messages, half_way)
        simulation = Simulation(
            jobs, [Node(HERE, capacity)], policy, controllers={DEFAULT_CONTROLLER: controller or RemainingCost()}, periods=Periods(),
            listeners=(writer,), end_at=end_at,
        )  # fmt: skip
        writer.follow(simulation)
        with suppress(EnoughError):
            simulation.run()
        writer.close()
        yield writer


@dataclass(frozen=True)
class Day:
    """The journal of one job: its size after `hours` hours, and what a day comes to."""

    drift_s: float
    hours: float
    n_messages: int
    n_reports: int
    n_grants: int
    mb: float
    mb_day: float


def day(folder: Path, drift_s: float, hours: float) -> Day:
    """The journal of a job with a deadline in a day, over `hours` of it.

    Where that is not the day itself, the rest is taken to add as much an hour as the second half of those hours.
    """
    path = folder / f"day-{drift_s:g}.db"
    sizes: list[float] = []

    def grown() -> None:
        sizes.append(used_mb(path))

    jobs = [drifting_job("train-3f2a", DAY_S, 1.0, drift_s)]
    with written(path, jobs, None, hours * 3600.0, half_way=(hours * 1800.0, grown)) as writer:
        grown()
        mb = sum(file.stat().st_size for file in folder.glob(f"{path.name}*")) / 1e6
    rest_mb = max(0.0, sizes[1] - sizes[0]) / (hours / 2) * (24.0 - hours)
    return Day(drift_s, hours, writer.n_messages, writer.n_reports, writer.n_grants, mb, mb + rest_mb)


def used_mb(path: Path) -> float:
    """Return the used part of a journal's pages, those in the write-ahead file included."""
    with closing(sqlite3.connect(path)) as connection:
        n_pages, n_free, n_bytes = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return float((n_pages - n_free) * n_bytes) / 1e6


@dataclass(frozen=True)
class Start:
    """A host that comes back behind `n_messages`; `n_read` of them are read.

    `import_s` and `restore_s` are CPU seconds in a fresh process; `turn_us` is what a turn of the reference takes in it.
    """

    n_jobs: int
    n_messages: int
    n_read: int
    import_s: float
    restore_s: float
    turn_us: float

    @property
    def total_s(self) -> float:
        return self.import_s + self.restore_s

    @property
    def turns(self) -> float:
        """All of it in turns of the reference."""
        return self.total_s / self.turn_us * 1e6


def starts(folder: Path, n_jobs: int, n_messages: int, n_repetitions: int) -> list[Start]:
    """Starts behind that many messages of jobs with two ticks a second, the fastest there are, killed at the worst moment."""
    path = folder / "runs" / "many" / "journal.db"
    path.parent.mkdir(parents=True)
    jobs = [drifting_job(f"job-{i}", N_TICKS_MOST * TICK_S, 0.1, drift_s=60.0) for i in range(n_jobs)]
    with written(path, jobs, n_messages, N_TICKS_MOST * TICK_S, controller=RemainingCost(tick_long_s=TICK_S)) as writer:
        n_messages = writer.n_messages
    found = []
    for _ in range(n_repetitions):
        copy = folder / "copy" / "journal.db"
        shutil.copytree(path.parent, copy.parent)
        output = subprocess.run(
            [sys.executable, str(SCRIPT), str(copy)], check=True, capture_output=True, text=True
        ).stdout
        found.append(Start(n_jobs=n_jobs, n_messages=n_messages, **json.loads(output)))
        shutil.rmtree(copy.parent)
    return sorted(found, key=lambda start: start.turns)
