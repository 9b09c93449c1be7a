"""Compare the steps that a job declared with those that it did."""

from collections.abc import Set as AbstractSet

from punctual.channel import Fault
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId

_DECLARE = "Declare all steps at the first `punctual.track`, and put evaluation into `punctual.phase`."
_FINISH = "Declare the steps that it takes, or say with `run.finish()` that it is done before the last."
_REPORT = "Go through the batches with `punctual.track`."


def found_faults(
    job: JobId,
    *,
    faults: AbstractSet[Fault],
    reported: bool,
    steps_done: float,
    steps_total: float | None,
) -> list[InvalidSpec]:
    """Return the faults of a successful job that reports its progress; empty if it did all that it had declared.

    Parameters
    ----------
    faults
        Faults that the job's own process noticed.
    reported
        Whether it reported any progress.
    """
    where = f"job '{job}'"
    if Fault.ZERO_STEPS in faults and not steps_done:
        remedy = "Check that the loader is not empty and that the number of epochs or steps is above zero."
        return [InvalidSpec("a training must have at least one step", "0 steps", where, remedy)]
    if not reported:
        return [InvalidSpec("a job must report its progress", "no report until its end", where, _REPORT)]
    total = steps_total or 0.0
    if Fault.MORE_STEPS in faults or steps_done > total > 0:
        must = "a training must not take more steps than it declared"
        return [InvalidSpec(must, f"{steps_done:g} steps", where, _DECLARE)]
    if steps_done < total:
        must = f"a training must take the {total:g} steps it declared"
        return [InvalidSpec(must, f"{steps_done:g} steps", where, _FINISH)]
    return []
