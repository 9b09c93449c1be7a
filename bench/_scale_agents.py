"""The agents of many nodes in one process, with jobs that only pretend to run: `python _scale_agents.py N_AGENTS`.

Each is a whole agent, with its folder, but for the executor below it. The process takes the place of the one that talks to Ray.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # the pretended jobs are those of the tests

from tests.plants.dry_run import DryRun

from punctual.core.ids import JobId, NodeId
from punctual.core.resources import Resources, total
from punctual.daemon.node_agent import AgentOptions, NodeAgent
from punctual.executors.cluster.bridge_end import BridgeEnd
from punctual.executors.cluster.channel import Answer, Bundle, Request
from punctual.executors.cluster.link_loop import in_thread
from punctual.executors.cluster.node_limits import NodeFacts
from punctual.executors.job_facts import JobFacts

#: Of a job of four hours that needs a tenth of a core.
STEPS_PER_CORE_S, N_STEPS = 100.0, 144_000


class PretendedJobs(DryRun):
    """Jobs without processes, as an agent needs them."""

    def held(self) -> dict[JobId, Resources]:
        return {job: total(pretence.granted.values()) for job, pretence in list(self._jobs.items())}

    def renew(self, _: object) -> None: ...

    def facts(self, _: JobId) -> JobFacts:
        return JobFacts()

    def release(self) -> None: ...

    def close(self) -> None:
        self._jobs.clear()


class PretendingAgent(NodeAgent):
    def _adopting(self) -> PretendedJobs:  # type: ignore[override]
        return PretendedJobs(steps_per_core_s=STEPS_PER_CORE_S, n_steps=N_STEPS)


class PretendingAgents:
    """The agents, as the process that talks to Ray has them."""

    def __init__(self, n_agents: int) -> None:
        nodes = [NodeId(f"node-{i:03d}") for i in range(n_agents)]
        self._agents = {node: PretendingAgent(AgentOptions(name=f"scale-{node}", node=node)) for node in nodes}
        self._nodes: dict[str, NodeFacts] = {
            node: NodeFacts(id=node, host=node, address="", cores=1.0, gpus=0.0) for node in nodes
        }

    def nodes(self) -> Mapping[str, NodeFacts]:
        return self._nodes

    async def ask(self, id: str, name: NodeId, request: Request, limit_s: float) -> Answer:
        return await in_thread(self._agents[name].answer, request)

    def request(self, bundles: Sequence[Bundle]) -> None: ...

    def close(self, *, for_good: bool) -> None: ...


if __name__ == "__main__":
    sys.exit(BridgeEnd(partial(PretendingAgents, int(sys.argv[1])), "the agents are away").run())
