"""The trainings of `bench/contention.py`: what meets on the machine, and whether it fits.

All times are in seconds from the beginning, all work is in core-seconds, starting included.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import _common  # noqa: F401 -- it makes plants of the tests known
import numpy as np
from scipy.optimize import linprog
from tests.plants.contended_cores import Contention, CoreLoad

CORES = 2.0
#: PyTorch is given one thread: more would not make such small networks faster.
CEILING_CORES = 1.0
#: The elastic training has one worker or two.
CORES_PER_WORKER, N_WORKERS_MAX = 0.5, 2
N_EPOCHS = 4
APPS = ("vision", "language", "speech")
#: What a quick look trains: nothing is imported for it but NumPy.
QUICK_APP = "regression"
#: The figures below suit trainings that start within so many core-seconds.
_START_CORE_S = 2.0
#: No deadline of an overloaded machine is later than this, before it is scaled.
_LAST_DUE_S = 60.0
#: A job that was not late by more than this share of its deadline was on time; also for programs without Punctual.
TOLERANCE_FRAC = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A training, and what happens to it.

    Attributes
    ----------
    moved_at, moved_s
        When the deadline is moved, and by how much.
    """

    name: str
    app: str
    work_core_s: float
    deadline_s: float | None  # From `at` on; None: none.
    at: float = 0.0
    weight: float = 1.0
    moved_at: float | None = None
    moved_s: float = 0.0
    stopped_at: float | None = None  # When its user stops it.
    crashes: bool = False  # The process is killed once, half-way.
    elastic: bool = False  # Made of workers, one or two.

    @property
    def due_at(self) -> float | None:
        """The deadline in force at the end."""
        return None if self.deadline_s is None else self.at + self.deadline_s + self.moved_s

    def counts(self) -> bool:
        """Whether it can be on time or late."""
        return self.deadline_s is not None and self.stopped_at is None


#: Eight trainings on two cores.
_EIGHT = (
    Load(name="long", app="vision", work_core_s=18.0, deadline_s=75.0),
    Load(name="near", app="language", work_core_s=20.0, deadline_s=36.0),
    Load(name="tightened", app="speech", at=2.0, work_core_s=12.0, deadline_s=60.0, moved_at=18.0, moved_s=-18.0),
    Load(name="background", app="language", work_core_s=8.0, deadline_s=None),
    Load(name="stopped", app="speech", at=6.0, work_core_s=20.0, deadline_s=70.0, stopped_at=20.0),
    Load(name="elastic", app="vision", at=8.0, work_core_s=18.0, deadline_s=58.0, elastic=True),
    Load(name="crashing", app="speech", at=10.0, work_core_s=18.0, deadline_s=56.0, crashes=True),
    Load(name="urgent", app="language", at=24.0, work_core_s=10.0, deadline_s=24.0),
)
#: A look: fewer and shorter ones, of the same kinds, which start at once.
_FEW = (
    Load(name="long", app=QUICK_APP, work_core_s=11.0, deadline_s=29.0),
    Load(name="near", app=QUICK_APP, work_core_s=12.0, deadline_s=17.0),
    Load(name="tightened", app=QUICK_APP, at=1.0, work_core_s=8.0, deadline_s=26.0, moved_at=9.0, moved_s=-6.0),
    Load(name="urgent", app=QUICK_APP, at=8.0, work_core_s=7.0, deadline_s=12.0),
)


def time_scale(start_core_s: float) -> float:
    """Return by what factor all is longer where a training starts in so many core-seconds.

    Without it the plays on a slow machine would compare how PyTorch is imported.
    """
    return max(1.0, start_core_s / _START_CORE_S)


def contention(seed: int, scale: float, *, quick: bool = False) -> tuple[Load, ...]:
    """Trainings that fit, but not with constant demands: those above, each with its figures up to 8 % off."""
    random = Random(seed)
    loads = [_scaled(load, scale) for load in (_FEW if quick else _EIGHT)]
    while True:
        drawn = tuple(_drawn(load, random) for load in loads)
        if least_peak(drawn) < 1.0 < most_demanded(drawn):
            return drawn


def _scaled(load: Load, scale: float) -> Load:
    def scaled(value: float | None) -> float | None:
        return None if value is None else scale * value

    return replace(
        load, at=scale * load.at, work_core_s=scale * load.work_core_s, deadline_s=scaled(load.deadline_s),
        moved_at=scaled(load.moved_at), moved_s=scale * load.moved_s, stopped_at=scaled(load.stopped_at),
    )  # fmt: skip


def _drawn(load: Load, random: Random) -> Load:
    def about(value: float) -> float:
        return round(value * random.uniform(0.92, 1.08), 1)

    return replace(
        load,
        at=about(load.at),
        work_core_s=about(load.work_core_s),
        deadline_s=None if load.deadline_s is None else about(load.deadline_s),
    )


def overload(seed: int, scale: float, load_frac: float = 1.6, n_jobs: int = 8) -> tuple[Load, ...]:
    """Trainings that are there at once, and want so many times what the machine has until the last deadline."""
    random = Random(seed)
    dues_s = sorted(round(random.uniform(0.4, 1.0) * scale * _LAST_DUE_S, 1) for _ in range(n_jobs))
    shares = [random.uniform(0.4, 1.0) * due_s for due_s in dues_s]
    factor = load_frac * CORES * dues_s[-1] / sum(shares)
    return tuple(
        Load(
            name=f"job-{i}",
            app=random.choice(APPS),
            work_core_s=round(min(factor * share, 0.9 * due_s), 1),
            deadline_s=due_s,
            weight=random.choice([1.0, 1.0, 2.0, 4.0]),
        )
        for i, (due_s, share) in enumerate(zip(dues_s, shares, strict=True))
    )


def most_demanded(loads: Sequence[Load]) -> float:
    """The most that constant demands, work over time until the deadline, come to at once, over what there is."""
    present = [load for load in loads if load.due_at is not None]
    sums = []
    for instant in sorted({load.at for load in present}):
        there = [load for load in present if load.at <= instant < _ends_at(load)]
        sums.append(sum(load.work_core_s / ((load.due_at or 0.0) - load.at) for load in there))
    return max(sums) / CORES


def _ends_at(load: Load) -> float:
    due_at = load.due_at or 0.0
    return due_at if load.stopped_at is None else min(due_at, load.stopped_at)


def least_peak(loads: Sequence[Load], works: Mapping[str, float] | None = None) -> float:
    """The part of the machine that is enough at all times for whoever knows what will come; above 1: they do not fit.

    Parameters
    ----------
    works
        What jobs turned out to cost, where that is known; otherwise what they were made for.

    Notes
    -----
    A linear programme over the cores that each job holds between two instants at which jobs come or are due. A job
    that is stopped counts with the part of its work that a constant demand would have done by then.
    """
    jobs = [load for load in loads if load.due_at is not None]
    instants = sorted({load.at for load in jobs} | {_ends_at(load) for load in jobs})
    spans = list(pairwise(instants))
    costs = [needed(load, works or {}) for load in jobs]
    n_unknowns = len(jobs) * len(spans) + 1
    amounts = np.zeros((len(jobs), n_unknowns))
    room = np.zeros((len(spans), n_unknowns))
    bounds = []
    for j, load in enumerate(jobs):
        most = N_WORKERS_MAX * CORES_PER_WORKER if load.elastic else CEILING_CORES
        for t, (from_at, until_at) in enumerate(spans):
            column = j * len(spans) + t
            is_there = load.at <= from_at and until_at <= _ends_at(load)
            bounds.append((0.0, most if is_there else 0.0))
            amounts[j, column] = until_at - from_at
            room[t, column] = 1.0
    room[:, -1] = -CORES
    costs_of_peak = np.zeros(n_unknowns)
    costs_of_peak[-1] = 1.0
    found = linprog(
        costs_of_peak, A_ub=room, b_ub=np.zeros(len(spans)), A_eq=amounts, b_eq=costs, bounds=[*bounds, (0.0, None)]
    )
    return float(found.fun) if found.success else float("inf")


def needed(load: Load, works: Mapping[str, float]) -> float:
    """Core-seconds of a job in the clairvoyant plan; of one that is stopped, the part that a constant demand would have done."""
    work_core_s = works.get(load.name, load.work_core_s)
    if load.stopped_at is None or load.name in works:
        return work_core_s
    return work_core_s * (load.stopped_at - load.at) / (load.deadline_s or 1.0)


def most_weight(loads: Sequence[Load], works: Mapping[str, float]) -> float:
    """Weight of the jobs that can be on time at most, for whoever knows what each costs."""
    jobs = [
        CoreLoad(
            core_s=works[load.name], deadline_s=(1.0 + TOLERANCE_FRAC) * load.deadline_s, weight=load.weight,
            ceiling_cores=CEILING_CORES,
        )
        for load in loads if load.deadline_s is not None
    ]  # fmt: skip
    return Contention(cores=CORES, loads=jobs).bound().bound
