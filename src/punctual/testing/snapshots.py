"""Hypothesis strategies for policies' snapshots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf

from hypothesis import strategies as st

from punctual.core.cluster import Node, Snapshot
from punctual.core.control import CoreWork
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, JobState, JobView
from punctual.core.resources import NOTHING, Resources, total
from punctual.core.speed import RateCurve, SeenRate, Shape
from punctual.core.units import GIB_BYTES

# Small values are listed with all their combinations: one then costs one draw, and draws take most of the time.

#: Eighths, so that sums of cores are exact.
_CORES = [eighths / 8 for eighths in range(65)]
_LEAST_CORES = 1 / 8


def _amounts_of(*numbers: Sequence[float]) -> list[Resources]:
    """Return all combinations of cores, GPUs, bytes of memory and disk bandwidth."""
    return [
        Resources(cores, int(gpus), int(memory), {"disk_mbps": disk} if disk else ())
        for cores, gpus, memory, disk in product(*numbers)
    ]


_AMOUNTS = st.sampled_from(_amounts_of(_CORES, range(9), [0, GIB_BYTES, 8 * GIB_BYTES], [0.0, 50.0]))
_WORKERS = st.sampled_from(
    [
        worker
        for worker in _amounts_of([0.0, 0.5, 1.0], range(3), [0, GIB_BYTES], [0.0, 50.0])
        if worker.gpus or worker.cores
    ]
)
_ROOMS = st.sampled_from(_amounts_of(_CORES, range(9), [8 * GIB_BYTES, 64 * GIB_BYTES, 0], [150.0, 1000.0, 0.0]))
_KINDS = ("K80", "V100")
#: Limits of jobs without workers on a node.
_JOBS_AT_ONCE = st.sampled_from([None, None, 1, 2, 4])
#: Core-seconds left and their deviation, usable cores, due in, slack.
_WORK = st.none() | st.sampled_from(
    list(product([0.0, 1.0, 20.0, 300.0], [0.0, 5.0], [0.5, 1.0, 8.0], [4.0, 59.0, 1e4], [0.0, 1.0]))
).map(lambda work: CoreWork(core_s=work[0], std_core_s=work[1], usable_cores=work[2], due_s=work[3], slack_s=work[4]))
_AT = 10.0
#: Submitted at, steps done, progress at, rate, accrued at.
_PASTS = st.sampled_from(
    list(product([0.0, 1.0, 2.0, 3.0], [0.0, 3.0, 100.0], [4.0, _AT], [0.0, 0.5, 2.0], [4.0, _AT]))
)
#: Steps, deadline, weight, cost of a resize, whether it may be paused, controller.
_STEPS, _DEADLINES, _WEIGHTS = [None, 10.0, 100.0, 1e6], [None, 5.0, 60.0, 1e4], [0.5, 1.0, 3.0]
_DECLARED = st.sampled_from(
    list(product(_STEPS, _DEADLINES, _WEIGHTS, [0.0, 30.0], [False, True], [None, "remaining-cost"]))
)


#: Steps per second of one worker, share of a step that does not get faster, known kinds of device, relative deviation.
Overhead = tuple[float, float, tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class SharedOverhead:
    """A made-up performance model: a rate that flattens with the number of workers, or falls; some kinds are unknown."""

    def init(self, spec: JobSpec) -> Overhead:
        return 1.0, 0.1, ("", *_KINDS), 0.0

    def update(self, state: Overhead, seen: SeenRate) -> Overhead:
        return state

    def rate_sps(self, state: Overhead, shape: Shape) -> float:
        one_sps, serial_frac, kinds, _ = state
        if shape.device not in kinds:
            return 0.0
        return one_sps * shape.n_workers / (1 + serial_frac * (shape.n_workers * shape.n_nodes - 1))

    def std_sps(self, state: Overhead, shape: Shape) -> float:
        rate_sps = self.rate_sps(state, shape)
        return state[3] * rate_sps if rate_sps else inf


#: Curves of a job's speed: none, or that of `SharedOverhead`.
_CURVES = st.none() | st.sampled_from(
    list(product([0.0, 0.5, 1.0, 20.0], [0.0, 0.1, 0.5], [("",), ("", *_KINDS)], [0.0]))
).map(lambda state: RateCurve(SharedOverhead(), state))


@st.composite
def snapshots(draw: st.DrawFn, *, n_jobs_max: int = 8) -> Snapshot:
    """A cluster of up to four nodes on which jobs hold, or are to hold, what fits; others wait.

    There are jobs with and without workers, on one node or several, of one kind of device or two; launched or about to
    be; being paused and paused; ending; with and without a controller, a speed, a deadline, also one that has passed.
    Leaving every job where the last plan has it is always possible.
    """
    kinds, at_once = draw(st.sampled_from([("",), _KINDS])), draw(_JOBS_AT_ONCE)
    free = {NodeId(f"node-{i}"): amount for i, amount in enumerate(draw(st.lists(_ROOMS, min_size=1, max_size=4)))}
    nodes = tuple(
        Node(node, room, kinds[i % len(kinds)], jobs_at_once=at_once) for i, (node, room) in enumerate(free.items())
    )
    views = []
    for i in range(draw(st.integers(1, n_jobs_max))):
        view = draw(_views(JobId(f"job-{i}"), free, nodes))
        for node, amount in view.planned.items():
            free[node] = free[node] - amount
        views.append(view if at_once is None else draw(_with_memory(view, nodes)))
    for view in views:
        for node, amount in occupied(view, view.planned).items():
            free[node] = free[node] - (amount - view.planned.get(node, NOTHING))
    views.sort(key=lambda view: (view.submitted_at, view.id))
    return Snapshot(
        at=_AT,
        revision=draw(st.integers(1, 100)),
        nodes=nodes,
        holding=tuple(view for view in views if view.planned or view.granted),
        waiting=tuple(view for view in views if not (view.planned or view.granted)),
        free=free,
        seed=7,
    )


@st.composite
def _with_memory(draw: st.DrawFn, view: JobView, nodes: Sequence[Node]) -> JobView:
    """The job with its measured memory, which may exceed its planned and expected memory."""
    places = tuple(view.planned or view.granted)
    if view.status == "running" and not places:  # it is paused
        places = (draw(st.sampled_from(nodes)).id,)
    n_bytes = draw(st.sampled_from([0, GIB_BYTES, 12 * GIB_BYTES]))
    resident = {node: n_bytes for node in places if n_bytes}
    expected_bytes = 0 if view.spec.asked_memory_bytes else n_bytes
    return replace(view, resident=resident, expected_memory_bytes=expected_bytes)


def occupied(view: JobView, allocation: Allocation) -> Allocation:
    """Amounts that a job takes of each node with `allocation`, with the memory that it holds beyond it or keeps while paused."""
    amounts = {node: allocation.get(node, NOTHING) for node in {**allocation, **view.resident}}
    return {
        node: replace(amount, memory_bytes=max(amount.memory_bytes, view.resident.get(node, 0)))
        for node, amount in amounts.items()
    }


@st.composite
def _views(draw: st.DrawFn, id: JobId, free: Mapping[NodeId, Resources], nodes: Sequence[Node]) -> JobView:
    has_workers = draw(st.booleans())
    worker = draw(_WORKERS) if has_workers else None
    planned = _planned(draw, worker, free, nodes) if draw(st.sampled_from([True, True, False])) else {}
    spec = _with_workers(draw, id, worker, planned) if worker else _without_workers(draw, id, planned)
    status, granted = _standing(draw, planned, free, preemptible=spec.preemptible)
    demand = spec.ceiling if spec.controller is None else draw(_AMOUNTS).at_least(spec.floor).at_most(spec.ceiling)
    is_steered = worker is None and spec.controller is not None
    submitted_at, done_steps, progress_at, rate_sps, accrued_at = draw(_PASTS)
    promised = spec.deadline_s is not None and draw(st.booleans())
    return JobView(
        spec=spec,
        status=status,
        submitted_at=submitted_at,
        done_steps=done_steps,
        demand=demand,
        granted=granted,
        planned=planned,
        started_at=None if status in ("queued", "starting") else 4.0,
        progress_at=progress_at if granted else 0.0,
        rate_sps=rate_sps if granted else 0.0,
        curve=draw(_CURVES),
        accrued_at=accrued_at,
        work=draw(_WORK) if is_steered else None,
        promised_until_at=submitted_at + (spec.deadline_s or 0.0) if promised else None,
    )


def _planned(
    draw: st.DrawFn, worker: Resources | None, free: Mapping[NodeId, Resources], nodes: Sequence[Node]
) -> Allocation:
    """Draw a part of the free amounts: on one node, or on several of one kind for a job made of workers."""
    if worker is None:
        return draw(_amount_on_a_node(free))
    kind = draw(st.sampled_from([node.device for node in nodes]))
    planned: Allocation = {}
    for node in nodes:
        n_most = max(n for n in range(4) if (worker * n).fits_in(free[node.id])) if node.device == kind else 0
        n = draw(st.integers(0 if planned else 1, n_most)) if n_most else 0
        if n:
            planned[node.id] = worker * n
    return planned


@st.composite
def _amount_on_a_node(draw: st.DrawFn, free: Mapping[NodeId, Resources]) -> Allocation:
    roomy = sorted(node for node, amount in free.items() if amount.cores >= _LEAST_CORES)
    if not roomy:
        return {}
    node: NodeId = draw(st.sampled_from(roomy))
    amount = draw(_AMOUNTS).at_most(free[node])
    return {node: replace(amount, cores=max(amount.cores, _LEAST_CORES))}


def _standing(
    draw: st.DrawFn, planned: Allocation, free: Mapping[NodeId, Resources], *, preemptible: bool
) -> tuple[JobState, Allocation]:
    """Draw a status and a grant that agree with the last plan."""
    if planned:
        status: JobState = draw(st.sampled_from(["running", "running", "running", "queued", "starting", "stopping"]))
        return status, planned if status in ("running", "stopping") else {}
    if preemptible and draw(st.booleans()):  # paused, or being paused: what it still holds counts as free
        being = draw(st.sampled_from([True, True, False]))
        return "running", draw(_amount_on_a_node(free)) if being else {}
    return "queued", {}


def _with_workers(draw: st.DrawFn, id: JobId, worker: Resources, planned: Allocation) -> JobSpec:
    """Declare any numbers of workers, or some of them, with the present number among them."""
    n_now = _n(worker, planned)
    n_most = max(n_now, draw(st.integers(1, 8)))
    counts: tuple[int, ...] = ()
    least = min(n_now or n_most, draw(st.integers(0, 2)))
    if draw(st.booleans()):
        some = draw(st.sets(st.integers(max(1, least), n_most), min_size=1, max_size=4))
        counts = tuple(sorted(some | ({n_now} if n_now else set())))
    return _spec(draw, id, floor=worker * least, ceiling=worker * n_most, worker=worker, counts=counts)


def _n(worker: Resources, planned: Allocation) -> int:
    held = total(planned.values())
    return held.n_times(worker)


def _without_workers(draw: st.DrawFn, id: JobId, planned: Allocation) -> JobSpec:
    """Declare floor ≤ present amount ≤ ceiling."""
    floor, ceiling = draw(_AMOUNTS), draw(_AMOUNTS.filter(bool))
    for amount in planned.values():
        floor, ceiling = floor.at_most(amount), ceiling.at_least(amount)
    return _spec(draw, id, floor=floor, ceiling=ceiling.at_least(floor), worker=None, counts=())


def _spec(
    draw: st.DrawFn,
    id: JobId,
    *,
    floor: Resources,
    ceiling: Resources,
    worker: Resources | None,
    counts: tuple[int, ...],
) -> JobSpec:
    work_steps, deadline_s, weight, resize_cost_s, preemptible, controller = draw(_DECLARED)
    return JobSpec(
        id=id, floor=floor, ceiling=ceiling, worker=worker, counts=counts, work_steps=work_steps, deadline_s=deadline_s,
        weight=weight, resize_cost_s=resize_cost_s, preemptible=preemptible, controller=controller,
    )  # fmt: skip


def effective(snapshot: Snapshot, grants: Mapping[JobId, Allocation], *, keeps_others: bool) -> dict[JobId, Allocation]:
    """Return each job's allocation once a plan is in force: a plan may name only the jobs that change."""
    return {
        job.id: {
            node: amount
            for node, amount in grants.get(job.id, job.planned if keeps_others else {}).items()
            if amount != NOTHING
        }
        for job in (*snapshot.holding, *snapshot.waiting)
    }
