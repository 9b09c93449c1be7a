"""A user's change of a job that works, with the checks of a submission."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from punctual.channel import WORKERS_VARIABLE
from punctual.core.errors import InvalidSpec, OptionChecks
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.status import JobStatus
from punctual.request.quantities import parse_cores_range, worker_range
from punctual.request.submission import FLOOR_CORES, check_ceiling, check_weight

#: Word in place of a time or a sum that removes a job's deadline or budget.
NONE = "none"


def parse_budget_usd(text: str) -> float:
    """Return dollars, or infinity for `none`; raises `InvalidSpec` for another text."""
    if text.strip().lower() == NONE:
        return inf
    with suppress(ValueError):
        if 0 < (usd := float(text)) < inf:
            return usd
    must = "`--budget` must be a number of dollars above 0, or `none`"
    raise InvalidSpec(must, repr(text), "the job", "Write `60`, say.", option="budget_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChange:
    """Change of a job's declaration; None: unchanged.

    * `deadline_s`: seconds from the submission; infinite: no deadline any more.
    * `weight`: weight against other jobs, above zero.
    * `cores`: least and most cores, for a job that is not made of workers; None as the least: it stays.
    * `workers`: least and most workers, for one that is. No more than it was submitted with: its program has prepared for
      those.
    * `budget_usd`: dollars that it may cost in all; infinite: no budget any more.
    """

    deadline_s: float | None = None
    weight: float | None = None
    cores: tuple[float | None, float] | None = None
    workers: tuple[int, int] | None = None
    budget_usd: float | None = None

    @classmethod
    def written(
        cls,
        *,
        deadline_s: float | None = None,
        weight: float | None = None,
        cores: str | None = None,
        workers: str | None = None,
        budget_usd: float | None = None,
    ) -> "SpecChange":
        """Parse a change of cores and workers: ``0.5..2``, ``1..4``, or the most alone.

        Raises `InvalidSpec`: a range is invalid; each mistake is named.
        """
        checks = OptionChecks()
        bounds = checks.read("cores", parse_cores_range, cores, None)
        counts = checks.read("workers", lambda text: worker_range(text, None, None), workers, None)
        checks.done()
        return cls(
            deadline_s=deadline_s,
            weight=weight,
            cores=bounds,
            workers=None if counts is None else (counts.n_least, counts.n_most),
            budget_usd=budget_usd,
        )


def changed_spec(
    status: JobStatus, spec: JobSpec, change: SpecChange, capacity: Resources, together: Resources | None = None
) -> JobSpec:
    """Return the job's declaration after `change`; it was `spec` before.

    `capacity`, `together`: what one node has at most, and all of them; see `submission_of`.

    Raises `InvalidSpec`: the change is impossible; each mistake names its part of the change.
    """
    checks = OptionChecks()
    if change.deadline_s is not None:
        with _part(checks, "deadline"):
            spec = replace(spec, deadline_s=None if change.deadline_s == inf else change.deadline_s)
    if change.weight is not None:
        with _part(checks, "weight"):
            check_weight(change.weight)
            spec = replace(spec, weight=change.weight)
    if change.cores is not None:
        with _part(checks, "cores"):
            spec = replace(spec, **_cores(spec, *change.cores, capacity, together))
    if change.workers is not None:
        with _part(checks, "workers"):
            spec = replace(spec, **_workers(status, spec, *change.workers))
    if change.budget_usd is not None:
        with _part(checks, "budget_usd"):
            spec = replace(spec, budget_usd=None if change.budget_usd == inf else change.budget_usd)
    checks.done()
    return spec


@contextmanager
def _part(checks: OptionChecks, option: str) -> Iterator[None]:
    """Attribute mistakes found in the block to `option`, even if another option does not fit it any more."""
    with checks.of(option):
        try:
            yield
        except InvalidSpec as error:
            error.option = option
            raise


def _cores(
    spec: JobSpec, least_cores: float | None, ceiling_cores: float, capacity: Resources, together: Resources | None
) -> dict[str, Any]:
    if spec.worker is not None:
        raise InvalidSpec(
            "`--cores` must be for a job on a share of cores",
            "one that is made of workers",
            f"job '{spec.id}'",
            "Change how many workers it may have (`--workers 1..2`).",
            option="cores",
        )
    check_ceiling(ceiling_cores, capacity, together)
    floor_cores = spec.floor.cores if least_cores is None else least_cores
    if least_cores is None and floor_cores <= FLOOR_CORES:  # nobody has asked for so much
        floor_cores = min(floor_cores, ceiling_cores)
    return {"floor": replace(spec.floor, cores=floor_cores), "ceiling": replace(spec.ceiling, cores=ceiling_cores)}


def _workers(status: JobStatus, spec: JobSpec, n_least: int, n_most: int) -> dict[str, Any]:
    unit = spec.unit
    if spec.worker is None or unit is None:
        raise InvalidSpec(
            "`--workers` must be for a job made of workers",
            "one on a share of cores",
            f"job '{spec.id}'",
            "Change how many cores it may have (`--cores 0.5..2`).",
            option="workers",
        )
    environment = {} if status.program is None else status.program.environment
    n_prepared = int(environment.get(WORKERS_VARIABLE, spec.worker_counts()[-1]))
    if not 1 <= n_least <= n_most <= n_prepared:
        raise InvalidSpec(
            f"the numbers of workers must lie between 1 and the {n_prepared} that the job was submitted with",
            f"{n_least} to {n_most}",
            f"job '{spec.id}'",
            f"Give the least and the most, as `--workers 1..{n_prepared}`.",
            option="workers",
        )
    return {"floor": spec.worker * n_least, "ceiling": unit * n_most, "counts": tuple(range(n_least, n_most + 1))}
