"""The agents of many nodes in one process, with jobs that only pretend to run: `python _scale_agents.py N_AGENTS`.

Each is a whole agent, with its folder and its Unix socket, but for the executor below it. It prints a line when all answer,
and ends with its standard input.
"""

import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # the pretended jobs are those of the tests

from _scale_nodes import agent_name, node_name
from tests.plants.dry_run import DryRun

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.resources import Resources, total
from punctual.runtime.control_socket import ControlSocket
from punctual.runtime.node_agent import AgentOptions, NodeAgent
from punctual.runtime.run_folder import agent_run

#: Of a job of four hours that needs a tenth of a core.
STEPS_PER_CORE_S, N_STEPS = 100.0, 144_000


class PretendedJobs(DryRun):
    """Jobs without processes, as an agent needs them."""

    def held(self) -> dict[JobId, Resources]:
        return {job: total(pretence.granted.values()) for job, pretence in list(self._jobs.items())}

    def renew(self, _: object) -> None: ...

    def worker_status(self, _: JobId) -> None: ...

    def faults(self, _: JobId) -> list[InvalidSpec]:
        return []

    def release(self) -> None: ...

    def close(self) -> None:
        self._jobs.clear()


class PretendingAgent(NodeAgent):
    def _adopting(self) -> PretendedJobs:  # type: ignore[override]
        return PretendedJobs(steps_per_core_s=STEPS_PER_CORE_S, n_steps=N_STEPS)


def main(n_agents: int) -> None:
    with ExitStack() as stack:
        for i in range(n_agents):
            agent = PretendingAgent(AgentOptions(name=agent_name(i), node=node_name(i)))
            stack.callback(agent.close)
            stack.enter_context(ControlSocket(agent_run(agent_name(i)).socket, agent.answer))
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]))
