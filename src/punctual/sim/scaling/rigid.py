"""Jobs that keep the devices they had."""

from dataclasses import dataclass

from punctual.sim.job import SimJob
from punctual.sim.scaling._base import ScalingBase, by_kind
from punctual.sim.speed_laws import Constant
from punctual.sim.traces import TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Rigid(ScalingBase):
    """The job runs with the devices it had, and in no other way.

    With `device_durations_s` in the trace it is as fast on each kind of device as recorded, and on other kinds as
    slow as on the slowest of them.
    """

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        n, kinds = trace.n_workers(), trace.kinds()
        worker, work_steps = self.worker(trace, n), trace.steps()
        truth = by_kind(trace, work_steps, Constant)
        amount, shapes = self.once((worker, n, kinds), lambda: (worker * n, self.shapes(worker, (n,), kinds)))
        return self.simulated(
            trace, truth, work_steps, seed, controller, worker=worker, counts=(n,), floor=amount, ceiling=amount,
            profile=self.seen(truth, shapes),
        )  # fmt: skip
