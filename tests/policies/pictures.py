"""Snapshots in short words: GPU jobs made of workers on nodes of so many devices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from punctual.core.cluster import Node, Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, JobState, JobView
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.speed import RateCurve, SeenRate, Shape
from punctual.testing.snapshots import effective

GPU = Resources(gpus=1)


@dataclass(frozen=True, slots=True)
class Table:
    """A performance model that knows rates by number of workers and, if named, kind of device; nothing else."""

    rates: tuple[tuple[int, float], ...]
    device: str | None = None
    per_node_frac: float = 1.0

    def init(self, spec: JobSpec) -> None:
        return None

    def update(self, state: None, seen: SeenRate) -> None:
        return None

    def rate_sps(self, state: None, shape: Shape) -> float:
        known = self.device is None or shape.device == self.device
        return dict(self.rates).get(shape.n_workers, 0.0) * self.per_node_frac ** (shape.n_nodes - 1) if known else 0.0

    def std_sps(self, state: None, shape: Shape) -> float:
        return 0.0 if self.rate_sps(state, shape) else inf


def linear(n_most: int = 64, one_sps: float = 1.0) -> Table:
    return Table(tuple((n, n * one_sps) for n in range(1, n_most + 1)))


def job(
    name: str,
    n: int | Sequence[int] = 1,
    *,
    steps: float | None = None,
    at: float = 0.0,
    on: dict[str, int] | None = None,
    speed: Table | None = None,
    worker: Resources = GPU,
    status: JobState | None = None,
    rate_sps: float = 0.0,
    demand: Resources | None = None,
    **spec: Any,
) -> JobView:
    """A job of `n` workers, or of one of several numbers; without `on` it waits; with `steps` a worker does one a second."""
    counts = (n,) if isinstance(n, int) else tuple(n)
    spec = {"controller": None, **spec}
    declared = JobSpec(
        id=JobId(name), worker=worker, counts=counts, floor=worker * counts[0], ceiling=worker * counts[-1],
        work_steps=steps, **spec,
    )  # fmt: skip
    held: Allocation = {NodeId(node): worker * n_on for node, n_on in (on or {}).items()}
    model = speed or (linear() if steps is not None else None)
    n_now = sum((on or {}).values())
    known = RateCurve(model, None) if model else None
    now_sps = known.rate_sps(Shape(n_workers=n_now, n_nodes=len(held))) if known and n_now else rate_sps
    return JobView(
        spec=declared, status=status or ("running" if held else "queued"), submitted_at=at, done_steps=0.0,
        demand=demand or declared.ceiling, granted=held, planned=held, rate_sps=now_sps, curve=known,
    )  # fmt: skip


def fraction(
    name: str, demand: float, *, floor: float = 0.0, ceiling: float = 8.0, at: float = 0.0, on: str | None = None,
    held: float = 0.5, **spec: Any,
) -> JobView:  # fmt: skip
    """A job without workers that wants cores."""
    declared = JobSpec(id=JobId(name), floor=Resources(floor), ceiling=Resources(ceiling), **spec)
    allocation: Allocation = {NodeId(on): Resources(held)} if on else {}
    return JobView(
        spec=declared, status="running" if on else "queued", submitted_at=at, done_steps=0.0,
        demand=Resources(demand), granted=allocation, planned=allocation,
    )  # fmt: skip


def gpus(n: int, *, device: str = "") -> tuple[Resources, str]:
    return Resources(gpus=n), device


def picture(
    jobs: Sequence[JobView], nodes: dict[str, int | Resources | tuple[Resources, str]], *, at: float = 0.0,
    carry: object = None,
) -> Snapshot:  # fmt: skip
    made = []
    for name, room in nodes.items():
        amount, device = room if isinstance(room, tuple) else (room, "")
        made.append(Node(NodeId(name), Resources(gpus=amount) if isinstance(amount, int) else amount, device))
    return Snapshot.of(at, made, jobs, carry=carry)


def decide(
    policy: Policy, jobs: Sequence[JobView], nodes: dict[str, Any], *, at: float = 0.0, carry: object = None
) -> Plan:
    return policy.allocate(picture(jobs, nodes, at=at, carry=carry))


def after(plan: Plan, jobs: Sequence[JobView]) -> list[JobView]:
    """The jobs with what the plan promises them."""
    return [replace(view, promised_until_at=(plan.promises or {}).get(view.id)) for view in jobs]


def held(plan: Plan, jobs: Sequence[JobView]) -> dict[str, dict[str, int]]:
    """How many devices each job has where, once the plan is in force; those without are left out."""
    allocations = effective(Snapshot.of(0.0, [], jobs), plan.grants, keeps_others=plan.keeps_others)
    return {
        str(name): {str(node): int(amount.gpus) for node, amount in allocation.items()}
        for name, allocation in allocations.items()
        if allocation
    }


def counts(plan: Plan, jobs: Sequence[JobView]) -> dict[str, int]:
    """How many devices each job has once the plan is in force."""
    return {name: sum(on.values()) for name, on in held(plan, jobs).items()}


def cores(plan: Plan) -> dict[str, float]:
    """Cores of each job that the plan names."""
    return {str(name): sum(amount.cores for amount in grant.values()) for name, grant in plan.grants.items()}


def codes(plan: Plan) -> dict[str, str]:
    return {str(name): reason.code for name, reason in plan.reasons.items()}


def reason(plan: Plan, name: str) -> Reason:
    return plan.reasons[JobId(name)]


def grant(plan: Plan, name: str) -> dict[str, Resources]:
    return {str(node): amount for node, amount in plan.grants[JobId(name)].items()}
