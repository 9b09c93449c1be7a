"""What an agent tells its host of its jobs, and keeps of them."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.plants.cluster import end, joined_executor
from tests.waiting import wait_until

from punctual.core.commands import LaunchJob
from punctual.core.events import Event
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.resources import Resources
from punctual.core.story import Reason
from punctual.executors.cluster.channel import AgentChannel
from punctual.executors.cluster.executor import ClusterExecutor
from punctual.runtime.agent_process import AgentProcess
from punctual.runtime.node_agent import AgentOptions

A = NodeId("node-a")
JOB = JobId("job")


def launch(code: str, folder: Path, request: int = 1) -> LaunchJob:
    """Of a job that runs `code` in `folder`."""
    now = time.monotonic()
    return LaunchJob(
        at=now, job=JOB, request=request, spec=JobSpec(id=JOB, ceiling=Resources(1.0), controller=None),
        grant={A: Resources(0.5)}, reason=Reason("test", "a test wants it"),
        program=Program(argv=(sys.executable, "-c", code), cwd=str(folder)), submitted_at=now,
    )  # fmt: skip


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Host:
    """The executor of a host with one node, and what it is told."""

    def __init__(self, closing: ExitStack, channel: AgentChannel) -> None:
        self.events: list[Event] = []
        self.output = b""
        self.executor: ClusterExecutor = joined_executor({A: channel}, self.events, on_output=self._receive)
        closing.callback(self.executor.close)

    def _receive(self, _: JobId, output: bytes) -> None:
        self.output += output

    def launch(self, command: LaunchJob) -> None:
        self.executor.perform(command, self.events.append)


def test_what_a_job_writes_comes_to_its_host_at_once_and_not_into_the_log_of_the_agent(
    closing: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    process = AgentProcess(AgentOptions(name="quiet", node=A, actuator="pacing"))
    closing.callback(lambda: end(process))
    host = Host(closing, process)
    host.launch(launch("import time; print('mark'); time.sleep(1000)", tmp_path))
    wait_until(lambda: host.output == b"mark\n")
    assert "mark" not in process.log.read_text()
