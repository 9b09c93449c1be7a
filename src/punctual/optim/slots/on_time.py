"""The most weight on time."""

import numpy as np

from punctual.optim.slots.filling import Filling
from punctual.optim.slots.hull import upper_hulls
from punctual.optim.slots.prices import Market, OnTime, descend, floored, on_time_bound
from punctual.optim.slots.problem import SlotPlan, SlotProblem, is_done
from punctual.optim.solution import FloatArray, IntArray, status_of
from punctual.optim.slots.share import admit

#: Steps of the hulls that the search for prices uses; the bound itself uses all.
_N_STEPS_MAX = 12
#: A whole number that is this close is meant.
ROUNDING = 1e-6
#: Most jobs that may make room for one that does not fit.
_N_DROPPED_MAX = 6


def most_on_time(
    problem: SlotProblem, *, gap_limit: float = 1e-3, n_price_steps: int = 40, n_plans_max: int = 8000
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
        Most plans of single jobs; a plan takes 50 to 100 µs at 100 slots.

    Returns
    -------
    SlotPlan
        `value` and `bound` are weights; `prices` prove the bound (`on_time_bound`).

    Notes
    -----
    *Symbols.* p_t price of a device in slot t; w weight; cost_i(p) least price of job i's work alone.

    *Formula.* Prices are found by subgradient steps on Σ p C + Σ max(0, w − cost(p)). Then profiles are filled job by
    job, each at the least price in what is free, in several orders: by deadline with dropping of the least weight per
    cost (in the manner of Moore and Hodgson), by w/cost(p), by deadline among the jobs with w > cost(p); then repeatedly
    by w/cost with jobs that failed moved forward (squeaky wheel); at last a job that is left out replaces one that
    weighs less. The best is kept.

    *Source.* Minimum satisfactory share [elasticflow2023] is one of the candidates, so that the result is never below
    it. The bound is a Lagrangian dual.

    *Properties.* Deterministic. O((n_plans_max + n) (S T log T)) and O(n_price_steps n S log T), S steps of a hull.

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
    search = _Search(problem, prices, costs, bound / (1.0 + gap_limit), n_plans_max)
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
    """What prices prove, and not more than all jobs weigh that could be on time alone; whole if weights are."""
    filling = Filling(problem)
    possible = np.array([filling.fits(job) for job in range(problem.n_jobs)], dtype=bool)
    bound = min(on_time_bound(problem, prices), float(problem.weights[possible].sum()))
    is_whole = bool((problem.weights == np.floor(problem.weights)).all())
    return float(np.floor(bound + ROUNDING)) if is_whole else bound


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
    """Fillings in several orders; the best is kept."""

    def __init__(self, problem: SlotProblem, prices: FloatArray, costs: FloatArray, goal: float, n_plans_max: int) -> None:
        self.filling = Filling(problem)
        self._weights: list[float] = problem.weights.tolist()
        self._deadlines = problem.deadlines
        self._prices = _for_filling(prices)
        self._merits = problem.weights / np.maximum(costs, 1e-300)
        self._goal, self._n_plans_max = goal, n_plans_max
        self._best: dict[int, IntArray] = {}
        self._best_value = -1.0

    def run(self) -> None:
        """All orders, until the goal is reached or the work is spent."""
        for attempt in (self._share, self._selected, self._by_merit, self._dropping, self._squeak, self._exchange):
            attempt()
            self._keep()
            if self._finished():
                break

    def restore(self) -> None:
        """Make the filling the best one found."""
        self.filling.restart()
        for job, columns in self._best.items():
            self.filling.hold(job, columns)

    def _finished(self) -> bool:
        return self._best_value >= self._goal or self.filling.n_plans >= self._n_plans_max

    def _keep(self) -> None:
        value = sum(self._weights[job] for job in self.filling.placed)
        if value > self._best_value:
            self._best, self._best_value = dict(self.filling.placed), value

    def _share(self) -> None:
        admit(self.filling, np.argsort(self._deadlines, kind="stable").tolist())

    def _selected(self) -> None:
        """By deadline, first the jobs that are worth their price."""
        order = np.lexsort((self._deadlines, self._merits < 1.0))
        self._pour(order)

    def _by_merit(self) -> None:
        self._pour(np.argsort(-self._merits, kind="stable"))

    def _pour(self, order: IntArray) -> None:
        """Fill in this order: first only jobs that are worth what they cost here, then whoever fits."""
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
        """By deadline; a job that does not fit may push out some that together weigh less."""
        self.filling.restart()
        for job in np.argsort(self._deadlines, kind="stable").tolist():
            if not self.filling.place(job, self._prices):
                self._make_room(job)

    def _make_room(self, job: int) -> None:
        """Place `job` instead of some placed ones of small merit and together less weight, if that is enough room."""
        filling, spare, dropped = self.filling, self._weights[job], []
        lesser = [other for other in filling.placed if self._merits[other] < self._merits[job]]
        for other in sorted(lesser, key=lambda each: (self._merits[each], each)):
            if self._weights[other] >= spare or len(dropped) == _N_DROPPED_MAX:
                continue
            spare -= self._weights[other]
            dropped.append((other, filling.remove(other)))
            if filling.place(job, self._prices):
                self._fill_up([each for each, _ in reversed(dropped)])
                return
        for other, columns in reversed(dropped):
            filling.hold(other, columns)

    def _squeak(self) -> None:
        """By merit again and again; who failed is moved forward."""
        scores = np.log(np.maximum(self._merits, 1e-300))
        while not self._finished():
            n_before = self.filling.n_plans
            self._pour(np.argsort(-scores, kind="stable"))
            self._keep()
            failed = np.ones(len(scores), dtype=bool)
            failed[list(self.filling.placed)] = False
            scores[failed] += 0.2
            if self.filling.n_plans + 2 * (self.filling.n_plans - n_before) > self._n_plans_max:
                break

    def _exchange(self) -> None:
        """Jobs that are left out take the place of one that weighs less."""
        self.restore()
        jobs = np.argsort(-self._merits, kind="stable").tolist()
        for job in [each for each in jobs if each not in self.filling.placed]:
            if not self.filling.place(job, self._prices):
                self._replace(job)

    def _replace(self, job: int) -> None:
        filling = self.filling
        lighter = np.array([k for k in filling.placed if self._weights[k] < self._weights[job]], dtype=np.int64)
        if not len(lighter):
            return
        found = filling.replaceable(job, lighter)
        if not len(found):
            return
        least = int(min(found.tolist(), key=lambda other: (self._weights[other], other)))
        filling.remove(least)
        filling.place(job, self._prices)
        self._fill_up([least])


def _for_filling(prices: FloatArray) -> FloatArray:
    """Prices with a small base: a device that costs nothing is still not to be held for nothing."""
    mean = float(prices.mean()) if len(prices) else 0.0
    return prices + 0.02 * mean if mean > 0 else np.ones_like(prices)
