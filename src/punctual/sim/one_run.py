"""Run one policy on one seed's jobs, from the scenario to the figures."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from punctual.core.commands import RejectJob, WarnUser
from punctual.core.events import Event, JobFailed, JobFinished, Message, NodeJoined, NodeLost, NodeNoticed
from punctual.history.cluster import ClusterHistory
from punctual.history.costs import CostHistory
from punctual.history.level import LevelCourse
from punctual.request.cluster_file import nodes_of
from punctual.sim import parts
from punctual.sim.assembly import jobs_of, recording_of
from punctual.sim.choice import PolicyChoice, made
from punctual.sim.garbage import rare_collections
from punctual.sim.ideal import Ideal
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.pool_traces import courses_of
from punctual.sim.recorded import about_kept
from punctual.sim.recording import Live, Replayed, groups_of
from punctual.sim.scenario import Scenario
from punctual.sim.simulation import Simulation

#: Messages that end a job, unless it may be retried.
_ENDS = {JobFinished, JobFailed, RejectJob}


@rare_collections()
def simulate_one(
    scenario: Scenario, policy: PolicyChoice, seed: int, tell: Callable[[float], None]
) -> tuple[dict[str, Any], ClusterHistory]:
    """Run one simulation. Returns its facts as plain values, and the history of all jobs.

    Parameters
    ----------
    tell
        Gets the share of jobs that have ended, now and then.
    """
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    jobs = jobs_of(scenario, seed)
    part = parts.made_as("policies", policy, f"policies.{policy.name}")
    recording, bill = recording_of(scenario), _MoneyCourse()
    if recording is not None and isinstance(part, Live):
        history, n_messages = recording.lived({job.spec.id for job in jobs})
    else:
        history, n_messages = _simulated(scenario, jobs, part, seed, tell, bill)
    ideal = Ideal(jobs, scenario.machines)
    cost = {"wall_s": time.perf_counter() - begun_s, "cpu_s": time.process_time() - begun_cpu_s}
    facts = {**facts_of(history, ideal), "cost": {**cost, "n_messages": n_messages}}
    if scenario.pool:
        facts["bill"] = bill.fields()
        facts["summary"] |= {"cost_usd": sum(facts["bill"]["by_pool"].values())}
    return facts, history


def _simulated(
    scenario: Scenario,
    jobs: Sequence[SimJob],
    policy: Any,
    seed: int,
    tell: Callable[[float], None],
    bill: "_MoneyCourse",
) -> tuple[ClusterHistory, int]:
    """Return the history of the jobs under a policy, and the number of its messages; `bill` gets what pools cost."""
    history, count = ClusterHistory(details=True), _Count(len(jobs), tell)
    nodes, events = nodes_of(scenario.cluster), list[Event]()
    recording = recording_of(scenario)
    if recording is not None:
        load = recording.load()
        events += about_kept(load.events, {job.spec.id for job in jobs})
        if scenario.cluster == groups_of(load.nodes):
            nodes = []  # they join by events, as they did
        else:
            events = [event for event in events if not isinstance(event, NodeJoined | NodeLost | NodeNoticed)]
        if isinstance(policy, Replayed):
            events += load.policy_changes
            policy = parts.kind("policies", policy.policy)()
    simulation = Simulation(
        jobs,
        nodes,
        policy,
        controllers=parts.by_default("controllers", (job.spec.controller for job in jobs)),
        models=parts.by_default("models", (job.spec.model for job in jobs)),
        physics=made(Physics, scenario.physics, "physics"),
        seed=seed,
        listeners=(history.add, count.add, *([bill.add] if scenario.pool else [])),
        events=events,
        pools=courses_of(scenario.pool),
    )
    simulation.run()
    return history, count.n_messages


class _MoneyCourse:
    """Follows the bill over time, and what users are told of their budgets."""

    def __init__(self) -> None:
        self._costs = CostHistory()
        self._told = list[dict[str, Any]]()

    def add(self, message: Message) -> None:
        self._costs.add(message)
        if isinstance(message, WarnUser) and "budget_usd" in message.reason.facts:
            self._told.append({"job": message.job, "at_s": message.at, "text": message.reason.text})

    def fields(self) -> dict[str, Any]:
        """Return the dollars by job and by pool, also over time; the run has ended."""
        bill, by_pool = self._costs.bill, self._costs.by_pool
        bill.close()
        until_at = max([bill.last_at, *(curve.last_at for curve in by_pool.values())])
        at = [until_at * i / 500 for i in range(501)]  # a chart shows no more
        course = {pool: curve.usd(at) for pool, curve in by_pool.items()}
        return {
            "by_job": bill.by_job,
            "by_pool": bill.by_pool,
            "unused_usd": bill.unused_usd,
            "course": {"at": at, "by_pool": course},
            "told": self._told,
        }


class _Count:
    """Counts the jobs that have ended."""

    def __init__(self, n_jobs: int, tell: Callable[[float], None]) -> None:
        self.n_messages = 0
        self._n_jobs = max(1, n_jobs)
        self._n_ended = 0
        # Number of progress reports of a run.
        self._n_between = max(1, n_jobs // 100)
        self._tell = tell

    def add(self, message: Message) -> None:
        self.n_messages += 1
        if type(message) in _ENDS and not getattr(message, "retryable", False):
            self._n_ended += 1
            if self._n_ended % self._n_between == 0:
                self._tell(min(1.0, self._n_ended / self._n_jobs))


def facts_of(history: ClusterHistory, ideal: Ideal) -> dict[str, Any]:
    """The numbers of a run and its curves, in plain values."""
    # Points of each curve.
    course = history.course(500)
    summary = history.summary(alone_s=ideal.alone_s, private_s=ideal.private_s, least_device_s=ideal.least_device_s)
    curves = {"queue": course.n_queued, "granted": course.devices, "capacity": course.devices_capacity}
    return {
        "summary": summary.row(),
        "curves": {name: _curve(level) for name, level in curves.items()},
        "plans": asdict(history.gaps()),
    }


def _curve(course: LevelCourse) -> dict[str, Any]:
    return {"at": course.at, "mean": course.mean, "until_at": course.until_at}
