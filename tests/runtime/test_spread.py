"""Elastic jobs whose workers are on several nodes: agents of this process, and the processes of the jobs that they start."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.plants.cluster import Wire, direct, joined_executor, new_agent
from tests.waiting import wait_until

from punctual.core.commands import LaunchJob, ResizeJob
from punctual.core.events import (
    Event,
    GrantApplied,
    JobFailed,
    JobFinished,
    JobStarted,
    ProgressReported,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.resources import Resources
from punctual.core.story import Reason
from punctual.runtime.node_agent import NodeAgent

A, B = NodeId("node-a"), NodeId("node-b")
JOB = JobId("job")
WHY = Reason("test", "a test wants it")
ONE = Resources(0.5)
BOTH = {A: ONE, B: ONE}
N_STEPS = 400
TRAINING = Path(__file__).with_name("spread_training.py")


class Cluster:
    """Two nodes, an executor, and a job."""

    def __init__(self, folder: Path, closing: ExitStack, **options: Any) -> None:
        self.folder = folder
        self.agents = {node: self._agent(closing, node, options) for node in (A, B)}
        self.wires = {node: Wire(direct(agent)) for node, agent in self.agents.items()}
        self.events: list[Event] = []
        self.n_requests = 0
        self.executor = joined_executor(self.wires, self.events, **options)
        closing.callback(self.executor.close)

    @staticmethod
    def _agent(closing: ExitStack, node: NodeId, options: Mapping[str, Any]) -> NodeAgent:
        agent = new_agent(node, address="127.0.0.1", **options)
        closing.callback(agent.close)
        return agent

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

    def answer(self, kind: type[Event] = GrantApplied) -> Any:
        """The answer to the last command."""
        return wait_until(
            lambda: [
                event
                for event in self.events
                if isinstance(event, kind) and event.request == self.n_requests  # type: ignore[attr-defined]
            ]
        )[-1]

    def end(self) -> Any:
        return wait_until(lambda: [event for event in self.events if isinstance(event, JobFinished | JobFailed)])[-1]

    def steps(self) -> float:
        seen: list[Event] = []
        self.executor.observe(JOB, time.monotonic(), seen.append)
        return seen[-1].steps_done if seen and isinstance(seen[-1], ProgressReported) else -1.0

    def n_workers(self) -> int:
        status = self.executor.worker_status(JOB)
        return 0 if status is None else status.n_workers

    def pids(self, node: NodeId) -> list[int]:
        """The job's own process on a node, if there is one."""
        run = self.agents[node]._executor._runs.get(JOB)
        return [] if run is None or run.ended or not run._process.pid else [run._process.pid]


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
    status = cluster.executor.worker_status(JOB)
    assert status is not None
    assert (status.n_workers_lost, status.n_steps_redone) == (0, 0)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "fast").touch()
    subprocess.run([sys.executable, str(TRAINING), str(alone), str(N_STEPS)], check=True, capture_output=True)
    expected, found = torch.load(alone / "weights"), torch.load(tmp_path / "weights")
    assert all(torch.equal(expected[name], found[name]) for name in expected)
