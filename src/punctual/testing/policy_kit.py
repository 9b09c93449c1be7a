"""The conformance kit of policies: subclass it, construct your policy in `make`, and inherit the tests."""

import json
from copy import deepcopy
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from punctual.core.cluster import Node, Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, JobView
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.core.resources import NOTHING, Resources, same_amount, total
from punctual.testing.snapshots import effective, occupied, snapshots

# As many examples as the profile says. One test is run by many subclasses, which Hypothesis would take for a mistake.
_GENERATED = settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])

_NODE = NodeId("node")


def _waiting(spec: JobSpec, demand: Resources, capacity: Resources) -> Snapshot:
    """Return one job that waits, and a node."""
    job = JobView(spec=spec, status="queued", submitted_at=0.0, done_steps=0.0, demand=demand, granted={})
    return Snapshot.of(0.0, [Node(_NODE, capacity)], [job])


def _one_job(capacity: Resources) -> Snapshot:
    spec = JobSpec(id=JobId("only"), ceiling=Resources(2.0), floor=Resources(0.1), deadline_s=60.0)
    return _waiting(spec, Resources(1.5), capacity)


def _workers(n_gpus: int) -> Snapshot:
    """A job of one to four workers, and a node."""
    least, most = Resources(gpus=1), Resources(gpus=4)
    spec = JobSpec(id=JobId("only"), ceiling=most, floor=least, worker=least, controller=None)
    return _waiting(spec, most, Resources(gpus=n_gpus))


def _is_allowed(spec: JobSpec, amount: Resources) -> bool:
    """Between floor and ceiling, and for a job made of workers an allowed number of them."""
    if spec.worker is None:
        return spec.floor.fits_in(amount) and amount.fits_in(spec.ceiling)
    wholes = [spec.worker * n for n in spec.worker_counts()]
    return any(same_amount(whole, amount) for whole in wholes)


def _views(snapshot: Snapshot) -> tuple[JobView, ...]:
    return (*snapshot.holding, *snapshot.waiting)


def _allocations(snapshot: Snapshot, plan: Plan) -> dict[JobId, Allocation]:
    return effective(snapshot, plan.grants, keeps_others=plan.keeps_others)


class PolicyConformance:
    """Tests of every policy. A subclass overrides `make`.

    The checks look at the allocation that a plan leads to: for a plan that keeps the others, its grants and beside them
    what the last plan gives to the jobs that it does not name. All checks see the plans for the same snapshots, because
    to make up a snapshot takes longer than most policies need for it.

    Examples
    --------
    >>> class TestMine(PolicyConformance):
    ...     def make(self):
    ...         return Mine()
    """

    def make(self) -> Policy:
        """A new instance with default parameters."""
        raise NotImplementedError

    def plan(self, snapshot: Snapshot) -> Plan:
        return self.make().allocate(snapshot)

    def allocation(self, snapshot: Snapshot) -> dict[JobId, Allocation]:
        return _allocations(snapshot, self.plan(snapshot))

    def test_is_a_frozen_dataclass_of_parameters(self) -> None:
        policy: Any = self.make()
        assert self.make() == policy
        assert is_dataclass(policy)
        for field in fields(policy):
            with pytest.raises(FrozenInstanceError):
                setattr(policy, field.name, getattr(policy, field.name))

    @_GENERATED
    @given(snapshots())
    def test_keeps_its_promises(self, snapshot: Snapshot) -> None:
        """Run every `check_...` on the same plan, and check that the policy leaves its input unchanged."""
        before = deepcopy(snapshot)
        plan = self.plan(snapshot)
        assert snapshot == before
        for name in dir(self):
            if name.startswith("check_"):
                getattr(self, name)(snapshot, plan)

    def check_finds_a_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        assert plan.status != "infeasible"

    def check_fits_in_every_node(self, snapshot: Snapshot, plan: Plan) -> None:
        allocations = _allocations(snapshot, plan).values()
        capacity = {node.id: node.capacity for node in snapshot.nodes}
        used = {node for allocation in allocations for node in allocation}
        assert used <= capacity.keys()
        for node in used:
            assert total(allocation.get(node, NOTHING) for allocation in allocations).fits_in(capacity[node])

    def check_keeps_to_what_each_job_may_have(self, snapshot: Snapshot, plan: Plan) -> None:
        allocations = _allocations(snapshot, plan)
        for job in _views(snapshot):
            amount = total(allocations[job.id].values())
            assert not amount or _is_allowed(job.spec, amount)

    def check_pauses_only_jobs_that_may_be_paused(self, snapshot: Snapshot, plan: Plan) -> None:
        allocations = _allocations(snapshot, plan)
        for job in snapshot.holding:
            assert allocations[job.id] or job.spec.preemptible or not job.planned

    def check_names_only_jobs_that_there_are(self, snapshot: Snapshot, plan: Plan) -> None:
        known = {job.id for job in _views(snapshot)}
        assert plan.grants.keys() | plan.reasons.keys() | (plan.promises or {}).keys() <= known
        assert plan.revision == snapshot.revision

    def check_gives_a_reason_for_each_change(self, snapshot: Snapshot, plan: Plan) -> None:
        allocations = _allocations(snapshot, plan)
        for job in _views(snapshot):
            if allocations[job.id] != job.planned:
                assert plan.reasons[job.id].text

    def check_is_deterministic(self, snapshot: Snapshot, plan: Plan) -> None:
        assert self.plan(snapshot) == plan

    def check_does_not_depend_on_the_order_of_jobs_that_hold_something(self, snapshot: Snapshot, plan: Plan) -> None:
        turned = replace(snapshot, holding=snapshot.holding[::-1])
        others = self.allocation(turned)
        for job, allocation in _allocations(snapshot, plan).items():
            assert others[job].keys() == allocation.keys()
            assert all(same_amount(amount, others[job][node]) for node, amount in allocation.items())

    def check_carries_what_a_journal_can_keep(self, snapshot: Snapshot, plan: Plan) -> None:
        assert json.loads(json.dumps(plan.carry)) == plan.carry

    def check_goes_on_from_its_own_plan(self, snapshot: Snapshot, plan: Plan) -> None:
        allocations = _allocations(snapshot, plan)
        promises = plan.promises or {}
        jobs = [
            replace(job, planned=allocations[job.id], promised_until_at=promises.get(job.id))
            for job in _views(snapshot)
        ]
        taken = [occupied(job, allocations[job.id]) for job in jobs]
        free = {
            node.id: node.capacity - total(allocation.get(node.id, NOTHING) for allocation in taken)
            for node in snapshot.nodes
        }
        holding = tuple(job for job in jobs if job.planned or job.granted)
        waiting = tuple(job for job in jobs if not (job.planned or job.granted))
        self._check(replace(snapshot, holding=holding, waiting=waiting, free=free, carry=plan.carry))

    @_GENERATED
    @given(snapshots(), snapshots())
    def test_understands_its_own_carry(self, before: Snapshot, snapshot: Snapshot) -> None:
        """Plan from a carry of other jobs and nodes, and from one of another policy."""
        carry = self.plan(before).carry
        for carried in (carry, "not mine", {"unknown": [1.0]}):
            self._check(replace(snapshot, carry=carried))

    def _check(self, snapshot: Snapshot) -> None:
        plan = self.plan(snapshot)
        self.check_finds_a_plan(snapshot, plan)
        self.check_fits_in_every_node(snapshot, plan)
        self.check_keeps_to_what_each_job_may_have(snapshot, plan)
        self.check_pauses_only_jobs_that_may_be_paused(snapshot, plan)

    def test_no_jobs_and_no_nodes(self) -> None:
        assert self.plan(Snapshot.of(0.0, [], [])).grants == {}

    def test_no_nodes(self) -> None:
        snapshot = Snapshot.of(0.0, [], _one_job(Resources(2.0)).waiting)
        assert not self.allocation(snapshot)[JobId("only")]

    def test_one_job_that_fits_gets_something(self) -> None:
        allocation = self.allocation(_one_job(Resources(2.0)))[JobId("only")]
        assert Resources(0.1).fits_in(total(allocation.values()))

    def test_one_job_of_workers_gets_some_of_them(self) -> None:
        assert total(self.allocation(_workers(3))[JobId("only")].values()).gpus in {1, 2, 3}

    def test_zero_capacity(self) -> None:
        assert not self.allocation(_one_job(NOTHING))[JobId("only")]
        assert not self.allocation(_workers(0))[JobId("only")]
        every_node_is_leaving = Snapshot.of(0.0, [], _one_job(NOTHING).waiting)
        assert not self.allocation(every_node_is_leaving)[JobId("only")]
