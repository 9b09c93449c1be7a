"""Jobs made of workers and parameter servers, with any law of speed."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol, Self

from punctual.core.errors import InvalidSpec, check_fraction
from punctual.core.job import Allocation
from punctual.core.resources import Resources
from punctual.core.speed import SeenRate, Shape
from punctual.sim.job import SimJob
from punctual.sim.scaling._base import WHERE, Changing, check
from punctual.sim.speed_laws import SpeedLaw
from punctual.sim.traces import TraceJob
from punctual.sim.traces.draw import Draw, stream

#: Each pair of numbers of workers and servers is looked at.
N_PARTS_MAX = 1_000


class ServedLaw(SpeedLaw, Protocol):
    """The speed of a job with parameter servers, which also depends on how much the busiest of them exchanges."""

    def with_load_sps(self, w: int, p: int, load: float) -> float:
        """The rate where the busiest server exchanges `load` times all parameters with workers on other nodes."""
        ...

    def scaled(self, factor: float) -> Self:
        """The law with every time multiplied by `factor`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedServed:
    """A law of speed whose traffic depends on the placement of the job and the spread of parameters over servers.

    The busiest of p servers holds a share b of the parameters and exchanges them with every worker that is not on its
    node; the load ``w / p`` becomes ``b * (w - w_k)``, w_k being the workers on that server's node. It is b = 1 / p
    where the servers share equally, and w_k = 0 where `inside_is_free` is false.

    Attributes
    ----------
    law
        The speed where all traffic crosses the network and servers share equally; also what `rate_sps` says.
    worker, server
        Amount of one of each; only a worker has devices.
    busiest_frac
        Share of the parameters on the busiest of 1, 2, ... servers; the last for all larger numbers. Empty: equal shares.
    """

    law: ServedLaw
    worker: Resources
    server: Resources
    inside_is_free: bool = True  # Whether what stays on a node costs nothing.
    busiest_frac: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.worker.gpus <= 0 or self.server.gpus > 0:
            raise InvalidSpec(
                "workers must be told from servers by their devices",
                f"{self.worker} and {self.server}",
                "a true speed",
                "Take jobs whose workers have devices and whose servers have none.",
            )

    def rate_sps(self, shape: Shape) -> float:
        return self.law.rate_sps(shape)

    def placed_sps(self, allocation: Allocation) -> float:
        """Steps per second where the parts lie like this."""
        parts = [self._parts(amount) for amount in allocation.values()]
        w, p = sum(n for n, _ in parts), sum(n for _, n in parts)
        if not w or not p:
            return 0.0
        beside = min(n_workers for n_workers, n_servers in parts if n_servers) if self.inside_is_free else 0
        share = self.busiest_frac[min(p, len(self.busiest_frac)) - 1] if self.busiest_frac else 1 / p
        return self.law.with_load_sps(w, p, share * (w - beside))

    def _parts(self, amount: Resources) -> tuple[int, int]:
        """Workers and servers on one node."""
        n_workers = round(amount.gpus / self.worker.gpus)
        return n_workers, round((amount - self.worker * n_workers).ratio_to(self.server))


@dataclass(frozen=True, slots=True, kw_only=True)
class WithServers(Changing, ABC):
    """Further parameters of the rules for jobs of workers and parameter servers.

    Their amounts stand in the trace's parameters ``worker_gpus``, ``worker_cores``, ``worker_memory_bytes`` and
    ``server_cores``, ``server_memory_bytes``, and in `worker_others`, `server_others`. With the workers it had and one server beside each it takes what it took.

    Attributes
    ----------
    n_workers_max, n_servers_max
        Largest number of each.
    n_samples
        Numbers of workers and servers that are tried before the job is submitted: one of each, and others drawn at
        random. With ``knows = "recorded"`` only the former, with ``"nothing"`` none.
    placed
        Whether what workers and servers on one node exchange costs nothing, so that the speed depends on where they
        lie; otherwise all traffic crosses the network. What is declared never depends on it.
    busiest_frac
        Share of the parameters on the busiest of 1, 2, ... servers; empty: equal shares.
    server_others
        A server's further kinds of hardware, like `worker_others`.
    """

    n_workers_max: int = 16
    n_servers_max: int = 16
    n_samples: int = 5
    speed_error_frac: float = 0.0  # Each declared speed is wrong by this share, too high or too low.
    placed: bool = False
    busiest_frac: tuple[float, ...] = ()
    server_others: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Changing.__post_init__(self)
        for name in ("n_workers_max", "n_servers_max", "n_samples"):
            check(1 <= getattr(self, name) <= N_PARTS_MAX, f"`{name}` must be 1 to {N_PARTS_MAX}", getattr(self, name))
        check_fraction(WHERE, speed_error_frac=self.speed_error_frac)
        Resources(others=self.server_others)

    @abstractmethod
    def law(self, trace: TraceJob) -> ServedLaw:
        """Return how the job's speed depends on its numbers of workers and servers, but for a factor."""

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        worker, server = _held(trace, "worker", self.worker_others), _held(trace, "server", self.server_others)
        work_steps, n = trace.steps(), trace.n_workers()
        law = self.law(trace)
        # The recorded time over the law's.
        slowness = trace.run_s() / work_steps * law.rate_sps(Shape(n_workers=n))
        truth: SpeedLaw = law.scaled(slowness)
        if self.placed or self.busiest_frac:
            truth = PlacedServed(
                law=law.scaled(slowness), worker=worker, server=server, inside_is_free=self.placed,
                busiest_frac=tuple(self.busiest_frac),
            )  # fmt: skip
        return self.simulated(
            trace, truth, work_steps, seed, controller, restarts=self.restarts, worker=worker, server=server,
            counts=tuple(range(1, self.n_workers_max + 1)), floor=worker,
            ceiling=worker * self.n_workers_max + server * self.n_servers_max,
            resize_cost_s=self.startup_s if self.restarts else self.resize_cost_s,
            profile=tuple(self._tried(truth, worker, server, stream(seed, "tried", trace.id))) if self.model else (),
        )  # fmt: skip

    def _tried(self, truth: SpeedLaw, worker: Resources, server: Resources, draw: Draw) -> Iterator[SeenRate]:
        """Speeds measured before the job is submitted."""
        n_samples = {"all": self.n_samples, "recorded": 1, "nothing": 0}[self.knows]
        pairs = [(w, p) for w in range(1, self.n_workers_max + 1) for p in range(1, self.n_servers_max + 1)]
        for i in range(min(n_samples, len(pairs))):
            w, p = pairs.pop(draw.count(0, len(pairs) - 1) if i else 0)
            shape = Shape(n_workers=w, cores=worker.cores * w + server.cores * p, n_servers=p)
            error = self.speed_error_frac if draw.chance(0.5) else -self.speed_error_frac
            yield SeenRate(shape=shape, rate_sps=truth.rate_sps(shape) * (1 + error))


def _held(trace: TraceJob, part: str, others: Mapping[str, float]) -> Resources:
    """Return the amount of a worker, or of a server."""
    cores, gpus, n_bytes = (trace.parameters.get(f"{part}_{kind}", 0.0) for kind in ("cores", "gpus", "memory_bytes"))
    held = Resources(cores, ceil(gpus), ceil(n_bytes), trace.others_of(part, others))
    if not held:
        raise trace.silent(f"what a {part} holds")
    return held
