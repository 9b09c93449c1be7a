"""The most weight on time."""

from collections.abc import Iterable

import numpy as np

from punctual.solvers.solution import FloatArray, IntArray, status_of
from slots.filling import Filling
from slots.hull import upper_hulls
from slots.prices import Market, OnTime, descend, floored, on_time_bound
from slots.problem import SlotPlan, SlotProblem, is_done
from slots.share import admit

#: Steps of the hulls that the search for prices uses; the bound itself uses all.
_N_STEPS_MAX = 12
#: A whole number that is this close is meant.
_ROUNDING = 1e-6
#: Most jobs that may make room for one that does not fit.
_N_DROPPED_MAX = 6
#: Most jobs taken out for one, and the spread of the random prices (standard deviation of their logarithm).
_N_TAKEN_MAX = 4
_SHAKE = 0.15
#: Merits above this are equally good: such jobs cost next to nothing.
_MERIT_MAX = 1e3
#: After so many changes per job without a gain, changing begins again.
_N_SAME_PER_JOB = 200


def most_on_time(
    problem: SlotProblem, *, gap_limit: float = 1e-3, n_price_steps: int = 40, n_plans_max: int = 8000, seed: int = 0
) -> SlotPlan:
    """Choose and place jobs so that those on time weigh as much as possible.

    Use it to decide which deadlines to promise. Jobs that are not on time hold nothing; what is left of the devices is
    for them.

    Parameters
    ----------
    problem
        Jobs and free devices.
    gap_limit
        Stop as soon as the plan is proven to be within this share of the best.
    n_price_steps
        Subgradient steps for the prices of slots.
    n_plans_max
        Most plans of single jobs; one takes about 40 µs at 100 slots, 20 at 12. A dozen jobs gain from 24000.
    seed
        Of the random changes.

    Returns
    -------
    SlotPlan
        `value` and `bound` are weights; `prices` prove the bound (`on_time_bound`).

    Notes
    -----
    *Symbols.* p_t price of a device in slot t; w weight; cost_i(p) least price of job i's work alone.

    *Formula.* Prices are found by subgradient steps on Σ p C + Σ max(0, w − cost(p)). Then profiles are filled job by
    job, each at the least price in what is free: by deadline among the jobs with w > cost(p); by deadline with dropping
    of the least w/cost(p) (in the manner of Moore and Hodgson); by w/cost(p), with those that fail moved forward
    (squeaky wheel). What work is left goes into changes of the best plan: some jobs are taken out, one that was left
    out is placed first, the others after it, at prices moved at random. A change is kept unless it loses weight; after
    many without a gain, changing begins again with the plan it began with.

    *Source.* [moore1968], [joslin1999]. Minimum satisfactory share [elasticflow2023] is one of the candidates, so that
    the result is never below it. The bound is a Lagrangian dual.

    *Properties.* Deterministic for a seed. O((n_plans_max + n) S T log T + n_price_steps n S log T), S steps of a hull.

    *Fails when* few jobs are large against the devices: then the hulls promise mixtures that whole counts cannot keep,
    and the bound is loose; use a mixed-integer programme there.

    Examples
    --------
    >>> problem = SlotProblem.of(counts=[0, 1], rates=[[0, 1]] * 2, work=[2, 2], deadlines=[3, 3], weights=[1, 3], free=[1] * 3)
    >>> plan = most_on_time(problem)
    >>> plan.on_time.tolist(), plan.value
    ([False, True], 3.0)
    """
    prices, costs = _priced(problem, n_price_steps)
    bound = _bound(problem, prices)
    search = _Search(problem, prices, costs, bound / (1.0 + gap_limit), n_plans_max, seed)
    search.run()
    return _planned(problem, search, prices, bound, gap_limit)


def _planned(problem: SlotProblem, search: "_Search", prices: FloatArray, bound: float, gap_limit: float) -> SlotPlan:
    search.restore()
    counts = search.filling.counts()
    on_time = is_done(problem, counts, problem.ends)
    value = float(problem.weights[on_time].sum())
    bound = max(bound, value)
    return SlotPlan(
        status=status_of(value, bound, gap_limit), value=value, bound=bound, counts=counts, on_time=on_time,
        prices=prices,
    )  # fmt: skip


def _bound(problem: SlotProblem, prices: FloatArray) -> float:
    """Return the bound that prices prove, and not more than all jobs weigh that could be on time alone; whole if weights are."""
    filling = Filling(problem)
    possible = np.array([filling.fits(job) for job in range(problem.n_jobs)], dtype=bool)
    bound = min(on_time_bound(problem, prices), float(problem.weights[possible].sum()))
    is_whole = bool((problem.weights == np.floor(problem.weights)).all())
    return float(np.floor(bound + _ROUNDING)) if is_whole else bound


def _priced(problem: SlotProblem, n_steps: int) -> tuple[FloatArray, FloatArray]:
    """Good prices, and the jobs' least costs by them."""
    hulls = upper_hulls(problem.counts, problem.rates, _N_STEPS_MAX)
    market = Market(hulls, problem.work, problem.ends)
    dual = OnTime(problem, market)
    prices = descend(dual, floored(_first_prices(problem, market)), n_steps, floored)
    return prices, market.respond(prices).costs


def _first_prices(problem: SlotProblem, market: Market) -> FloatArray:
    """One price for all slots: what the last job pays per device-slot that still fits when the best are chosen."""
    costs = market.respond(np.ones(problem.n_slots)).costs
    possible = np.isfinite(costs) & (costs > 0)
    merits = problem.weights[possible] / costs[possible]
    order = np.argsort(-merits, kind="stable")
    within = np.searchsorted(costs[possible][order].cumsum(), problem.free.sum())
    if not len(order):
        return np.zeros(problem.n_slots)
    price = merits[order[within]] if within < len(order) else 0.3 * merits[order[-1]]
    return np.full(problem.n_slots, float(price))


class _Search:
    """Fillings in several orders, then changes of the best one; the best of all is kept."""

    def __init__(
        self, problem: SlotProblem, prices: FloatArray, costs: FloatArray, goal: float, n_plans_max: int, seed: int
    ) -> None:
        self.filling = Filling(problem)
        self._weights: list[float] = problem.weights.tolist()
        self._by_deadline: list[int] = np.argsort(problem.deadlines, kind="stable").tolist()
        self._deadlines = problem.deadlines
        self._prices = _for_filling(prices)
        self._merits = problem.weights / np.maximum(costs, 1e-300)
        self._by_merit = np.argsort(self._merits, kind="stable")
        self._goal, self._n_plans_max = goal, n_plans_max
        self._random = np.random.default_rng(seed)
        self._best: dict[int, IntArray] = {}
        self._best_value = -1.0

    def run(self) -> None:
        """All orders, until the goal is reached or the work is spent."""
        for attempt in (self._share, self._selected, self._dropping, self._squeak, self._shake):
            attempt()
            self._keep()
            if self._finished():
                break

    def restore(self) -> None:
        """Make the filling the best one found."""
        self._restore(self._best)

    def _restore(self, placed: dict[int, IntArray]) -> None:
        self.filling.restart()
        for job, columns in placed.items():
            self.filling.hold(job, columns)

    def _finished(self) -> bool:
        return self._best_value >= self._goal or self.filling.n_plans >= self._n_plans_max

    def _keep(self) -> None:
        value = self._weight(self.filling.placed)
        if value > self._best_value:
            self._best, self._best_value = dict(self.filling.placed), value

    def _weight(self, jobs: Iterable[int]) -> float:
        return sum([self._weights[job] for job in jobs])

    def _share(self) -> None:
        admit(self.filling, self._by_deadline)

    def _selected(self) -> None:
        """Fill by deadline, first the jobs that are worth their price."""
        self._pour(np.lexsort((self._deadlines, self._merits < 1.0)))

    def _pour(self, order: IntArray) -> None:
        """Fill in this order: first only jobs that are worth about what they cost here, then whoever fits."""
        self.filling.restart()
        jobs: list[int] = order.tolist()
        for job in jobs:
            self.filling.place(job, self._prices, most=2.0 * self._weights[job])
        self._fill_up(jobs)

    def _fill_up(self, jobs: list[int]) -> None:
        for job in jobs:
            if job not in self.filling.placed:
                self.filling.place(job, self._prices)

    def _dropping(self) -> None:
        """Fill by deadline; a job that does not fit may push out some that together weigh less."""
        self.filling.restart()
        for job in self._by_deadline:
            if not self.filling.place(job, self._prices):
                self._make_room(job)

    def _make_room(self, job: int) -> None:
        """Place `job` instead of some placed ones of small merit and together less weight, if that is enough room."""
        filling, spare = self.filling, self._weights[job]
        dropped: list[tuple[int, IntArray]] = []
        for other in self._lesser(job):
            if len(dropped) == _N_DROPPED_MAX:
                break
            if self._weights[other] >= spare:
                continue
            spare -= self._weights[other]
            dropped.append((other, filling.remove(other)))
            if filling.place(job, self._prices):
                self._fill_up([each for each, _ in reversed(dropped)])
                return
        for other, columns in reversed(dropped):
            filling.hold(other, columns)

    def _lesser(self, job: int) -> list[int]:
        """The placed jobs of smaller merit and weight than `job`, the least merit first."""
        n_lesser = int(self._merits.searchsorted(self._merits[job], sorter=self._by_merit))
        jobs = self._by_merit[:n_lesser]
        weights = self.filling.problem.weights
        chosen: list[int] = jobs[self.filling.is_placed[jobs] & (weights[jobs] < weights[job])].tolist()
        return chosen

    def _squeak(self) -> None:
        """Fill by merit; who failed is moved forward, and again, as long as that helps."""
        scores, value = np.log(np.maximum(self._merits, 1e-300)), -1.0
        while self._best_value > value and not self._finished():
            value = self._best_value
            self._pour(np.argsort(-scores, kind="stable"))
            self._keep()
            scores[self.filling.left_out()] += 0.2

    def _shake(self) -> None:
        """Change the best plan at random, and begin with it again when that has not helped for long."""
        start, begun_at = dict(self._best), self._best_value
        while not self._finished() and self._change(start, begun_at):
            self._keep()

    def _change(self, start: dict[int, IntArray], value: float) -> bool:
        """A job that is left out goes first, those taken out for it follow. False if there is nothing to change."""
        self._restore(start)
        chances = np.minimum(self._merits, _MERIT_MAX) ** 2
        n_same, best = 0, value
        while n_same < _N_SAME_PER_JOB * len(chances) and not self._finished():
            left_out = self.filling.left_out()
            left_out = left_out[chances[left_out] > 0]
            if not len(left_out) or not self.filling.placed:
                return False
            job = int(left_out[self._drawn(chances[left_out])])
            value += self._rearrange(job, self._some_placed())
            n_same = n_same + 1 if value <= best + _ROUNDING else 0
            best = max(best, value)
            if value > self._best_value + _ROUNDING:
                self._keep()
        return True

    def _drawn(self, chances: FloatArray) -> int:
        """An index, drawn with these chances; their sum need not be 1."""
        shares = chances.cumsum()
        return int((shares / shares[-1]).searchsorted(self._random.random(), side="right"))

    def _some_placed(self) -> list[int]:
        placed = list(self.filling.placed)
        n_taken = min(len(placed), int(self._random.integers(1, _N_TAKEN_MAX + 1)))
        return [placed[i] for i in self._random.choice(len(placed), n_taken, replace=False).tolist()]

    def _rearrange(self, job: int, others: list[int]) -> float:
        """Place `job` and then `others` anew, at prices moved at random; undone if weight is lost. The gain."""
        filling = self.filling
        filling.n_plans += 1
        before = {other: filling.remove(other) for other in others}
        prices = self._prices * np.exp(self._random.normal(0.0, _SHAKE, len(self._prices)))
        placed = [each for each in (job, *others) if filling.place(each, prices)]
        gain = self._weight(placed) - self._weight(others)
        if gain >= 0:
            return gain
        for each in placed:
            filling.remove(each)
        for other, columns in before.items():
            filling.hold(other, columns)
        return 0.0


def _for_filling(prices: FloatArray) -> FloatArray:
    """Prices with a small base: a device that costs nothing is still not to be held for nothing."""
    mean = float(prices.mean()) if len(prices) else 0.0
    return prices + 0.02 * mean if mean > 0 else np.ones_like(prices)
