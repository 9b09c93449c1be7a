"""Decisions are kept with their reasons, and with how far from the best their plan can be."""

import pytest
from tests.history.scene import on, spec_of

from punctual.core.commands import LaunchJob, RejectJob, ResizeJob
from punctual.core.events import PlanProposed
from punctual.core.ids import JobId
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.history.cluster import ClusterHistory
from punctual.history.decisions import Gaps, by_code, gap_frac

A = JobId("a")


def plan(bound: float | None, objective: float | None) -> Plan:
    return Plan(revision=1, grants={}, bound=bound, objective=objective)


@pytest.mark.parametrize(
    ("bound", "objective", "gap"),
    [(None, 3.0, None), (3.0, None, None), (8.0, 6.0, 0.25), (0.0, 0.0, 0.0), (-1.0, -1.5, 0.5), (5.0, 5.1, 0.0)],
)
def test_the_gap_is_a_share_of_the_bound(bound: float | None, objective: float | None, gap: float | None) -> None:
    assert gap_frac(plan(bound, objective)) == gap


def test_every_command_about_a_grant_is_kept_with_the_gap_of_the_plan_before_it() -> None:
    record = ClusterHistory(details=True)
    record.add(PlanProposed(at=1.0, plan=plan(4.0, 3.0), revision=1))
    record.add(
        LaunchJob(at=1.0, job=A, request=1, spec=spec_of(), grant=on({"n": 2, "m": 1}), reason=Reason("x", "because"))
    )
    record.add(PlanProposed(at=2.0, plan=plan(None, None), revision=1))
    record.add(ResizeJob(at=2.0, job=A, request=2, grant=on({"n": 1}), reason=Reason("y", "less")))
    record.add(ResizeJob(at=3.0, job=A, request=3, grant={}, reason=Reason("z", "paused")))
    record.add(RejectJob(at=4.0, job=A, reason=Reason("r", "too large")))
    found = [(one.kind, one.n_devices, one.n_nodes, one.text, one.gap_frac) for one in record.decisions]
    assert found == [
        ("launch", 3, 2, "because", 0.25),
        ("resize", 1, 1, "less", None),
        ("pause", 0, 0, "paused", None),
        ("reject", 0, 0, "too large", None),
    ]
    assert record.gaps() == Gaps(n_plans=2, n_proven=1, mean_frac=0.25, max_frac=0.25)


def test_nothing_is_proven_without_plans() -> None:
    record = ClusterHistory(details=True)
    record.add(PlanProposed(at=0.0, plan=None, revision=1, cause="it took too long"))
    assert record.gaps() == Gaps(n_plans=0, n_proven=0, mean_frac=None, max_frac=None)


def test_reasons_are_counted_with_the_first_as_example() -> None:
    found = by_code([("launch", "a", "one"), ("resize", "a", "two"), ("launch", "a", "three")])
    assert found == [("launch", "a", 2, "one"), ("resize", "a", 1, "two")]
