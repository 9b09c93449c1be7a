"""Machines of pools on a cluster: a provider is asked for them, and what becomes of them is told."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from tests.executors.test_many_nodes import Nodes, QuietNode
from tests.waiting import wait_until

from punctual.core.commands import AskMachines, ReleaseMachines
from punctual.core.events import (
    Event,
    MachinesAsked,
    MachinesRefused,
    NodeJoined,
    NodeLost,
    NodeNoticed,
    NodeWarned,
    PoolOffered,
)
from punctual.core.ids import NodeId
from punctual.core.pools import HeldMachines, PoolSpec
from punctual.core.resources import Resources
from punctual.executors.cluster import executor as cluster_executor
from punctual.executors.cluster.executor import ClusterExecutor
from punctual.executors.cluster.link_loop import LinkLoop
from punctual.executors.cluster.machines import MACHINE_LABEL, MachinesUnknown, Offer, Started, machine_by_label
from punctual.executors.cluster.node_limits import NameOf, NodeFacts

SPEC = PoolSpec(name="spot", capacity=Resources(cores=1.0), device="fast", market="spot", most=5)
FIRST, SECOND, THIRD = (NodeId(f"spot-{i}") for i in range(3))


class NamedNodes(Nodes):
    """Nodes of which some have the label of a machine."""

    def open(self, loop: LinkLoop, name_of: NameOf | None) -> None:
        assert name_of is not None
        self.name_of = name_of

    def add(self, label: str) -> QuietNode:
        """Have a machine join."""
        facts = NodeFacts(id=label, host="host", address="", cores=4.0, gpus=0.0, labels={MACHINE_LABEL: label})
        named = self.name_of(facts)
        assert named is not None
        node = QuietNode()
        self.nodes[named[0]] = node
        return node


class Cloud:
    """A provider whose machines join when they are started, or when a test says so."""

    poll_interval_s = 0.02
    retry_s = 60.0

    def __init__(self, members: NamedNodes, *, joins: bool = True) -> None:
        self.members, self.joins = members, joins
        self.price_usd_h, self.obtainable = 1.0, 3
        self.running: list[NodeId] = []
        self.ended: list[NodeId] = []
        self.causes: dict[NodeId, str] = {}
        self.notices: dict[NodeId, float] = {}
        self.failure: Exception | None = None
        #: Why it does not tell of its machines.
        self.silence: Exception | None = None
        self.n_orders = self.n_looks = 0
        #: Set if it answers orders.
        self.answer = threading.Event()
        self.answer.set()
        self.closed: bool | None = None

    def _try(self) -> None:
        if self.failure is not None:
            raise self.failure

    def offers(self) -> Mapping[str, Offer]:
        return {
            "spot": Offer(
                spec=SPEC, price_usd_h=self.price_usd_h, obtainable=self.obtainable, seen=((60.0, 2.0, 0), (30.0, 1.0, 2))
            )
        }  # fmt: skip

    def start(self, pool: PoolSpec, nodes: Sequence[NodeId]) -> Started:
        self.n_orders += 1
        self.answer.wait()
        self._try()
        started = nodes[: self.obtainable - len(self.running)]
        self.running += started
        for node in started if self.joins else ():
            self.members.add(node)
        return Started(nodes=started, cause="sold out")

    def end(self, nodes: Collection[NodeId]) -> None:
        self._try()
        self.ended += nodes
        self.running = [node for node in self.running if node not in nodes]

    def machines(self) -> Collection[NodeId]:
        self.n_looks += 1
        if self.silence is not None:
            raise self.silence
        return list(self.running)

    def lost(self) -> Mapping[NodeId, str]:
        lost, self.causes = self.causes, {}
        return lost

    def noticed(self) -> Mapping[NodeId, float]:
        return self.notices

    def name_of(self, facts: NodeFacts) -> NodeId | None:
        return machine_by_label(facts)

    def close(self, *, for_good: bool) -> None:
        self.closed = for_good


class ShiftedClock:
    """A clock that a test puts forward."""

    shift_s = 0.0

    def now(self) -> float:
        return time.monotonic() + self.shift_s


class Stage:
    """An executor with a provider."""

    def __init__(self, cloud: Cloud, closing: ExitStack, **options: Any) -> None:
        self.events: list[Event] = []
        self.clock = ShiftedClock()
        self.executor = ClusterExecutor(
            cloud.members, generation=1, now=self.clock.now, provider=cloud, **options  # type: ignore[arg-type]
        )  # fmt: skip
        closing.callback(self.executor.close)

    def start(self) -> "Stage":
        self.executor.start(self.events.append)
        return self

    def ask(self, n: int) -> None:
        command = AskMachines(at=0.0, pool="spot", n_machines=n)
        self.executor.perform(command, self.events.append)

    def release(self, *nodes: NodeId) -> None:
        self.executor.perform(ReleaseMachines(at=0.0, pool="spot", nodes=nodes), self.events.append)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def until(self, kind: type[Event], n: int = 1) -> list[Any]:
        wait_until(lambda: len(self.of(kind)) >= n)
        return self.of(kind)


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    monkeypatch.setattr(cluster_executor, "_POLL_INTERVAL_S", 0.02)
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(NamedNodes({}))


@pytest.fixture
def stage(cloud: Cloud, closing: ExitStack) -> Stage:
    return Stage(cloud, closing).start()


def test_pools_are_offered_with_what_was_seen_of_them_and_then_on_change(stage: Stage, cloud: Cloud) -> None:
    cloud.price_usd_h = 5.0
    wait_until(lambda: stage.of(PoolOffered)[-1].price_usd_h == 5.0)
    cloud.obtainable = 1
    wait_until(lambda: stage.of(PoolOffered)[-1].obtainable == 1)
    offers = stage.of(PoolOffered)
    assert [(event.price_usd_h, event.obtainable) for event in offers] == [
        (2.0, 0),
        (1.0, 2),
        (1.0, 3),
        (5.0, 3),
        (5.0, 1),
    ]
    assert offers[2].at - offers[0].at == pytest.approx(60.0)


def test_machines_that_are_asked_for_join_and_released_ones_are_lost_and_no_name_is_used_twice(
    stage: Stage, cloud: Cloud
) -> None:
    stage.ask(2)
    joined = stage.until(NodeJoined, 2)
    assert {event.node for event in joined} == {FIRST, SECOND}
    kinds = [type(event) for event in stage.events]
    assert kinds.index(MachinesAsked) < kinds.index(NodeJoined)
    stage.release(SECOND)
    (lost,) = stage.until(NodeLost)
    assert (lost.node, cloud.ended, stage.of(NodeWarned)) == (SECOND, [SECOND], [])
    stage.ask(1)
    assert stage.until(MachinesAsked, 2)[-1].nodes == (THIRD,)


def test_more_than_can_be_had_are_refused_with_the_cause(stage: Stage, cloud: Cloud) -> None:
    stage.ask(5)
    (refused,) = stage.until(MachinesRefused)
    assert (refused.n_machines, refused.cause) == (2, "sold out")
    assert [len(event.nodes) for event in stage.of(MachinesAsked)] == [3]


def test_an_order_that_fails_is_refused_and_the_pool_is_offered_again_after_a_while(stage: Stage, cloud: Cloud) -> None:
    cloud.failure, cloud.retry_s = ConnectionError("no way there"), 0.2
    stage.ask(1)
    (refused,) = stage.until(MachinesRefused)
    assert refused.cause == "ConnectionError: no way there"
    assert refused.again_at - refused.at == pytest.approx(0.2, abs=0.1)
    cloud.failure = None
    n_offers = len(stage.of(PoolOffered))
    assert stage.until(PoolOffered, n_offers + 1)[-1].obtainable == 3, "else it would never be asked again"
    stage.ask(1)
    assert stage.until(MachinesAsked)[0].nodes == (FIRST,)


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (MachinesUnknown("the cloud does not answer"), "the cloud does not answer"),
        (KeyError("quota"), "their provider does not tell of them (KeyError: 'quota')"),
    ],
)
def test_a_provider_that_does_not_answer_is_the_cause_until_it_does(
    cloud: Cloud, closing: ExitStack, failure: Exception, cause: str
) -> None:
    cloud.silence = failure
    closing.enter_context(pytest.MonkeyPatch.context()).setattr(cluster_executor, "_FIRST_S_MAX", 0.2)
    stage = Stage(cloud, closing).start()
    (refused,) = stage.until(MachinesRefused)
    assert (refused.n_machines, refused.cause, refused.again_at) == (0, cause, None)
    assert stage.of(PoolOffered)[-1].obtainable == 0
    stage.ask(1)
    assert stage.until(MachinesRefused, 2)[-1].cause == cause
    assert cloud.n_orders == 0
    cloud.silence = None
    wait_until(lambda: stage.of(PoolOffered)[-1].obtainable == 3)
    cloud.silence = failure
    assert stage.until(MachinesRefused, 3)[-1].cause == cause
    cloud.silence = None
    wait_until(lambda: stage.of(PoolOffered)[-1].obtainable == 3)


def test_a_machine_that_is_gone_is_lost_at_once_and_its_users_are_told_why(stage: Stage, cloud: Cloud) -> None:
    stage.ask(2)
    stage.until(NodeJoined, 2)
    cloud.causes[FIRST] = "it was taken away"
    cloud.running.remove(FIRST)
    (lost,) = stage.until(NodeLost)
    (warned,) = stage.of(NodeWarned)
    assert lost.node == warned.node == FIRST
    assert "is lost: it was taken away" in warned.reason.text
    cloud.running.remove(SECOND)
    assert stage.until(NodeLost, 2)[-1].node == SECOND


def test_a_node_that_does_not_answer_is_lost_and_its_machine_is_ended(cloud: Cloud, closing: ExitStack) -> None:
    stage = Stage(cloud, closing, lost_after_s=0.3).start()
    stage.ask(1)
    stage.until(NodeJoined)
    node: Any = cloud.members.nodes[FIRST]
    node.is_there = False
    stage.until(NodeLost)
    wait_until(lambda: cloud.ended == [FIRST])
    node.is_there = True
    n_looks = cloud.members.n_looks
    wait_until(lambda: cloud.members.n_looks > n_looks + 3)
    assert len(stage.of(NodeJoined)) == 1, "it is not used again"


def test_a_notice_is_told_with_its_end(stage: Stage, cloud: Cloud) -> None:
    stage.ask(1)
    stage.until(NodeJoined)
    cloud.notices[FIRST] = time.time() + 60.0
    (noticed,) = stage.until(NodeNoticed)
    assert noticed.node == FIRST
    assert noticed.ends_at - noticed.at == pytest.approx(60.0, abs=30.0)
    wait_until(lambda: len(cloud.members.nodes) == 1)
    assert len(stage.of(NodeNoticed)) == 1


def test_a_notice_of_a_machine_that_starts_is_told_once_it_has_joined(stage: Stage, cloud: Cloud) -> None:
    cloud.joins = False
    stage.ask(1)
    stage.until(MachinesAsked)
    cloud.notices[FIRST] = time.time() + 600.0
    n_looks = cloud.n_looks
    wait_until(lambda: cloud.n_looks > n_looks + 3)
    assert not stage.of(NodeNoticed)
    cloud.members.add(FIRST)
    (noticed,) = stage.until(NodeNoticed)
    assert noticed.at >= stage.of(NodeJoined)[0].at


def test_a_notice_that_a_provider_takes_back_is_withdrawn(stage: Stage, cloud: Cloud) -> None:
    stage.ask(1)
    stage.until(NodeJoined)
    cloud.notices[FIRST] = time.time() + 600.0
    stage.until(NodeNoticed)
    cloud.notices.clear()
    wait_until(lambda: len(stage.of(NodeNoticed)) == 2)
    assert stage.of(NodeNoticed)[-1].ends_at is None


def test_a_machine_that_cannot_be_started_is_not_asked_for_at_once_again(cloud: Cloud, closing: ExitStack) -> None:
    cloud.joins = False
    stage = Stage(cloud, closing).start()
    stage.ask(1)
    stage.until(MachinesAsked)
    cloud.running.clear()
    stage.until(NodeLost)
    stage.ask(1)
    cause = "its provider has it no more"
    first, second = stage.until(MachinesRefused, 2)
    assert (first.n_machines, first.cause, second.cause) == (1, cause, cause)
    assert second.again_at == first.again_at
    assert first.again_at - first.at == pytest.approx(60.0, abs=1.0)
    assert stage.of(PoolOffered)[-1].obtainable == 0
    assert cloud.n_orders == 1


def test_machines_that_never_come_are_refused_together_after_what_is_offered_and_lost_is_told(
    cloud: Cloud, closing: ExitStack
) -> None:
    cloud.joins = False
    stage = Stage(cloud, closing).start()
    stage.ask(3)
    stage.until(MachinesAsked)
    cloud.causes |= dict.fromkeys([FIRST, SECOND], "the quota is used up")
    (refused,) = stage.until(MachinesRefused)
    assert (refused.n_machines, refused.cause) == (2, "the quota is used up")
    assert [type(event) for event in stage.events if not isinstance(event, NodeWarned)][-4:] == [
        PoolOffered,
        NodeLost,
        NodeLost,
        MachinesRefused,
    ]
    assert stage.of(PoolOffered)[-1].obtainable == 1, "else the kernel would order at once what was lost"


def test_machines_of_an_earlier_host_go_on_and_others_are_lost_or_ended(cloud: Cloud, closing: ExitStack) -> None:
    cloud.running += [FIRST, NodeId("spot-9")]
    held = {"spot": HeldMachines((FIRST, SECOND), 4)}
    stage = Stage(cloud, closing, known=[FIRST, SECOND], held=held)
    cloud.members.add(FIRST)
    _, events = stage.executor.resume()
    assert [event.node for event in events if isinstance(event, NodeLost)] == [SECOND]
    stage.start()
    assert [event.node for event in events if isinstance(event, NodeJoined)] == [FIRST]
    wait_until(lambda: cloud.ended == [NodeId("spot-9")])
    assert (cloud.running, cloud.n_orders) == ([FIRST], 0)
    stage.ask(1)
    assert stage.until(MachinesAsked)[0].nodes == (NodeId("spot-10"),), "the other may still be ending"


def test_a_machine_that_was_asked_for_and_never_joins_is_given_up_and_ended(cloud: Cloud, closing: ExitStack) -> None:
    cloud.joins = False
    stage = Stage(cloud, closing).start()
    stage.ask(1)
    stage.until(MachinesAsked)
    stage.clock.shift_s = 601.0
    stage.until(NodeLost)
    (refused,) = stage.until(MachinesRefused)
    assert refused.cause == "it has not joined within 10 min"
    wait_until(lambda: cloud.ended == [FIRST])


def test_it_is_told_that_no_machine_is_left_only_where_that_is_known(
    cloud: Cloud, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def end(stage: Stage) -> None:
        stage.executor.close()
        told.append("closed")

    end(Stage(cloud, closing, on_machines_ended=lambda: told.append("none is left")).start())
    monkeypatch.setattr(cluster_executor, "_END_S_MAX", 0.3)
    stage = Stage(cloud, closing, on_machines_ended=lambda: told.append("wrong")).start()
    cloud.answer.clear()
    stage.ask(1)
    wait_until(lambda: cloud.n_orders == 1)
    end(stage)  # an order is under way
    cloud.answer.set()
    assert told == ["none is left", "closed", "closed"]


def test_a_node_with_the_name_of_no_machine_that_was_asked_for_is_not_used(stage: Stage, cloud: Cloud) -> None:
    cloud.members.add("spot-5")
    n_looks = cloud.members.n_looks
    wait_until(lambda: cloud.members.n_looks > n_looks + 3)
    assert not stage.of(NodeJoined)


def test_a_release_that_fails_is_repeated_and_told_when_the_machine_is_gone(stage: Stage, cloud: Cloud) -> None:
    stage.ask(1)
    stage.until(NodeJoined)
    cloud.failure = ConnectionError("no way there")
    stage.release(FIRST)
    stage.release(THIRD)
    assert not stage.of(NodeLost)
    cloud.failure = None
    assert {event.node for event in stage.until(NodeLost, 2)} == {FIRST, THIRD}, "also of one that there is not"


@pytest.mark.parametrize(("leave", "for_good"), [(ClusterExecutor.close, True), (ClusterExecutor.release, False)])
def test_machines_are_ended_with_the_host_unless_another_one_goes_on(
    stage: Stage, cloud: Cloud, leave: Callable[[ClusterExecutor], None], for_good: bool
) -> None:
    stage.ask(1)
    stage.until(NodeJoined)
    leave(stage.executor)
    assert cloud.closed == for_good
    assert [event.node for event in stage.of(NodeLost)] == ([FIRST] if for_good else [])


def test_a_machine_has_the_limits_and_the_kind_of_its_pool(stage: Stage, cloud: Cloud) -> None:
    stage.ask(1)
    stage.until(MachinesAsked)
    named = cloud.members.name_of(
        NodeFacts(id="a", host="", address="", cores=9.0, gpus=0.0, labels={MACHINE_LABEL: FIRST})
    )
    assert named is not None
    assert (named[1].cores, named[1].device) == (1.0, "fast")
    assert cloud.members.name_of(NodeFacts(id="b", host="", address="", cores=9.0, gpus=0.0)) is None
