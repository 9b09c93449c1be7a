"""A price for a device in each slot: what each job would pay at least, and what no plan can exceed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from punctual.solvers.solution import BoolArray, FloatArray, IntArray
from slots.hull import Hulls, upper_hulls
from slots.problem import SlotProblem, check_prices

#: Prices below this share of the highest are raised to it, so that ratios of prices stay finite.
PRICE_FLOOR_FRAC = 1e-6
#: What rounding may add to a bound, as a share of it.
ROUNDING_FRAC = 1e-9
_N_HALVINGS_COLD, _N_HALVINGS_WARM = 14, 5
#: How far the price of a job's work is expected to move between two evaluations, as a factor.
_WARM_FACTOR = 1.4


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """Choices of jobs at given prices, each for itself.

    Attributes
    ----------
    costs
        Shape (n,): no plan that does the job's work before its end costs less. Infinite if there is none.
    usage
        Given a share of each job (n,), the devices (T,) that these take together.
    """

    costs: FloatArray
    usage: Callable[[FloatArray], FloatArray]


class Market:
    """Jobs that buy work at the least price; keeps what each paid last, to find the next price sooner.

    Parameters
    ----------
    hulls
        Upper concave hulls of the jobs' rate tables.
    work
        Shape (n,).
    ends
        Shape (n,), slots before which the work is to be done.

    Notes
    -----
    *Formula.* A job's cost is a convex piecewise linear programme, and its dual has one variable, the price λ of work:

    cost = max_λ λ W − Σ_{t<end} max_c (λ r(c) − p_t c).

    Every λ gives a lower bound; the best one is where the work bought at λ passes W. A step of the hull with density
    δ (work per device) is bought in the slots with p_t ≤ λ δ. Among the slots before an end, in order of price, these
    come first: a binary search counts them. O(n S log T) for each halving of the interval that λ is in.
    """

    def __init__(self, hulls: Hulls, work: FloatArray, ends: IntArray) -> None:
        self.work = work
        self.counts, self.rates, self.densities = hulls.step_counts, hulls.step_rates, hulls.densities
        self._ends, self._rows = np.unique(ends, return_inverse=True)
        self._feasible = self.rates.sum(axis=1) * ends >= work
        self._idle = (work <= 0) | ~self._feasible
        # Of jobs whose table has no step, 1: any price of work does.
        has_steps = hulls.n_steps > 0
        last = np.maximum(hulls.n_steps - 1, 0)[:, None]
        self._most_density = np.where(has_steps, _at(self.densities, np.zeros_like(last)), 1.0)
        self._least_density = np.where(has_steps, _at(self.densities, last), 1.0)
        self._paid: tuple[FloatArray, FloatArray] | None = None

    def respond(self, prices: FloatArray) -> Response:
        """Least costs at these prices (T,), each above 0."""
        sheet = _Sheet(prices, self._ends, self._rows)
        low, high = self._bracket(sheet)
        costs = np.maximum(self._cost(sheet, low), self._cost(sheet, high))
        costs = np.where(self._feasible, np.maximum(costs, 0.0), np.inf)
        costs[self._idle & self._feasible] = 0.0
        mix = self._mix(low, high)

        def usage(share: FloatArray) -> FloatArray:
            share = np.where(self._idle, 0.0, share)
            first, second = share * (1.0 - mix), share * mix
            return sheet.usage(low.bought, self.counts * first[:, None], high.bought, self.counts * second[:, None])

        return Response(costs, usage)

    def _buy(self, sheet: "_Sheet", per_work: FloatArray) -> "_Bids":
        bought = sheet.n_bought(self, per_work)
        return _Bids(per_work, bought, np.asarray(np.einsum("is,is->i", bought, self.rates)))

    def _cost(self, sheet: "_Sheet", bids: "_Bids") -> FloatArray:
        """The dual function at these prices of work: linear in them as long as what is bought stays."""
        spent = np.einsum("is,is->i", sheet.paid(bids.bought), self.counts)
        return np.asarray(bids.per_work * (self.work - bids.done) + spent)

    def _mix(self, low: "_Bids", high: "_Bids") -> FloatArray:
        """Share of the higher solution in the mix that does the work exactly."""
        differ = high.done > low.done
        span = np.where(differ, high.done - low.done, 1.0)
        return np.clip(np.where(differ, (self.work - low.done) / span, 1.0), 0.0, 1.0)

    def _bracket(self, sheet: "_Sheet") -> tuple["_Bids", "_Bids"]:
        """Return what is bought at prices of work below and above the best one, close to each other."""
        low, high = self._nothing(sheet), self._everything(sheet)
        n_halvings = _N_HALVINGS_COLD
        if self._paid is not None:
            low, high = self._narrowed(sheet, low, high)
            n_halvings = _N_HALVINGS_WARM
        for _ in range(n_halvings):
            middle = self._buy(sheet, np.sqrt(low.per_work * high.per_work))
            enough = middle.done >= self.work
            low, high = _where(enough, low, middle), _where(enough, middle, high)
        self._paid = low.per_work, high.per_work
        return low, high

    def _nothing(self, sheet: "_Sheet") -> "_Bids":
        """Prices of work at which no job buys in any slot."""
        per_work = np.full(len(self.work), 0.5 * sheet.lowest) / self._most_density
        return _Bids(per_work, np.zeros(self.counts.shape, dtype=np.int64), np.zeros(len(self.work)))

    def _everything(self, sheet: "_Sheet") -> "_Bids":
        """Prices of work at which every job buys all its steps in all slots before its end."""
        return self._buy(sheet, np.full(len(self.work), 2.0 * sheet.highest) / self._least_density)

    def _narrowed(self, sheet: "_Sheet", low: "_Bids", high: "_Bids") -> tuple["_Bids", "_Bids"]:
        """The interval around what was paid last, where it holds the best price; otherwise the rest of the old one."""
        assert self._paid is not None
        near_low = self._buy(sheet, np.clip(self._paid[0] / _WARM_FACTOR, low.per_work, high.per_work))
        near_high = self._buy(sheet, np.clip(self._paid[1] * _WARM_FACTOR, low.per_work, high.per_work))
        too_high, enough = near_low.done >= self.work, near_high.done >= self.work
        return (
            _where(too_high, low, _where(enough, near_low, near_high)),
            _where(too_high, near_low, _where(enough, near_high, high)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Bids:
    """Purchases of each job at a price of its work.

    Attributes
    ----------
    per_work, done
        Shape (n,), the price and the work done.
    bought
        Shape (n, S), in how many of the cheapest slots it takes each step.
    """

    per_work: FloatArray
    bought: IntArray
    done: FloatArray


def _where(these: BoolArray, one: _Bids, other: _Bids) -> _Bids:
    """Return for each job the first bids or the second."""
    return _Bids(
        np.where(these, one.per_work, other.per_work),
        np.where(these[:, None], one.bought, other.bought),
        np.where(these, one.done, other.done),
    )


def _at(table: FloatArray, columns: IntArray) -> FloatArray:
    """One entry of each row; 0 if the table has no columns."""
    if table.shape[1] == 0:
        return np.zeros(len(table))
    return np.take_along_axis(table, columns, axis=1)[:, 0]


class _Sheet:
    """Prices of the slots before each end, in ascending order.

    The rows lie behind each other in one array, each shifted by 2 times its number, so that one binary search serves
    all jobs.
    """

    def __init__(self, prices: FloatArray, ends: IntArray, rows: IntArray) -> None:
        n_slots = len(prices)
        self.lowest, self.highest = float(prices.min(initial=np.inf)), float(prices.max(initial=0.0))
        self._scale = self.highest or 1.0
        masked = np.where(np.arange(n_slots)[None, :] < ends[:, None], prices / self._scale, 1.5)
        self._slots = masked.argsort(axis=1, kind="stable")
        ordered = np.take_along_axis(masked, self._slots, axis=1)
        self._flat = (ordered + 2.0 * np.arange(len(ends))[:, None]).ravel()
        paid = np.where(ordered <= 1.0, ordered, 0.0).cumsum(axis=1) * self._scale
        self._paid = np.concatenate([np.zeros((len(ends), 1)), paid], axis=1)
        self._rows, self._n_slots = rows[:, None], n_slots

    def n_bought(self, market: Market, per_work: FloatArray) -> IntArray:
        """Return in how many slots each step of each job is bought at this price of work, shape (n, S)."""
        most = np.minimum(per_work[:, None] * market.densities / self._scale, 1.25)
        found = self._flat.searchsorted(most + 2.0 * self._rows, side="right")
        # A step of no density, behind the last one of its job, is never bought.
        return np.where(market.densities > 0, found - self._rows * self._n_slots, 0)

    def paid(self, bought: IntArray) -> FloatArray:
        """Price of one device in the cheapest `bought` slots."""
        return np.asarray(self._paid[self._rows, bought])

    def usage(
        self, first: IntArray, first_counts: FloatArray, second: IntArray, second_counts: FloatArray
    ) -> FloatArray:
        """Devices in each slot if steps hold these counts in their cheapest slots.

        Counted by rank first: a step that is bought in k slots is in those of rank 0..k − 1.
        """
        width = self._n_slots + 1
        places = np.concatenate([(first + self._rows * width).ravel(), (second + self._rows * width).ravel()])
        counts = np.concatenate([first_counts.ravel(), second_counts.ravel()])
        ending = np.bincount(places, weights=counts, minlength=len(self._slots) * width).reshape(-1, width)
        by_rank = ending[:, :0:-1].cumsum(axis=1)[:, ::-1]
        return np.asarray(np.bincount(self._slots.ravel(), by_rank.ravel(), self._n_slots), dtype=np.float64)


def on_time_bound(problem: SlotProblem, prices: FloatArray) -> float:
    """Return a weight on time that no plan exceeds, whatever the prices.

    Parameters
    ----------
    problem
        Jobs and free devices.
    prices
        Shape (T,), not below zero: the certificate of a plan, or anything else.

    Returns
    -------
    float
        In the unit of the weights.

    Notes
    -----
    *Formula.* Σ_t p_t C_t + Σ_i max(0, w_i − cost_i(p)), with cost_i(p) the least price at which job i is on time when
    it is alone and may hold mixtures of counts.

    *Properties.* Lagrangian duality: a plan's jobs pay at most Σ p C together, and each at least its cost.

    Examples
    --------
    >>> problem = SlotProblem.of(counts=[0, 1], rates=[[0, 1]] * 2, work=[2, 2], deadlines=[3, 3], weights=[1, 1], free=[1] * 3)
    >>> round(on_time_bound(problem, np.full(3, 0.5)), 6)
    1.5
    """
    check_prices(problem, prices)
    market = Market(upper_hulls(problem.counts, problem.rates), problem.work, problem.ends)
    return OnTime(problem, market).bound(floored(prices))


def cost_bound(problem: SlotProblem, prices: FloatArray) -> float:
    """Return the fewest device-slots of any plan with all jobs on time; infinite if some job alone cannot be on time.

    Parameters
    ----------
    problem
        Jobs and free devices.
    prices
        Shape (T,), not below zero: what a device costs beyond its own 1.

    Notes
    -----
    *Formula.* Σ_i cost_i(1 + p) − Σ_t p_t C_t, cost_i as in `on_time_bound`.
    """
    check_prices(problem, prices)
    market = Market(upper_hulls(problem.counts, problem.rates), problem.work, problem.ends)
    return Cost(problem, market).bound(prices)


def floored(prices: FloatArray) -> FloatArray:
    """Prices above zero, none below a small share of the highest."""
    highest = float(prices.max(initial=0.0))
    return np.maximum(prices, PRICE_FLOOR_FRAC * highest if highest > 0 else 1e-12)


class OnTime:
    """The dual of the most weight on time: a convex function of the prices, to be made small."""

    def __init__(self, problem: SlotProblem, market: Market) -> None:
        self._free, self._weights, self._market = problem.free.astype(np.float64), problem.weights, market

    def bound(self, prices: FloatArray) -> float:
        """The function itself, rounded up."""
        return self.evaluate(prices)[0] * (1.0 + ROUNDING_FRAC)

    def evaluate(self, prices: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, a subgradient (T,), and the jobs' least costs (n,)."""
        response = self._market.respond(prices)
        profit = self._weights - response.costs
        slope = self._free - response.usage((profit > 0).astype(np.float64))
        return float(prices @ self._free + np.maximum(profit, 0.0).sum()), slope, response.costs


class Cost:
    """The dual of the least cost with all jobs on time, negated: convex, to be made small."""

    def __init__(self, problem: SlotProblem, market: Market) -> None:
        self._free, self._market = problem.free.astype(np.float64), market

    def bound(self, prices: FloatArray) -> float:
        """The least cost by these prices, rounded down."""
        value = -self.evaluate(prices)[0]
        return value - ROUNDING_FRAC * abs(value) if np.isfinite(value) else value

    def evaluate(self, prices: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, a subgradient (T,), and the jobs' least costs (n,)."""
        response = self._market.respond(1.0 + prices)
        slope = self._free - response.usage(np.ones(len(response.costs)))
        return float(prices @ self._free - response.costs.sum()), slope, response.costs


class Dual(Protocol):
    """A convex function of the prices, to be made small."""

    def evaluate(self, prices: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, a subgradient (T,), and something about each job (n,)."""
        ...


def descend(
    dual: Dual, start: FloatArray, n_steps: int, floor: Callable[[FloatArray], FloatArray], scale: float = 0.0
) -> FloatArray:
    """The best prices found in `n_steps` subgradient steps from `start`; the value changes by about `scale` or more.

    Notes
    -----
    Polyak's step towards a value that lies a share below the best known; the share is halved whenever three steps in
    a row have not brought a better one. The direction is smoothed with the one before.
    """
    best, best_value, prices = start, np.inf, start
    share, n_failed, direction = 0.05, 0, np.zeros_like(start)
    for _ in range(n_steps):
        value, slope, _ = dual.evaluate(prices)
        if value < best_value - 1e-4 * abs(best_value) or not np.isfinite(best_value):
            n_failed = 0
        else:
            n_failed += 1
        if value < best_value:
            best, best_value = prices, value
        if n_failed == 3:
            share, n_failed, prices, direction = share / 2.0, 0, best, np.zeros_like(start)
            continue
        direction = slope + 0.3 * direction
        length = float(direction @ direction)
        if length == 0.0:
            break
        step = (value - best_value + share * max(abs(best_value), scale)) / length
        prices = floor(prices - step * direction)
    return best
