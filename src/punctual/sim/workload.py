"""From what a trace says about a job to a job that can be simulated, by a stated rule.

Every rule keeps what was recorded: with the devices it had, a job takes the time it took. What it would take with
others is the rule's own assumption.

All rules: a share of a device counts as a whole one, because devices are given whole. A job that asked for no devices
is one worker with its cores (one, if the trace does not say). The kind of device it asked for is not insisted on.
Where the trace counts no steps, a step is what the job did in one second with what it had.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any, Literal, Protocol, TypeVar, cast

from punctual.core.errors import InvalidSpec, check_above_zero, check_fraction, check_not_negative
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.speed import SeenRate, Shape
from punctual.sim.adaptive import AdaptiveTables
from punctual.sim.chance import log_normal, stream
from punctual.sim.job import SimJob
from punctual.sim.layers import LayeredServed, LayerTimes, Overlap, read_tables
from punctual.sim.measured import SpeedTables
from punctual.sim.served_speeds import read_laws
from punctual.sim.trace_values import (
    deadline_s_of,
    duration_s_of,
    held_by,
    kinds_of,
    model_of,
    n_workers_of,
    others_of,
    work_steps_of,
)
from punctual.sim.truth import (
    AllReduceTruth,
    ByDevice,
    Constant,
    Cores,
    Measured,
    PlacedServed,
    Served,
    ServedLaw,
    Truth,
    measured_on,
    slowest,
)
from punctual.traces import TraceJob
from punctual.traces.draw import Draw

#: What a job declares of its speed: everything, only the speed that was recorded, or nothing.
Knowledge = Literal["all", "recorded", "nothing"]

T = TypeVar("T")

_WHERE = "a rule of scaling"
_ONE_GPU = Resources(gpus=1)
#: A job's numbers of workers are looked at one by one; of workers and servers, each pair.
N_COUNTS_MAX, N_PARTS_MAX = 10_000, 1_000


class ScalingRule(Protocol):
    """Turns a job of a trace into one of the simulated world; deterministic for its seed."""

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        """The job; raises `InvalidSpec` if the trace does not say enough about it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What all rules take: how jobs are declared.

    Attributes
    ----------
    model
        Performance model that learns the job's speed from its profile and its reports; None: none.
    startup_s
        From a launch to the first step.
    preemptible
        Whether a policy may pause the job.
    cores_and_memory
        Whether a worker also takes the cores and memory the trace says; otherwise devices only.
    worker_others
        What a worker takes of further kinds of hardware, by name; the trace's parameter ``worker_NAME`` stands above it.
        A job without workers takes it as a whole.
    devices_per_node
        Of the cluster on which the job was recorded.
    size_sigma
        Standard deviation of the logarithm of declared over true work: 0.5 makes sizes wrong by a factor of about
        1.6. The declaration is wrong, not the work.
    """

    model: str | None = "tabulated"
    startup_s: float = 0.0
    preemptible: bool = True
    cores_and_memory: bool = False
    worker_others: Mapping[str, float] = field(default_factory=dict)
    devices_per_node: int = 8
    size_sigma: float = 0.0
    _alike: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_not_negative(_WHERE, startup_s=self.startup_s, size_sigma=self.size_sigma)
        _check(self.devices_per_node >= 1, "`devices_per_node` must be 1 or more", self.devices_per_node)
        Resources(others=self.worker_others)

    def worker(self, trace: TraceJob, n: int) -> Resources:
        """What one of the job's `n` workers holds."""
        others = others_of(trace, "worker", self.worker_others)
        if not trace.n_gpus:
            return Resources(cores=trace.cores or 1.0, others=others)
        if not self.cores_and_memory:
            return Resources(gpus=1, others=others) if others else _ONE_GPU
        return Resources((trace.cores or 0.0) / n, 1, ceil((trace.memory_bytes or 0.0) / n), others)

    def declared_steps(self, trace: TraceJob, work_steps: float, seed: int) -> float:
        """The work as it is declared."""
        if not self.size_sigma:
            return work_steps
        return work_steps * log_normal(stream(seed, "size", trace.id), self.size_sigma)

    def spec(self, trace: TraceJob, work_steps: float, seed: int, controller: str | None, **own: Any) -> JobSpec:
        """The job as it is declared; `own` are the fields of which each rule has its own idea."""
        return JobSpec(
            id=JobId(trace.id),
            work_steps=self.declared_steps(trace, work_steps, seed),
            deadline_s=deadline_s_of(trace),
            weight=trace.weight,
            startup_s=self.startup_s,
            preemptible=self.preemptible,
            controller=controller,
            model=self.model,
            **own,
        )

    def fewest_nodes(self, n: int) -> int:
        """Nodes on which `n` devices fit."""
        return ceil(n / self.devices_per_node)

    def shapes(self, worker: Resources, counts: Iterable[int], kinds: Iterable[str]) -> list[Shape]:
        """With `counts` workers, together on one node and on as few as they fit on."""
        return [
            Shape(n_workers=n, cores=worker.cores * n, n_nodes=n_nodes, device=kind)
            for n in counts
            for n_nodes in sorted({1, self.fewest_nodes(n)})
            for kind in kinds
        ]

    def seen(self, truth: Truth, shapes: Iterable[Shape]) -> tuple[SeenRate, ...]:
        """What a job declares of its speed: the true one in `shapes`; nothing if no model would learn from it."""
        if not self.model:
            return ()
        rates = [(shape, truth.rate_sps(shape)) for shape in shapes]
        return tuple([SeenRate(shape=shape, rate_sps=rate) for shape, rate in rates if rate > 0])

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` finds out about jobs that are declared alike, made once; one `key` always means the same."""
        if key not in self._alike:
            self._alike[key] = make()
        return cast(T, self._alike[key])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rigid(Declared):
    """The job runs with the devices it had, and in no other way.

    With `device_durations_s` in the trace it is as fast on each kind of device as recorded, and on other kinds as
    slow as on the slowest of them.
    """

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        n, kinds = n_workers_of(trace), kinds_of(trace)
        worker, work_steps = self.worker(trace, n), work_steps_of(trace)
        truth = _by_kind(trace, work_steps, Constant)
        amount, shapes = self.once((worker, n, kinds), lambda: (worker * n, self.shapes(worker, (n,), kinds)))
        spec = self.spec(
            trace,
            work_steps,
            seed,
            controller,
            worker=worker,
            counts=(n,),
            floor=amount,
            ceiling=amount,
            profile=self.seen(truth, shapes),
        )
        return SimJob(trace.submitted_at, spec, truth, work_steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changing(Declared):
    """What the rules for elastic jobs take beside.

    Attributes
    ----------
    knows
        What is declared of the speed; the rest has to be learned.
    resize_cost_s
        Training time that a change of the grant costs.
    restarts
        Whether a change stops and starts the processes: it then costs `startup_s` instead.
    """

    knows: Knowledge = "all"
    resize_cost_s: float = 0.0
    restarts: bool = False

    def __post_init__(self) -> None:
        Declared.__post_init__(self)
        check_not_negative(_WHERE, resize_cost_s=self.resize_cost_s)
        _check(self.knows in ("all", "recorded", "nothing"), "`knows` must be all, recorded or nothing", self.knows)

    def elastic(
        self, trace: TraceJob, truth: Truth, work_steps: float, counts: tuple[int, ...], worker: Resources,
        profile: tuple[SeenRate, ...], seed: int, controller: str | None,
    ) -> SimJob:  # fmt: skip
        """The job that may have any of `counts` workers; `profile`: what is declared of its speed."""
        spec = self.spec(
            trace,
            work_steps,
            seed,
            controller,
            worker=worker,
            counts=counts,
            floor=worker * counts[0],
            ceiling=worker * counts[-1],
            resize_cost_s=self.startup_s if self.restarts else self.resize_cost_s,
            profile=profile,
        )
        return SimJob(trace.submitted_at, spec, truth, work_steps, self.restarts)

    def known(self, truth: Truth, n: int, shapes: Iterable[Shape]) -> tuple[SeenRate, ...]:
        """What a job that had `n` workers declares of its speed in `shapes`."""
        declared = shapes if self.knows == "all" else [shape for shape in shapes if shape.n_workers == n]
        return () if self.knows == "nothing" else self.seen(truth, declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic(Changing):
    """The job may have fewer or more devices than it had, with the speed of ring all-reduce.

    The law is `punctual.sim.truth.AllReduceTruth`. From `least` devices, or the trace's parameter ``n_gpus_min``, to
    `most_factor` times as many as it had, or ``n_gpus_max``.

    Attributes
    ----------
    counts
        Powers of two, and the number it had; or all numbers.
    communication_frac, across_factor
        See the law.
    """

    least: int = 1
    most_factor: float = 4.0
    counts: Literal["powers", "all"] = "powers"
    communication_frac: float = 0.02
    across_factor: float = 2.0

    def __post_init__(self) -> None:
        Changing.__post_init__(self)
        _check(self.least >= 1, "`least` must be 1 or more", self.least)
        _check(1 <= self.most_factor < inf, "`most_factor` must be 1 or more", self.most_factor)
        _check(self.counts in ("powers", "all"), "`counts` must be powers or all", self.counts)
        self._law(1.0)

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        n, work_steps = n_workers_of(trace), work_steps_of(trace)
        # What one worker would need so that n need what was recorded.
        slowness = 1.0 / self._law(1.0).rate_sps(Shape(n_workers=n, n_nodes=self.fewest_nodes(n)))
        truth = _by_kind(trace, work_steps, lambda rate: self._law(1.0 / (rate * slowness)))
        counts = self._counts(trace, n)
        worker = self.worker(trace, n)
        profile = self.known(truth, n, self.shapes(worker, counts, kinds_of(trace)))
        return self.elastic(trace, truth, work_steps, counts, worker, profile, seed, controller)

    def _law(self, step_s: float) -> AllReduceTruth:
        return AllReduceTruth(
            step_s=step_s, communication_frac=self.communication_frac, across_factor=self.across_factor
        )

    def _counts(self, trace: TraceJob, n: int) -> tuple[int, ...]:
        if not trace.n_gpus:
            return (1,)
        least = max(1, min(n, int(trace.parameters.get("n_gpus_min", self.least))))
        most = max(n, int(trace.parameters.get("n_gpus_max", n * self.most_factor)))
        if self.counts == "all":
            _check(most - least < N_COUNTS_MAX, f"a job may have at most {N_COUNTS_MAX:,} numbers of workers", most)
            return tuple(range(least, most + 1))
        powers = {1 << i for i in range(most.bit_length())}
        return tuple(sorted({count for count in powers if least <= count <= most} | {n}))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTables(Changing):
    """The job's speed is that of a measured table, for its model and batch; it may have any measured number.

    The trace's own count of steps is taken where it has one. Otherwise the job does as much as it could in the
    recorded time with the recorded devices, or with the measured number nearest to them.

    Attributes
    ----------
    tables
        Folder with the tables, see `punctual.sim.measured.SpeedTables`.
    """

    tables: str
    read: SpeedTables = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        Changing.__post_init__(self)
        object.__setattr__(self, "read", SpeedTables.read(self.tables, self.devices_per_node))

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        model, batch = model_of(trace, self.read.rates), trace.batch_size
        kinds, counts, truth = self.once((model, batch), lambda: self._measured(model, batch))
        n = min(counts, key=lambda count: (abs(count - n_workers_of(trace)), count))
        work_steps = trace.work_steps or self._steps(trace, slowest(kinds), n)
        worker = self.worker(trace, n)
        profile = self.once(
            (model, batch, n, worker), lambda: self.known(truth, n, self.shapes(worker, counts, ("", *kinds)))
        )
        return self.elastic(trace, truth, work_steps, counts, worker, profile, seed, controller)

    def _measured(self, model: str, batch: int | None) -> tuple[Mapping[str, Measured], tuple[int, ...], Truth]:
        """The tables by kind of device, the numbers of workers in them, and the speed of a job that has them."""
        kinds = self.read.of(model, batch)
        return kinds, tuple(sorted({count for table in kinds.values() for count in table.counts()})), measured_on(kinds)

    def _steps(self, trace: TraceJob, table: Measured, n: int) -> float:
        n = min(table.counts(), key=lambda count: (abs(count - n), count))
        return duration_s_of(trace) * table.rate_sps(Shape(n_workers=n, n_nodes=self.fewest_nodes(n)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveBatch(Changing):
    """The job's batch grows with its devices, so that its speed is the goodput of measured trainings [pollux2021].

    A step is one of the smallest batch that was measured, and the job has as many as its model's whole training; what
    the trace says of its length and its batch does not count. It may have any measured number of devices, up to the
    trace's parameter ``n_gpus_max``; at most ``device_batch_max`` samples fit on one, if the trace has that parameter.
    The batch is chosen anew in each epoch, and large ones gain towards the end of a training. What is declared is the
    average over the training, with which a job that keeps its devices takes exactly as long.

    Attributes
    ----------
    drifts
        Whether the job is really as fast in each epoch as was measured; otherwise it has the average at all times.
    tables
        Folder with the trainings, see `punctual.sim.adaptive.AdaptiveTables`.
    """

    tables: str
    drifts: bool = True
    read: AdaptiveTables = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        Changing.__post_init__(self)
        object.__setattr__(self, "read", AdaptiveTables(self.tables))

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        model = model_of(trace, self.read.trainings)
        speed = self.read.speed(model, trace.parameters.get("device_batch_max", inf))
        kinds = speed.average
        most = trace.parameters.get("n_gpus_max", inf)
        counts = sorted({n for table in kinds.values() for n in table.counts() if n <= most})
        if not counts:
            raise InvalidSpec(
                "a job must run on a measured number of devices", "none", f"job '{trace.id}'",
                "Raise its `n_gpus_max` or `device_batch_max`, or leave them out.",
            )  # fmt: skip
        n = min(counts, key=lambda count: (abs(count - n_workers_of(trace)), count))
        worker = self.worker(trace, n)
        shapes = [
            Shape(n_workers=count, cores=worker.cores * count, n_nodes=n_nodes, device=kind)
            for kind, table in kinds.items()
            for count, n_nodes in table.rates
        ]
        truth = measured_on(kinds)
        profile = self.known(truth, n, [shape for shape in shapes if shape.n_workers in counts])
        job = self.elastic(trace, truth, speed.work_steps, tuple(counts), worker, profile, seed, controller)
        return replace(job, phases=speed.phases) if self.drifts else job


@dataclass(frozen=True, slots=True, kw_only=True)
class WithServers(Changing, ABC):
    """What the rules for jobs of workers and parameter servers take beside.

    What they hold stands in the trace's parameters ``worker_gpus``, ``worker_cores``, ``worker_memory_bytes`` and
    ``server_cores``, ``server_memory_bytes``, and in `worker_others`, `server_others`. With the workers it had and one server beside each it takes what it took.

    Attributes
    ----------
    n_workers_max, n_servers_max
        Most of each.
    n_samples
        Numbers of workers and servers that are tried before the job is submitted: one of each, and others drawn at
        random. With ``knows = "recorded"`` only the former, with ``"nothing"`` none.
    speed_error_frac
        Each declared speed is wrong by this share, too high or too low.
    placed
        Whether what workers and servers on one node exchange costs nothing, so that the speed depends on where they
        lie; otherwise all traffic crosses the network. What is declared never depends on it.
    busiest_frac
        Share of the parameters on the busiest of 1, 2, ... servers; empty: equal shares.
    server_others
        As `worker_others`, of a server.
    """

    n_workers_max: int = 16
    n_servers_max: int = 16
    n_samples: int = 5
    speed_error_frac: float = 0.0
    placed: bool = False
    busiest_frac: tuple[float, ...] = ()
    server_others: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Changing.__post_init__(self)
        for name in ("n_workers_max", "n_servers_max", "n_samples"):
            _check(1 <= getattr(self, name) <= N_PARTS_MAX, f"`{name}` must be 1 to {N_PARTS_MAX}", getattr(self, name))
        check_fraction(_WHERE, speed_error_frac=self.speed_error_frac)
        Resources(others=self.server_others)

    @abstractmethod
    def law(self, trace: TraceJob) -> ServedLaw:
        """Return how the job's speed depends on its numbers of workers and servers, but for a factor."""

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        worker, server = held_by(trace, "worker", self.worker_others), held_by(trace, "server", self.server_others)
        work_steps, n = work_steps_of(trace), n_workers_of(trace)
        law = self.law(trace)
        # What was recorded over what the law says.
        slowness = duration_s_of(trace) / work_steps * law.rate_sps(Shape(n_workers=n))
        truth: Truth = law.scaled(slowness)
        if self.placed or self.busiest_frac:
            truth = PlacedServed(
                law=law.scaled(slowness), worker=worker, server=server, inside_is_free=self.placed,
                busiest_frac=tuple(self.busiest_frac),
            )  # fmt: skip
        spec = self.spec(
            trace,
            work_steps,
            seed,
            controller,
            worker=worker,
            server=server,
            counts=tuple(range(1, self.n_workers_max + 1)),
            floor=worker,
            ceiling=worker * self.n_workers_max + server * self.n_servers_max,
            resize_cost_s=self.startup_s if self.restarts else self.resize_cost_s,
            profile=tuple(self._tried(truth, worker, server, stream(seed, "tried", trace.id))) if self.model else (),
        )
        return SimJob(trace.submitted_at, spec, truth, work_steps, self.restarts)

    def _tried(self, truth: Truth, worker: Resources, server: Resources, draw: Draw) -> Iterator[SeenRate]:
        """Speeds measured before the job is submitted."""
        n_samples = {"all": self.n_samples, "recorded": 1, "nothing": 0}[self.knows]
        pairs = [(w, p) for w in range(1, self.n_workers_max + 1) for p in range(1, self.n_servers_max + 1)]
        for i in range(min(n_samples, len(pairs))):
            w, p = pairs.pop(draw.count(0, len(pairs) - 1) if i else 0)
            shape = Shape(n_workers=w, cores=worker.cores * w + server.cores * p, n_servers=p)
            error = self.speed_error_frac if draw.chance(0.5) else -self.speed_error_frac
            yield SeenRate(shape=shape, rate_sps=truth.rate_sps(shape) * (1 + error))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServers(WithServers):
    """The job is made of workers and parameter servers, as fast as `punctual.sim.truth.Served` says.

    Attributes
    ----------
    tables
        File with measured speeds, see `punctual.sim.served_speeds`: a job's law is the one that fits its model's. Empty:
        all jobs have the one below.
    compute_frac, fixed_frac, link_frac, worker_frac, server_frac
        What the terms of the law are with one worker and one server, as shares of a step.
    """

    model: str | None = "parameter-server"
    tables: str = ""
    compute_frac: float = 0.75
    fixed_frac: float = 0.05
    link_frac: float = 0.15
    worker_frac: float = 0.03
    server_frac: float = 0.02
    laws: Mapping[str, Served] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        WithServers.__post_init__(self)
        object.__setattr__(self, "laws", read_laws(self.tables) if self.tables else {})
        self._shares()

    def law(self, trace: TraceJob) -> ServedLaw:
        return self.laws[model_of(trace, self.laws)] if self.tables else self._shares()

    def _shares(self) -> Served:
        return Served(self.compute_frac, self.fixed_frac, self.link_frac, self.worker_frac, self.server_frac)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredServers(WithServers):
    """The job is made of workers and parameter servers that exchange its network layer by layer [smd2021].

    Its speed is that of `punctual.sim.layers.LayeredServed`. By default it is declared for all numbers of workers and
    servers up to 16 each, so that policies plan with what the layers say.

    Attributes
    ----------
    tables
        File with the measured layers of one network, which all jobs train, or folder with ``MODEL.csv`` for the models
        that the trace names.
    bandwidth_bytes_per_s
        Of the link between a worker and a server. The default is 10 Gbit/s.
    overlap, slice_s, worker_s, server_s
        See the law.
    """

    model: str | None = "tabulated"
    n_samples: int = 256
    tables: str
    bandwidth_bytes_per_s: float = 1.25e9
    overlap: Overlap = "wait-free"
    slice_s: float = 0.0
    worker_s: float = 0.0
    server_s: float = 0.0
    laws: Mapping[str, LayeredServed] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        WithServers.__post_init__(self)
        check_above_zero(_WHERE, bandwidth_bytes_per_s=self.bandwidth_bytes_per_s)
        laws = {
            model: LayeredServed(
                times=LayerTimes.of(layers, self.bandwidth_bytes_per_s),
                overlap=self.overlap,
                slice_s=self.slice_s,
                worker_s=self.worker_s,
                server_s=self.server_s,
            )
            for model, layers in read_tables(self.tables).items()
        }
        object.__setattr__(self, "laws", laws)

    def law(self, trace: TraceJob) -> ServedLaw:
        return self.laws[""] if "" in self.laws else self.laws[model_of(trace, self.laws)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreShares(Declared):
    """The job computes on any share of a machine's cores, by `punctual.sim.truth.Cores`; devices count as cores.

    Attributes
    ----------
    model
        Another default than elsewhere: controllers measure for themselves.
    least_cores
        Its floor.
    most_factor
        Its ceiling: that many times the cores it had.
    serial_frac
        See the law.
    """

    model: str | None = None
    least_cores: float = 0.1
    most_factor: float = 1.0
    serial_frac: float = 0.05

    def __post_init__(self) -> None:
        Declared.__post_init__(self)
        check_above_zero(_WHERE, least_cores=self.least_cores)
        _check(1 <= self.most_factor < inf, "`most_factor` must be 1 or more", self.most_factor)
        Cores(step_core_s=1.0, serial_frac=self.serial_frac)

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        cores = trace.cores or trace.n_gpus or 1.0
        work_steps, shape = work_steps_of(trace), Shape(cores=cores)
        rate_sps = work_steps / duration_s_of(trace)
        step_core_s = Cores(step_core_s=1.0, serial_frac=self.serial_frac).rate_sps(shape) / rate_sps
        most_cores, others = cores * self.most_factor, others_of(trace, "worker", self.worker_others)
        spec = self.spec(
            trace,
            work_steps,
            seed,
            controller,
            floor=Resources(cores=min(self.least_cores, most_cores), others=others),
            ceiling=Resources(cores=most_cores, others=others),
            profile=(SeenRate(shape=shape, rate_sps=rate_sps),) if self.model else (),
        )
        truth = Cores(step_core_s=step_core_s, serial_frac=self.serial_frac)
        return SimJob(trace.submitted_at, spec, truth, work_steps)


#: The rules by the names that scenario files use.
RULES: Mapping[str, type[ScalingRule]] = {
    "rigid": Rigid, "elastic": Elastic, "measured": MeasuredTables, "adaptive-batch": AdaptiveBatch,
    "parameter-server": ParameterServers, "layered": LayeredServers, "cores": CoreShares,
}  # fmt: skip


def sim_jobs(
    traces: Iterable[TraceJob], rule: ScalingRule, *, seed: int = 0, controller: str | None = None
) -> Iterator[SimJob]:
    """`traces`, which must be in order of submission, by `rule`, one at a time.

    Parameters
    ----------
    seed
        Of what is declared wrongly.
    controller
        Registered name of what steers each job; None: nothing looks at it between events.
    """
    return (rule.job(trace, seed, controller) for trace in traces)


class _Law(Protocol):
    def __call__(self, rate: float, /) -> Truth: ...


def _by_kind(trace: TraceJob, work_steps: float, law: _Law) -> Truth:
    """`law` with the recorded speed, or with that on each kind of device."""
    otherwise = law(work_steps / duration_s_of(trace))
    if not trace.device_durations_s:
        return otherwise
    kinds = {kind: law(work_steps / duration_s) for kind, duration_s in trace.device_durations_s.items()}
    return ByDevice(kinds, law(work_steps / max(trace.device_durations_s.values())))


def _check(holds: bool, must: str, got: object) -> None:
    if not holds:
        raise InvalidSpec(must, str(got), _WHERE, "Correct it, or leave it out for its default.")
