"""How much a trace asks of a cluster, and making that more or less."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import fsum

from punctual.core.errors import InvalidSpec, check_above_zero
from punctual.traces.job import TraceJob


def offered_load(jobs: Sequence[TraceJob], n_devices: int) -> float:
    """Device-seconds that `jobs` ask for, over those that `n_devices` have from the first to the last submission.

    Raises
    ------
    InvalidSpec
        When a job does not say its devices and duration, no job asks for any, or all are submitted at one instant.
    """
    return _device_s(jobs) / (_check_devices(n_devices) * _span_s(jobs))


def rescaled(jobs: Iterable[TraceJob], load: float, n_devices: int) -> list[TraceJob]:
    """`jobs` in the order given, the gaps between submissions stretched by one factor so that the load is `load`.

    The first submission stays where it is; durations and deadlines (which count from the submission) stay too.

    Raises
    ------
    InvalidSpec
        When `load` is not above zero, or the present load is not known (see `offered_load`).
    """
    listed = list(jobs)
    check_above_zero("a trace", load=load)
    factor = offered_load(listed, n_devices) / load
    first_at = min(job.submitted_at for job in listed)
    return [replace(job, submitted_at=first_at + (job.submitted_at - first_at) * factor) for job in listed]


def _device_s(jobs: Sequence[TraceJob]) -> float:
    amounts = [job.device_s for job in jobs]
    known = [amount for amount in amounts if amount is not None]
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
            "for a load, jobs must be submitted over some time", "one instant", "a trace",
            "Leave the load as it is.",
        )  # fmt: skip
    return span_s


def _check_devices(n_devices: int) -> int:
    if n_devices < 1:
        raise InvalidSpec("a cluster must have devices", f"{n_devices}", "a load", "Give their number.")
    return n_devices
