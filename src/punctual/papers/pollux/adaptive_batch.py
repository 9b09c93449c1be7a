"""Jobs whose batch grows with their devices."""

from dataclasses import dataclass, field, replace
from math import inf

from punctual.core.errors import InvalidSpec
from punctual.core.speed import Shape
from punctual.papers.pollux.adaptive_tables import AdaptiveTables
from punctual.sim.job import SimJob
from punctual.sim.scaling._base import Changing
from punctual.sim.speed_laws import measured_on
from punctual.sim.traces import TraceJob


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
    """

    tables: str  # Folder with the trainings, see `punctual.papers.pollux.adaptive_tables.AdaptiveTables`.
    drifts: bool = True
    read: AdaptiveTables = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        Changing.__post_init__(self)
        object.__setattr__(self, "read", AdaptiveTables(self.tables))

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        model = trace.model_among(self.read.trainings)
        speed = self.read.speed(model, trace.parameters.get("device_batch_max", inf))
        kinds = speed.average
        most = trace.parameters.get("n_gpus_max", inf)
        counts = sorted({n for table in kinds.values() for n in table.counts() if n <= most})
        if not counts:
            raise InvalidSpec(
                "a job must run on a measured number of devices", "none", f"job '{trace.id}'",
                "Raise its `n_gpus_max` or `device_batch_max`, or leave them out.",
            )  # fmt: skip
        n = min(counts, key=lambda count: (abs(count - trace.n_workers()), count))
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
