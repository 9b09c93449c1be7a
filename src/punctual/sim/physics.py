"""Deviations of the simulated world from one without delays and failures."""

from dataclasses import dataclass
from math import inf

from punctual.core.errors import InvalidSpec, check_fraction, check_not_negative

_WHERE = "the physics"
_FRACTIONS = ("failed_launch_frac", "failed_resize_frac", "lost_answer_frac")
_AMOUNTS = ("resize_s", "solver_s", "solver_per_job_s", "rate_sigma", "failures_per_device_h")
_SPANS = ("report_s", "checkpoint_s", "node_mtbf_s", "node_repair_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """Delays, noise and failures; none by default.

    Attributes
    ----------
    startup_s
        Seconds from a launch to the first step; None: as each job declares.
    resize_s
        Seconds until a change of a grant takes effect; the job goes on as before until then.
    report_s
        Seconds between reports of a job's progress; None: reported at changes, ticks and ends only.
    solver_s, solver_per_job_s
        Seconds that a plan takes, and in addition for each job of the snapshot.
    rate_sigma
        Standard deviation of the logarithm of a factor on the true rate. It has mean 1 and is drawn anew whenever a
        job's allocation changes, or it comes to another phase.
    failures_per_device_h
        Failures of a job for each hour of training on one device (without devices: one core).
    checkpoint_s
        Seconds of training between checkpoints: a failed job falls back to its last one.
    node_mtbf_s, node_repair_s
        Mean seconds, exponentially distributed, from a node's joining to its loss and from there to its return.
    failed_launch_frac, failed_resize_frac
        Share of launches and of resizes that have no effect.
    lost_answer_frac
        Share of answers to commands that are never heard. `Periods.answer_s` must be finite then.

    Raises
    ------
    InvalidSpec
        A number is outside of its range.
    """

    startup_s: float | None = None
    resize_s: float = 0.0
    report_s: float | None = None
    solver_s: float = 0.0
    solver_per_job_s: float = 0.0
    rate_sigma: float = 0.0
    failures_per_device_h: float = 0.0
    checkpoint_s: float = 1800.0
    node_mtbf_s: float = inf
    node_repair_s: float = 3600.0
    failed_launch_frac: float = 0.0
    failed_resize_frac: float = 0.0
    lost_answer_frac: float = 0.0

    def __post_init__(self) -> None:
        check_not_negative(_WHERE, startup_s=self.startup_s or 0.0, **{name: getattr(self, name) for name in _AMOUNTS})
        if self.rate_sigma > 3:  # nearly all jobs would be millions of times slower than they say
            remedy = "Give a standard deviation of the logarithm: 0.3 where speeds differ by some 30 %."
            raise InvalidSpec("`rate_sigma` must be at most 3", f"{self.rate_sigma:g}", _WHERE, remedy)
        for name in _SPANS:
            span_s = getattr(self, name)
            if span_s is not None and not span_s > 0:
                raise InvalidSpec(f"`{name}` must be above 0", str(span_s), _WHERE, "Give a number above 0.")
        if self.report_s is not None and self.report_s < 1e-3:  # a simulation of an hour would take hours
            remedy = "Give seconds between reports, as 10, or leave it out."
            raise InvalidSpec("`report_s` must be at least 0.001", f"{self.report_s:g}", _WHERE, remedy)
        check_fraction(_WHERE, **{name: getattr(self, name) for name in _FRACTIONS})
