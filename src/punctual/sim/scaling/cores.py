"""Jobs that compute on any share of a machine's cores."""

from dataclasses import dataclass, replace
from math import inf

from punctual.core.errors import check_above_zero
from punctual.core.resources import Resources
from punctual.core.speed import SeenRate, Shape
from punctual.sim import speed_laws
from punctual.sim.job import SimJob
from punctual.sim.scaling._base import WHERE, ScalingBase, check
from punctual.sim.traces import TraceJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores(ScalingBase):
    """Jobs that compute on any share of a machine's cores, by `punctual.sim.speed_laws.CoresTruth`; devices count as cores.

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
        ScalingBase.__post_init__(self)
        check_above_zero(WHERE, least_cores=self.least_cores)
        check(1 <= self.most_factor < inf, "`most_factor` must be 1 or more", self.most_factor)
        speed_laws.CoresTruth(step_core_s=1.0, serial_frac=self.serial_frac)

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        cores = trace.cores or trace.n_gpus or 1.0
        work_steps, shape = trace.steps(), Shape(cores=cores)
        rate_sps = work_steps / trace.run_s()
        law = speed_laws.CoresTruth(step_core_s=1.0, serial_frac=self.serial_frac)
        truth = replace(law, step_core_s=law.rate_sps(shape) / rate_sps)
        most_cores, others = cores * self.most_factor, trace.others_of("worker", self.worker_others)
        return self.simulated(
            trace, truth, work_steps, seed, controller,
            floor=Resources(cores=min(self.least_cores, most_cores), others=others),
            ceiling=Resources(cores=most_cores, others=others),
            profile=(SeenRate(shape=shape, rate_sps=rate_sps),) if self.model else (),
        )  # fmt: skip
