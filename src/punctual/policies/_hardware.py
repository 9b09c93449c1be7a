"""The cluster's hardware, and estimates of a job on it before it runs."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from math import inf
from typing import Any, TypeVar, cast, get_args

from punctual.core.cluster import Node
from punctual.core.identity_cache import N_REMEMBERED_MAX, IdentityCache
from punctual.core.ids import NodeId
from punctual.core.job import JobSpec, JobView
from punctual.core.resources import NOTHING, Resources, resource_names, total
from punctual.core.speed import Shape, made_shape
from punctual.policies._jobs import Size, least, n_workers, seconds_for

K = TypeVar("K")
V = TypeVar("V")

#: Numbers of workers, and of servers, whose rates are queried together for jobs with servers.
_N_TOGETHER = 32


@dataclass(frozen=True)
class RigidRequest:
    """A job's request as a whole: `n` times `worker`; one amount for a job without workers."""

    n: int
    worker: Resources
    amount: Resources
    view: JobView
    hardware: "Hardware"

    @cached_property
    def remaining_s(self) -> float:
        """Seconds the job would still take with it; infinite if unknown."""
        rate_sps = self.hardware.speed(self.view).rate_sps(self.n, self.amount.cores)
        return seconds_for(self.view.remaining_steps(self.view.progress_at), rate_sps)


class Hardware:
    """The nodes by kind of device, and what can be said of jobs on them before they run."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = tuple(nodes)
        self.capacity = {node.id: node.capacity for node in self.nodes}
        self.total = total(self.capacity.values())
        #: Names of the nodes' kinds of hardware, as `Resources.vector` takes them.
        self.resource_names = resource_names([self.total])
        self.kind_of = {node.id: node.device for node in self.nodes}
        #: Limits of jobs without workers at once, by node that has one, and the memory reserved for one.
        self.jobs_at_once = {node.id: node.jobs_at_once for node in self.nodes if node.jobs_at_once is not None}
        self.usual_memory_bytes = {node.id: node.usual_memory_bytes for node in self.nodes if node.jobs_at_once}
        #: Slowness of nodes that are slow for their kind.
        self.slowness = {node.id: node.slowness for node in self.nodes if node.slowness > 1.0}
        self.kinds: dict[str, list[NodeId]] = {}
        for node in self.nodes:
            self.kinds.setdefault(node.device, []).append(node.id)
        #: Number of nodes of each size: mostly one size, so that queries over all nodes cost as much as over one.
        self.room_sizes = {kind: Counter(self.capacity[node] for node in nodes) for kind, nodes in self.kinds.items()}
        self.total_of = {kind: total(self.capacity[node] for node in nodes) for kind, nodes in self.kinds.items()}
        #: Tells these nodes from nearly all others; the same on every machine, unlike a hash.
        self.checksum = [
            *(
                sum(i * room.of(name) for i, room in enumerate(self.capacity.values(), 1))
                for name in ("gpus", "cores", "memory_bytes", *self.resource_names[3:])
            ),
            len(self.nodes),
        ]
        self.n_held = IdentityCache[JobView, int](lambda view: n_workers(view.spec, view.planned))
        self.is_broken = IdentityCache(self._is_broken)
        self.worker_counts = IdentityCache(JobSpec.worker_counts)
        self.counts = IdentityCache(self._counts)
        #: Most jobs of a trace have the same worker.
        self._most_workers = IdentityCache(self._n_of_one_kind)
        self.worker_amounts = IdentityCache(self._worker_amounts)
        self.worker_steps = IdentityCache(self._worker_steps)
        self.end_at = IdentityCache(_end_at)
        #: Requests of jobs that are not resized, by size; None where one exceeds the hardware.
        self.requests = {size: IdentityCache(partial(self._request, size)) for size in get_args(Size)}
        self._speeds: dict[tuple[int, int, int], tuple[object, JobRates]] = {}
        self._remembered: dict[Callable[[Hardware, Any], Any], IdentityCache[Any, Any]] = {}
        self._kept: dict[Callable[[], Any], Any] = {}

    def remembered(self, compute: Callable[["Hardware", K], V]) -> IdentityCache[K, V]:
        """Return a cached function of this hardware and an immutable object."""
        if compute not in self._remembered:
            self._remembered[compute] = IdentityCache(partial(compute, self))
        return self._remembered[compute]

    def kept(self, make: Callable[[], V]) -> V:
        """Return an object that a policy keeps while the nodes stay the same; `make` creates it on first use."""
        if make not in self._kept:
            self._kept[make] = make()
        return cast(V, self._kept[make])

    def speed(self, view: JobView) -> "JobRates":
        """Return the job's rates on this hardware; the same object until more is known about the job."""
        spec, curve = view.spec, view.curve
        model, state = (curve.model, curve.state) if curve else (None, None)
        known = self._speeds.get((id(spec), id(model), id(state)))
        if known is not None:  # the three are kept with it, so no others can have their identities
            return known[1]
        if len(self._speeds) >= N_REMEMBERED_MAX:
            self._speeds.clear()
        speed = JobRates(view, self)
        self._speeds[id(spec), id(model), id(state)] = (spec, model, state), speed
        return speed

    def n_nodes(self, n_workers: int, worker: Resources, kind: str) -> int:
        """Return the fewest empty nodes of a kind on which so many workers fit."""
        on_one = self.n_per_node(worker, kind)
        return -(-n_workers // on_one) if on_one else 1

    def n_per_node(self, worker: Resources, kind: str) -> int:
        """Return the number of workers that fit on the largest empty node of a kind."""
        # Not remembered: to look up an amount costs more than a division by each size, of which there is mostly one.
        return max([room.n_times(worker) for room in self.room_sizes[kind]], default=0)

    def amount(self, view: JobView) -> Resources | None:
        """Return the demand of a job without workers, as far as one node has it; None if not even the floor fits."""
        floor = least(view.spec)
        wanted = view.demand.at_most(view.spec.ceiling).at_least(floor)
        rooms = {room for rooms in self.room_sizes.values() for room in rooms if floor.fits_in(room)}
        offers = [wanted.at_most(room) for room in rooms]
        return max(offers, key=lambda offer: offer.size, default=None)

    def counts_wanted(self, view: JobView) -> tuple[int, ...]:
        """Return the possible numbers of workers, up to the job's demand; empty if the nodes cannot hold it."""
        counts, unit = self.counts(view.spec), view.spec.unit
        if unit is None or view.spec.controller is None or len(counts) < 2 or (unit * counts[-1]).fits_in(view.demand):
            return counts
        wanted = tuple(n for n in counts if (unit * n).fits_in(view.demand))
        return wanted or counts[:1]

    def amounts_wanted(self, view: JobView) -> tuple[Resources, ...]:
        """Return the amounts a job made of workers can hold, up to its demand; empty if the nodes cannot hold it."""
        amounts = self.worker_amounts(view.spec)
        return amounts if view.spec.controller is None else amounts[: len(self.counts_wanted(view))]

    def _is_broken(self, view: JobView) -> bool:
        """Whether the last plan gives the job an invalid amount, or nothing."""
        planned, spec = view.planned, view.spec
        if not planned or any(node not in self.capacity for node in planned):
            return True
        amount = total(planned.values())
        if spec.worker is not None:
            return spec.parts_of(amount) is None
        return not (spec.floor.fits_in(amount) and amount.fits_in(spec.ceiling))

    def _counts(self, spec: JobSpec) -> tuple[int, ...]:
        """Return the allowed numbers of workers that fit on the nodes of one kind."""
        unit = spec.unit
        if unit is None:
            return ()
        most = self._most_workers(unit)
        if spec.server is not None:
            most = min(most, spec.ceiling.n_times(unit))
        counts = self.worker_counts(spec)
        return tuple([n for n in counts if n <= most]) if counts and counts[-1] > most else counts

    def _worker_amounts(self, spec: JobSpec) -> tuple[Resources, ...]:
        """Return the amounts that a job made of workers can hold here, ascending."""
        unit = spec.unit
        return tuple(unit * n for n in self.counts(spec)) if unit else ()

    def _worker_steps(self, spec: JobSpec) -> tuple[Resources, ...]:
        return steps_between(self.worker_amounts(spec))

    def _n_of_one_kind(self, worker: Resources) -> int:
        """Return the number of workers that fit on all nodes of the kind with most room."""
        rooms = self.room_sizes.values()
        return max([sum([room.n_times(worker) * n for room, n in sizes.items()]) for sizes in rooms], default=0)

    def _request(self, size: Size, view: JobView) -> RigidRequest | None:
        if view.spec.unit is None:
            amount = self.amount(view if size == "largest" else replace(view, demand=NOTHING))
            return None if amount is None else RigidRequest(1, amount, amount, view, self)
        counts = self.counts(view.spec)
        if not counts:
            return None
        n = counts[-1 if size == "largest" else 0]
        return RigidRequest(n, view.spec.unit, view.spec.unit * n, view, self)


def steps_between(amounts: Sequence[Resources]) -> tuple[Resources, ...]:
    """Return the differences between successive amounts."""
    return tuple(more - less for less, more in pairwise(amounts))


def _end_at(view: JobView) -> float | None:
    """Return the expected end of a running job; None if it is unknown or the job does not run yet."""
    if view.rate_sps <= 0:
        return None
    return view.progress_at + seconds_for(view.remaining_steps(view.progress_at), view.rate_sps)


class HardwareMemory:
    """The hardware of the last snapshot, kept with its caches about jobs, because nodes rarely change."""

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] = ()
        self._hardware: Hardware | None = None

    def __reduce__(self) -> tuple[type["HardwareMemory"], tuple[()]]:
        # A copy, in another process too, begins with nothing: objects are remembered by their identity.
        return HardwareMemory, ()

    def hardware_of(self, nodes: tuple[Node, ...]) -> Hardware:
        """Return the hardware of `nodes`, with its cache while the nodes stay the same."""
        if self._hardware is None or (nodes is not self._nodes and nodes != self._nodes):
            self._hardware = Hardware(nodes)
        self._nodes = nodes
        return self._hardware


class JobRates:
    """The rates of one job by number of workers, cores and kind of device, asked of its curve once each."""

    def __init__(self, view: JobView, hardware: Hardware) -> None:
        self._spec, self._curve, self._hardware = view.spec, view.curve, hardware
        self._unit = view.spec.unit
        self._rates: dict[tuple[int, float, str], float] = {}
        self._served_together: dict[tuple[str, int, int], Sequence[Sequence[float]] | None] = {}
        #: Cache of derived values, by key.
        self._derived: dict[Hashable, object] = {}

    def derived(self, key: Hashable, compute: Callable[[], V]) -> V:
        """Return `compute()`, cached; one `key` must always mean the same computation."""
        if key not in self._derived:
            self._derived[key] = compute()
        return cast(V, self._derived[key])

    def rate_sps(self, n: int, cores: float, kind: str | None = None) -> float:
        """Return the expected steps per second, on the fastest kind if none is named; 0 if unknown."""
        if kind is None:
            return max([self.rate_sps(n, cores, kind) for kind in self._hardware.kinds], default=0.0)
        known = self._rates.get((n, cores, kind))
        if known is None:
            known = self._curve.rate_sps(self._shape(n, cores, kind)) if self._curve else 0.0
            self._rates[n, cores, kind] = known
        return known

    def served_sps(self, n: int, n_servers: int, kind: str) -> float:
        """Return the expected steps per second of a job with servers, on nodes of one kind; 0 if unknown."""
        (i, row), (j, column) = divmod(n - 1, _N_TOGETHER), divmod(n_servers - 1, _N_TOGETHER)
        if (kind, i, j) not in self._served_together:
            self._served_together[kind, i, j] = self._ask_together(kind, i, j)
        together = self._served_together[kind, i, j]
        if together is not None:
            return float(together[row][column])
        return self.derived(("served", n, n_servers, kind), lambda: self._ask_served(n, n_servers, kind))

    def is_unknown(self, n: int, cores: float, kind: str) -> bool:
        """Whether nothing is known of the rate (it may then not be taken for zero)."""
        return self._curve is None or self._curve.std_sps(self._shape(n, cores, kind)) == inf

    def rate_and_std_sps(self, n: int, cores: float, kind: str) -> tuple[float, float]:
        """Return the rate and its standard deviation; the latter is infinite for an unmeasured shape."""
        if self._curve is None:
            return 0.0, inf
        shape = self._shape(n, cores, kind)
        rate_sps = self._rates[n, cores, kind] = self._curve.rate_sps(shape)
        return rate_sps, self._curve.std_sps(shape)

    def split_sps(self, n: int, cores: float, kind: str, n_nodes: int) -> float:
        """Return the rate with the workers spread over as many of `n_nodes` nodes of a kind as possible; 0 if unknown."""
        n_nodes = max(1, min(n, n_nodes))
        shape = self._shape(n, cores, kind)
        if self._curve is None or n_nodes <= shape.n_nodes:
            return self.rate_sps(n, cores, kind)
        return self._curve.rate_sps(replace(shape, n_nodes=n_nodes))

    def runs_on(self, kind: str) -> bool:
        """Whether the job can run on a kind of device, as far as known."""
        n = (self._hardware.counts(self._spec) or (1,))[0]
        cores = (self._unit or self._spec.ceiling).cores * n
        return self.rate_sps(n, cores, kind) > 0 or self.is_unknown(n, cores, kind)

    def _ask_together(self, kind: str, i: int, j: int) -> Sequence[Sequence[float]] | None:
        """Return the rates of one block of numbers of workers and servers; None if the model has no batch query."""
        n_workers, n_servers = (range(block * _N_TOGETHER + 1, (block + 1) * _N_TOGETHER + 1) for block in (i, j))
        return self._curve.served_sps(n_workers, n_servers, kind) if self._curve else None

    def _ask_served(self, n: int, n_servers: int, kind: str) -> float:
        worker, server = self._spec.worker, self._spec.server
        if self._curve is None or worker is None or server is None:
            return 0.0
        cores = worker.cores * n + server.cores * n_servers
        n_nodes = self._hardware.n_nodes(max(n, n_servers), worker + server, kind)
        shape = Shape(n_workers=n, cores=cores, n_nodes=n_nodes, device=kind, n_servers=n_servers)
        return self._curve.rate_sps(shape)

    def _shape(self, n: int, cores: float, kind: str) -> Shape:
        n_nodes = 1 if self._unit is None else self._hardware.n_nodes(n, self._unit, kind)
        n_servers = n if self._spec.server is not None else 0
        return made_shape(n_workers=n, cores=cores, n_nodes=n_nodes, device=kind, n_servers=n_servers)


def end_at(view: JobView, at: float, hardware: Hardware) -> float:
    """Return the expected end of a job that holds something or is about to; infinite if unknown.

    The instant stays the same while the job runs as expected, so it is cached for running jobs.
    """
    known = hardware.end_at(view)
    if known is not None:
        return known
    amount = total(view.planned.values())
    rate_sps = hardware.speed(view).rate_sps(n_workers(view.spec, view.planned), amount.cores)
    return at + seconds_for(view.remaining_steps(at), rate_sps)
