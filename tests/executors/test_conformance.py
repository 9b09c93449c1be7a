"""The conformance kit of executors, run against all that there are."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.executors.conftest import groups_of, is_alive
from tests.plants.cluster import direct, joined_executor, new_agent
from tests.plants.dry_run import DryRun
from tests.waiting import wait_until

from punctual.core.cluster import Node
from punctual.core.events import Event
from punctual.core.ids import NodeId
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.resources import Resources
from punctual.daemon.agent_process import AgentProcess
from punctual.daemon.node_agent import AgentOptions
from punctual.executors.cluster.channel import AgentChannel
from punctual.executors.local.context import ExecutorContext
from punctual.executors.local.executor import LocalExecutor
from punctual.sim.event_queue import FACT, EventQueue
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.speed_laws import CoresTruth
from punctual.sim.world import World
from punctual.testing.executor_kit import N_STEPS, ExecutorConformance, ExecutorStage, Fate

NODE = NodeId("here")
#: Of the hosts that one agent sees come and go.
GENERATIONS = count(1)


class DryStage(ExecutorStage):
    def __init__(self) -> None:
        super().__init__(DryRun(steps_per_core_s=10.0), NODE)
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def wait_a_little(self) -> None:
        self._now += 0.1


class TestDryRun(ExecutorConformance):
    fates = ("trains", "ends")

    def make(self) -> ExecutorStage:
        return DryStage()


class WorldStage(ExecutorStage):
    """The simulated world; one in which processes fail, for a job that is to."""

    def __init__(self) -> None:
        self._now = 0.0
        self._queue = EventQueue()
        self._world = self._made(failures_per_device_h=0.0)
        super().__init__(self._world, NODE)

    def _made(self, failures_per_device_h: float) -> World:
        physics = Physics(startup_s=0.7, resize_s=0.3, failures_per_device_h=failures_per_device_h)
        world = World(self._queue, physics)
        world.join(0.0, Node(NODE, Resources(1.0)))
        return world

    def now(self) -> float:
        return self._now

    def submitted(self, spec: JobSpec, fate: Fate) -> None:
        assert spec.work_steps is not None
        if fate == "fails":
            self.executor = self._world = self._made(failures_per_device_h=3600.0)
        self._world.submit(SimJob(self._now, spec, CoresTruth(step_core_s=0.1), spec.work_steps))

    def wait_a_little(self) -> None:
        self._queue.enter(self._now + 0.1, FACT, None)
        while (entry := self._queue.pop()) is not None:
            self._now, _, _, subject, version = entry
            if subject is None:
                return
            self.events += self._world.due(self._now, subject, version)


class TestWorld(ExecutorConformance):
    def make(self) -> ExecutorStage:
        return WorldStage()


TRAINS = """
import punctual, time
for batch in punctual.track(range({n_steps}), epochs=1):
    end = time.process_time() + 0.0005
    while time.process_time() < end: pass
    time.sleep(0.002)
"""


def program_of(fate: Fate, folder: Path) -> Program:
    code = "exit(1)" if fate == "fails" else TRAINS.format(n_steps=N_STEPS if fate == "ends" else 10_000_000)
    return Program(argv=(sys.executable, "-c", code), cwd=str(folder))


class LocalStage(ExecutorStage):
    def __init__(self, folder: Path, actuator: str) -> None:
        context = ExecutorContext(
            node=NODE, runtime_dir=folder / "runtime", actuator=actuator, log_of=lambda _: folder / "output.log"
        )
        executor = LocalExecutor(context)
        super().__init__(executor, NODE)
        self._local = executor
        self._folder = folder

    def now(self) -> float:
        return time.monotonic()

    def program(self, fate: Fate) -> Program:
        return program_of(fate, self._folder)

    def wait_a_little(self) -> None:
        time.sleep(0.02)

    def close(self) -> None:
        self._local.close()
        assert not groups_of(os.getpid())


class ClusterStage(ExecutorStage):
    """Jobs on one node of a cluster."""

    def __init__(self, folder: Path, channel: AgentChannel, generation: int = 1) -> None:
        events: list[Event] = []
        self._cluster = joined_executor({NODE: channel}, events, generation)
        super().__init__(self._cluster, NODE)
        self._cluster.start(self.events.append)
        self._folder = folder

    def now(self) -> float:
        return time.monotonic()

    def program(self, fate: Fate) -> Program:
        return program_of(fate, self._folder)

    def wait_a_little(self) -> None:
        time.sleep(0.02)

    def close(self) -> None:
        self._cluster.close()


class TestAgent(ExecutorConformance):
    @pytest.fixture(autouse=True)
    def agent(self, tmp_path: Path) -> Iterator[None]:
        self._folder, self._agent = tmp_path, new_agent(NODE)
        yield
        self._agent.close()

    def make(self) -> ExecutorStage:
        return ClusterStage(self._folder, direct(self._agent))


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUNCTUAL_HOME", str(tmp_path_factory.mktemp("agent")))
        agent = AgentProcess(AgentOptions(name="kit", node=NODE, actuator="pacing"))
        agent.start()
    yield agent
    if (pid := agent.pid()) is not None:  # it also ends by itself some time after its last host
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not is_alive(pid))


class TestAgentProcess(ExecutorConformance):
    """One process for all tests: each has a host of its own, which takes the agent over from the one before."""

    @pytest.fixture(autouse=True)
    def agent(self, process: AgentProcess, tmp_path: Path) -> None:
        self._folder, self._agent = tmp_path, process

    def make(self) -> ExecutorStage:
        return ClusterStage(self._folder, self._agent, next(GENERATIONS))


class TestLocalPacing(ExecutorConformance):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path

    def make(self) -> ExecutorStage:
        return LocalStage(self._folder, "pacing")


@pytest.mark.cgroup
class TestLocalQuota(ExecutorConformance):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path, quota: str) -> None:
        self._folder, self._quota = tmp_path, quota

    def make(self) -> ExecutorStage:
        return LocalStage(self._folder, self._quota)
