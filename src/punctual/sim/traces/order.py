"""Jobs as a simulation needs them: in order of submission, the first at 0, every name once."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter

from punctual.core.fast_init import unchecked_constructor
from punctual.sim.traces.job import TraceJob

_made, _rest_of = unchecked_constructor(TraceJob), attrgetter(*[field.name for field in fields(TraceJob)][2:])


def normalized(jobs: Iterable[TraceJob], *, from_zero: bool = True) -> list[TraceJob]:
    """Return `jobs` by time of submission, `from_zero`: the first at 0; ties keep their order.

    A name that was taken before gets ``~2``, ``~3`` and so on, as happens when traces are joined. Holds all jobs in
    memory.
    """
    ordered = sorted(jobs, key=lambda job: job.submitted_at)
    first_at = ordered[0].submitted_at if ordered and from_zero else 0.0
    names = _once(job.id for job in ordered)
    # The first two of its fields are others; what was checked is not checked again.
    return [_made(name, job.submitted_at - first_at, *_rest_of(job)) for job, name in zip(ordered, names, strict=True)]


def _once(names: Iterable[str]) -> list[str]:
    wanted = list(names)
    if len(set(wanted)) == len(wanted):
        return wanted
    taken, seen, unique = set(wanted), Counter[str](), []
    for name in wanted:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else _free_name(name, seen, taken))
    return unique


def _free_name(name: str, seen: Counter[str], taken: set[str]) -> str:
    while (other := f"{name}~{seen[name]}") in taken:
        seen[name] += 1
    taken.add(other)
    return other
