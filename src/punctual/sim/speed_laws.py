"""True speed of jobs. The scheduler never sees it: it sees progress, and fits."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Protocol

from punctual.core.errors import check_above_zero, check_not_negative
from punctual.core.speed import Shape

_WHERE = "a true speed"


class SpeedLaw(Protocol):
    """The speed of a job in each shape; 0 where it cannot run.

    One that also depends on where the parts lie has a method `placed_sps` of an allocation, too.
    """

    def rate_sps(self, shape: Shape) -> float:
        """Steps per second."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant speed in every shape: a rigid job."""

    rate: float

    def __post_init__(self) -> None:
        check_above_zero(_WHERE, rate=self.rate)

    def rate_sps(self, shape: Shape) -> float:
        return self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceTruth:
    """Workers that share one batch and sum their gradients in a ring.

    A step on n workers takes ``step_s * (1 / n + communication_frac * 2 (n - 1) / n)`` seconds; across several nodes
    the second term counts `across_factor` times.

    Attributes
    ----------
    step_s
        Seconds one worker needs for a step.
    communication_frac
        Time to send the gradient once, as a share of `step_s`. No number of workers is more than
        ``1 / (2 communication_frac)`` times as fast as one.
    across_factor
        Slowness of the network between nodes relative to the links inside one.
    """

    step_s: float
    communication_frac: float = 0.02
    across_factor: float = 2.0

    def __post_init__(self) -> None:
        check_above_zero(_WHERE, step_s=self.step_s)
        check_not_negative(_WHERE, communication_frac=self.communication_frac, across_factor=self.across_factor)

    def rate_sps(self, shape: Shape) -> float:
        n = shape.n_workers
        if n <= 0:
            return 0.0
        slowness = self.across_factor if shape.n_nodes > 1 else 1.0
        return n / (self.step_s * (1.0 + self.communication_frac * slowness * 2 * (n - 1)))


@dataclass(frozen=True, slots=True)
class Served:
    """Workers that wait for each other at every step, and push to and pull from parameter servers.

    A step with w workers and p servers takes ``compute_s / w + fixed_s + link_s * w / p + worker_s * w + server_s * p``
    seconds [optimus2018]. A shape without servers has one beside each worker.
    """

    compute_s: float
    fixed_s: float = 0.0
    link_s: float = 0.0
    worker_s: float = 0.0
    server_s: float = 0.0

    def __post_init__(self) -> None:
        times = asdict(self)
        check_not_negative(_WHERE, **times)
        check_above_zero(_WHERE, step_s=sum(times.values()))

    def rate_sps(self, shape: Shape) -> float:
        w, p = shape.n_workers, shape.n_servers or shape.n_workers
        return self.with_load_sps(w, p, w / p) if w > 0 else 0.0

    def with_load_sps(self, w: int, p: int, load: float) -> float:
        """The rate where the busiest server exchanges `load` times all parameters with workers on other nodes."""
        return 1.0 / (self.compute_s / w + self.fixed_s + self.link_s * load + self.worker_s * w + self.server_s * p)

    def scaled(self, factor: float) -> "Served":
        """The law with every time multiplied by `factor`."""
        return Served(**{name: factor * time_s for name, time_s in asdict(self).items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class CoresTruth:
    """A job that computes on a share of a machine: proportional up to one core, by Amdahl's law above.

    Attributes
    ----------
    step_core_s
        CPU seconds of one step on one core.
    serial_frac
        Share of a step that only one core can work on.
    """

    step_core_s: float
    serial_frac: float = 0.05

    def __post_init__(self) -> None:
        check_above_zero(_WHERE, step_core_s=self.step_core_s)
        check_not_negative(_WHERE, serial_frac=self.serial_frac)

    def rate_sps(self, shape: Shape) -> float:
        cores = shape.cores
        if cores <= 1.0:
            return cores / self.step_core_s
        return 1.0 / (self.step_core_s * (self.serial_frac + (1.0 - self.serial_frac) / cores))


@dataclass(frozen=True, slots=True)
class MeasuredTruth:
    """A table of measured speeds: (workers, nodes) -> steps per second.

    A count of workers that was measured with other numbers of nodes only has the speed of the nearest of them; a
    count that was not measured has none, because nobody knows whether the job runs there at all.
    """

    rates: Mapping[tuple[int, int], float]

    def __post_init__(self) -> None:
        for (n_workers, _), rate in self.rates.items():
            check_above_zero(_WHERE, **{f"rate with {n_workers} workers": rate})

    def counts(self) -> tuple[int, ...]:
        """The numbers of workers that were measured, ascending."""
        return tuple(sorted({n_workers for n_workers, _ in self.rates}))

    def rate_sps(self, shape: Shape) -> float:
        exact = self.rates.get((shape.n_workers, shape.n_nodes))
        if exact is not None:
            return exact
        measured = [n_nodes for n_workers, n_nodes in self.rates if n_workers == shape.n_workers]
        if not measured:
            return 0.0
        nearest = min(measured, key=lambda n_nodes: (abs(n_nodes - shape.n_nodes), n_nodes))
        return self.rates[shape.n_workers, nearest]


@dataclass(frozen=True, slots=True)
class ByDevice:
    """Separate speeds for each kind of device; a job on several kinds waits for the slowest."""

    kinds: Mapping[str, SpeedLaw]
    #: Speed on kinds of which nothing is known.
    otherwise: SpeedLaw

    def rate_sps(self, shape: Shape) -> float:
        return min(self.kinds.get(kind, self.otherwise).rate_sps(shape) for kind in shape.device.split("+"))


def slowest(kinds: Mapping[str, MeasuredTruth]) -> MeasuredTruth:
    """Return the table whose best rate is lowest."""
    return min(kinds.values(), key=lambda table: max(table.rates.values()))


def measured_on(kinds: Mapping[str, MeasuredTruth]) -> SpeedLaw:
    """Return a truth with a table for each kind of device; other kinds are as slow as the slowest."""
    return kinds[""] if set(kinds) == {""} else ByDevice(kinds, slowest(kinds))
