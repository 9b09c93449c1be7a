"""Windows of traces that count spot machines, and fast plays of one job in them, tick by tick, with the policy's own choices."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, inf, log
from pathlib import Path

import numpy as np

from punctual.core.pools import SEEN_S
from punctual.solvers.machine_market import (
    MachineChoice,
    Need,
    Outlook,
    Seen,
    Supply,
    choose,
    gains,
)

HOUR_S = 3600.0
#: The price of progress is found again after so long; the plug-in finds it at each plan.
PRICE_EVERY_S = 3600.0


@dataclass(frozen=True)
class Zone:
    """Counts of one zone, and prices of a machine-hour."""

    name: str
    counts: Sequence[int]
    tick_s: float
    spot_usd_h: float
    certain_usd_h: float


@cache
def zone(path: Path, most: int, spot_usd_h: float | None = None, certain_usd_h: float | None = None) -> Zone:
    """Return the zone of a trace; prices that are not given are those in the file."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    about = trace["metadata"]
    return Zone(
        path.stem,
        tuple(min(most, n) for n in trace["data"]),
        float(about["gap_seconds"]),
        about["spot_price"] if spot_usd_h is None else spot_usd_h,
        about["on_demand_price"] if certain_usd_h is None else certain_usd_h,
    )


def traces() -> Path | None:
    """Return the folder of published traces; None: it is not there."""
    folder = Path(os.environ.get("PUNCTUAL_DATA", "")) / "spot"
    return folder if os.environ.get("PUNCTUAL_DATA") and folder.is_dir() else None


@dataclass(frozen=True)
class Task:
    """A job: its work in units of `speeds`, by a deadline; `d_s`: start-up."""

    speeds: tuple[float, ...]
    work: float
    deadline_s: float
    startup_s: float


@dataclass(frozen=True)
class Played:
    """A job that was played: dollars, and whether it was late; dollars of machines that stay are part of them."""

    usd: float
    end_s: float
    certain_usd: float = 0.0
    n_started: int = 0


def begins(zone_: Zone, task: Task, step_s: float) -> Iterator[int]:
    """Yield the first tick of each window that fits in the trace."""
    n = round(task.deadline_s / zone_.tick_s)
    yield from range(0, len(zone_.counts) - n + 1, max(1, round(step_s / zone_.tick_s)))


def window(zone_: Zone, task: Task, i: int) -> Sequence[int]:
    return zone_.counts[i : i + round(task.deadline_s / zone_.tick_s)]


def bound_usd(
    work: float,
    speeds: Sequence[float],
    spans: Mapping[tuple[int, ...], float],
    prices_usd_s: Sequence[float],
    certain_usd_s: float,
) -> float:
    """Return what any schedule costs at least that does the work, for known counts; start-ups are free.

    Parameters
    ----------
    spans
        Seconds for which each combination of counts of the spot pools was to be had.
    prices_usd_s
        Price of a machine-second of each spot pool.
    certain_usd_s
        The same of machines that stay.

    Notes
    -----
    *Formula.* max over λ of λ·work − Σ_c seconds(c)·max_n (λ·s(n) − cost_c(n)).

    *Properties.* Exact, and concave in λ: its breaks are where another number of machines becomes best. Golden sections to 1e-9.
    """
    n_most = len(speeds) - 1
    rates = np.asarray(speeds)
    costs, seconds = [], []
    for counts, over_s in spans.items():
        usd = sorted(
            [
                usd_s
                for usd_s, n in zip(prices_usd_s, counts, strict=True)
                for _ in range(min(n, n_most))
                if usd_s < certain_usd_s
            ]
        )
        usd = usd[:n_most] + [certain_usd_s] * (n_most - len(usd[:n_most]))
        costs.append(np.concatenate([[0.0], np.cumsum(usd)]))
        seconds.append(over_s)
    table, weights = np.stack(costs), np.array(seconds)
    allowed = (rates > 0) | (np.arange(n_most + 1) == 0)

    def dual(price: float) -> float:
        best = np.where(allowed, price * rates - table, -np.inf).max(axis=1)
        return price * work - float(weights @ best)

    low, high = 0.0, 1.01 * certain_usd_s / float(gains(speeds)[-1])
    golden = (5**0.5 - 1) / 2
    for _ in range(60):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if dual(left) < dual(right):
            low = left
        else:
            high = right
    return dual((low + high) / 2)


def least_usd(zone_: Zone, task: Task, i: int) -> float:
    """Return the dual bound of a window, start-ups free."""
    spans: dict[tuple[int, ...], float] = {
        (n,): ticks * zone_.tick_s for n, ticks in Counter(window(zone_, task, i)).items()
    }
    return bound_usd(task.work, task.speeds, spans, [zone_.spot_usd_h / HOUR_S], zone_.certain_usd_h / HOUR_S)


@cache
def _changes(speeds: tuple[float, ...], startup_s: float, tick_s: float) -> tuple[np.ndarray, ...]:
    """Return numbers of spot and certain machines, and what a tick does between any two: work, seconds paid for of both kinds."""
    n_most = len(speeds) - 1
    numbers = np.array([(n, k) for n in range(n_most + 1) for k in range(n_most + 1 - n)])
    (had, had_certain), (spot, certain) = numbers.T[:, :, None], numbers.T[:, None, :]
    n_over = np.minimum(np.maximum(0, had_certain - certain), np.maximum(0, spot - had))
    n_first = np.minimum(n_most, np.minimum(had, spot) + np.minimum(had_certain, certain) + n_over)
    rates = np.asarray(speeds)
    done = rates[n_first] * startup_s + rates[spot + certain] * (tick_s - startup_s)
    return numbers, done, spot * tick_s + 0 * had, certain * tick_s + n_over * startup_s


def least_started_usd(zone_: Zone, task: Task, i: int) -> float:
    """Return the dual bound of a window with starts paid for: no elastic play costs less, whatever it knows.

    For a price of progress, dynamic programming backwards finds the machines of each tick. Any price gives a bound.
    """
    from scipy.optimize import minimize_scalar

    numbers, done, spot_s, certain_s = _changes(task.speeds, task.startup_s, zone_.tick_s)
    cost = (spot_s * zone_.spot_usd_h + certain_s * zone_.certain_usd_h) / HOUR_S
    counts = window(zone_, task, i)
    can = {n: np.flatnonzero(numbers[:, 0] <= n) for n in set(counts)}
    order = {(n, k): j for j, (n, k) in enumerate(numbers.tolist())}
    # Where each choice leads once only so many spot machines are there.
    kept = {most: np.array([order[min(n, most), k] for n, k in numbers.tolist()]) for most in can}

    def dual(log_price: float) -> float:
        price = exp(log_price)
        gains = {n: price * done[:, some] - cost[:, some] for n, some in can.items()}
        value = np.zeros(len(numbers))
        for n in reversed(counts):
            value = (gains[n] + value[can[n]]).max(axis=1)[kept[n]]
        return price * task.work - float(value[0])

    steps = [step for step in np.diff(task.speeds) if step > 0]
    low = log(0.9 * zone_.spot_usd_h / HOUR_S / max(steps))
    high = log(4 * zone_.certain_usd_h / HOUR_S / min(steps))
    found = minimize_scalar(
        lambda log_price: -dual(log_price), bounds=(low, high), method="bounded", options={"xatol": 0.01}
    )
    return -float(found.fun)


class Watcher:
    """Sees a zone's counts tick by tick, and has the policy choose."""

    def __init__(
        self,
        zone_: Zone,
        task: Task,
        i: int,
        *,
        restarts: bool = False,
        price_every_s: float = PRICE_EVERY_S,
    ) -> None:
        self._price_every_s = price_every_s
        self.zone, self.task, self.i, self.restarts = zone_, task, i, restarts
        self._n_most = len(task.speeds) - 1
        first = max(0, i - round(SEEN_S / zone_.tick_s))
        self._counts = [(first * zone_.tick_s, zone_.counts[first])]
        for j in range(first + 1, i):
            self._see(j)
        self._next_price_at, self._price = -inf, 0.0
        self._seen: Seen | None = None

    def _see(self, j: int) -> None:
        if self.zone.counts[j] != self._counts[-1][1]:
            self._counts.append((j * self.zone.tick_s, self.zone.counts[j]))
            while len(self._counts) > 1 and self._counts[1][0] < j * self.zone.tick_s - SEEN_S:
                del self._counts[0]

    def choice(self, t: int, n_spot: int, n_certain: int, left: float) -> MachineChoice:
        """Return what to have at tick `t` of the window, given what is held and the work that is left."""
        zone_, task = self.zone, self.task
        at = (self.i + t) * zone_.tick_s
        self._see(self.i + t)
        is_due = at >= self._next_price_at
        if is_due or self._seen is None or (self.restarts and self._counts[-1] != self._seen.counts[-1]):
            self._seen = Seen(tuple(self._counts), at if at > self._counts[0][0] else at + 1e-6, self._n_most)
        seen = self._seen
        available = zone_.counts[self.i + t]
        spot = Supply(zone_.spot_usd_h / HOUR_S, n_spot, available, task.startup_s, seen)
        certain = Supply(zone_.certain_usd_h / HOUR_S, n_certain, self._n_most, task.startup_s)
        left_s = task.deadline_s - t * zone_.tick_s
        need = Need(left, left_s, task.speeds, restarts=self.restarts, look_s=zone_.tick_s)
        if is_due:
            self._next_price_at = at + self._price_every_s
            self._price = Outlook(task.speeds, (spot, certain), at).price_of_progress(need)
        return choose(need, (spot, certain), self._price)


def play_elastic(zone_: Zone, task: Task, i: int, price_every_s: float = PRICE_EVERY_S) -> Played:
    """Play an elastic job in a window: a machine that starts is paid for, and a dearer one stays until then."""
    counts, tick_s = window(zone_, task, i), zone_.tick_s
    watcher = Watcher(zone_, task, i, price_every_s=price_every_s)
    speeds, d_s = task.speeds, task.startup_s
    n_best = len(speeds) - 1
    n_spot = n_certain = n_started = 0
    left, usd, certain_usd = task.work, 0.0, 0.0
    for t, available in enumerate(counts):
        n_spot = min(n_spot, available)
        spot, certain = watcher.choice(t, n_spot, n_certain, left).n_machines
        n_new = max(0, spot - n_spot)
        n_over = min(max(0, n_certain - certain), n_new)
        n_first = min(n_best, min(n_spot, spot) + min(n_certain, certain) + n_over)
        n_started += n_new + max(0, certain - n_certain)
        done = speeds[n_first] * d_s + speeds[spot + certain] * (tick_s - d_s)
        certain_now = (certain * tick_s + n_over * d_s) * zone_.certain_usd_h / HOUR_S
        now = spot * tick_s * zone_.spot_usd_h / HOUR_S + certain_now
        n_spot, n_certain = spot, certain
        part = min(1.0, left / done) if done > 0 else 1.0
        usd, certain_usd = usd + now * part, certain_usd + certain_now * part
        if done >= left:
            return Played(usd, (t + part) * tick_s, certain_usd, n_started)
        left -= done
    return Played(usd, inf, certain_usd, n_started)


#: Decides by tick, machines held ("", "spot", "certain"), whether spot is there, work left in seconds, start-up left.
Rule = Callable[[int, str, bool, float, float], str]


def play_rigid(zone_: Zone, task: Task, i: int, n: int, rule: Rule) -> Played:
    """Play a job of `n` machines, all or none, that starts again at each change."""
    counts, tick_s = window(zone_, task, i), zone_.tick_s
    left_s, start_s, held, usd, certain_usd, n_started = task.work / task.speeds[n], 0.0, "", 0.0, 0.0, 0
    prices = {"spot": n * zone_.spot_usd_h / HOUR_S, "certain": n * zone_.certain_usd_h / HOUR_S, "": 0.0}
    for t, available in enumerate(counts):
        is_there = available >= n
        if held == "spot" and not is_there:
            held, start_s = "", 0.0
        wanted = rule(t, held, is_there, left_s, start_s)
        wanted = "" if wanted == "spot" and not is_there else wanted
        if wanted != held:
            held, start_s = wanted, task.startup_s if wanted else 0.0
            n_started += bool(wanted)
        if not held:
            continue
        run_s = max(0.0, tick_s - start_s)
        paid_s = min(tick_s, start_s + left_s) if run_s >= left_s else tick_s
        usd += prices[held] * paid_s
        certain_usd += prices[held] * paid_s if held == "certain" else 0.0
        if run_s >= left_s:
            return Played(usd, t * tick_s + paid_s, certain_usd, n_started)
        left_s, start_s = left_s - run_s, max(0.0, start_s - tick_s)
    return Played(usd, inf, certain_usd, n_started)


def uniform_progress(zone_: Zone, task: Task, n: int) -> Rule:
    """Return Uniform Progress ("Can't Be Late", NSDI '24), written from the paper's rules."""
    work_s, by_s, d_s, tick_s = task.work / task.speeds[n], task.deadline_s, task.startup_s, zone_.tick_s

    def rule(t: int, held: str, is_there: bool, left_s: float, _: float) -> str:
        at_s, done_s = t * tick_s, work_s - left_s
        rest_s = by_s - at_s
        if held != "spot" and rest_s < left_s + 2 * d_s + tick_s:
            return "certain"
        if held == "spot" and rest_s < left_s + d_s + tick_s:
            return "spot"
        if is_there and held != "certain":
            return "spot"
        if held == "":
            return "certain" if done_s < at_s * work_s / by_s else ""
        return "spot" if is_there and done_s >= (at_s + 2 * d_s) * work_s / by_s else "certain"

    return rule


def ours_rigid(zone_: Zone, task: Task, i: int, n: int) -> Rule:
    """Return the policy as a rule for a job of `n` machines."""
    speeds = tuple(task.speeds[k] if k in (0, n) else 0.0 for k in range(n + 1))
    job = Task(speeds, task.work, task.deadline_s, task.startup_s)
    return rigid_rule(Watcher(zone_, job, i, restarts=True), n)


def rigid_rule(watcher: Watcher, n: int) -> Rule:
    """Return what a watcher chooses as a rule for a job of `n` machines."""
    speeds = watcher.task.speeds

    def rule(t: int, held: str, _: bool, left_s: float, start_s: float) -> str:
        left = (left_s + start_s) * speeds[n]
        spot, certain = watcher.choice(t, n * (held == "spot"), n * (held == "certain"), left).n_machines
        return "spot" if spot else "certain" if certain else ""

    return rule


def least_rigid_usd(zone_: Zone, task: Task, i: int, n: int, per_tick: int = 8) -> float:
    """Return the least cost of a job of `n` machines that knows the future: dynamic programming backwards over parts of a tick."""
    tick_s = zone_.tick_s
    part_s = tick_s / per_tick
    n_parts, n_start = int(np.ceil(task.work / task.speeds[n] / part_s - 1e-9)), round(task.startup_s / part_s)
    size = n_parts + 2 * n_start + 1
    usd = {"spot": n * zone_.spot_usd_h * tick_s / HOUR_S, "certain": n * zone_.certain_usd_h * tick_s / HOUR_S}

    def ended() -> np.ndarray:
        values = np.full(size, inf)
        values[0] = 0.0
        return values

    def run(after: np.ndarray, price: float) -> np.ndarray:
        values = np.full(size, inf)
        values[per_tick:] = after[:-per_tick] + price
        values[:per_tick] = price * np.arange(per_tick) / per_tick
        return values

    def started(values: np.ndarray) -> np.ndarray:
        moved = np.full(size, inf)
        moved[: size - n_start] = values[n_start:]
        moved[0] = 0.0
        return moved

    idle, spot, certain = ended(), ended(), ended()
    for available in reversed(window(zone_, task, i)):
        on_spot = run(spot, usd["spot"]) if available >= n else np.full(size, inf)
        on_certain = run(certain, usd["certain"])
        new_spot, new_certain = started(on_spot), started(on_certain)
        idle, spot, certain = (
            np.minimum(idle, np.minimum(new_spot, new_certain)),
            np.minimum(idle, np.minimum(on_spot, new_certain)),
            np.minimum(idle, np.minimum(on_certain, new_spot)),
        )
        for values in (idle, spot, certain):
            values[0] = 0.0
    return float(idle[n_parts])


def power(n_most: int, exponent: float) -> tuple[float, ...]:
    """Return speeds n**exponent of 0 to `n_most` machines."""
    return (0.0, *(float(n**exponent) for n in range(1, n_most + 1)))


def increasing(speeds: Sequence[float]) -> tuple[float, ...]:
    """Return speeds with what more machines take away left out: nobody has to use them all."""
    return tuple(float(x) for x in np.maximum.accumulate(np.asarray(speeds)))
