"""How a host talks to many nodes: one thread for all of them, and no more requests than there is reason for."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from tests.waiting import wait_until

from punctual.core.commands import LaunchJob
from punctual.core.events import Event, JobFailed, NodeJoined, NodeLost, NodeNoticed
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.executors.cluster import executor as cluster_executor
from punctual.executors.cluster.channel import Answer, ChannelLost, NodeChannel, Request, encode_message
from punctual.executors.cluster.executor import ClusterExecutor
from punctual.executors.cluster.link_loop import LinkLoop, in_thread
from punctual.executors.cluster.node_limits import NameOf
from punctual.executors.cluster.poll_schedule import PollSchedule

A, B = NodeId("node-a"), NodeId("node-b")
ONE = Resources(1.0)
JOB, OTHER = JobId("job"), JobId("other")


def launch(request: int) -> LaunchJob:
    now = time.monotonic()
    return LaunchJob(
        at=now, job=JOB, request=request, spec=JobSpec(id=JOB, ceiling=ONE), grant={A: ONE},
        reason=Reason("test", "a test wants it"), program=Program(argv=("true",)), submitted_at=now,
    )  # fmt: skip


class QuietNode:
    """An agent without jobs, which notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.is_there = True
        self.ends_at: float | None = None

    async def ask(self, request: Request, limit_s: float) -> Answer:
        if not self.is_there:
            raise ChannelLost("it is gone")
        self.asked.append(request)
        if request["verb"] == "poll":
            await asyncio.sleep(min(request["wait_s"], 0.05))
        now = time.monotonic()
        told: dict[str, Any] = {"received": now, "sent": now, "incarnation": "1", "device": "", "holds": {}, "held": {}}
        return {
            **told, "capacity": {"cores": 2.0, "gpus": 0, "memory_bytes": 0}, "is_empty": True, "last": 0,
            "events": [], "reports": [], "output": [], "facts": {}, "ends_at": self.ends_at,
        }  # fmt: skip


class Nodes:
    """Those that a test puts in and takes out."""

    def __init__(self, nodes: Mapping[NodeId, QuietNode]) -> None:
        self.nodes = dict(nodes)
        self.failure: Exception | None = None
        self.n_looks = 0

    def open(self, loop: LinkLoop, name_of: NameOf | None) -> None: ...

    def channels(self) -> Mapping[NodeId, NodeChannel]:
        self.n_looks += 1
        if self.failure is not None:
            raise self.failure
        return {name: node.ask for name, node in self.nodes.items()}

    def close(self, *, for_good: bool) -> None: ...


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    monkeypatch.setattr(cluster_executor, "_POLL_INTERVAL_S", 0.02)
    with ExitStack() as stack:
        yield stack


def joined(
    closing: ExitStack, members: Any, n_nodes: int, lost_after_s: float = 60.0
) -> tuple[ClusterExecutor, list[Event]]:
    events: list[Event] = []
    executor = ClusterExecutor(members, generation=1, lost_after_s=lost_after_s)
    closing.callback(executor.close)
    executor.start(events.append)
    wait_until(lambda: len([event for event in events if isinstance(event, NodeJoined)]) == n_nodes)
    return executor, events


def test_more_nodes_take_no_more_threads(closing: ExitStack) -> None:
    before = threading.active_count()
    joined(closing, Nodes({NodeId(f"node-{i}"): QuietNode() for i in range(30)}), 30)
    assert threading.active_count() <= before + 2


def test_a_node_without_jobs_is_asked_for_reports_rarely(closing: ExitStack) -> None:
    node = QuietNode()
    joined(closing, Nodes({A: node}), 1, lost_after_s=60.0)
    polls = wait_until(lambda: [request for request in node.asked if request["verb"] == "poll"])
    assert {request["wait_s"] for request in polls} == {2.0}


def test_a_node_reports_as_often_as_the_job_needs_it_that_is_looked_at_most_often() -> None:
    looks = PollSchedule(0.1, 2.0)
    assert looks.wait_s(A) == 2.0, "nothing is there"
    looks.looked(A, JOB, 10.0)
    assert looks.wait_s(A) == 0.1, "how often it will be looked at is not known"
    looks.looked(A, JOB, 12.0)
    assert looks.wait_s(A) == 0.5
    looks.looked(A, OTHER, 20.0)
    looks.looked(A, OTHER, 20.2)
    assert looks.wait_s(A) == 0.1
    looks.forget(A, OTHER)
    assert looks.wait_s(A) == 0.5


def test_a_node_that_is_lost_and_leaves_and_comes_back_is_to_have_nothing_left(closing: ExitStack) -> None:
    node = QuietNode()
    members = Nodes({A: node})
    _, events = joined(closing, members, 1, lost_after_s=0.3)
    node.is_there = False
    wait_until(lambda: any(isinstance(event, NodeLost) for event in events))
    members.nodes.clear()
    n_looks = members.n_looks
    wait_until(lambda: members.n_looks > n_looks + 2)
    node.asked.clear()
    node.is_there = True
    members.nodes[A] = node
    greeting = wait_until(lambda: node.asked)[0]
    assert (greeting["verb"], greeting["reset"], greeting["generation"]) == ("greet", True, [1, 1])


def resuming(closing: ExitStack, nodes: Mapping[NodeId, QuietNode], lost_after_s: float = 60.0) -> ClusterExecutor:
    """The executor of a host that has come back and knows these nodes."""
    executor = ClusterExecutor(
        Nodes(nodes), generation=2, known=nodes, lost_after_s=lost_after_s  # type: ignore[arg-type]
    )  # fmt: skip
    closing.callback(executor.close)
    return executor


def test_a_node_that_did_not_answer_a_host_that_has_come_back_is_to_have_nothing_left_if_it_answers_later(
    closing: ExitStack,
) -> None:
    node = QuietNode()
    node.is_there = False
    held, events = resuming(closing, {A: node}, lost_after_s=0.3).resume()
    assert (held, [event.node for event in events if isinstance(event, NodeLost)]) == ({}, [A])
    node.is_there = True
    greeting = wait_until(lambda: node.asked)[0]
    assert (greeting["verb"], greeting["reset"], greeting["generation"]) == ("greet", True, [2, 1])


class FormerNode(QuietNode):
    """A node of an earlier host, which has started a job there; it has moved the job elsewhere if that does not run here."""

    def __init__(self, *, runs: bool) -> None:
        super().__init__()
        self.may_answer, self._runs = threading.Event(), runs

    async def ask(self, request: Request, limit_s: float) -> Answer:
        if not self.may_answer.is_set():
            raise ChannelLost("it is slow")
        answer, at = await super().ask(request, limit_s), time.monotonic()
        amount = {"cores": 1.0, "gpus": 0, "memory_bytes": 0} if self._runs else None
        moved = JobFailed(at=at, job=JOB, cause="it was moved", retryable=True, is_stopped=True)
        untold = [] if self._runs or request.get("seen") else [[1, encode_message(moved)]]
        return {**answer, "held": {JOB: [amount, encode_message(launch(0))]}, "events": untold}


@pytest.mark.parametrize("is_first", [False, True], ids=["after", "before"])
def test_a_job_that_was_moved_is_found_where_it_runs_whether_the_node_of_before_answers_before_or_after(
    closing: ExitStack, is_first: bool
) -> None:
    former, present = FormerNode(runs=False), FormerNode(runs=True)
    executor = resuming(closing, {A: former, B: present})
    with ThreadPoolExecutor() as threads:
        resumed = threads.submit(executor.resume)
        for node in (former, present) if is_first else (present, former):
            node.may_answer.set()
            wait_until(lambda: [asked["verb"] for asked in node.asked].count("poll") > 1)  # noqa: B023 -- called at once
        held, events = resumed.result()
    assert held == {JOB: {B: ONE}}
    assert not any(isinstance(event, JobFailed) for event in events)


class ObedientNode(QuietNode):
    """Obeys the newest that it has heard of alone, and does not answer its first command before it is `released`."""

    def __init__(self) -> None:
        super().__init__()
        self.newest = [0, 0]
        self.released = threading.Event()

    async def ask(self, request: Request, limit_s: float) -> Answer:
        if request["generation"] < self.newest:
            return {"superseded": self.newest}
        answer = await super().ask(request, limit_s)
        self.newest = request["generation"]
        if request["verb"] == "do" and not self.released.is_set():
            await in_thread(self.released.wait)
            raise ChannelLost("it has taken too long")
        return answer


def test_a_command_on_its_way_when_its_node_is_lost_holds_up_none_of_those_that_follow(closing: ExitStack) -> None:
    node = ObedientNode()
    executor, events = joined(closing, Nodes({A: node}), 1, lost_after_s=0.3)
    executor.perform(launch(1), events.append)
    wait_until(lambda: any(request["verb"] == "do" for request in node.asked))
    node.is_there = False
    wait_until(lambda: any(isinstance(event, NodeLost) for event in events))
    node.is_there = True
    wait_until(lambda: [type(event) for event in events].count(NodeJoined) == 2)
    node.released.set()
    executor.perform(launch(2), events.append)
    wait_until(lambda: [1, 1] in [request["generation"] for request in node.asked if request["verb"] == "do"])


class GarblingNode(QuietNode):
    """An agent whose first answer to a command is none."""

    async def ask(self, request: Request, limit_s: float) -> Answer:
        answer = await super().ask(request, limit_s)
        n_commands = [asked["verb"] for asked in self.asked].count("do")
        return {} if request["verb"] == "do" and n_commands == 1 else answer


def test_a_command_whose_answer_is_none_of_an_agent_is_said_again(closing: ExitStack) -> None:
    node = GarblingNode()
    executor, events = joined(closing, Nodes({A: node}), 1)
    executor.perform(launch(1), events.append)
    wait_until(lambda: [asked["verb"] for asked in node.asked].count("do") == 2)


class FailingNode(QuietNode):
    """An agent whose first job fails as soon as it is launched."""

    async def ask(self, request: Request, limit_s: float) -> Answer:
        answer = await super().ask(request, limit_s)
        is_launched = any(asked["verb"] == "do" for asked in self.asked)
        if request["verb"] != "poll" or not is_launched or request["seen"]:
            return answer
        failed = JobFailed(at=time.monotonic(), job=JOB, cause="it may", retryable=True)
        return {**answer, "events": [[1, encode_message(failed)]]}


def test_a_launch_that_answers_a_failure_says_that_the_host_has_heard_of_it(closing: ExitStack) -> None:
    node = FailingNode()
    executor, _ = joined(closing, Nodes({A: node}), 1)

    def again(event: Event) -> None:
        if isinstance(event, JobFailed):
            executor.perform(launch(2), again)

    executor.perform(launch(1), again)
    launches = wait_until(lambda: (found := [asked for asked in node.asked if asked["verb"] == "do"])[1:] and found)
    assert [asked["seen"] for asked in launches] == [0, 1]


class NewerNode(FailingNode):
    """It tells of its failure behind messages that this version does not know."""

    async def ask(self, request: Request, limit_s: float) -> Answer:
        answer = await super().ask(request, limit_s)
        events = [[number + 1, sent] for number, sent in answer["events"]]
        unknown = ["JobComposed", "{}"]
        return {**answer, "events": events and [[1, unknown], *events], "reports": [unknown]}


def test_messages_that_cannot_be_read_are_left_out_and_told(
    closing: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    executor, events = joined(closing, Nodes({A: NewerNode()}), 1)
    executor.perform(launch(1), events.append)
    wait_until(lambda: any(isinstance(event, JobFailed) for event in events))
    assert caplog.text.count("node 'node-a' sends what cannot be read, and is left out") == 1


class RestartedNode(QuietNode):
    """A machine whose clock shows `shift_s` more than that of the host, and that takes a while to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.shift_s, self.incarnation, self.takes_s = 0.0, "1", 0.0

    async def ask(self, request: Request, limit_s: float) -> Answer:
        shift_s, incarnation, takes_s = self.shift_s, self.incarnation, self.takes_s
        await asyncio.sleep(takes_s)
        answer = await super().ask(request, limit_s)
        await asyncio.sleep(takes_s)
        answer |= {name: answer[name] + shift_s for name in ("received", "sent")}
        return {**answer, "incarnation": incarnation}


def test_a_notice_is_an_instant_of_the_node_s_clock(closing: ExitStack) -> None:
    node = RestartedNode()
    node.shift_s = 1000.0
    _, events = joined(closing, Nodes({A: node}), 1)
    before = time.monotonic()
    node.ends_at = before + 1030.0
    (noticed,) = wait_until(lambda: [event for event in events if isinstance(event, NodeNoticed)])
    assert noticed.ends_at is not None
    assert before + 20.0 < noticed.ends_at < before + 40.0


def test_the_clock_of_a_machine_that_was_started_again_is_another_one(closing: ExitStack) -> None:
    node = RestartedNode()
    executor, _ = joined(closing, Nodes({A: node}), 1)
    node.shift_s, node.incarnation, node.takes_s = -1000.0, "2", 0.01
    wait_until(lambda: abs(executor._links[A]._offset.offset_s + 1000.0) < 100.0)


def test_a_cluster_that_is_away_is_told_once_in_words_and_the_nodes_go_on(
    closing: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    node = QuietNode()
    members = Nodes({A: node})
    _, events = joined(closing, members, 1)
    members.failure = ChannelLost("start it again")
    n_looks, n_asked = members.n_looks, len(node.asked)
    wait_until(lambda: members.n_looks > n_looks + 3 and len(node.asked) > n_asked + 1)
    members.failure = None
    n_looks = members.n_looks
    wait_until(lambda: members.n_looks > n_looks + 2)
    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == ["start it again", "the cluster answers again"]
    assert not any(isinstance(event, NodeLost) for event in events)


def test_a_loop_that_is_closed_does_nothing_any_more() -> None:
    loop = LinkLoop()
    seen: list[int] = []
    began = loop.begin(asyncio.sleep(100.0))
    loop.close(10.0)
    loop.close(10.0)
    loop.call(seen.append, 1)
    assert began.cancelled()
    assert loop.begin(asyncio.sleep(0.0)).done()
    assert not seen


def test_what_a_thread_raises_is_raised_where_it_is_awaited() -> None:
    loop = LinkLoop()
    with pytest.raises(ZeroDivisionError):
        loop.begin(in_thread(divmod, 1, 0)).result(60.0)
    assert loop.begin(in_thread(divmod, 7, 2)).result(60.0) == (3, 1)
    loop.close(10.0)
