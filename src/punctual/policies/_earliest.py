"""Search for the earliest deadline that can be promised, and what a job is told of its own."""

from collections.abc import Callable
from math import ceil, floor, isfinite, log10

from punctual.core.job import JobView, awaits_promise
from punctual.core.reason import Reason
from punctual.core.units import exact_text, span

#: Relative precision of the search, and the number of later deadlines to try if the first guess is too early.
_EXACT_FRAC, _N_LATER = 0.01, 6


def earliest(can_be_promised: Callable[[float], bool], least_s: float, guess_s: float) -> float | None:
    """Seconds until the earliest deadline that can be promised, rounded up to three digits; None: none was found.

    What is returned was tried.

    Parameters
    ----------
    can_be_promised
        Whether a deadline in so many seconds can be; the later one is, the sooner it can.
    least_s
        No earlier one can.
    guess_s
        The first that is tried, if it is later.
    """
    low_s, high_s = max(least_s, 0.0), max(rounded_up(least_s), rounded_up(guess_s))
    if not isfinite(high_s):
        return None
    for _ in range(_N_LATER):
        if can_be_promised(high_s):
            break
        low_s, high_s = high_s, rounded_up(2.0 * high_s)
    else:
        return None
    while high_s - low_s > _EXACT_FRAC * high_s:
        middle_s = rounded_up((low_s + high_s) / 2)
        if middle_s >= high_s:
            break
        low_s, high_s = (low_s, middle_s) if can_be_promised(middle_s) else (middle_s, high_s)
    return high_s


def rounded_up(seconds: float) -> float:
    """The next number of seconds of three digits."""
    if not isfinite(seconds) or seconds <= 0:
        return max(seconds, 0.001)
    # Three digits: what is said can be written down, and given again a little later.
    digit_s = 10.0 ** (floor(log10(seconds)) - 2)
    return float(round(ceil(seconds / digit_s - 1e-9) * digit_s, 6))


def in_danger(left_s: float, why: str, **facts: float) -> Reason:
    """Return the warning that the promised deadline in `left_s` seconds is in danger."""
    text = f"its promised deadline in {span(max(0.0, left_s))} is in danger: {why}"
    return Reason("promise-in-danger", text, {"left_s": left_s, **facts})


def waits_for_promise(view: JobView) -> bool:
    """Whether the job is to run only with a promise, and has none."""
    return view.promised_until_at is None and awaits_promise(view.spec, view.status, view.started_at)


def no_guarantee(view: JobView, at: float, earliest_s: float | None) -> Reason:
    """Return the reason for turning the job away; it names the earliest deadline that would be accepted.

    Parameters
    ----------
    earliest_s
        Seconds from instant `at` until then; None: no deadline can be promised.
    """
    left_s = (view.deadline_at or at) - at
    text = f"its deadline in {span(max(0.0, left_s))} cannot be guaranteed beside what is promised"
    if earliest_s is not None:
        from_submission_s = rounded_up(at - view.submitted_at + earliest_s)
        facts = {"left_s": left_s, "earliest_deadline_s": from_submission_s}
        named = f"in {span(from_submission_s)} (`--deadline {exact_text(from_submission_s)}`)"
        return Reason("declined", f"{text}; the earliest that can be is {named}", facts)
    if view.work is None and view.curve is None:
        text = "no deadline can be guaranteed to a job whose amount of work is unknown"
        return Reason("declined", f"{text}; say it (`--work 30m` of core time)", {"left_s": left_s})
    return Reason("declined", f"{text}, and no other can be now", {"left_s": left_s})
