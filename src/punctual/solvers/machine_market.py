"""Machines of several prices for one job: which to have now, and what its work costs at least.

A job needs `work` by a deadline and is as fast as `speeds[n]` with n machines. On-demand machines are there whenever asked
for; spot machines are cheaper, come and go. A machine is paid for while it starts.

Everything turns on the *price of progress* λ, in dollars a unit of work: the multiplier of the constraint that the work gets
done. For a given λ the best number of machines at an instant is argmax_n λ·s(n) − cost(n), each instant by itself, and

    λ·work − Σ_t max_n (λ·s(n) − cost_t(n))·Δt

is a lower bound on what any schedule costs (weak duality), the best one for the λ at which the work is just done.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from punctual.solvers.solution import FloatArray, IntArray
from punctual.solvers.timeline import Levels

#: A course of counts: instants with the machines that could be had from then on.
Counts = Sequence[tuple[float, int]]

#: Prices of progress that are tried: with 48 between least and most, neighbours differ by a few per cent.
_N_PRICES = 48
#: Scenarios in which constant prices are played, and steps into which a play divides the time to come.
_N_PLAYED, _N_STEPS = 28, 24
#: Seconds until the latest deadline that is looked for.
LONGEST_S = 90 * 86_400.0


@dataclass(frozen=True)
class Seen:
    """Learned from the counts of a spot pool, up to instant `at`.

    Layer k is the k-th machine: it is there while the count is at least k. Lower layers last longer. `hour_s`: seconds that an
    hour of the pool takes; fewer where a trace is played faster than it was.
    """

    counts: Counts
    at: float
    n_most: int
    hour_s: float = 3600.0

    @cached_property
    def _layers(self) -> tuple[list[float], list[int]]:
        """Seconds for which each layer was there, and number of times it was gone after that; one unseen loss is added."""
        up_s, n_lost = [0.0] * (self.n_most + 1), [0] * (self.n_most + 1)
        ends = [*[at for at, _ in self.counts[1:]], self.at]
        for (at, n), end in zip(self.counts, ends, strict=True):
            for k in range(1, min(n, self.n_most) + 1):
                up_s[k] += max(0.0, end - at)
        for (_, n), (_, after) in pairwise(self.counts):
            for k in range(min(after, self.n_most) + 1, min(n, self.n_most) + 1):
                n_lost[k] += 1
        return up_s, n_lost

    @cached_property
    def over_s(self) -> float:
        """Seconds for which the pool was seen."""
        return self.at - self.counts[0][0] if self.counts else 0.0

    @cached_property
    def life_s(self) -> list[float]:
        """Expected seconds until each layer, there now, is gone: seconds there for each loss, and a loss after an hour beside."""
        up_s, n_lost = self._layers
        return [(up + self.hour_s) / (n + 1) for up, n in zip(up_s, n_lost, strict=True)]

    def losses_per_s(self, k: int, beside_s: float) -> float:
        """Return how often layer `k` was lost a second, whether it was there or not, with one loss in `beside_s` more."""
        return (self._layers[1][k] + 1) / (self.over_s + beside_s)

    def age_s(self, n: int) -> float:
        """Return the seconds for which at least `n` machines could be had."""
        since = self.at
        for at, count in reversed(self.counts):
            if count < n:
                break
            since = at
        return self.at - since


@dataclass(frozen=True, slots=True)
class Supply:
    """One pool as a job can use it now.

    Attributes
    ----------
    price_usd_s
        Price of a machine-second.
    n_held, n_most
        Machines that the job has, or that start for it; the most it could have now, these included.
    startup_s
        Seconds for which a new machine is paid for and does nothing.
    seen
        What was learned of a pool that takes machines away; None: it does not.
    """

    price_usd_s: float
    n_held: int
    n_most: int
    startup_s: float = 0.0
    seen: Seen | None = None

    def price_of(self, k: int, left_s: float) -> float:
        """Return the price of a productive second on the k-th machine, its start-up spread over its expected time."""
        if k <= self.n_held or not self.startup_s:
            return self.price_usd_s
        over_s = left_s if self.seen is None else min(left_s, self.seen.life_s[k])
        return self.price_usd_s * over_s / (over_s - self.startup_s) if over_s > self.startup_s else inf


def fastest(speeds: Sequence[float]) -> int:
    """Return the least number of machines with which a job is fastest."""
    return max(range(len(speeds)), key=lambda n: (speeds[n], -n))


@dataclass(slots=True)
class Need:
    """A job's need at an instant.

    Attributes
    ----------
    work
        Units of work that are left; infinite: not known.
    left_s
        Seconds until the deadline; infinite without one.
    speeds
        Units of work a second with 0, 1, 2, ... machines; 0 for a number with which it cannot run.
    restarts
        Whether each change of its machines costs the whole job the start-up (a rigid job); else only the new machine.
    look_s
        Seconds until it is decided again at the latest.
    start_at_s
        Seconds until the last instant at which it can start with its most machines; None: those of `left_s`. Other jobs may
        need the machines later.
    """

    work: float
    left_s: float
    speeds: Sequence[float]
    restarts: bool = False
    look_s: float = 0.0
    start_at_s: float | None = None

    @property
    def n_best(self) -> int:
        """Number of machines with which it is fastest."""
        return fastest(self.speeds)

    @property
    def is_known(self) -> bool:
        """Whether it is known how much work is left, and some number of machines with which the job can run."""
        return self.work < inf and any(self.speeds)

    @property
    def is_due(self) -> bool:
        """Whether the job has a deadline, and what is left and its speeds are known."""
        return self.is_known and self.left_s < inf

    @property
    def slack_s(self) -> float:
        """Seconds that it could wait and still be done in time on its most machines, without start-up."""
        if self.left_s == inf or not any(self.speeds):
            return inf
        latest_s = self.left_s - self.work / self.speeds[self.n_best]
        return (latest_s if self.start_at_s is None else self.start_at_s) - self.look_s


@dataclass(frozen=True, slots=True)
class MachineChoice:
    """Machines of each supply, and why: `free`, `tight` or `hard`."""

    n_machines: tuple[int, ...]
    mode: str


#: So many times the losses that are expected: what is lost differs, and slack that is gone is not had back. For rigid jobs 3 was
#: cheaper than 1 and 2, and as cheap as 5; for elastic ones 1 to 3 differ by 0.2 points (bench/money.md).
RESERVE_FACTOR = 3.0
#: A rigid job that is short of slack moves to spot machines that have been there for so many start-ups.
_SETTLED = 2.0


def reserve_s(need: Need, supplies: Sequence[Supply], factor: float = RESERVE_FACTOR) -> float:
    """Return the seconds of slack that losses of spot machines will cost while the work is done.

    An elastic job loses one machine's start-up with each, a rigid one two start-ups: there and back. To those that were seen
    one is added in as long as it could wait: where nothing was seen yet, a job with much slack need not expect many.
    """
    best_sps, n_best, slack_s = need.speeds[need.n_best], need.n_best, need.slack_s
    if best_sps <= 0 or slack_s <= 0:
        return 0.0
    lost_s_per_s = 0.0
    for supply in supplies:
        if supply.seen is None:
            continue
        top = min(n_best, supply.seen.n_most)
        if need.restarts:
            lost_s_per_s += 2 * supply.startup_s * (supply.seen.losses_per_s(top, slack_s) if top else 0.0)
        else:
            rates = [supply.seen.losses_per_s(k, slack_s) for k in range(1, top + 1)]
            lost_s_per_s += supply.startup_s * sum(rates) / n_best
    return factor * lost_s_per_s * need.work / best_sps


def choose(
    need: Need, supplies: Sequence[Supply], price_of_progress: float, factor: float = RESERVE_FACTOR
) -> MachineChoice:
    """Return the machines to have now.

    Parameters
    ----------
    price_of_progress
        λ, dollars a unit of work.

    Notes
    -----
    *free*: argmax_n λ·s(n) − cost(n), the cheapest machines first. *tight*, when the slack is down to the reserve for losses:
    the most machines that speed it up, spot machines among them where they are worth their start-up. *hard*, when the slack
    covers start-ups only: it takes new spot machines only as far as their loss at once would not make it late.
    """
    starts_s = [supply.startup_s for supply in supplies if supply.seen is None or need.restarts]
    start_s = max(starts_s, default=0.0)
    slack_s, spare_s = need.slack_s, reserve_s(need, supplies, factor)
    if slack_s <= 2 * start_s + (0.0 if need.restarts else need.look_s):
        mode = "hard"
    else:
        mode = "tight" if slack_s <= 2 * start_s + spare_s else "free"
    if need.restarts:
        return MachineChoice(_restarting(need, supplies, price_of_progress, mode, start_s, slack_s <= spare_s), mode)
    if mode == "free":
        machines = _ascending(need, supplies)
        return MachineChoice(
            _counted(machines[: _best_number(need.speeds, machines, price_of_progress)], supplies), mode
        )
    limit = _most_at_risk(need, supplies, start_s) if mode == "hard" else need.n_best
    return MachineChoice(_filled(need, supplies, limit), mode)


#: One machine: its price of a productive second, and the number of its supply.
_Machine = tuple[float, int]


def _ascending(need: Need, supplies: Sequence[Supply]) -> list[_Machine]:
    """Return machines that can be had, the cheapest first; equals in the order of supplies."""
    best_sps = need.speeds[need.n_best]
    lasts_s = need.work / best_sps if best_sps > 0 else 0.0  # one that is late works on after its deadline
    machines = [
        (supply.price_of(k, max(need.left_s, lasts_s + supply.startup_s)), i)
        for i, supply in enumerate(supplies)
        for k in range(1, min(supply.n_most, len(need.speeds) - 1) + 1)
    ]
    return sorted(machine for machine in machines if machine[0] < inf)


def _best_number(speeds: Sequence[float], machines: Sequence[_Machine], price: float) -> int:
    best, best_n, cost = 1e-15, 0, 0.0
    for n, (each, _) in enumerate(machines[: len(speeds) - 1], 1):
        cost += each
        gain = price * speeds[n] - cost
        if speeds[n] > 0 and gain > best:
            best, best_n = gain, n
    return best_n


def _counted(machines: Sequence[_Machine], supplies: Sequence[Supply]) -> tuple[int, ...]:
    counts = [0] * len(supplies)
    for _, i in machines:
        counts[i] += 1
    return tuple(counts)


def _certain_usd_s(supplies: Sequence[Supply], n: int) -> float:
    """Return the price of `n` machines that stay; infinite if there are not so many."""
    prices = sorted(each.price_usd_s for each in supplies if each.seen is None for _ in range(min(each.n_most, n)))
    return sum(prices[:n]) if len(prices) >= n else inf


def _filled(need: Need, supplies: Sequence[Supply], n_risky_most: int) -> tuple[int, ...]:
    """Return its most machines, the cheapest first, with so many that may be lost, or more where too few stay."""
    machines, rest = list[_Machine](), list[_Machine]()
    for machine in _ascending(need, supplies):
        is_risky = supplies[machine[1]].seen is not None
        n_risky = sum(supplies[i].seen is not None for _, i in machines)
        (rest if is_risky and n_risky >= n_risky_most else machines).append(machine)
    machines = [*machines[: need.n_best], *rest][: need.n_best]
    return _counted(machines[: fastest(need.speeds[: len(machines) + 1])], supplies)


def _most_at_risk(need: Need, supplies: Sequence[Supply], start_s: float) -> int:
    """Return how many spot machines may be lost at once, and replaced, without making it late."""
    n, speeds = need.n_best, need.speeds
    n_held = sum(supply.n_held for supply in supplies)
    left_s = need.slack_s - (start_s if n_held < n else 0.0)
    n_risky = sum(supply.n_held for supply in supplies if supply.seen is not None)
    while n_risky < n and start_s * (speeds[n] - speeds[n - n_risky - 1]) / speeds[n] <= left_s:
        n_risky += 1
    return n_risky


def _restarting(
    need: Need, supplies: Sequence[Supply], price: float, mode: str, start_s: float, is_short: bool
) -> tuple[int, ...]:
    """Choose for a job that starts again at each change.

    It stays where it is unless a move is worth two start-ups, or ends its work sooner where no slack is left.
    """
    held = tuple(min(supply.n_held, supply.n_most) for supply in supplies)
    n_held, n = sum(held), need.n_best
    machines = _ascending(need, [replace(supply, n_held=0) for supply in supplies])
    moved = [machine for machine in machines if supplies[machine[1]].seen is not None][:n]
    certain = [machine for machine in machines if supplies[machine[1]].seen is None]
    certain = certain[: fastest(need.speeds[: len(certain) + 1])]
    is_whole = len(moved) == n > 0
    if n_held < len(need.speeds) and need.speeds[n_held] > 0:
        sure_sps = need.speeds[len(certain)]
        if mode == "hard" and sure_sps > 0 and need.work / need.speeds[n_held] > start_s + need.work / sure_sps:
            return _counted(certain, supplies)
        if any(k and supply.seen is not None for supply, k in zip(supplies, held, strict=True)):
            return held
        from_usd_s = sum(supply.price_usd_s * k for supply, k in zip(supplies, held, strict=True))
        to_usd_s = sum(supplies[i].price_usd_s for _, i in moved)
        lives_s = [supply.seen.life_s[n] for supply in supplies if supply.seen is not None and supply.n_most]
        life_s = min([need.left_s, *lives_s])
        saves = is_whole and life_s * (from_usd_s - to_usd_s) > start_s * (from_usd_s + to_usd_s)
        ages_s = [supply.seen.age_s(n) for supply in supplies if supply.seen is not None]
        is_settled = not is_short or max(ages_s, default=0.0) >= _SETTLED * start_s
        return _counted(moved, supplies) if saves and is_settled and need.slack_s >= 3 * start_s else held
    usd_s = sum(usd for usd, _ in moved)
    is_worth = is_whole and usd_s < _certain_usd_s(supplies, n)
    if mode == "free":
        best = moved if is_worth else [machine for machine in machines[:n] if machine[0] == 0.0]
        pays = len(best) == n and price * need.speeds[n] > min(usd_s, sum(usd for usd, _ in best))
        return _counted(best if pays else [], supplies)
    if is_worth and mode == "tight":
        return _counted(moved, supplies)
    return _counted(certain or (moved if is_whole else []), supplies)


# The price of progress.


class Outlook:
    """Scenarios of the future from what was seen of spot pools, and the price of progress in them.

    Parameters
    ----------
    supplies
        At least one with counts; the cheapest that stays is the price at which the rest of the work can be bought.
    at
        The present instant.
    """

    def __init__(self, speeds: Sequence[float], supplies: Sequence[Supply], at: float) -> None:
        self._speeds = np.asarray(speeds)
        self._at, self._supplies = at, supplies
        n_most = len(speeds) - 1
        stays = [supply for supply in supplies if supply.seen is None]
        self._certain = sorted(each.price_usd_s for each in stays for _ in range(min(each.n_most, n_most)))[:n_most]
        self._certain_usd_s = min((usd for usd in self._certain if usd > 0), default=inf)
        self._spot = [(replace(each, n_held=0), each.seen) for each in supplies if each.seen and each.seen.counts]
        self._since_at = max((seen.counts[0][0] for _, seen in self._spot), default=at)
        begins = {t for _, seen in self._spot for t, _ in seen.counts if self._since_at < t < at}
        self._begins = np.array([self._since_at, *sorted(begins)])
        #: A scenario of the future begins at every hour of what was seen.
        self._stride_s = max((seen.hour_s for _, seen in self._spot), default=3600.0)
        self.over_s = at - self._since_at
        prices = [supply.price_usd_s for supply, _ in self._spot if supply.price_usd_s > 0]
        cheapest = min([*prices, self._certain_usd_s])
        cheapest = cheapest if cheapest < inf else 1.0
        steps = gains(speeds)
        dearest = max(self._certain, default=0.0) or 10 * cheapest  # of one's own all cost nothing
        least, most = 0.98 * cheapest / steps[0], dearest / steps[-1] * (1 - 1e-9)
        spread = np.geomspace(least, max(most, 1.01 * least), _N_PRICES - 1)
        #: At the first price only one's own machines work, because nothing is paid for; at the last one all do.
        self.prices: FloatArray = np.concatenate([[1e-6 * least], spread, [1.01 * spread[-1]]])
        self._rates, self._costs = self._tables()
        self._done = self._sums(self._rates)
        self._spent = self._sums(self._costs)

    def _tables(self) -> tuple[FloatArray, FloatArray]:
        """Return the speed and the cost a second of the best number of machines, by segment of what was seen and price."""
        columns = [_counts_at(seen.counts, self._begins) for _, seen in self._spot]
        rows = np.stack(columns, axis=1) if columns else np.zeros((len(self._begins), 0), dtype=int)
        which, inverse = np.unique(rows, axis=0, return_inverse=True)
        rates, costs = (np.stack(answers) for answers in zip(*map(self._answer, which), strict=True))
        return rates[inverse.reshape(-1)], costs[inverse.reshape(-1)]

    def _answer(self, counts: IntArray) -> tuple[FloatArray, FloatArray]:
        n_most = len(self._speeds) - 1
        usd = [
            supply.price_of(k, inf)
            for (supply, _), n in zip(self._spot, counts, strict=True)
            for k in range(1, min(int(n), n_most) + 1)
        ]
        usd = sorted([*usd, *self._certain])[:n_most]
        usd += [inf] * (n_most - len(usd))
        cost = np.concatenate([[0.0], np.cumsum(usd)])
        allowed = (self._speeds > 0) | (np.arange(n_most + 1) == 0)
        with np.errstate(invalid="ignore"):
            worth = np.where(allowed & np.isfinite(cost), self.prices[:, None] * self._speeds - cost, -np.inf)
        best = np.argmax(worth, axis=1)
        return self._speeds[best], cost[best]

    def _sums(self, rates: FloatArray) -> FloatArray:
        """Return the integral up to each segment's begin and to the present."""
        spans = np.diff(np.append(self._begins, self._at))
        return np.vstack([np.zeros(rates.shape[1]), np.cumsum(rates * spans[:, None], axis=0)])

    def _until(self, sums: FloatArray, rates: FloatArray, at: FloatArray) -> FloatArray:
        i = np.clip(np.searchsorted(self._begins, at, side="right") - 1, 0, len(self._begins) - 1)
        return np.asarray(sums[i] + rates[i] * (at - self._begins[i])[..., None])

    def _scenarios_at(self) -> FloatArray:
        return np.arange(self._since_at, self._at, self._stride_s)

    def _weights(self, left_s: float, begins: FloatArray) -> FloatArray:
        """Return the weight of the scenario that begins at each instant; what lies further back than the time to come has little."""
        return np.asarray(np.exp((begins - self._at) / left_s))

    def _scenarios(
        self, sums: FloatArray, rates: FloatArray, over_s: ArrayLike, begins: FloatArray, *, is_mirrored: bool = False
    ) -> FloatArray:
        """Return the integral over the next `over_s` seconds in the scenario that begins at each of `begins`, by price.

        A scenario goes on, after the present, with what was seen first; or, if it `is_mirrored`, back from the present: where
        the order counts, what follows the present is to be like it. `over_s` and `begins` are broadcast, and a last axis is added.
        """
        over_s = np.asarray(over_s)
        span_s = np.minimum(over_s, self.over_s)
        ends = begins + span_s
        turned = np.clip(ends - self._at, 0.0, None)
        total = self._until(sums, rates, np.minimum(ends, self._at)) - self._until(sums, rates, begins)
        if is_mirrored:
            total += sums[-1] - self._until(sums, rates, self._at - turned)
        else:
            total += self._until(sums, rates, self._since_at + turned) * (turned > 0)[..., None]
        return np.asarray(total * (over_s / span_s)[..., None])

    def price_of_progress(self, need: Need) -> float:
        """Return λ: the geometric mean of the price with each scenario known beforehand, and of the best constant price.

        The first, the mean of the best prices in each scenario, is too low: nobody knows what will come. The second, the price
        that costs least on average if it never changes, is too high: the real one is found again at each plan. A job that
        restarts has the first alone: what its starts would cost in a play is not known.

        For the case that all is different, the price of machines that stay counts with a tenth of the weight of Laplace's rule
        of succession, 1 / (n + 2), if n spans like the one to come were seen.
        """
        work, left_s = need.work, need.left_s
        # Nothing comes and goes: the fewest machines that are in time are the cheapest.
        if not self._spot and left_s > 0:
            return float(self.prices[min(int((self._rates[-1] * left_s < work).sum()), _N_PRICES - 1)])
        reliable = self._certain_usd_s / max(self._speeds[1], 1e-18) if len(self._speeds) > 1 else inf
        if self._speeds[1] <= 0:
            reliable = self._certain_usd_s * int(np.argmax(self._speeds)) / float(np.max(self._speeds))
        # From less than a day of counts nothing is learned.
        if self.over_s < 24 * self._stride_s or left_s <= 0:
            return float(reliable)
        begins = self._scenarios_at()
        price = float(np.average(self._duals(work, left_s), weights=self._weights(left_s, begins)))
        if reliable == inf:
            return price
        unseen = UNSEEN_WEIGHT / (self.over_s / left_s + 2)
        price = (1 - unseen) * price + unseen * reliable
        return price if need.restarts or not work else float(np.sqrt(price * self._best_constant(need, unseen)))

    def _duals(self, work: float, left_s: float) -> FloatArray:
        done = self._scenarios(self._done, self._rates, left_s, self._scenarios_at())
        return np.asarray(self.prices[np.minimum((done < work).sum(axis=1), _N_PRICES - 1)])

    def _best_constant(self, need: Need, unseen: float) -> float:
        """Return the price that costs least on average if it never changes; every second one is tried.

        Parameters
        ----------
        unseen
            Weight of one more scenario, in which there are no machines but those that stay.
        """
        every = np.linspace(0, self.over_s // self._stride_s - 1, _N_PLAYED).round()
        begins = self._since_at + self._stride_s * np.unique(every)
        ends_s = np.linspace(0.0, need.left_s, _N_STEPS + 1)[1:]
        tried = [*range(1, _N_PRICES, 2), _N_PRICES]  # at the last one all machines work
        alone = self._answer(np.zeros(len(self._spot), dtype=int))
        sums = (self._done, self._rates, alone[0]), (self._spent, self._costs, alone[1])
        # By scenario, step and price.
        done, spent = (
            np.vstack(
                [
                    self._scenarios(summed[:, tried], rates[:, tried], ends_s, begins[:, None], is_mirrored=True),
                    ends_s[None, :, None] * rates_alone[tried],
                ]
            )
            for summed, rates, rates_alone in sums
        )
        weights = self._weights(need.left_s, begins)
        weights = np.append((1 - unseen) * weights / weights.sum(), unseen)
        # Much as in `choose`, all work once the slack is down to two start-ups and the reserve for losses.
        best_sps = need.speeds[need.n_best]
        start_s = max(supply.startup_s for supply in self._supplies)
        spare_s = reserve_s(need, self._supplies) / need.work
        left_most = np.clip((need.left_s - ends_s - 2 * start_s) / (1 / best_sps + spare_s), 0.0, None)
        left, usd = _played(need.work, done, spent, left_most)
        # What is left at the deadline is done on machines that stay.
        usd = weights @ (usd + left / best_sps * need.n_best * self._certain_usd_s)
        # Neighbours are averaged: near its least value the cost hardly depends on the price.
        usd = np.convolve(np.pad(usd[:-1], 1, mode="edge"), [1.0, 2.0, 1.0], mode="valid")
        # Of prices that cost the same the lowest: to wait for cheaper machines is free then.
        return float(self.prices[tried][np.argmax(usd <= np.min(usd) * (1 + 1e-9))])

    def expected_usd(self, work: float, left_s: float) -> float:
        """Return the weighted mean over the scenarios of the least cost of the work, start-ups included; infinite if it cannot be done."""
        if left_s <= 0 or float(np.max(self._speeds)) * left_s < work:
            return inf
        if self.over_s < self._stride_s or not self._spot:  # nothing is known but machines that stay
            costs = np.cumsum(self._certain)
            pairs = zip(costs, self._speeds[1 : len(costs) + 1], strict=True)
            able = (usd_s * work / speed for usd_s, speed in pairs if speed > 0 and speed * left_s >= work)
            return float(min(able, default=inf))
        begins = self._scenarios_at()
        done = self._scenarios(self._done, self._rates, left_s, begins)
        spent = self._scenarios(self._spent, self._costs, left_s, begins)
        costs = np.max(self.prices * (work - done) + spent, axis=1)
        return float(np.average(costs, weights=self._weights(left_s, begins)))

    def affordable_s(self, work: float, usd: float) -> float | None:
        """Return the seconds until the earliest deadline for which the work is expected to cost no more; None: for none."""
        low, high = 0.0, LONGEST_S
        if self.expected_usd(work, high) > usd:
            return None
        while high - low > 60.0 and high > 1.001 * low:
            middle = (low + high) / 2
            low, high = (low, middle) if self.expected_usd(work, middle) <= usd else (middle, high)
        return high

    def affordable_work(self, work: float, left_s: float, usd: float) -> float:
        """Return the part of the work that is expected to cost no more by the deadline."""
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if self.expected_usd(middle * work, left_s) <= usd else (low, middle)
        return low * work


def _played(work: float, done: FloatArray, spent: FloatArray, left_most: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Play constant prices, step by step. Returns the work that is left and the cost, by scenario and price.

    Parameters
    ----------
    done, spent
        Work done and its cost up to the end of each step, by scenario, step and price; at the last price all machines work.
    left_most
        Work that may be left at the end of each step: where it would be more, all machines work for a part of the step.
    """
    left, usd = np.full(done[:, 0].shape, work), np.zeros(done[:, 0].shape)
    steps = (np.moveaxis(np.diff(sums, axis=1, prepend=0.0), 1, 0) for sums in (done, spent))
    for own, own_usd, most in zip(*steps, left_most, strict=True):
        full, full_usd = own[:, -1:], own_usd[:, -1:]
        part = np.clip((left - own - most) / np.maximum(full - own, 1e-9), 0.0, 1.0)
        step, step_usd = own + part * (full - own), own_usd + part * (full_usd - own_usd)
        # The job ends within the step that does the rest.
        share = np.minimum(1.0, left / np.maximum(step, 1e-9))
        left, usd = left - share * step, usd + share * step_usd
    return left, usd


#: Weight of a future like none that was seen, as a share of Laplace's rule.
UNSEEN_WEIGHT = 0.1


def gains(speeds: Sequence[float]) -> FloatArray:
    """Return what each machine adds where their number is the best one for some price of progress, descending."""
    levels = Levels.of(range(1, len(speeds)), speeds[1:])
    steps = np.diff(levels.rates[levels.hull]) / np.diff(levels.amounts[levels.hull])
    return steps if len(steps) else np.ones(1)


def _counts_at(counts: Counts, at: FloatArray) -> IntArray:
    times, numbers = np.array([t for t, _ in counts]), np.array([n for _, n in counts], dtype=np.int64)
    return numbers[np.clip(np.searchsorted(times, at, side="right") - 1, 0, len(numbers) - 1)]


def prices_text(prices: Sequence[tuple[str, float | None]]) -> str:
    """Return ``"$41 by 18:00, $63 by 15:00, cannot be by 12:00"``.

    Examples
    --------
    >>> prices_text([("18:00", 41.2), ("15:00", 63.0), ("12:00", None)])
    '$41 by 18:00, $63 by 15:00, cannot be by 12:00'
    """
    return ", ".join(f"{'cannot be' if usd is None else usd_text(usd)} by {when}" for when, usd in prices)


def usd_text(usd: float) -> str:
    """Return ``"$41"``, or with cents below ten dollars."""
    return f"${usd:,.2f}" if usd < 10 else f"${usd:,.0f}"
