"""Jobs whose speed does not depend on cores: they compute on a device, or mostly wait.

Such a job is steered in its *own time*, the seconds in which it does not wait for Punctual: what a step costs is counted in
them, and all the job can use is one second of them a second. Pacing alone slows it. Its cores only have to be enough.
"""

from dataclasses import dataclass, replace
from math import inf

from punctual.controllers._base import clamp, core_bounds, is_another_run
from punctual.core.control import Reading
from punctual.core.job import JobSpec
from punctual.core.resources import NOTHING, TOLERANCE, Resources

#: Seconds over which is seen what a job waits for.
_WINDOW_S = 2.0
#: Its quota may make a job slower by this share of its own time.
_SLOWED_FRAC = 0.05

_OWN = Resources(cores=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTime:
    """Knowledge of a job in its own time.

    Attributes
    ----------
    applies
        Whether it is steered in its own time.
    is_doubted
        Whether it may turn out to be so: it has run for too short a time to tell, and has waited for most of it.
    cores
        CPU seconds that all its processes use a second of it; None: not known yet.
    mark
        The reading at which the present window began.
    """

    applies: bool = False
    is_doubted: bool = False
    cores: float | None = None
    mark: Reading | None = None

    def seen(self, reading: Reading) -> "OwnTime":
        """Return the knowledge after `reading`."""
        reading, mark = reading.to_remember(), self.mark
        if mark is None or is_another_run(mark, reading) or reading.busy_s < mark.busy_s:
            return replace(self, mark=reading if reading.steps_done > 0 else None)
        busy_s, over_s = reading.busy_s - mark.busy_s, reading.reported_s - mark.reported_s
        if busy_s <= 0.0 or over_s <= 0.0:  # two reports of one instant show no rate
            return self
        used_core_s = (reading.used_core_s - reading.in_flight_core_s) - (mark.used_core_s - mark.in_flight_core_s)
        cores = max(0.0, used_core_s) / busy_s
        applies = reading.device_s > 0.0 or self._waits(reading, mark, over_s, busy_s, cores)
        begins_on_device = reading.device_s > 0.0 and not self.applies
        if over_s < _WINDOW_S and not begins_on_device:
            return replace(self, is_doubted=applies and self.cores is None)
        return OwnTime(applies=applies, cores=cores, mark=reading)

    def _waits(self, reading: Reading, mark: Reading, over_s: float, busy_s: float, cores: float) -> bool:
        granted_cores = (reading.reported_granted_core_s - mark.reported_granted_core_s) / over_s
        active_frac = (reading.active_s - mark.active_s) / busy_s if reading.active_s else 0.0
        used_frac = cores / max(min(granted_cores, 1.0), TOLERANCE)
        # A job mostly waits if its main thread is active for less than half of its own time, and all its processes use less
        # than half of their cores, or of one; and from then on until one of the two shares is above three quarters.
        return max(active_frac, used_frac) < (0.75 if self.applies else 0.5)

    def cores_for(self, spec: JobSpec, reading: Reading, own_frac: float) -> float:
        """Return the cores that give a job `own_frac` of its own time.

        A step that computes for c seconds and waits for w takes c / q + w under a quota of q cores, and may take
        (c + w) / `own_frac`. A job that uses more than a core, or must not be slowed, has room for twice what it uses.
        """
        least, most = core_bounds(spec, reading)
        used = most if self.cores is None else self.cores
        enough = max(1.0, 2.0 * used)
        may_take = (1.0 - _SLOWED_FRAC) / max(own_frac, TOLERANCE) - (1.0 - used)
        needed = used / may_take if used < 1.0 and may_take > 0.0 else inf
        return clamp(clamp(needed, 2.0 * used, enough), least, most)


def own_spec(spec: JobSpec) -> JobSpec:
    """The declaration of a job whose cores are its own time."""
    return replace(spec, floor=NOTHING, ceiling=_OWN, work_core_s=None)


def own_reading(spec: JobSpec, reading: Reading, demanded_frac: float | None) -> Reading:
    """`reading` with own seconds in place of core-seconds, of a job that demanded this much of them last.

    Nobody else can have them, so it holds what it demanded. One that has a part of a device needs the more own time for what
    it computes there.
    """
    share = spec.ceiling.gpus if 0.0 < spec.ceiling.gpus < 1.0 else 1.0
    own_s = max(reading.busy_s, reading.device_s / share)
    in_flight_s = max(0.0, reading.reported_s - reading.unit_at_s)
    return replace(
        reading,
        granted=Resources(cores=demanded_frac or 1.0) if reading.granted else NOTHING,
        granted_core_s=reading.reported_s,
        used_core_s=own_s + in_flight_s,
        in_flight_core_s=in_flight_s,
        ceiling=_OWN,
        can_cap=False,
        phases=tuple(replace(phase, core_s=max(phase.wall_s, phase.device_s / share)) for phase in reading.phases),
        report_age_s=0.0,
    )
