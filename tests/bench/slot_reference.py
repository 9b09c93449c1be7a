"""Instances of slot problems, and their optima by a mixed-integer programme (HiGHS in scipy)."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array, hstack, vstack
from slots import SlotProblem

Floats = NDArray[np.float64]


def instance(
    n_jobs: int, n_devices: int, n_slots: int, tightness: float, seed: int, *, most: int = 64, slack: float = 0.0
) -> SlotProblem:
    """Jobs with power-of-two counts and speed-ups c^a, 0.6 < a < 1.

    All jobs together need `tightness` times the device-slots that there are, each at its own cheapest within its
    deadline. `slack`: no deadline is earlier than this share of the horizon.
    """
    random = np.random.default_rng(seed)
    counts = np.concatenate([[0], 2 ** np.arange(int(np.log2(most)) + 1)])
    exponents = random.uniform(0.6, 1.0, n_jobs)
    rates = counts[None, :] ** exponents[:, None] * random.uniform(0.5, 2.0, n_jobs)[:, None]
    last = random.integers(2, len(counts), n_jobs)
    rates[np.arange(len(counts))[None, :] > last[:, None]] = 0.0
    deadlines = random.integers(max(2, n_slots // 10, int(slack * n_slots)), n_slots + 1, n_jobs)
    shares = random.lognormal(0.0, 1.0, n_jobs)
    weights = random.integers(1, 11, n_jobs)
    work = _scaled(counts, rates, deadlines, shares, tightness * n_devices * n_slots)
    free = np.full(n_slots, n_devices)
    return SlotProblem.of(counts=counts, rates=rates, work=work, deadlines=deadlines, weights=weights, free=free)


def _scaled(
    counts: NDArray[np.int64], rates: Floats, deadlines: NDArray[np.int64], shares: Floats, goal: float
) -> Floats:
    """Work in these proportions, at most 0.9 of what is possible, that costs `goal` device-slots in all."""
    low, high = 1e-6, 1e6
    for _ in range(60):
        middle = (low * high) ** 0.5
        work = np.minimum(middle * shares, 0.9 * rates.max(axis=1)) * deadlines
        # With concave tables the cheapest is one level in all slots, which a table of rates interpolates.
        cost = sum(
            float(np.interp(w / d, row[: row.argmax() + 1], counts[: row.argmax() + 1])) * d
            for w, d, row in zip(work, deadlines, rates, strict=True)
        )
        low, high = (middle, high) if cost < goal else (low, middle)
    return np.asarray(work)


@st.composite
def small_problems(draw: st.DrawFn) -> SlotProblem:
    """Anything small: tables that fall, counts that are forbidden, no work, passed deadlines, an uneven profile."""
    n, m, n_slots = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    steps = draw(st.lists(st.integers(1, 3), min_size=m, max_size=m))
    rate = st.one_of(st.just(0.0), st.integers(1, 12).map(lambda k: k / 2))
    return SlotProblem.of(
        counts=np.concatenate([[0], np.cumsum(steps)]),
        rates=[[0.0, *draw(st.lists(rate, min_size=m, max_size=m))] for _ in range(n)],
        work=draw(st.lists(st.integers(0, 24).map(lambda k: k / 2), min_size=n, max_size=n)),
        deadlines=draw(st.lists(st.integers(0, n_slots + 1), min_size=n, max_size=n)),
        weights=draw(st.lists(st.integers(0, 5).map(float), min_size=n, max_size=n)),
        free=draw(st.lists(st.integers(0, 9), min_size=n_slots, max_size=n_slots)),
    )


@dataclass(frozen=True)
class Optimum:
    """Value and proven bound of the best plan; `feasible` False: there is none."""

    feasible: bool
    value: float = 0.0
    bound: float = 0.0


class _Programme:
    """Variables y[i, t, k], 1 if job i holds counts[k + 1] in slot t; behind them others."""

    def __init__(self, problem: SlotProblem) -> None:
        self.problem = problem
        self.n, self.n_slots, self.m = problem.n_jobs, problem.n_slots, len(problem.counts) - 1
        self.n_held = self.n * self.n_slots * self.m

    def held(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Job, slot and column of each y."""
        i, t, k = np.unravel_index(np.arange(self.n_held), (self.n, self.n_slots, self.m))
        return i, t, k + 1

    def rows(self, row: NDArray[np.int64], values: Floats, n_rows: int) -> csr_array:
        return csr_array(coo_array((values, (row, np.arange(self.n_held))), shape=(n_rows, self.n_held)))

    def shared(self, n_more: int) -> list[LinearConstraint]:
        """One count for each job and slot; no more devices than there are."""
        i, t, k = self.held()
        one = self.rows(i * self.n_slots + t, np.ones(self.n_held), self.n * self.n_slots)
        used = self.rows(t, self.problem.counts[k].astype(float), self.n_slots)
        return [
            LinearConstraint(_padded(one, n_more), -np.inf, 1.0),
            LinearConstraint(_padded(used, n_more), -np.inf, self.problem.free.astype(float)),
        ]

    def solve(
        self, cost: Floats, constraints: list[LinearConstraint], upper: Floats, time_limit_s: float, gap: float
    ) -> Optimum:
        i, _, k = self.held()
        allowed = (self.problem.rates[i, k] > 0).astype(float)
        found = milp(
            cost,
            constraints=constraints,
            integrality=np.ones(len(cost)),
            bounds=Bounds(0.0, np.concatenate([allowed, upper])),
            options={"time_limit": time_limit_s, "mip_rel_gap": gap},
        )
        if found.x is None:
            return Optimum(feasible=False)
        return Optimum(feasible=True, value=float(found.fun), bound=float(found.mip_dual_bound))


def _padded(matrix: csr_array, n_more: int) -> csr_array:
    return csr_array(hstack([matrix, csr_array((matrix.shape[0], n_more))]))


def most_weight(problem: SlotProblem, *, time_limit_s: float = 20.0, gap: float = 1e-6) -> Optimum:
    """The most weight on time."""
    programme = _Programme(problem)
    i, t, k = programme.held()
    useful = np.where(t < problem.ends[i], problem.rates[i, k], 0.0)
    done = programme.rows(i, useful, programme.n)
    enough = csr_array(hstack([done, csr_array(np.diag(-problem.work))]))
    cost = np.concatenate([np.zeros(programme.n_held), -problem.weights])
    constraints = [*programme.shared(programme.n), LinearConstraint(enough, -1e-9, np.inf)]
    found = programme.solve(cost, constraints, np.ones(programme.n), time_limit_s, gap)
    return Optimum(found.feasible, -found.value, -found.bound)


def fewest_device_slots(problem: SlotProblem, *, time_limit_s: float = 20.0, gap: float = 1e-6) -> Optimum:
    """The least cost with all jobs on time."""
    programme = _Programme(problem)
    i, t, k = programme.held()
    done = programme.rows(i, np.where(t < problem.ends[i], problem.rates[i, k], 0.0), programme.n)
    cost = problem.counts[k].astype(float)
    constraints = [*programme.shared(0), LinearConstraint(done, problem.work - 1e-9, np.inf)]
    return programme.solve(cost, constraints, np.zeros(0), time_limit_s, gap)


def least_weighted_tardiness(problem: SlotProblem, *, time_limit_s: float = 20.0, gap: float = 1e-6) -> Optimum:
    """Variables z[i, f], 1 if job i is done before slot f; f = T + 1 is never."""
    programme = _Programme(problem)
    i, t, k = programme.held()
    n, n_ends = programme.n, problem.n_slots + 2
    rate = problem.rates[i, k]
    blocks = []
    for f in range(n_ends - 1):
        done = programme.rows(i, np.where(t < f, rate, 0.0), n)
        needed = np.zeros((n, n * n_ends))
        needed[np.arange(n), np.arange(n) * n_ends + f] = -problem.work
        blocks.append(hstack([done, csr_array(needed)]))
    one = csr_array(hstack([csr_array((n, programme.n_held)), csr_array(np.kron(np.eye(n), np.ones(n_ends)))]))
    late = np.maximum(0, np.arange(n_ends)[None, :] - problem.ends[:, None])
    cost = np.concatenate([np.zeros(programme.n_held), (problem.weights[:, None] * late).ravel()])
    constraints = [
        *programme.shared(n * n_ends),
        LinearConstraint(csr_array(vstack(blocks)), -1e-9, np.inf),
        LinearConstraint(one, 1.0, 1.0),
    ]
    return programme.solve(cost, constraints, np.ones(n * n_ends), time_limit_s, gap)
