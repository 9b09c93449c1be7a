"""Jobs with the speed of a measured table."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from punctual.core.speed import Shape
from punctual.sim import speed_laws
from punctual.sim.job import SimJob
from punctual.sim.measured import SpeedTables
from punctual.sim.scaling._base import Changing
from punctual.sim.traces import TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Changing):
    """Jobs with the speed of a measured table, for their model and batch; any measured number is allowed.

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
        model, batch = trace.model_among(self.read.rates), trace.batch_size
        kinds, counts, law = self.once((model, batch), lambda: self._measured(model, batch))
        n = min(counts, key=lambda count: (abs(count - trace.n_workers()), count))
        work_steps = trace.work_steps or self._steps(trace, speed_laws.slowest(kinds), n)
        worker = self.worker(trace, n)
        profile = self.once(
            (model, batch, n, worker), lambda: self.known(law, n, self.shapes(worker, counts, ("", *kinds)))
        )
        return self.elastic(trace, law, work_steps, counts, worker, profile, seed, controller)

    def _measured(
        self, model: str, batch: int | None
    ) -> tuple[Mapping[str, speed_laws.MeasuredTruth], tuple[int, ...], speed_laws.SpeedLaw]:
        """The tables by kind of device, the numbers of workers in them, and the speed of a job that has them."""
        kinds = self.read.of(model, batch)
        return (
            kinds,
            tuple(sorted({count for table in kinds.values() for count in table.counts()})),
            speed_laws.measured_on(kinds),
        )

    def _steps(self, trace: TraceJob, table: speed_laws.MeasuredTruth, n: int) -> float:
        n = min(table.counts(), key=lambda count: (abs(count - n), count))
        return trace.run_s() * table.rate_sps(Shape(n_workers=n, n_nodes=self.fewest_nodes(n)))
