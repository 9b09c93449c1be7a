"""A trace's record of one job."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import ceil, inf, isfinite

from punctual.core.errors import InvalidSpec
from punctual.core.fast_init import fast_init
from punctual.core.job import JobSpec
from punctual.sim.job import SimJob

#: Bound of all times; the difference of two is finite.
_LATEST_S = 1e300
#: Fields that may not be negative, and such that must be above zero, with their units.
_NOT_NEGATIVE = (("n_gpus", "GPUs"), ("cores", "cores"), ("memory_bytes", "bytes"))
_ABOVE_ZERO = (("duration_s", "s"), ("work_steps", "steps"), ("batch_size", "samples"), ("weight", ""))


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One job of a trace; None for values that the trace lacks.

    Attributes
    ----------
    submitted_at
        Seconds on the trace's own clock, which may start anywhere.
    n_gpus
        Devices the job asked for or held; may be a share of one. 0: a job without devices.
    duration_s
        Seconds it ran with `n_gpus` devices, waiting not counted.
    work_steps
        Training steps it did or was to do.
    model_name, batch_size
        The model trained, and samples per step as the trace counts them.
    deadline_s
        Seconds from submission to the deadline.
    device
        Kind of device it asked for or ran on; kinds that will all do are joined by ``|``.
    device_durations_s
        Seconds it would run on each kind of device.
    cores, memory_bytes
        Cores and memory that it asked for, over all nodes.
    user
        The submitting user; in traces without users, the virtual cluster it belonged to.
    weight
        Weight against others.
    best_effort
        Whether the trace calls it a job without claim to be served in time.
    parameters
        Numbers with names for a speed model, units in the names.
    spec
        The job's declaration, if it has more than a trace.
    recorded
        The job to simulate, if the trace is a live journal.
    """

    id: str
    submitted_at: float
    n_gpus: float | None = None
    duration_s: float | None = None
    work_steps: float | None = None
    model_name: str | None = None
    batch_size: int | None = None
    deadline_s: float | None = None
    device: str | None = None
    device_durations_s: Mapping[str, float] = field(default_factory=dict)
    cores: float | None = None
    memory_bytes: float | None = None
    user: str | None = None
    weight: float = 1.0
    best_effort: bool = False
    parameters: Mapping[str, float] = field(default_factory=dict)
    spec: JobSpec | None = field(default=None, repr=False)
    recorded: SimJob | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.id:
            raise InvalidSpec("`id` must not be empty", "''", "a job of a trace", "Give every job a name.")
        if not -_LATEST_S < self.submitted_at < _LATEST_S:
            raise self._wrong("`submitted_at` must be a time", self.submitted_at, "seconds")
        for name, unit in _NOT_NEGATIVE:
            amount = getattr(self, name)
            if amount is not None and not 0 <= amount < inf:
                raise self._wrong(f"`{name}` must not be negative", amount, unit)
        for name, unit in _ABOVE_ZERO:
            amount = getattr(self, name)
            if amount is not None and not 0 < amount < inf:
                raise self._wrong(f"`{name}` must be above zero", amount, unit)
        if self.deadline_s is not None and not 0 < self.deadline_s < inf:
            raise self._wrong("the deadline must be later than the submission", self.deadline_s, "s after it")
        if not all(0 < seconds < inf for seconds in self.device_durations_s.values()):
            raise self._wrong("each of `device_durations_s` must be above zero", dict(self.device_durations_s), "s")
        if not all(map(isfinite, self.parameters.values())):
            raise self._wrong("`parameters` must be finite numbers", dict(self.parameters))

    def _wrong(self, must: str, got: object, unit: str = "") -> InvalidSpec:
        return InvalidSpec(must, f"{got} {unit}".rstrip(), f"job '{self.id}'", "Correct the job or leave it out.")

    @property
    def device_s(self) -> float | None:
        """Device-seconds of the job; None if the trace lacks them."""
        return None if self.n_gpus is None or self.duration_s is None else self.n_gpus * self.duration_s

    # For the rules of scaling; `InvalidSpec` if the trace lacks a value.

    def n_workers(self) -> int:
        """Return the devices it had, or one."""
        if self.n_gpus is None:
            raise self.silent("how many devices it had")
        return max(1, ceil(self.n_gpus))

    def run_s(self) -> float:
        """Return the job's running time in seconds; of several kinds of devices, on the slowest."""
        if self.duration_s is not None:
            return self.duration_s
        if self.device_durations_s:
            return max(self.device_durations_s.values())
        raise self.silent("how long it ran")

    def steps(self) -> float:
        """Return the job's steps; one for each second if the trace counts none."""
        return self.work_steps or self.run_s()

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of device with a known speed; the empty one stands for any."""
        return ("", *self.device_durations_s)

    def model_among(self, measured: Collection[str]) -> str:
        """Return the job's model among the `measured` ones, by the trace's name or that in lower case."""
        if self.model_name is None:
            raise self.silent("which model it trains")
        for name in (self.model_name, self.model_name.lower()):
            if name in measured:
                return name
        raise InvalidSpec(
            "a job's model must have been measured", f"'{self.model_name}'", f"job '{self.id}'",
            f"Known: {', '.join(sorted(measured))}.",
        )  # fmt: skip

    def others_of(self, part: str, others: Mapping[str, float]) -> Mapping[str, float]:
        """Return a `part`'s further kinds of hardware: the trace's values take precedence over `others`."""
        return {name: self.parameters.get(f"{part}_{name}", amount) for name, amount in others.items()}

    def silent(self, about: str) -> InvalidSpec:
        """Return the error that the trace does not say something."""
        remedy = "Take another trace or another rule of scaling."
        return InvalidSpec(f"the trace must say {about}", "nothing", f"job '{self.id}'", remedy)
