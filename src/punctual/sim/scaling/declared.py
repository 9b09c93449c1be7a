"""Jobs of a file of jobs, which declare their amounts themselves."""

from dataclasses import dataclass, replace

from punctual.core.errors import InvalidSpec, check_not_negative
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.sim.job import SimJob
from punctual.sim.speed_laws import AllReduceTruth, CoresTruth, Served, SpeedLaw
from punctual.sim.traces import TraceJob

#: A step with a worker and a server, of one second: the shares of the rule of scaling ``parameter-server``.
_SERVED = Served(0.75, 0.05, 0.15, 0.03, 0.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The job of a file of jobs runs as it declares: with any cores, or numbers of workers, that it names.

    It costs what it says: on shares of cores so many core-seconds, whatever it holds, and with workers what one of them
    takes alone, by the law of the rule ``elastic`` for more of them, or of ``parameter-server`` where it has servers.

    Attributes
    ----------
    startup_s
        Seconds from a launch to the first step.
    communication_frac, across_factor
        See `punctual.sim.speed_laws.AllReduceTruth`.
    """

    startup_s: float = 0.0
    communication_frac: float = 0.02
    across_factor: float = 2.0

    def __post_init__(self) -> None:
        check_not_negative("a rule of scaling", startup_s=self.startup_s)
        AllReduceTruth(step_s=1.0, communication_frac=self.communication_frac, across_factor=self.across_factor)

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        if trace.spec is None:
            raise InvalidSpec(
                "the trace must say what the job declares",
                "nothing",
                f"job '{trace.id}'",
                "Take another rule of scaling, or tables `[[job]]`.",
            )
        spec = replace(
            trace.spec,
            id=JobId(trace.id),
            deadline_s=trace.deadline_s,
            startup_s=self.startup_s,
            controller=controller or trace.spec.controller,
        )
        if spec.worker is None:
            work_steps = spec.work_steps or _work_core_s(spec)
            truth: SpeedLaw = CoresTruth(step_core_s=_work_core_s(spec) / work_steps, serial_frac=0.0)
            return SimJob(trace.submitted_at, replace(spec, work_steps=work_steps), truth, work_steps)
        (alone,) = spec.profile
        assert spec.work_steps is not None
        return SimJob(trace.submitted_at, spec, self._law(spec, 1.0 / alone.rate_sps), spec.work_steps)

    def _law(self, spec: JobSpec, step_s: float) -> SpeedLaw:
        if spec.server is not None:
            return _SERVED.scaled(step_s)
        return AllReduceTruth(
            step_s=step_s, communication_frac=self.communication_frac, across_factor=self.across_factor
        )


def _work_core_s(spec: JobSpec) -> float:
    assert spec.work_core_s is not None
    return spec.work_core_s
