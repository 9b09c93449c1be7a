"""The conformance kit of policies: subclass it, say how yours is made, and inherit the tests."""

import json
from copy import deepcopy
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from punctual.core.cluster import Node, Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec, JobView
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.core.resources import NOTHING, Resources, total
from punctual.testing.snapshots import snapshots

# One test is run by many subclasses, which Hypothesis would take for a mistake.
_GENERATED = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.differing_executors])

_NODE = NodeId("node")


def _one_job(capacity: Resources) -> Snapshot:
    spec = JobSpec(id=JobId("only"), ceiling=Resources(2.0), floor=Resources(0.1), deadline_s=60.0)
    job = JobView(
        spec=spec, status="queued", submitted_at=0.0, done_steps=0.0, demand=Resources(1.5), granted={}
    )  # fmt: skip
    return Snapshot(at=0.0, revision=1, nodes=(Node(_NODE, capacity),), jobs=(job,))


class PolicyConformance:
    """What every policy must do. A subclass overrides `make`.

    Attributes
    ----------
    order_matters
        Whether the order of `snapshot.jobs` may change the plan.

    Examples
    --------
    >>> class TestMine(PolicyConformance):
    ...     def make(self):
    ...         return Mine()
    """

    order_matters = False

    def make(self) -> Policy:
        """A new instance with default parameters."""
        raise NotImplementedError

    def plan(self, snapshot: Snapshot) -> Plan:
        return self.make().allocate(snapshot)

    def test_is_a_frozen_dataclass_of_parameters(self) -> None:
        policy: Any = self.make()
        assert self.make() == policy
        assert is_dataclass(policy)
        for field in fields(policy):
            with pytest.raises(FrozenInstanceError):
                setattr(policy, field.name, getattr(policy, field.name))

    @_GENERATED
    @given(snapshots())
    def test_finds_a_plan_where_there_is_one(self, snapshot: Snapshot) -> None:
        assert self.plan(snapshot).status != "infeasible"

    @_GENERATED
    @given(snapshots())
    def test_fits_in_every_node(self, snapshot: Snapshot) -> None:
        plan = self.plan(snapshot)
        capacity = {node.id: node.capacity for node in snapshot.nodes}
        used = {node for grant in plan.grants.values() for node in grant}
        assert used <= capacity.keys()
        for node in used:
            assert total(grant.get(node, NOTHING) for grant in plan.grants.values()).fits_in(capacity[node])

    @_GENERATED
    @given(snapshots())
    def test_keeps_to_the_bounds_of_each_job(self, snapshot: Snapshot) -> None:
        plan = self.plan(snapshot)
        assert plan.grants.keys() <= {job.spec.id for job in snapshot.jobs}
        for job in snapshot.jobs:
            amount = total(plan.grants.get(job.spec.id, {}).values())
            if amount:
                assert job.spec.floor.fits_in(amount)
                assert amount.fits_in(job.spec.ceiling)
            else:
                assert job.status == "queued" or job.spec.preemptible

    @_GENERATED
    @given(snapshots())
    def test_says_why_a_job_gets_less_than_it_demands(self, snapshot: Snapshot) -> None:
        plan = self.plan(snapshot)
        for job in snapshot.jobs:
            if not job.demand.fits_in(total(plan.grants.get(job.spec.id, {}).values())):
                assert plan.reasons[job.spec.id].text

    @_GENERATED
    @given(snapshots())
    def test_is_deterministic_and_leaves_its_input_alone(self, snapshot: Snapshot) -> None:
        before = deepcopy(snapshot)
        plan = self.plan(snapshot)
        assert snapshot == before
        assert self.plan(snapshot) == plan
        assert plan.revision == snapshot.revision

    @_GENERATED
    @given(snapshots(), st.randoms(use_true_random=False))
    def test_does_not_depend_on_the_order_of_jobs(self, snapshot: Snapshot, random: Random) -> None:
        jobs = list(snapshot.jobs)
        random.shuffle(jobs)
        assert self.order_matters or self.plan(replace(snapshot, jobs=tuple(jobs))) == self.plan(snapshot)

    @_GENERATED
    @given(snapshots())
    def test_understands_its_own_carry(self, snapshot: Snapshot) -> None:
        carry = self.plan(snapshot).carry
        assert self.plan(replace(snapshot, carry=carry)).grants.keys() <= {job.spec.id for job in snapshot.jobs}

    @_GENERATED
    @given(snapshots())
    def test_carries_what_a_journal_can_keep(self, snapshot: Snapshot) -> None:
        carry = self.plan(snapshot).carry
        assert json.loads(json.dumps(carry)) == carry

    def test_no_jobs_and_no_nodes(self) -> None:
        assert self.plan(Snapshot(at=0.0, revision=1, nodes=(), jobs=())).grants == {}

    def test_no_nodes(self) -> None:
        snapshot = replace(_one_job(Resources(2.0)), nodes=())
        assert total(self.plan(snapshot).grants.get(JobId("only"), {}).values()) == NOTHING

    def test_one_job_that_fits_gets_something(self) -> None:
        grant = self.plan(_one_job(Resources(2.0))).grants[JobId("only")]
        assert Resources(0.1).fits_in(total(grant.values()))

    def test_zero_capacity(self) -> None:
        plan = self.plan(_one_job(NOTHING))
        assert not total(plan.grants.get(JobId("only"), {}).values())
