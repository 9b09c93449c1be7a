"""A trace's load on a cluster, and changing it.

Requests and capacity are counted in devices, of which a share takes a whole one, or in cores.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import ceil, fsum

from punctual.core.errors import InvalidSpec, check_above_zero
from punctual.sim.traces.job import TraceJob

#: Request of a job; None if the trace does not say.
Amount = Callable[[TraceJob], float | None]


def device_s(job: TraceJob) -> float | None:
    """Return the device-seconds that the job takes: devices are given whole, and a share of one counts as one."""
    return None if job.n_gpus is None or job.duration_s is None else ceil(job.n_gpus) * job.duration_s


def core_s(job: TraceJob) -> float | None:
    """Return the job's core-seconds; without cores a device counts as one, and a job without either as one core."""
    return None if job.duration_s is None else (job.cores or job.n_gpus or 1.0) * job.duration_s


def offered_load(jobs: Sequence[TraceJob], n_units: int, amount: Amount = device_s) -> float:
    """Return the requests of `jobs` over the capacity of `n_units` devices or cores, first to last submission.

    Raises
    ------
    InvalidSpec
        A job does not say its amount, no job asks for any, or all are submitted at one instant.
    """
    return _total(jobs, amount) / (_check_units(n_units) * _span_s(jobs))


def rescaled(jobs: Iterable[TraceJob], load: float, n_units: int, amount: Amount = device_s) -> list[TraceJob]:
    """`jobs` in the order given, the gaps between submissions stretched by one factor so that the load is `load`.

    The first submission stays where it is; durations and deadlines (which count from the submission) stay too.

    Parameters
    ----------
    n_units
        Devices or, with `core_s` as `amount`, cores of the cluster.

    Raises
    ------
    InvalidSpec
        `load` is not above zero, or the present load is not known (see `offered_load`).
    """
    listed = list(jobs)
    check_above_zero("a trace", load=load)
    factor = offered_load(listed, n_units, amount) / load
    first_at = min(job.submitted_at for job in listed)
    return [replace(job, submitted_at=first_at + (job.submitted_at - first_at) * factor) for job in listed]


def _total(jobs: Sequence[TraceJob], amount: Amount) -> float:
    amounts = [amount(job) for job in jobs]
    known = [one for one in amounts if one is not None]
    if len(known) < len(amounts) or not any(known):
        raise InvalidSpec(
            "for a load, jobs must say their devices and duration", f"{len(known)} of {len(amounts)} jobs that do",
            "a trace", "Leave the arrival times as they are, or take a trace with durations.",
        )  # fmt: skip
    # Rounded once, so that the result is the same in every version of Python.
    return fsum(known)


def _span_s(jobs: Sequence[TraceJob]) -> float:
    span_s = max(job.submitted_at for job in jobs) - min(job.submitted_at for job in jobs)
    if span_s <= 0:
        raise InvalidSpec(
            "for a load, jobs must be submitted over some time", "one instant", "a trace", "Leave the load as it is."
        )
    return span_s


def _check_units(n_units: int) -> int:
    if n_units < 1:
        raise InvalidSpec("a cluster must have devices or cores", f"{n_units}", "a load", "Give their number.")
    return n_units
