"""Define a problem over a time-slotted horizon, and a plan for it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from punctual.core.errors import InvalidSpec
from punctual.core.plan import PlanStatus
from punctual.solvers.solution import BoolArray, FloatArray, IntArray, relative_gap

#: Work left below this share of a job's work is rounding, not work.
WORK_TOLERANCE_FRAC = 1e-9
_WHERE = "the slot problem"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlotProblem:
    """Jobs with work and deadlines, and the devices that are free in each slot.

    In each slot a job holds one of the counts that it may hold, or nothing; it may change from slot to slot.

    Parameters
    ----------
    counts
        Shape (m,), devices, ascending, the first 0: the counts that any job may hold.
    rates
        Shape (n, m), work per slot of job i holding `counts[k]`. Any table: neither concave nor growing. 0 means that
        the job may not hold this count, and holding nothing is always 0.
    work
        Shape (n,), what remains of each job, in the unit of the rates.
    deadlines
        Shape (n,): job i is on time if its work is done in the slots before slot `deadlines[i]`. A deadline behind the
        horizon counts as its end.
    weights
        Shape (n,), what it is worth to have job i on time, or what a slot of its tardiness costs.
    free
        Shape (T,), devices that are free in each slot.

    Raises
    ------
    InvalidSpec
        If shapes do not fit each other, or a number is not finite or below zero.

    Examples
    --------
    >>> problem = SlotProblem.of(counts=[0, 1, 2], rates=[[0, 1, 1.5]], work=[4], deadlines=[3], weights=[1], free=[2] * 5)
    >>> problem.n_jobs, problem.n_slots
    (1, 5)
    """

    counts: IntArray
    rates: FloatArray
    work: FloatArray
    deadlines: IntArray
    weights: FloatArray
    free: IntArray

    def __post_init__(self) -> None:
        n, m = len(self.work), len(self.counts)
        _check_shape("counts", self.counts, (m,))
        _check_shape("rates", self.rates, (n, m))
        for name in ("work", "deadlines", "weights"):
            _check_shape(name, getattr(self, name), (n,))
        _check_shape("free", self.free, (len(self.free),))
        for name in ("counts", "rates", "work", "deadlines", "weights", "free"):
            _check_range(name, getattr(self, name))
        self._check_counts()

    @classmethod
    def of(cls, *, counts: object, rates: object, work: object, deadlines: object, weights: object, free: object) -> "SlotProblem":  # fmt: skip
        """The problem of anything that numpy can make arrays of."""
        return cls(
            counts=_integers("counts", counts),
            rates=_numbers("rates", rates),
            work=_numbers("work", work),
            deadlines=_integers("deadlines", deadlines),
            weights=_numbers("weights", weights),
            free=_integers("free", free),
        )

    @property
    def n_jobs(self) -> int:
        """Number of jobs."""
        return len(self.work)

    @property
    def n_slots(self) -> int:
        """Length of the horizon, slots."""
        return len(self.free)

    @property
    def ends(self) -> IntArray:
        """Shape (n,): deadlines within the horizon."""
        return np.minimum(self.deadlines, self.n_slots)

    def _check_counts(self) -> None:
        if len(self.counts) == 0 or self.counts[0] != 0 or np.any(np.diff(self.counts) <= 0):
            raise InvalidSpec(
                "`counts` must start with 0 and ascend", f"{self.counts.tolist()} devices", _WHERE,
                "Sort the counts and put 0 before them.",
            )  # fmt: skip
        if np.any(self.rates[:, 0] != 0):
            i = int(np.argmax(self.rates[:, 0] != 0))
            raise InvalidSpec(
                "the rate of holding nothing must be 0", f"{self.rates[i, 0]} work per slot", f"job {i} of {_WHERE}",
                "Put 0 into the first column of `rates`.",
            )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SlotPlan:
    """An allocation over the horizon, with its proof.

    Attributes
    ----------
    status
        *optimal*: proven best up to rounding; *feasible*: proven to lie within the gap that was asked for; *partial*:
        neither; *infeasible*: no plan can be what was asked for.
    value
        Of this plan, in the unit of the objective; infinite where all jobs were to be on time and some are not.
    bound
        No plan has a better value.
    counts
        Shape (n, T), devices held by each job in each slot.
    on_time
        Shape (n,), whether the job's work is done before its deadline.
    prices
        Shape (T,), what a device costs in each slot: with them anyone can compute `bound` again. None: the bound
        needs no prices.
    """

    status: PlanStatus
    value: float
    bound: float
    counts: IntArray
    on_time: BoolArray
    prices: FloatArray | None = None

    @property
    def gap(self) -> float:
        """Distance of `value` from `bound` as a share of `value`."""
        worse = 1.0 if self.bound >= self.value else -1.0
        return relative_gap(worse * self.value, worse * self.bound)

    @property
    def cost_device_slots(self) -> int:
        """Devices held, summed over jobs and slots."""
        return int(self.counts.sum())


def rates_of(problem: SlotProblem, counts: IntArray) -> FloatArray:
    """Work that each job does in each slot, shape (n, T), when it holds `counts` (n, T)."""
    columns = np.searchsorted(problem.counts, counts)
    return np.take_along_axis(problem.rates, columns, axis=1)


def is_done(problem: SlotProblem, counts: IntArray, ends: IntArray) -> BoolArray:
    """Whether each job's work is done before slot `ends[i]`; shape (n,)."""
    in_time = np.arange(problem.n_slots)[None, :] < ends[:, None]
    done = np.where(in_time, rates_of(problem, counts), 0.0).sum(axis=1)
    return np.asarray(done >= problem.work * (1.0 - WORK_TOLERANCE_FRAC))


def check_prices(problem: SlotProblem, prices: FloatArray) -> None:
    """Raise `InvalidSpec` unless there is a finite price, not below zero, for each slot."""
    _check_shape("prices", prices, (problem.n_slots,))
    _check_range("prices", prices)


def _check_shape(name: str, array: NDArray[np.generic], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InvalidSpec(
            f"`{name}` must have shape {shape}", f"shape {array.shape}", _WHERE,
            "Give one row for each job and one column for each count.",
        )  # fmt: skip


def _check_range(name: str, array: NDArray[np.number[Any]]) -> None:
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InvalidSpec(
            f"`{name}` must be finite and not below zero", f"{array[place]} at {list(place)}", _WHERE,
            "Leave out what is not known, and give what is done or passed as 0.",
        )  # fmt: skip


def _integers(name: str, values: object) -> IntArray:
    numbers = _numbers(name, values)
    if np.any(numbers != np.floor(numbers)):
        raise InvalidSpec(
            f"`{name}` must be whole numbers", f"{numbers[numbers != np.floor(numbers)][0]}", _WHERE,
            "Round devices and slots down.",
        )  # fmt: skip
    _check_range(name, numbers)
    return numbers.astype(np.int64)


def _numbers(name: str, values: object) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"`{name}` must be an array of numbers", repr(error), _WHERE, "Give rows of equal length.") from error  # fmt: skip
