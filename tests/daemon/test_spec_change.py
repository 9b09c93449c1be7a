"""What a user may change about a job while it works, and what is refused as it is at its submission."""

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from punctual.channel import WORKERS_VARIABLE
from punctual.core.errors import InvalidSpec
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.resources import Resources
from punctual.core.status import JobStatus
from punctual.request.spec_change import SpecChange, changed_spec, parse_budget_usd

CAPACITY = Resources(cores=4)
SHARE = JobSpec(id="share", floor=Resources(0.05, 0.5), ceiling=Resources(4.0, 0.5), deadline_s=100.0)  # type: ignore[arg-type]
WORKER = Resources(cores=0.5)
WORKERS = JobSpec(id="workers", worker=WORKER, floor=WORKER * 2, ceiling=WORKER * 3, counts=(2, 3))  # type: ignore[arg-type]


def changed(spec: JobSpec, **changes: Any) -> JobSpec:
    """A job that was submitted with up to 4 workers."""
    status = JobStatus(spec=spec, submitted_at=0.0, program=Program(argv=("x",), environment={WORKERS_VARIABLE: "4"}))
    return changed_spec(status, spec, SpecChange(**changes), CAPACITY)


def test_what_is_not_named_stays() -> None:
    assert changed(SHARE) == SHARE
    assert changed(SHARE, weight=2.0).weight == 2.0
    assert changed(SHARE, deadline_s=50.0).deadline_s == 50.0
    assert changed(SHARE, deadline_s=inf).deadline_s is None


def test_cores_change_and_gpus_stay() -> None:
    spec = changed(SHARE, cores=(0.5, 1.5))
    assert (spec.floor, spec.ceiling) == (Resources(0.5, 0.5), Resources(1.5, 0.5))


def test_a_floor_that_nobody_has_asked_for_gives_way_to_a_low_ceiling() -> None:
    assert changed(SHARE, cores=(None, 0.02)).floor.cores == 0.02
    with pytest.raises(InvalidSpec, match="must fit in `ceiling`"):
        changed(changed(SHARE, cores=(1.0, 2.0)), cores=(None, 0.5))


def test_workers_change_within_what_the_program_has_prepared_for() -> None:
    spec = changed(WORKERS, workers=(1, 4))
    assert (spec.worker_counts(), spec.floor, spec.ceiling) == ((1, 2, 3, 4), WORKER, WORKER * 4)
    assert changed(WORKERS, workers=(2, 2)).worker_counts() == (2,)


def test_all_that_is_wrong_is_told_at_once_with_the_option_that_it_is_about() -> None:
    with pytest.raises(InvalidSpec) as refused:
        changed(SHARE, deadline_s=-1.0, weight=0.0, cores=(None, 5.0), workers=(1, 2))
    assert [error.option for error in refused.value.all()] == ["deadline", "weight", "cores", "workers"]


def test_what_does_not_fit_any_more_is_about_what_was_changed() -> None:
    with pytest.raises(InvalidSpec, match="`guarantee` needs a deadline") as refused:
        changed(replace(SHARE, guarantee=True), deadline_s=inf)
    assert refused.value.option == "deadline"


def test_a_change_is_written_as_at_a_submission() -> None:
    change = SpecChange.written(weight=2.0, cores="0.5..2", workers="1..4")
    assert change == SpecChange(weight=2.0, cores=(0.5, 2.0), workers=(1, 4))
    with pytest.raises(InvalidSpec) as refused:
        SpecChange.written(cores="2..1", workers="some")
    assert [error.option for error in refused.value.all()] == ["cores", "workers"]


def test_a_budget_changes_and_goes_and_needs_a_job_that_may_be_paused() -> None:
    paused = replace(SHARE, preemptible=True)
    assert changed(paused, budget_usd=60.0).budget_usd == 60.0
    assert changed(replace(paused, budget_usd=5.0), budget_usd=inf).budget_usd is None
    for spec, usd in ((paused, 0.0), (paused, nan), (replace(paused, preemptible=False), 60.0)):
        with pytest.raises(InvalidSpec, match="budget") as refused:
            changed(spec, budget_usd=usd)
        assert refused.value.option == "budget_usd"
    assert [parse_budget_usd(text) for text in ("60", "none", " 1.5 ")] == [60.0, inf, 1.5]
    for text in ("much", "inf", "nan", "0", "-5", ""):
        with pytest.raises(InvalidSpec, match="a number of dollars"):
            parse_budget_usd(text)


def test_servers_stay_beside_the_workers() -> None:
    server = Resources(cores=0.0505)
    spec = JobSpec(id="s", worker=WORKER, server=server, floor=WORKER, ceiling=(WORKER + server) * 3, counts=(1, 2, 3))  # type: ignore[arg-type]
    assert changed(spec, workers=(1, 2)).parts_of(WORKER * 2 + server * 2) == (2, 2)


@pytest.mark.parametrize(
    ("spec", "changes", "must"),
    [
        (SHARE, {"weight": 0.0}, "`weight` must be above zero"),
        (SHARE, {"weight": nan}, "`weight` must be a number"),
        (SHARE, {"weight": inf}, "`weight` must be a number"),
        (SHARE, {"deadline_s": -1.0}, "later than the submission"),
        (SHARE, {"deadline_s": nan}, "later than the submission"),
        (SHARE, {"cores": (None, 5.0)}, "more than there is"),
        (SHARE, {"cores": (None, nan)}, "more than there is"),
        (SHARE, {"cores": (None, 0.0)}, "must be at least"),
        (SHARE, {"cores": (4.5, 4.0)}, "must fit in `ceiling`"),
        (SHARE, {"workers": (1, 2)}, "made of workers"),
        (WORKERS, {"cores": (None, 2.0)}, "share of cores"),
        (WORKERS, {"workers": (1, 5)}, "between 1 and the 4"),
        (WORKERS, {"workers": (0, 3)}, "between 1 and the 4"),
        (WORKERS, {"workers": (4, 3)}, "between 1 and the 4"),
    ],
)
def test_what_cannot_be_is_refused(spec: JobSpec, changes: dict[str, Any], must: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        changed(spec, **changes)
    assert must in refused.value.must
    assert refused.value.remedy
