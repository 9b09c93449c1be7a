"""The agents of `bench/ray_cluster.py --part scale` must answer as those of nodes do."""

import time

from _scale_agents import PretendingAgent
from tests.plants.cluster import direct, joined_executor
from tests.waiting import wait_until

from punctual.core.commands import LaunchJob
from punctual.core.events import Event, ProgressReported
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.daemon.node_agent import AgentOptions

NODE, JOB = NodeId("node"), JobId("job")


def test_a_job_that_only_pretends_to_run_tells_its_steps_to_the_host() -> None:
    events: list[Event] = []
    agent = PretendingAgent(AgentOptions(name="scale-node", node=NODE))
    executor = joined_executor({NODE: direct(agent)}, events)
    launch = LaunchJob(
        at=time.monotonic(), job=JOB, request=1, spec=JobSpec(id=JOB, ceiling=Resources(1.0), controller=None),
        grant={NODE: Resources(0.5)}, reason=Reason("test", "a test wants it"), program=Program(argv=("true",), cwd="/"),
        submitted_at=time.monotonic(),
    )  # fmt: skip
    executor.perform(launch, events.append)

    def n_steps() -> float:
        executor.observe(JOB, time.monotonic(), events.append)
        return max((event.steps_done for event in events if isinstance(event, ProgressReported)), default=0)

    wait_until(lambda: n_steps() > 0)
    executor.close()
    agent.close()
