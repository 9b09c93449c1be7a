"""A provider whose machines are agents of this process, and their nodes; a test looks at what is there."""

from collections.abc import Callable, Collection, Mapping, Sequence

from tests.plants.cluster import FixedMembers, direct, new_agent

from punctual.core.ids import NodeId
from punctual.core.pools import PoolSpec
from punctual.daemon.node_agent import NodeAgent
from punctual.executors.cluster.machines import Offer, Started, machine_by_label
from punctual.executors.cluster.node_limits import NodeFacts


class AgentMarket:
    """A market in one process, which outlives hosts.

    Attributes
    ----------
    members
        The nodes, as every host finds them.
    agents
        Agents of the machines that are there.
    started
        Names of all machines that were ever started.
    """

    poll_interval_s = 0.05
    retry_s = 60.0

    def __init__(self, offers: Callable[[], Mapping[str, Offer]]) -> None:
        self._offers = offers
        self.members = FixedMembers({})
        self.agents: dict[NodeId, NodeAgent] = {}
        self.started: list[NodeId] = []

    def offers(self) -> Mapping[str, Offer]:
        return self._offers()

    def start(self, pool: PoolSpec, nodes: Sequence[NodeId]) -> Started:
        for node in nodes:
            self.agents[node] = new_agent(node)
            self.members.add(node, direct(self.agents[node]))
            self.started.append(node)
        return Started(nodes=nodes)

    def end(self, nodes: Collection[NodeId]) -> None:
        for node in nodes:
            self.members.remove(node)
            if (agent := self.agents.pop(node, None)) is not None:
                agent.close()

    def machines(self) -> Collection[NodeId]:
        return list(self.agents)

    def lost(self) -> Mapping[NodeId, str]:
        return {}

    def noticed(self) -> Mapping[NodeId, float]:
        return {}

    def name_of(self, facts: NodeFacts) -> NodeId | None:
        return machine_by_label(facts)

    def close(self, *, for_good: bool) -> None:
        if for_good:
            self.end(list(self.agents))
