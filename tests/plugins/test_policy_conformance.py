"""Every registered policy of ours runs the conformance kit."""

from collections.abc import Iterator
from typing import Any

from punctual import registry
from punctual.core.cluster import Snapshot
from punctual.core.job import Allocation, JobView, awaits_promise
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.core.resources import NOTHING
from punctual.testing.policy_kit import PolicyConformance
from punctual.testing.snapshots import effective, occupied


class OursConformance(PolicyConformance):
    """What policies of ours do beside that: they start jobs only where a node has a place for them, and memory."""

    def check_starts_no_more_jobs_at_once_than_may_run(self, snapshot: Snapshot, plan: Plan) -> None:
        """Jobs without workers; none is started beside as many. A job with a promise needs no place."""
        for node in snapshot.nodes:
            on_node = [job for job, held in _held(snapshot, plan) if job.spec.worker is None and node.id in held]
            started = [job for job in on_node if _is_new(job) and not _may_always_start(job)]
            n_kept = sum(node.id in job.planned for job in on_node)
            assert not started or node.jobs_at_once is None or n_kept + len(started) <= node.jobs_at_once

    def check_starts_jobs_in_memory_that_nobody_holds(self, snapshot: Snapshot, plan: Plan) -> None:
        """Jobs without workers, and memory that others keep while they are paused, whatever is planned for them."""
        for node in [node for node in snapshot.nodes if node.jobs_at_once is not None]:
            taken_bytes = new_bytes = 0
            for job, held in _held(snapshot, plan):
                job_bytes = occupied(job, held).get(node.id, NOTHING).memory_bytes
                if node.id in held and job.spec.worker is None and _is_new(job):
                    if not job.spec.asked_memory_bytes:
                        job_bytes = max(job_bytes, job.expected_memory_bytes or node.usual_memory_bytes)
                    new_bytes += job_bytes
                taken_bytes += job_bytes
            assert not new_bytes or taken_bytes <= node.capacity.memory_bytes


def _held(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[JobView, Allocation]]:
    """Each job, and what it has once the plan is in force."""
    allocations = effective(snapshot, plan.grants, keeps_others=plan.keeps_others)
    for job in (*snapshot.holding, *snapshot.waiting):
        yield job, allocations[job.id]


def _is_new(job: JobView) -> bool:
    """Whether it had no process and was to have none."""
    return not (job.planned or job.granted or job.resident)


def _may_always_start(job: JobView) -> bool:
    return job.promised_until_at is not None or awaits_promise(job.spec, job.status, job.started_at)


def _conformance(policy: type[Any]) -> type[PolicyConformance]:
    def make(self: PolicyConformance) -> Policy:
        made: Policy = policy()
        return made

    return type(f"Test{policy.__name__}", (OursConformance,), {"make": make, "__module__": __name__})


for _name in registry.names("policies"):
    _suite = _conformance(registry.load("policies", _name))
    globals()[_suite.__name__] = _suite


def test_the_policies_are_found() -> None:
    assert "proportional" in registry.names("policies")
