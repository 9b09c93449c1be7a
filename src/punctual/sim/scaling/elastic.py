"""Elastic jobs with the speed of ring all-reduce."""

from dataclasses import dataclass
from math import inf
from typing import Literal

from punctual.core.speed import Shape
from punctual.sim.job import SimJob
from punctual.sim.scaling._base import Changing, by_kind, check
from punctual.sim.speed_laws import AllReduceTruth
from punctual.sim.traces import TraceJob

#: A job's numbers of workers are looked at one by one.
N_COUNTS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic(Changing):
    """The job may have fewer or more devices than it had, with the speed of ring all-reduce.

    The law is `punctual.sim.speed_laws.AllReduceTruth`. From `least` devices, or the trace's parameter ``n_gpus_min``, to
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
        check(self.least >= 1, "`least` must be 1 or more", self.least)
        check(1 <= self.most_factor < inf, "`most_factor` must be 1 or more", self.most_factor)
        check(self.counts in ("powers", "all"), "`counts` must be powers or all", self.counts)
        self._law(1.0)

    def job(self, trace: TraceJob, seed: int = 0, controller: str | None = None) -> SimJob:
        n, work_steps = trace.n_workers(), trace.steps()
        # Time of one worker with which n workers take the recorded time.
        slowness = 1.0 / self._law(1.0).rate_sps(Shape(n_workers=n, n_nodes=self.fewest_nodes(n)))
        truth = by_kind(trace, work_steps, lambda rate: self._law(1.0 / (rate * slowness)))
        counts = self._counts(trace, n)
        worker = self.worker(trace, n)
        profile = self.known(truth, n, self.shapes(worker, counts, trace.kinds()))
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
            check(most - least < N_COUNTS_MAX, f"a job may have at most {N_COUNTS_MAX:,} numbers of workers", most)
            return tuple(range(least, most + 1))
        powers = {1 << i for i in range(most.bit_length())}
        return tuple(sorted({count for count in powers if least <= count <= most} | {n}))
