"""A node on which jobs cost more than on others of its kind is noticed by several jobs, told, and avoided."""

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from tests.core.desk import Scripted

from punctual.core.commands import Command, LaunchJob, RequestPlan, WarnUser
from punctual.core.events import JobStarted, JobSubmitted, NodeJoined, PlanProposed, ProgressReported
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.node_table import LASTS_S
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.core.status import StatusBoard

NODES = [NodeId(name) for name in ("a", "b", "c")]
N_STEPS, STEP_CORE_S = 10_000.0, 1.0
#: Core-seconds that a job uses between two reports, and seconds between them.
REPORT_CORE_S, REPORT_S = 40.0, 20.0


class Cluster:
    """Three nodes with some jobs each; what jobs cost there is what the test says."""

    def __init__(
        self, n_jobs: int, *, kinds: Iterable[str] = ("fast",) * 3, declared_factor: float | None = 1.0
    ) -> None:
        self.controller = Scripted()
        self.scheduler = Scheduler({"scripted": self.controller}, strict=True)
        self.board = StatusBoard()
        self.told: list[WarnUser] = []
        self.at = 0.0
        self.used: dict[JobId, float] = {}
        self.steps: dict[JobId, float] = {}
        self.node_of: dict[JobId, NodeId] = {}
        for node, kind in zip(NODES, kinds, strict=True):
            self.tell(NodeJoined(at=0.0, node=node, capacity=Resources(cores=8.0), device=kind))
        for node in NODES:
            for i in range(n_jobs):
                self.start(JobId(f"{node}{i}"), node, declared_factor)

    def tell(self, event: object) -> list[Command]:
        commands = self.scheduler.handle(event)  # type: ignore[arg-type]
        for message in (event, *commands):
            self.board.fold(message)  # type: ignore[arg-type]
        self.told += [command for command in commands if isinstance(command, WarnUser)]
        return commands

    def start(self, job: JobId, node: NodeId, declared_factor: float | None) -> None:
        work_core_s = None if declared_factor is None else declared_factor * N_STEPS * STEP_CORE_S
        spec = JobSpec(
            id=job,
            ceiling=Resources(cores=2.0),
            floor=Resources(cores=0.1),
            controller="scripted",
            preemptible=True,
            work_core_s=work_core_s,
        )
        self.tell(JobSubmitted(at=self.at, spec=spec))
        self.node_of[job], self.used[job], self.steps[job] = node, 0.0, 0.0
        for _ in range(2):  # a plan that was asked for before does not know the job
            self.place()

    def place(self) -> None:
        grants = {job: {node: Resources(cores=1.0)} for job, node in self.node_of.items()}
        revision = self.scheduler.snapshot(self.at).revision
        commands = self.tell(PlanProposed(at=self.at, plan=Plan(revision=revision, grants=grants), revision=revision))
        for launch in commands:
            if isinstance(launch, LaunchJob):
                self.tell(JobStarted(at=self.at, job=launch.job, request=launch.request, granted=launch.grant))

    def run(self, over_s: float, slowness: Mapping[str, float]) -> None:
        """Let time pass in which steps cost `slowness` times as much, by node or by job."""
        for _ in range(round(over_s / REPORT_S)):
            self.at += REPORT_S
            for job, node in self.node_of.items():
                factor = slowness.get(job, slowness.get(node, 1.0))
                self.used[job] += REPORT_CORE_S
                self.steps[job] += REPORT_CORE_S / (STEP_CORE_S * factor)
                self.tell(
                    ProgressReported(
                        at=self.at,
                        job=job,
                        steps_done=self.steps[job],
                        steps_total=N_STEPS,
                        unit_at=self.at,
                        used_core_s=self.used[job],
                    )
                )

    def slowness(self) -> dict[str, float]:
        shown = {node.id: node.slowness for node in self.scheduler.snapshot(self.at).nodes if node.slowness != 1.0}
        assert shown == {node.id: node.slowness for node in self.board.nodes() if node.slowness != 1.0}
        return {str(node): slowness for node, slowness in shown.items()}


@pytest.mark.parametrize("declared_factor", [0.5, 1.0, 3.0])
def test_a_slow_node_is_told_to_its_jobs_also_where_all_were_declared_wrongly(declared_factor: float) -> None:
    cluster = Cluster(3, declared_factor=declared_factor)
    cluster.run(LASTS_S - 2 * REPORT_S, {"b": 1.6})
    assert not cluster.told
    cluster.run(4 * REPORT_S, {"b": 1.6})
    assert cluster.slowness() == {"b": pytest.approx(1.6, rel=0.01)}
    assert {(told.job, told.node, told.reason.code) for told in cluster.told} == {
        (f"b{i}", "b", "slow-node") for i in range(3)
    }
    assert "1.6 times the CPU time" in cluster.board.job(JobId("b0")).warnings["slow-node"]


def test_one_costly_job_makes_no_node_slow() -> None:
    cluster = Cluster(3)
    cluster.run(10 * LASTS_S, {"b0": 5.0})
    assert not cluster.slowness()


def test_two_jobs_are_too_few_to_judge_by() -> None:
    cluster = Cluster(2)
    cluster.run(10 * LASTS_S, {"b": 2.0})
    assert not cluster.slowness()


def test_a_passing_slowness_is_not_told_and_a_lasting_one_is_told_to_be_over() -> None:
    cluster = Cluster(3)
    cluster.run(LASTS_S / 2, {"b": 1.6})
    cluster.run(2 * LASTS_S, {})
    assert not cluster.told
    cluster.run(2 * LASTS_S, {"b": 1.6})
    assert cluster.slowness()
    cluster.run(3 * LASTS_S, {})
    assert not cluster.slowness()
    assert [told.reason.code for told in cluster.told if told.job == "b1"] == ["slow-node", "node-recovered"]
    assert "slow-node" not in cluster.board.job(JobId("b1")).warnings


def test_nodes_of_another_kind_are_no_measure() -> None:
    cluster = Cluster(3, kinds=("fast", "old", "other"))
    cluster.run(5 * LASTS_S, {"b": 2.0})
    assert not cluster.slowness()


def test_jobs_that_declare_nothing_tell_by_what_they_cost_elsewhere() -> None:
    cluster = Cluster(1, declared_factor=None)
    cluster.run(LASTS_S, {})
    for job in cluster.node_of:
        cluster.node_of[job] = NODES[1]
        record = cluster.scheduler._active[job]
        cluster.scheduler._ledger.settle(job, record.n_requests, {NODES[1]: Resources(cores=1.0)})
    cluster.run(3 * LASTS_S, {"b": 2.0})
    assert cluster.slowness() == {}, "the one that was there before has no other node to compare with"
    for job in (JobId("d"), JobId("e")):
        cluster.start(job, NODES[0], None)
    cluster.run(LASTS_S, {"b": 2.0})
    for job in (JobId("d"), JobId("e")):
        cluster.node_of[job] = NODES[1]
        record = cluster.scheduler._active[job]
        cluster.scheduler._ledger.settle(job, record.n_requests, {NODES[1]: Resources(cores=1.0)})
    cluster.run(3 * LASTS_S, {"b": 2.0})
    assert cluster.slowness() == {"b": pytest.approx(2.0, rel=0.05)}


def test_who_starts_on_a_slow_node_is_told_too() -> None:
    cluster = Cluster(3)
    cluster.run(2 * LASTS_S, {"b": 1.6})
    cluster.start(JobId("late"), NODES[1], 1.0)
    cluster.run(2 * REPORT_S, {"b": 1.6})
    assert [told.reason.code for told in cluster.told if told.job == "late"] == ["slow-node"]


def test_a_job_that_starts_up_on_a_slow_node_asks_for_no_plan_with_each_report() -> None:
    cluster = Cluster(3)
    cluster.run(2 * LASTS_S, {"b": 1.6})
    job = JobId("late")
    cluster.start(job, NODES[1], 1.0)
    asked = []
    for n in range(3):
        report = ProgressReported(
            at=cluster.at + n, job=job, steps_done=0.0, steps_total=N_STEPS, unit_at=cluster.at, used_core_s=float(n)
        )
        asked.append(any(isinstance(command, RequestPlan) for command in cluster.tell(report)))
        cluster.place()
    assert asked[1:] == [False, False]
    assert [told.reason.code for told in cluster.told if told.job == job] == ["slow-node"]


def test_what_is_known_of_nodes_outlives_the_scheduler() -> None:
    cluster = Cluster(3)
    cluster.run(2 * LASTS_S, {"b": 1.6})
    other = Scheduler({"scripted": Scripted()}, strict=True)
    other.load(pickle.loads(pickle.dumps(cluster.scheduler.dump())))
    assert other.snapshot(cluster.at).nodes == cluster.scheduler.snapshot(cluster.at).nodes
    assert any(node.slowness > 1.0 for node in other.snapshot(cluster.at).nodes)


def test_gpus_are_not_judged_by_what_their_jobs_cost_in_cpu_time() -> None:
    cluster = Cluster(3)
    for job in cluster.node_of:
        record = cluster.scheduler._active[job]
        record.held = replace(record.held, gpus=1)
    cluster.run(3 * LASTS_S, {"b": 2.0})
    assert not cluster.slowness()
