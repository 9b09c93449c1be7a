"""A measured table of speeds, interpolated between numbers of workers and corrected by a job's reports."""

from bisect import bisect_left, insort
from dataclasses import dataclass, replace
from functools import partial
from math import exp, inf, log, sqrt

from punctual.core.errors import check_above_zero
from punctual.core.fast_init import unchecked_constructor
from punctual.core.identity_cache import IdentityCache
from punctual.core.job import JobSpec
from punctual.core.speed import SeenRate, Shape
from punctual.estimators.speed._base import possible, usable

#: Kind of device, number of nodes, number of servers: between these nothing is interpolated.
Line = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Entries:
    """Speeds along one line of the table.

    Attributes
    ----------
    amounts
        Numbers of workers or cores, ascending.
    log_amounts, log_rates
        Natural logarithms of the amounts, and of the steps per second there.
    """

    amounts: tuple[float, ...]
    log_amounts: tuple[float, ...]
    log_rates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TabulatedState:
    """The table, and the correction from the job's own reports.

    Attributes
    ----------
    table
        Never changed, only replaced.
    by_workers
        Whether amounts are numbers of workers; otherwise they are cores.
    log_factor, n_seen
        Mean logarithm of reported over tabulated speed, and how many reports it rests on, at most the model's memory.
    variance
        Variance of that logarithm: of one report around the corrected table.
    """

    table: dict[Line, Entries]
    by_workers: bool
    variance: float
    log_factor: float = 0.0
    n_seen: int = 0


_state, _made_entries = unchecked_constructor(TabulatedState), unchecked_constructor(Entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tabulated:
    """Speed of a job that was measured beforehand, `spec.profile`, in many shapes.

    Use it where a profile covers the shapes that the job may get, and in simulations of many jobs: a rate costs a
    few microseconds. Do not use it to ask about shapes that nobody measured.

    Parameters
    ----------
    noise_frac
        Standard deviation of one report around the corrected table, as far as known beforehand, relative.
    gap_frac
        Standard deviation between two entries, as a share of the logarithm of their ratio.
    n_memory
        The correction follows the mean of about this many reports.

    Notes
    -----
    *Formula.* Along entries of one kind of device, one number of nodes and of servers, the logarithm of the rate is
    linear in that of the workers (for a job not made of workers: of the cores). A report in or between entries moves
    one factor on the whole table; in a shape that the table does not have it becomes an entry.

    *Outside.* Where the line of a shape does not reach its amount, the rate is that of the same amount on the nearest number of
    nodes that has it; where none has, that of the nearest entry. The standard deviation is infinite then. On an unknown
    kind of device the rate is 0, unless the table names no kinds at all.

    *Properties.* Deterministic; a report in the table and a rate take time logarithmic in the entries.
    """

    noise_frac: float = 0.05
    gap_frac: float = 0.1
    n_memory: int = 20

    def __post_init__(self) -> None:
        check_above_zero("tabulated", noise_frac=self.noise_frac, gap_frac=self.gap_frac, n_memory=self.n_memory)

    def init(self, spec: JobSpec) -> TabulatedState:
        """Return the table of the job's profile; the mean of several speeds in one shape."""
        by_workers = spec.worker is not None
        table = (_table_by_workers if by_workers else _table_by_cores)(spec.profile)
        return _state(table, by_workers, self.noise_frac**2, 0.0, 0)

    def update(self, state: TabulatedState, seen: SeenRate) -> TabulatedState:
        """Move the factor on the table, or add an entry that it lacks."""
        if not usable(seen):
            return state
        entries = state.table.get(_line_in(state.table, seen.shape))
        found = _inside(entries, _amount(seen.shape, by_workers=state.by_workers)) if entries else None
        if found is None:
            return _with_entry(state, seen)
        surprise = log(seen.rate_sps) - found[0] - state.log_factor
        n_seen = min(state.n_seen + 1, self.n_memory)
        variance = state.variance
        if state.n_seen:  # the first report tells the factor; only further ones tell how far reports scatter around it
            variance += (surprise**2 - variance) / self.n_memory
        return _state(state.table, state.by_workers, variance, state.log_factor + surprise / n_seen, n_seen)

    def rate_sps(self, state: TabulatedState, shape: Shape) -> float:
        """Return the expected steps per second; 0 on a kind of device that is not in the table."""
        log_rate, _ = self._look_up(state, shape)
        return exp(log_rate + state.log_factor) if log_rate > -inf else 0.0

    def std_sps(self, state: TabulatedState, shape: Shape) -> float:
        """Return the standard deviation of `rate_sps`, of reports and interpolation; infinite outside the table."""
        log_rate, gap = self._look_up(state, shape)
        if gap == inf:
            return inf
        return exp(log_rate + state.log_factor) * min(1.0, sqrt(state.variance + (self.gap_frac * gap) ** 2))

    def _look_up(self, state: TabulatedState, shape: Shape) -> tuple[float, float]:
        """Return logarithms of the tabulated rate and of the ratio of the entries around it (infinite outside)."""
        if not possible(shape):
            return -inf, inf
        amount = _amount(shape, by_workers=state.by_workers)
        entries = state.table.get(_line_in(state.table, shape))
        found = _inside(entries, amount) if entries else None
        if found is not None:
            return found
        others = _lines_by_distance(state.table, shape)
        for log_rate, _ in filter(None, (_inside(state.table[line], amount) for line in others)):
            return log_rate, inf
        return (_nearest(entries or state.table[others[0]], amount), inf) if others else (-inf, inf)


def _table(profile: tuple[SeenRate, ...], *, by_workers: bool) -> dict[Line, Entries]:
    lines: dict[Line, list[tuple[float, float]]] = {}
    for seen in profile:
        if usable(seen):
            measured = _amount(seen.shape, by_workers=by_workers), seen.rate_sps
            lines.setdefault(_line(seen.shape), []).append(measured)
    return {line: _entries(_means(found)) for line, found in lines.items()}


#: Many jobs of a trace have the same profile, and a table is never changed.
_table_by_workers = IdentityCache(partial(_table, by_workers=True), n_max=256)
_table_by_cores = IdentityCache(partial(_table, by_workers=False), n_max=256)


def _line(shape: Shape) -> Line:
    return (shape.device, shape.n_nodes, shape.n_servers)


def _line_in(table: dict[Line, Entries], shape: Shape) -> Line:
    """Return the table's line for `shape`: that of its kind of device, or else the one for all kinds."""
    line = _line(shape)
    if line in table:
        return line
    for_all = ("", shape.n_nodes, shape.n_servers)
    return for_all if for_all in table else line


def _amount(shape: Shape, *, by_workers: bool) -> float:
    return float(shape.n_workers) if by_workers or shape.cores <= 0 else shape.cores


def _means(measured: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Each amount once, ascending, with the logarithm of the mean of its rates."""
    if len(measured) == 1:
        return [(measured[0][0], log(measured[0][1]))]
    rates: dict[float, list[float]] = {}
    for amount, rate_sps in measured:
        rates.setdefault(amount, []).append(rate_sps)
    return [(amount, log(sum(found) / len(found))) for amount, found in sorted(rates.items())]


def _entries(pairs: list[tuple[float, float]]) -> Entries:
    amounts, log_rates = zip(*pairs, strict=True)
    return _made_entries(amounts, tuple([log(amount) for amount in amounts]), log_rates)


def _inside(entries: Entries, amount: float) -> tuple[float, float] | None:
    """Return logarithms of the rate at `amount` and of the ratio of the entries around it; None beyond the ends."""
    i_next = bisect_left(entries.amounts, amount)
    if i_next == len(entries.amounts):
        return None
    if entries.amounts[i_next] == amount:
        return entries.log_rates[i_next], 0.0
    if i_next == 0:
        return None
    x0, x1 = entries.log_amounts[i_next - 1], entries.log_amounts[i_next]
    y0, y1 = entries.log_rates[i_next - 1], entries.log_rates[i_next]
    # Even where both ends are equally fast, the speed between them may be another one.
    return y0 + (y1 - y0) * (log(amount) - x0) / (x1 - x0), max(abs(y1 - y0), x1 - x0)


def _nearest(entries: Entries, amount: float) -> float:
    i_next = min(bisect_left(entries.amounts, amount), len(entries.amounts) - 1)
    i_last = max(0, i_next - 1)
    closer_last = amount - entries.amounts[i_last] < entries.amounts[i_next] - amount
    return entries.log_rates[i_last if closer_last else i_next]


def _lines_by_distance(table: dict[Line, Entries], shape: Shape) -> list[Line]:
    """Lines of the same kind of device, that whose nodes and servers are closest in number first."""

    def distance(line: Line) -> tuple[bool, int, Line]:
        return line[0] != shape.device, abs(line[1] - shape.n_nodes) + abs(line[2] - shape.n_servers), line

    return sorted((line for line in table if line[0] in {shape.device, ""}), key=distance)


def _with_entry(state: TabulatedState, seen: SeenRate) -> TabulatedState:
    line = _line_in(state.table, seen.shape)
    old = state.table.get(line)
    pairs = list(zip(old.amounts, old.log_rates, strict=True)) if old else []
    insort(pairs, (_amount(seen.shape, by_workers=state.by_workers), log(seen.rate_sps) - state.log_factor))
    return replace(state, table={**state.table, line: _entries(pairs)})
