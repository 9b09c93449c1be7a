"""The conformance kit of executors, run against all that there are."""

import os
import sys
import time
from pathlib import Path

import pytest
from tests.executors.conftest import Clock, groups_of
from tests.plants.dry_run import DryRun

from punctual.core.cluster import Node
from punctual.core.ids import NodeId
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.resources import Resources
from punctual.executors.local.executor import LocalExecutor
from punctual.sim.event_queue import FACT, EventQueue
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.truth import Cores
from punctual.sim.world import World
from punctual.testing.executor_kit import N_STEPS, ExecutorConformance, ExecutorStage, Fate

NODE = NodeId("here")


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
        self._world.submit(SimJob(self._now, spec, Cores(step_core_s=0.1), spec.work_steps))

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
    end = time.process_time() + 0.002
    while time.process_time() < end: pass
"""


class LocalStage(ExecutorStage):
    def __init__(self, folder: Path, actuator: str) -> None:
        executor = LocalExecutor(node=NODE, runtime_dir=folder / "runtime", clock=Clock(), actuator=actuator)
        super().__init__(executor, NODE)
        self._local = executor
        self._folder = folder

    def now(self) -> float:
        return time.monotonic()

    def program(self, fate: Fate) -> Program:
        code = "exit(1)" if fate == "fails" else TRAINS.format(n_steps=N_STEPS if fate == "ends" else 10_000_000)
        return Program(argv=(sys.executable, "-c", code), cwd=str(self._folder))

    def wait_a_little(self) -> None:
        time.sleep(0.02)

    def close(self) -> None:
        self._local.close()
        assert not groups_of(os.getpid())


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
