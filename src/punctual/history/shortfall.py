"""Find out whether a run used much less than its grant although it can use more."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from punctual.core.events import ProgressReported
from punctual.core.status import WINDOW_S

#: A window counts if the job used less than this share of what it was granted and can use.
_USED_FRAC = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A usage of `used_cores` on average over `duration_s` seconds, of `granted_cores` that the job can use.

    Either the machine did not give them, because other programs had them, or the job waited for something other than the
    processor. Time in which it waited for its pacing line does not count.
    """

    duration_s: float
    used_cores: float
    granted_cores: float


@dataclass(frozen=True, slots=True)
class _Window:
    seconds: float
    used_core_s: float
    granted_core_s: float
    is_paced: bool


def shortfall(
    readings: Sequence[ProgressReported],
    grants: Sequence[tuple[float, float]],
    pacing: Sequence[tuple[float, bool]],
    until: float,
) -> Shortfall | None:
    """Return the unused part of a job's grants from its first step to `until`; None if it is not worth a word.

    Parameters
    ----------
    grants
        (instant, cores held from then on), in order.
    pacing
        (instant, whether a pacing line was in force from then on), in order.

    Notes
    -----
    The job can use the most that it used over any window: a training of one thread on two cores lacks nothing.
    """
    windows = _windows([entry for entry in readings if entry.steps_done > 0 and entry.at <= until], grants, pacing)
    usable_cores = max((window.used_core_s / window.seconds for window in windows), default=0.0)
    short = []
    for window in windows:
        wanted_core_s = min(window.granted_core_s, usable_cores * window.seconds)
        if not window.is_paced and window.used_core_s < _USED_FRAC * wanted_core_s:
            short.append((window.seconds, window.used_core_s, wanted_core_s))
    seconds, used_core_s, wanted_core_s = (sum(amounts) for amounts in zip(*short, strict=True)) if short else (0, 0, 0)
    # Less than 2 % of all that was granted is not worth a word.
    if wanted_core_s - used_core_s <= 0.02 * sum(window.granted_core_s for window in windows):
        return None
    return Shortfall(duration_s=seconds, used_cores=used_core_s / seconds, granted_cores=wanted_core_s / seconds)


def _windows(
    readings: Sequence[ProgressReported], grants: Sequence[tuple[float, float]], pacing: Sequence[tuple[float, bool]]
) -> list[_Window]:
    windows = []
    begun = readings[0] if readings else None
    for before, reading in pairwise(readings):
        assert begun is not None
        if reading.used_core_s < before.used_core_s:  # another process: it counts from 0
            begun = reading
        elif reading.at - begun.at >= WINDOW_S:
            windows.append(
                _Window(
                    reading.at - begun.at,
                    reading.used_core_s - begun.used_core_s,
                    integral(grants, begun.at, reading.at),
                    integral(pacing, begun.at, reading.at) > 0,
                )
            )
            begun = reading
    return windows


def integral(steps: Sequence[tuple[float, float | bool]], begin: float, end: float) -> float:
    """Return the integral of a step function, given by its (instant, amount from then on), from `begin` to `end`."""
    spans = zip(steps, [*(at for at, _ in steps[1:]), end], strict=True) if steps else ()
    return sum((amount * max(0.0, min(until, end) - max(at, begin)) for (at, amount), until in spans), 0.0)
