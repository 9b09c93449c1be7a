"""Deadline rules hold their bounds, and leave each job its deadline whatever the others are."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from punctual.core.errors import InvalidSpec
from punctual.sim import parts
from punctual.sim.choice import made
from punctual.sim.traces import TraceJob
from punctual.sim.traces.deadlines import RULES, ChronusDeadlines, DeadlineRule, assign
from punctual.sim.traces.generators.poisson import Poisson

DURATION_S = 1_000.0
JOBS = [TraceJob(id=f"job-{i}", submitted_at=float(i), n_gpus=1, duration_s=DURATION_S) for i in range(4_000)]


def rule(name: str, parameters: Mapping[str, Any] | None = None) -> DeadlineRule:
    return made(parts.kind("deadlines", name), parameters or {}, "deadlines")


def multiples(name: str, seed: int = 1, **parameters: float) -> list[float]:
    assigned = assign(JOBS, rule(name, parameters), seed)
    return sorted(job.deadline_s / DURATION_S for job in assigned if job.deadline_s is not None)


def test_keep_changes_nothing() -> None:
    assert list(assign(JOBS, rule("keep"), 1)) == JOBS


def test_uniform_slack_is_elasticflows_unless_told_otherwise() -> None:
    found = multiples("uniform-slack")
    assert 0.5 <= found[0] < 0.51
    assert 1.49 < found[-1] <= 1.5
    assert found[len(found) // 2] == pytest.approx(1.0, abs=0.03)
    assert len(found) == len(JOBS)


def test_uniform_slack_for_some_jobs() -> None:
    found = multiples("uniform-slack", low=1.2, high=4.0, share_frac=0.25)
    assert len(found) / len(JOBS) == pytest.approx(0.25, abs=0.03)
    assert 1.2 <= found[0] <= found[-1] <= 4.0


@pytest.mark.parametrize("name", ["uniform-slack", "chronus"])
def test_a_job_that_gets_a_deadline_is_best_effort_no_more(name: str) -> None:
    job = replace(JOBS[0], best_effort=True)
    (assigned,) = assign([job], rule(name), 1)
    assert not assigned.best_effort
    assert assigned.deadline_s is not None


def test_chronus_adds_time() -> None:
    found = multiples("chronus", extra_s=500.0)
    assert 1.1 <= found[0] < 1.2
    assert 2.4 < found[-1] <= 2.5
    assert sum(found) / len(found) == pytest.approx(1.55 + 0.25, abs=0.02)


def test_chronus_leaves_best_effort_jobs_without() -> None:
    assigned = list(assign(JOBS, ChronusDeadlines(best_effort_frac=0.3), 1))
    best = [job for job in assigned if job.best_effort]
    assert len(best) / len(JOBS) == pytest.approx(0.3, abs=0.03)
    assert all((job.deadline_s is None) == job.best_effort for job in assigned)


@pytest.mark.parametrize("name", RULES)
def test_a_jobs_deadline_does_not_depend_on_the_other_jobs(name: str) -> None:
    chosen = rule(name)
    whole = {job.id: job for job in assign(JOBS, chosen, 3)}
    assert list(assign(reversed(JOBS[::7]), chosen, 3)) == [whole[job.id] for job in reversed(JOBS[::7])]


def test_the_seed_matters() -> None:
    assert multiples("uniform-slack", seed=1) != multiples("uniform-slack", seed=2)


def test_a_rule_by_duration_needs_one() -> None:
    with pytest.raises(InvalidSpec, match="needs a duration"):
        list(assign([TraceJob(id="a", submitted_at=0.0)], rule("uniform-slack"), 1))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("unifrom", {}),
        ("keep", {"low": 1.0}),
        ("uniform-slack", {"low": 2.0}),
        ("uniform-slack", {"low": 0.0}),
        ("uniform-slack", {"share_frac": 1.5}),
        ("chronus", {"extra_s": -1.0}),
        ("chronus", {"high": 1.0}),
        ("chronus", {"best_effort_frac": -0.1}),
    ],
)
def test_what_cannot_be_is_a_four_part_error(name: str, parameters: dict[str, float]) -> None:
    with pytest.raises(InvalidSpec) as caught:
        rule(name, parameters)
    assert all((caught.value.must, caught.value.got, caught.value.where, caught.value.remedy))


def test_generated_jobs_can_get_deadlines() -> None:
    made = list(assign(Poisson(n_jobs=10).jobs(1), rule("uniform-slack"), 1))
    assert all(job.deadline_s for job in made)
