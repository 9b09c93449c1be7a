"""Elastic jobs whose workers are on several nodes: agents of this process, and the processes of the jobs that they start."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.daemon.live_jobs import PACED
from tests.executors.conftest import is_alive
from tests.plants.cluster import FixedMembers, Wire, direct, joined_executor, new_agent
from tests.waiting import PATIENCE_S, wait_until

from punctual.core.commands import LaunchJob, ResizeJob, StopJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    Event,
    GrantAnswer,
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobWarned,
    NodeLost,
    ProgressReported,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.daemon import host_executor
from punctual.daemon.host import Host
from punctual.daemon.node_agent import NodeAgent
from punctual.daemon.opening import new_host
from punctual.daemon.run_folder import agent_run
from punctual.executors.cluster.executor import ClusterExecutor
from punctual.executors.cluster.spread_job import JobPart, SpreadJob
from punctual.executors.local.job_signals import descendants
from punctual.executors.local.output import StartFacts
from punctual.request.job_options import JobOptions
from punctual.request.submission import submission_of

A, B = NodeId("node-a"), NodeId("node-b")
JOB = JobId("job")
WHY = Reason("test", "a test wants it")
ONE = Resources(0.5)
BOTH = {A: ONE, B: ONE}
N_STEPS = 60
TRAINING, COUNTING = (Path(__file__).with_name(f"spread_{name}.py") for name in ("training", "counting"))
#: After so long a node is lost, where one is.
SHORT_S = 8.0


def agent_of(closing: ExitStack, node: NodeId, **options: Any) -> NodeAgent:
    agent = new_agent(node, address="127.0.0.1", **options)
    closing.callback(agent.close)
    return agent


class Cluster:
    """Two nodes, an executor, and a job."""

    def __init__(self, folder: Path, closing: ExitStack, **options: Any) -> None:
        self.folder = folder
        self.agents = {node: agent_of(closing, node, **options) for node in (A, B)}
        self.wires = {node: Wire(direct(agent)) for node, agent in self.agents.items()}
        self.events: list[Any] = []
        self.n_requests = 0
        self.executor = joined_executor(self.wires, self.events, **options)
        closing.callback(self.executor.close)

    def launch(self, program: Path, *argv: str, **grant: Resources) -> None:
        self.n_requests += 1
        now = time.monotonic()
        program_of = Program(argv=(sys.executable, str(program), str(self.folder), *argv), cwd=str(self.folder))
        spec = JobSpec(id=JOB, ceiling=Resources(2.0), worker=ONE, controller=None)
        self.executor.perform(
            LaunchJob(
                at=now, job=JOB, request=self.n_requests, spec=spec, grant=self._nodes(grant), reason=WHY,
                program=program_of, submitted_at=now,
            ),
            self.events.append,
        )  # fmt: skip

    def resize(self, **grant: Resources) -> None:
        self.n_requests += 1
        command = ResizeJob(at=time.monotonic(), job=JOB, request=self.n_requests, grant=self._nodes(grant), reason=WHY)
        self.executor.perform(command, self.events.append)

    @staticmethod
    def _nodes(grant: Mapping[str, Resources]) -> dict[NodeId, Resources]:
        return {{"a": A, "b": B}[name]: amount for name, amount in grant.items()}

    def answer(self, kind: type[GrantAnswer] = GrantApplied) -> Any:
        """The answer to the last command."""
        return wait_until(
            lambda: [event for event in self.events if isinstance(event, kind) and event.request == self.n_requests]
        )[-1]

    def end(self) -> Any:
        return wait_until(lambda: [event for event in self.events if isinstance(event, JobFinished | JobFailed)])[-1]

    def steps(self) -> float:
        seen: list[Event] = []
        self.executor.observe(JOB, time.monotonic(), seen.append)
        return seen[-1].steps_done if seen and isinstance(seen[-1], ProgressReported) else -1.0

    def n_workers(self) -> int:
        status = self.executor.facts(JOB).workers
        return 0 if status is None else status.n_workers

    def pids(self, node: NodeId) -> list[int]:
        """The job's own process on a node, if there is one."""
        supervisor = agent_run(f"test-{node}").supervisor_pid(JOB)
        return [] if supervisor is None else descendants(supervisor)[:1]


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def cluster(tmp_path: Path, closing: ExitStack) -> Cluster:
    return Cluster(tmp_path, closing)


def test_a_job_grows_to_a_second_node_and_back_and_its_weights_are_those_of_one_node(
    cluster: Cluster, tmp_path: Path
) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "fast").touch()
    reference = subprocess.Popen([sys.executable, str(TRAINING), str(alone), str(N_STEPS)], stdout=subprocess.DEVNULL)
    cluster.launch(TRAINING, str(N_STEPS), a=ONE)
    assert cluster.answer(JobStarted).granted == {A: ONE}
    wait_until(lambda: cluster.steps() > 3)
    cluster.resize(a=ONE, b=ONE)
    assert cluster.answer().granted == BOTH
    wait_until(lambda: cluster.n_workers() == 2)
    n_steps = cluster.steps()
    wait_until(lambda: cluster.steps() > n_steps + 3)
    cluster.resize(a=ONE)
    assert cluster.answer().granted == {A: ONE}
    assert not cluster.pids(B)
    (tmp_path / "fast").touch()
    assert isinstance(cluster.end(), JobFinished)
    assert (tmp_path / "seen").read_text() == "1 2"
    status = cluster.executor.facts(JOB).workers
    assert status is not None
    assert (status.n_workers_lost, status.n_steps_redone) == (0, 0)
    assert reference.wait() == 0
    expected, found = torch.load(alone / "weights"), torch.load(tmp_path / "weights")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def grown(cluster: Cluster) -> Cluster:
    """The job trains on both nodes."""
    cluster.launch(COUNTING, a=ONE, b=ONE)
    assert cluster.answer(JobStarted).granted == BOTH
    wait_until(lambda: cluster.n_workers() == 2)
    return cluster


def workers_of(folder: Path) -> list[int]:
    """The workers that have been, in order of their start."""
    file = folder / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def test_a_job_that_is_launched_on_two_nodes_has_workers_on_both_and_ends_on_both(
    cluster: Cluster, tmp_path: Path
) -> None:
    grown(cluster)
    (tmp_path / "end").touch()
    assert isinstance(cluster.end(), JobFinished)
    assert not cluster.pids(B), "its end is told when nothing of it is left"
    assert not any(map(is_alive, workers_of(tmp_path)))


def test_a_job_is_paused_and_resumed_on_all_its_nodes(cluster: Cluster) -> None:
    grown(cluster)
    cluster.resize()
    assert cluster.answer().granted == {}
    assert not cluster.pids(B)
    cluster.resize(a=ONE, b=ONE * 2)
    assert cluster.answer().granted == {A: ONE, B: ONE * 2}
    wait_until(lambda: cluster.n_workers() == 3)


def test_a_job_that_is_stopped_ends_on_all_nodes(cluster: Cluster, tmp_path: Path) -> None:
    grown(cluster)
    cluster.executor.perform(StopJob(at=time.monotonic(), job=JOB, cause="enough"), cluster.events.append)
    assert "enough" in cluster.end().cause
    assert not any(map(is_alive, workers_of(tmp_path)))


def test_a_part_that_dies_is_told_and_the_job_goes_on_without_it(cluster: Cluster) -> None:
    grown(cluster)
    (there,) = cluster.pids(B)
    os.kill(there, signal.SIGKILL)
    failed = cluster.answer(GrantFailed)
    assert failed.granted == {A: ONE}
    assert failed.cause == "on node 'node-b': its process was ended by SIGKILL"
    n_steps = wait_until(cluster.steps)
    wait_until(lambda: cluster.steps() > n_steps)
    cluster.resize(a=ONE, b=ONE)
    assert cluster.answer().granted == BOTH


def test_a_node_that_cannot_reach_the_first_one_is_said_so(
    cluster: Cluster, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.agents[B], "_address", "192.0.2.1")
    cluster.launch(COUNTING, a=ONE)
    cluster.answer(JobStarted)
    cluster.resize(a=ONE, b=ONE)
    failed = cluster.answer(GrantFailed)
    assert failed.granted == {A: ONE}
    assert "on node 'node-b': the address of a node must be one of its own: got '192.0.2.1'" in failed.cause
    assert not cluster.pids(B)


def test_a_program_that_is_not_elastic_is_never_started_twice(cluster: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "plain.py"
    program.write_text(
        "import pathlib, sys, time, punctual\n"
        "with pathlib.Path(sys.argv[1], 'pids').open('a') as file: file.write('1 ')\n"
        "for _ in punctual.track(range(10**6), total_steps=10**6): time.sleep(0.01)\n"
    )
    cluster.launch(program, a=ONE, b=ONE)
    assert cluster.answer(GrantApplied).granted == {A: ONE}
    (warned,) = [event for event in cluster.events if isinstance(event, JobWarned)]
    assert "does not train with `punctual.elastic`" in warned.reason.text
    cluster.resize(a=ONE * 2, b=ONE)
    assert cluster.answer().granted == {A: ONE * 2}
    assert workers_of(tmp_path) == [1]


def test_a_first_node_that_has_no_address_says_so(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.agents[A], "_address", "")
    cluster.launch(COUNTING, a=ONE)
    cluster.answer(JobStarted)
    cluster.resize(a=ONE, b=ONE)
    failed = cluster.answer(GrantFailed)
    assert failed.granted == {A: ONE}
    assert "a node must have an address to be joined by others" in failed.cause


def test_a_job_goes_on_when_a_node_beside_its_first_is_lost(tmp_path: Path, closing: ExitStack) -> None:
    cluster = grown(Cluster(tmp_path, closing, lost_after_s=SHORT_S))
    (there,) = cluster.pids(B)
    cluster.wires[B].cut()
    wait_until(lambda: any(isinstance(event, NodeLost) for event in cluster.events))
    assert not is_alive(there), "nothing runs there when the host takes the node for lost"
    cluster.resize(a=ONE)
    assert cluster.answer().granted == {A: ONE}
    n_steps = cluster.steps()
    wait_until(lambda: cluster.steps() > n_steps)
    assert not any(isinstance(event, JobFailed) for event in cluster.events)


def test_a_job_whose_first_node_is_lost_is_started_again_and_nothing_runs_twice(
    tmp_path: Path, closing: ExitStack
) -> None:
    cluster = grown(Cluster(tmp_path, closing, lost_after_s=SHORT_S))
    before = workers_of(tmp_path)
    cluster.wires[A].cut()
    wait_until(lambda: any(isinstance(event, NodeLost) for event in cluster.events))
    assert not any(map(is_alive, before))
    assert cluster.answer(GrantFailed).granted == {A: ONE}, "the part has ended with its first process"
    n_steps = int((tmp_path / "step").read_text())
    cluster.launch(COUNTING, b=ONE)
    wait_until(lambda: cluster.steps() > n_steps)


def test_what_a_job_has_beside_a_first_node_that_is_lost_ends_before_the_job_counts_as_lost(
    tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = grown(Cluster(tmp_path, closing, lost_after_s=SHORT_S))
    monkeypatch.setattr(cluster.agents[A], "_fence", lambda: None)  # as if the machine stood still
    (there,) = cluster.pids(B)
    cluster.wires[A].cut()
    failed = cluster.end()
    assert (failed.is_lost, failed.retryable) == (True, True)
    assert not is_alive(there)
    cluster.wires[A].mend()  # what is left there ends when the host is heard again
    (first,) = cluster.pids(A)
    wait_until(lambda: not is_alive(first))


def test_a_command_about_a_job_whose_first_node_is_gone_waits_with_it_for_the_end_of_its_parts(
    tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = grown(Cluster(tmp_path, closing, lost_after_s=SHORT_S))
    agent = cluster.agents[A]
    closing.callback(agent._executor.close)
    monkeypatch.setattr(agent, "_fence", lambda: None)  # as if the machine stood still
    do = cluster.agents[B]._do
    monkeypatch.setattr(cluster.agents[B], "_do", lambda _: {"fenced": True})
    cluster.wires[A].cut()
    members = cluster.executor._members
    assert isinstance(members, FixedMembers)
    members.remove(A)
    wait_until(lambda: A not in cluster.executor._links)
    cluster.resize(b=ONE)
    cluster.executor.perform(StopJob(at=time.monotonic(), job=JOB, cause="enough"), cluster.events.append)
    assert not any(isinstance(event, JobFailed) for event in cluster.events)
    monkeypatch.setattr(cluster.agents[B], "_do", do)
    assert cluster.end().cause == "node 'node-a', the first of its nodes, is lost"


def test_workers_on_a_node_that_does_not_answer_are_not_told_to_train(cluster: Cluster) -> None:
    grown(cluster)
    cluster.wires[B].cut()
    wait_until(lambda: cluster.n_workers() == 1)
    cluster.wires[B].mend()
    wait_until(lambda: cluster.n_workers() == 2)


def test_a_job_that_has_finished_is_not_lost_with_its_first_node_while_its_parts_end() -> None:
    now, told = time.monotonic(), list[Event]()
    launch = LaunchJob(
        at=now, job=JOB, request=1, spec=JobSpec(id=JOB, ceiling=ONE, worker=ONE), grant=BOTH, reason=WHY, program=None,
        submitted_at=now,
    )  # fmt: skip
    spread = SpreadJob(launch, A, time.monotonic, lambda *_: True, told.append)
    spread.parts = {B: JobPart("there", ONE, ONE)}
    finished = JobFinished(at=now, job=JOB, landed_at=now)
    assert spread.end(finished)
    assert spread.end(JobFailed(at=now, job=JOB, cause="its node is lost", retryable=True, is_lost=True))
    spread.hear(B, finished)
    assert told == [finished]


def test_a_host_that_comes_back_goes_on_with_a_job_on_two_nodes(cluster: Cluster, closing: ExitStack) -> None:
    grown(cluster)
    cluster.executor.release()
    later: list[Event] = []
    cluster.executor = ClusterExecutor(
        FixedMembers(cluster.wires), generation=2, known=(A, B), report_s=0.02,
        start_facts_of=lambda _: StartFacts(environment=os.environ),
    )  # fmt: skip
    closing.callback(cluster.executor.close)
    held, _ = cluster.executor.resume()
    assert held == {JOB: BOTH}
    cluster.events = later
    cluster.executor.start(later.append)
    cluster.resize(a=ONE)
    assert cluster.answer().granted == {A: ONE}
    assert not cluster.pids(B)
    cluster.resize(a=ONE, b=ONE)
    assert cluster.answer().granted == BOTH


@contextmanager
def on_two_nodes(closing: ExitStack, monkeypatch: pytest.MonkeyPatch, policy: str) -> Iterator[Host]:
    """A host on two agents, both of which have joined."""
    wires = {node: direct(agent_of(closing, node)) for node in (A, B)}
    monkeypatch.setattr(host_executor, "members_of", lambda run, options: FixedMembers(wires))
    with new_host("host", replace(PACED, engine="ray", policy=policy)) as host:
        host.run_for(PATIENCE_S, lambda: len(host.nodes()) == 2)
        yield host


def counting(folder: Path, cores: float) -> JobOptions:
    """A job of one or two workers, each of which takes all cores of a node."""
    program = [sys.executable, str(COUNTING), str(folder)]
    return JobOptions(program=program, name="job", workers="1..2", cores_per_worker=f"{cores}")


def test_a_host_gives_a_job_of_workers_more_than_one_node_has(
    closing: ExitStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with on_two_nodes(closing, monkeypatch, "promises-first") as host:
        cores = host.capacity.cores
        options = counting(tmp_path, cores)
        with pytest.raises(InvalidSpec, match="the most workers must fit"):
            submission_of(options, time.monotonic(), host.capacity)
        host.submit(submission_of(options, time.monotonic(), host.capacity, host.capacity_together))

        def has_two_workers() -> bool:
            status = host.executor.facts(JOB).workers
            return status is not None and status.n_workers == 2

        host.run_for(PATIENCE_S, has_two_workers)
        assert host.status(JOB).granted == {A: Resources(cores), B: Resources(cores)}
        (tmp_path / "end").touch()
        host.run_for(PATIENCE_S, host.all_ended)
        assert host.status(JOB).state == "finished"


def test_workers_leave_a_node_that_is_drained_and_come_back_while_the_others_train_on(
    closing: ExitStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with on_two_nodes(closing, monkeypatch, "fifo") as host:
        cores = host.capacity.cores
        options = counting(tmp_path, cores)
        host.submit(submission_of(options, time.monotonic(), host.capacity, host.capacity_together))

        def until(n_workers: int, on: set[NodeId]) -> None:
            def holds() -> bool:
                status = host.executor.facts(JOB).workers
                return status is not None and status.n_workers == n_workers and host.status(JOB).granted.keys() == on

            host.run_for(PATIENCE_S, holds)
            assert holds()

        until(2, {A, B})
        first, other = A, B  # of equal grants the first one is taken
        host.drain(other, 60.0)
        until(1, {first})
        host.drain(other, None)
        until(2, {A, B})
        assert host.status(JOB).n_attempts == 1, "its process went on all the time"
        host.drain(first, 60.0)
        until(1, {other})
        assert host.status(JOB).n_attempts == 2, "without its first node it starts again from its checkpoint"
        (tmp_path / "end").touch()
        host.run_for(PATIENCE_S, host.all_ended)
        assert host.status(JOB).state == "finished"
