"""The nodes of the cluster: their kinds, their number by size, and those that are slow for their kind."""

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from math import exp, log
from statistics import median

from punctual.core.cluster import Node
from punctual.core.events import NodeJoined, ProgressReported
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, Resources, total
from punctual.core.scheduled_job import CostSample, ScheduledJob

#: A cost is measured over so much CPU time, and half of what is believed of it is the last measurement.
SAMPLE_CORE_S, _NEW_FRAC = 30.0, 0.5
#: A node is judged by its last jobs: so many at most, and so many at least.
_N_JOBS, N_JOBS_LEAST = 8, 3
#: A node is slow once jobs cost so many times as much there as on other nodes of its kind, and until they cost less than the
#: second number of times as much.
SLOW, _RECOVERED = 1.3, 1.15
#: Time for which the measurements must agree, in seconds.
LASTS_S = 120.0


@dataclass(slots=True)
class _LogCosts:
    """Costs of jobs on one node, as logarithms.

    Attributes
    ----------
    of_elsewhere
        Relative to the cost of the same job on other nodes of the kind.
    of_declared
        Relative to the cost that the job declared, which may be wrong in the same way for all jobs.
    since_at
        Instant from which the measurements contradict the slowness that users know; None: they agree with it.
    """

    of_elsewhere: dict[JobId, float] = field(default_factory=dict)
    of_declared: dict[JobId, float] = field(default_factory=dict)
    since_at: float | None = None


@dataclass(slots=True)
class NodeTable:
    """Kinds, sizes and slowness of the nodes.

    Attributes
    ----------
    devices
        Kind of each node.
    jobs_at_once
        Limit of jobs that run at once, by node that has one.
    slowness
        Cost of jobs relative to other nodes of the kind, by slow node.
    sizes
        Number of nodes of each capacity, without those that are leaving.
    capacity
        Total capacity of all nodes.
    """

    devices: dict[NodeId, str] = field(default_factory=dict)
    jobs_at_once: dict[NodeId, int] = field(default_factory=dict)
    slowness: dict[NodeId, float] = field(default_factory=dict)
    sizes: Mapping[Resources, int] = field(default_factory=dict)
    capacity: Resources = NOTHING
    _costs: dict[NodeId, _LogCosts] = field(default_factory=dict)

    def join(self, event: NodeJoined) -> None:
        """Add a node, or change its kind and limits."""
        self.devices[event.node] = event.device
        self.jobs_at_once.pop(event.node, None)
        if event.jobs_at_once is not None:
            self.jobs_at_once[event.node] = event.jobs_at_once

    def changed(self, capacities: Mapping[NodeId, Resources], leaving: Container[NodeId] = ()) -> Iterator[Node]:
        """Update the sizes to `capacities`, forget all other nodes, and return the nodes that are not `leaving`."""
        for known in (self._costs, self.slowness, self.jobs_at_once):
            for node in known.keys() - capacities.keys():
                del known[node]
        staying = {node: capacity for node, capacity in capacities.items() if node not in leaving}
        self.sizes = Counter(staying.values())
        self.capacity = total(capacities.values())
        return (
            Node(node, capacity, self.devices[node], self.slowness.get(node, 1.0), self.jobs_at_once.get(node))
            for node, capacity in staying.items()
        )

    def learn(self, job: ScheduledJob, event: ProgressReported, granted: Allocation) -> NodeId | None:
        """Learn the cost of a step on the job's node; return the node if its slowness may be news to jobs there.

        Only of jobs on CPUs of one node: what a step costs is CPU time, on whatever share of them.
        """
        if len(granted) != 1 or job.held.gpus or len(self.devices) < 2:
            return None
        (node,) = granted
        mark, used_core_s = job.cost_mark, event.used_core_s - event.in_flight_core_s
        if mark is None or mark.node != node or used_core_s < mark.used_core_s or event.steps_done < mark.steps_done:
            if event.steps_done > 0:  # what comes before the first step is the start
                job.cost_mark = CostSample(node, used_core_s, event.steps_done)
            return node if self._is_news(node, job) else None
        core_s, steps = used_core_s - mark.used_core_s, event.steps_done - mark.steps_done
        if core_s < SAMPLE_CORE_S or steps <= 0:
            return None
        job.cost_mark = CostSample(node, used_core_s, event.steps_done)
        before = job.costs.get(node, core_s / steps)
        job.costs = {**job.costs, node: before + _NEW_FRAC * (core_s / steps - before)}
        return self._judged(node, event.at) if self._note(job, node, event.steps_total) else None

    def _note(self, job: ScheduledJob, node: NodeId, steps_total: float | None) -> bool:
        """Compare the job's cost on the node with its cost elsewhere or its declaration; False without these."""
        cost, name = job.costs[node], job.spec.id
        elsewhere = [each for other, each in job.costs.items() if self._is_like(other, node)]
        declared_core_s, n_steps = job.spec.work_core_s, steps_total or job.spec.work_steps
        is_declared = declared_core_s is not None and bool(n_steps)
        if not (elsewhere or is_declared):
            return False
        costs = self._costs.setdefault(node, _LogCosts())
        if elsewhere:
            _put(costs.of_elsewhere, name, log(cost / median(elsewhere)))
        if declared_core_s is not None and n_steps:
            _put(costs.of_declared, name, log(cost * n_steps / declared_core_s))
        return True

    def _is_like(self, other: NodeId, node: NodeId) -> bool:
        """Whether it is another node of the same kind."""
        return other != node and self.devices.get(other) == self.devices[node]

    def _slowness_of(self, node: NodeId) -> tuple[float, int]:
        """Return the cost of jobs on the node relative to its kind, and the number of jobs that were compared."""
        costs = self._costs[node]
        logs = dict(costs.of_elsewhere)
        if len(costs.of_declared) >= N_JOBS_LEAST:
            others = [each.of_declared.values() for other, each in self._costs.items() if self._is_like(other, node)]
            usual = [ratio for ratios in others for ratio in ratios]
            if len(usual) >= N_JOBS_LEAST:
                logs = {**{job: each - median(usual) for job, each in costs.of_declared.items()}, **logs}
        return (exp(median(logs.values())) if logs else 1.0), len(logs)

    def _judged(self, node: NodeId, at: float) -> NodeId | None:
        costs, believed = self._costs[node], self.slowness.get(node, 1.0)
        slowness, n_jobs = self._slowness_of(node)
        is_news = n_jobs >= N_JOBS_LEAST and (slowness >= SLOW if believed == 1.0 else slowness < _RECOVERED)
        if not is_news:
            costs.since_at = None
            return None
        costs.since_at = at if costs.since_at is None else costs.since_at
        if at < costs.since_at + LASTS_S:
            return None
        costs.since_at = None
        if believed == 1.0:
            self.slowness[node] = slowness
        else:
            del self.slowness[node]
        return node

    def news(self, node: NodeId, job: ScheduledJob) -> Reason | None:
        """Return a warning about the node's slowness for a job on it; None if its user knows already."""
        if not self._is_news(node, job):
            return None
        slowness = self.slowness.get(node, 1.0)
        job.told ^= {_warning_key(node)}
        if slowness == 1.0:
            return Reason("node-recovered", f"its node '{node}' is no longer slow for its kind", {"slowness": slowness})
        text = (
            f"its node '{node}' is slow: steps of {N_JOBS_LEAST} jobs or more cost {slowness:.2g} times the CPU time there "
            "that they cost on other nodes of its kind"
        )
        return Reason("slow-node", text, {"slowness": slowness})

    def _is_news(self, node: NodeId, job: ScheduledJob) -> bool:
        """Whether the job was told otherwise of the node's slowness."""
        return (node in self.slowness) != (_warning_key(node) in job.told)


def _warning_key(node: NodeId) -> str:
    return f"slow-node {node}"


def _put(ratios: dict[JobId, float], job: JobId, ratio: float) -> None:
    """Note the ratio of a job as the last one."""
    ratios.pop(job, None)
    ratios[job] = ratio
    while len(ratios) > _N_JOBS:
        del ratios[next(iter(ratios))]
