"""Turn a trace's record of a job into a job to simulate, by a stated rule.

Every rule keeps the record: with the devices it had, a job takes the time it took. The time with others
is the rule's own assumption.

All rules: a share of a device counts as a whole one, because devices are given whole. A job that asked for no devices
is one worker with its cores (one, if the trace does not say). The kind of device it asked for is not insisted on.
Where the trace counts no steps, a step is what the job did in one second with what it had.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal, Protocol, TypeVar, cast

from punctual.core.errors import InvalidSpec, check_not_negative
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.speed import SeenRate, Shape
from punctual.sim.job import SimJob
from punctual.sim.speed_laws import ByDevice, SpeedLaw
from punctual.sim.traces import TraceJob
from punctual.sim.traces.draw import log_normal, stream

#: Declared part of a job's speed: all, only the recorded speed, or nothing.
Knowledge = Literal["all", "recorded", "nothing"]

T = TypeVar("T")

WHERE = "a rule of scaling"
_ONE_GPU = Resources(gpus=1)


class ScalingRule(Protocol):
    """Turns a job of a trace into one of the simulated world; deterministic for its seed."""

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        """Return the job; raise `InvalidSpec` if the trace lacks a value."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingBase:
    """Parameters of all rules: the declaration of jobs.

    Attributes
    ----------
    model
        Performance model that learns the job's speed from its profile and its reports; None: none.
    startup_s
        Seconds from a launch to the first step.
    preemptible
        Whether a policy may pause the job.
    cores_and_memory
        Whether a worker also takes the cores and memory the trace says; otherwise devices only.
    worker_others
        A worker's further kinds of hardware, by name; the trace's parameter ``worker_NAME`` stands above it.
        A job without workers takes it as a whole.
    devices_per_node
        Devices in a node of the recorded cluster.
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
        check_not_negative(WHERE, startup_s=self.startup_s, size_sigma=self.size_sigma)
        check(self.devices_per_node >= 1, "`devices_per_node` must be 1 or more", self.devices_per_node)
        Resources(others=self.worker_others)

    def worker(self, trace: TraceJob, n: int) -> Resources:
        """Return the amount of one of the job's `n` workers."""
        others = trace.others_of("worker", self.worker_others)
        if not trace.n_gpus:
            return Resources(cores=trace.cores or 1.0, others=others)
        if not self.cores_and_memory:
            return Resources(gpus=1, others=others) if others else _ONE_GPU
        return Resources((trace.cores or 0.0) / n, 1, ceil((trace.memory_bytes or 0.0) / n), others)

    def declared_steps(self, trace: TraceJob, work_steps: float, seed: int) -> float:
        """Return the work as declared, which may differ from the true work."""
        if not self.size_sigma:
            return work_steps
        return work_steps * log_normal(stream(seed, "size", trace.id), self.size_sigma)

    def simulated(
        self, trace: TraceJob, truth: SpeedLaw, work_steps: float, seed: int, controller: str | None, *,
        restarts: bool = False, **own: Any,
    ) -> SimJob:  # fmt: skip
        """Return the job with its declaration; `own` are fields of that which each rule sets itself."""
        spec = JobSpec(
            id=JobId(trace.id), work_steps=self.declared_steps(trace, work_steps, seed), weight=trace.weight,
            deadline_s=None if trace.best_effort else trace.deadline_s, startup_s=self.startup_s,
            preemptible=self.preemptible, controller=controller, model=self.model, **own,
        )  # fmt: skip
        return SimJob(trace.submitted_at, spec, truth, work_steps, restarts)

    def fewest_nodes(self, n: int) -> int:
        """Nodes on which `n` devices fit."""
        return ceil(n / self.devices_per_node)

    def shapes(self, worker: Resources, counts: Iterable[int], kinds: Iterable[str]) -> list[Shape]:
        """Return shapes with `counts` workers, on one node and on the fewest nodes that hold them."""
        return [
            Shape(n_workers=n, cores=worker.cores * n, n_nodes=n_nodes, device=kind)
            for n in counts
            for n_nodes in sorted({1, self.fewest_nodes(n)})
            for kind in kinds
        ]

    def seen(self, truth: SpeedLaw, shapes: Iterable[Shape]) -> tuple[SeenRate, ...]:
        """Return the job's declared speeds: the true ones in `shapes`; empty if no model would learn from them."""
        if not self.model:
            return ()
        rates = [(shape, truth.rate_sps(shape)) for shape in shapes]
        return tuple([SeenRate(shape=shape, rate_sps=rate) for shape, rate in rates if rate > 0])

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return `make()`, cached for jobs that are declared alike; one `key` must always mean the same."""
        if key not in self._alike:
            self._alike[key] = make()
        return cast(T, self._alike[key])


@dataclass(frozen=True, slots=True, kw_only=True)
class Changing(ScalingBase):
    """Further parameters of the rules for elastic jobs.

    Attributes
    ----------
    knows
        The declared part of the speed; the rest has to be learned.
    resize_cost_s
        Training time that a change of the grant costs.
    restarts
        Whether a change stops and starts the processes: it then costs `startup_s` instead.
    """

    knows: Knowledge = "all"
    resize_cost_s: float = 0.0
    restarts: bool = False

    def __post_init__(self) -> None:
        ScalingBase.__post_init__(self)
        check_not_negative(WHERE, resize_cost_s=self.resize_cost_s)
        check(self.knows in ("all", "recorded", "nothing"), "`knows` must be all, recorded or nothing", self.knows)

    def elastic(
        self, trace: TraceJob, truth: SpeedLaw, work_steps: float, counts: tuple[int, ...], worker: Resources,
        profile: tuple[SeenRate, ...], seed: int, controller: str | None,
    ) -> SimJob:  # fmt: skip
        """Return the job that may have any of `counts` workers; `profile`: its declared speeds."""
        return self.simulated(
            trace, truth, work_steps, seed, controller, restarts=self.restarts, worker=worker, counts=counts,
            floor=worker * counts[0], ceiling=worker * counts[-1], profile=profile,
            resize_cost_s=self.startup_s if self.restarts else self.resize_cost_s,
        )  # fmt: skip

    def known(self, truth: SpeedLaw, n: int, shapes: Iterable[Shape]) -> tuple[SeenRate, ...]:
        """Return the declared speeds in `shapes` of a job that had `n` workers."""
        declared = shapes if self.knows == "all" else [shape for shape in shapes if shape.n_workers == n]
        return () if self.knows == "nothing" else self.seen(truth, declared)


def sim_jobs(
    traces: Iterable[TraceJob], rule: ScalingRule, *, seed: int = 0, controller: str | None = None
) -> Iterator[SimJob]:
    """`traces`, which must be in order of submission, by `rule`, one at a time.

    Parameters
    ----------
    seed
        Seed of wrong declarations.
    controller
        Registered name of what steers each job; None: nothing looks at it between events.
    """
    return (rule.job(trace, seed, controller) for trace in traces)


def by_kind(trace: TraceJob, work_steps: float, law: Callable[[float], SpeedLaw]) -> SpeedLaw:
    """`law` with the recorded speed, or with that on each kind of device."""
    otherwise = law(work_steps / trace.run_s())
    if not trace.device_durations_s:
        return otherwise
    kinds = {kind: law(work_steps / duration_s) for kind, duration_s in trace.device_durations_s.items()}
    return ByDevice(kinds, law(work_steps / max(trace.device_durations_s.values())))


def check(holds: bool, must: str, got: object) -> None:
    if not holds:
        raise InvalidSpec(must, str(got), WHERE, "Correct it, or leave it out for its default.")
