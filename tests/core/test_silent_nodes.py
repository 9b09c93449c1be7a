"""What an executor finds out about a node is told to the jobs there, and to no others."""

from tests.core.desk import HERE, A, B, Desk, cores

from punctual.core.codec import decode, encode
from punctual.core.commands import WarnUser
from punctual.core.events import Event, NodeJoined, NodeLost, NodeWarned
from punctual.core.ids import NodeId
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.status import StatusBoard

THERE = NodeId("there")


class Told(Desk):
    """A desk with two nodes, a job on each, and the board that follows it."""

    def __init__(self) -> None:
        self.board = StatusBoard()
        super().__init__()
        self.tell(NodeJoined(at=0.0, node=THERE, capacity=Resources(cores=2)))
        self.run(A, 1.0)
        self.submit(B)
        self.started(self.plan({A: cores(1.0), B: {THERE: Resources(cores=1.0)}})[-1])

    def tell(self, event: Event) -> list[object]:  # type: ignore[override]
        commands = super().tell(event)
        for message in (event, *commands):
            self.board.fold(message)
        return commands  # type: ignore[return-value]

    def warn(self, code: str, at: float, node: NodeId = THERE) -> list[tuple[str | None, str]]:
        """Which jobs are told that something is so of a node, and what."""
        commands = self.tell(NodeWarned(at=at, node=node, reason=Reason(code, f"it is {code}")))
        return [(command.job, command.reason.code) for command in commands if isinstance(command, WarnUser)]

    def warnings(self) -> dict[str, list[str]]:
        return {job: sorted(self.board.job(job).warnings) for job in (A, B)}


def test_the_jobs_of_a_silent_node_are_told_each_time_and_it_is_over_when_it_answers() -> None:
    desk = Told()
    for at in (1.0, 2.0):
        assert desk.warn("silent-node", at) == [("b", "silent-node")]
        assert desk.warnings() == {"a": [], "b": ["silent-node"]}
        assert desk.warn("node-answers", at + 0.5) == [("b", "node-answers")]
        assert desk.warnings() == {"a": [], "b": []}


def test_a_node_that_is_lost_is_told_before_its_jobs_wait_for_another() -> None:
    desk = Told()
    desk.warn("silent-node", 1.0)
    assert desk.warn("lost-node", 90.0) == [("b", "lost-node")]
    desk.tell(NodeLost(at=90.0, node=THERE))
    assert desk.warnings() == {"a": [], "b": []}
    assert desk.board.job(B).state == "queued"


def test_a_node_that_is_silent_is_as_slow_as_it_was() -> None:
    desk = Told()
    slow = WarnUser(at=1.0, job=B, reason=Reason("slow-node", "it is slow", {"slowness": 1.5}), node=THERE)
    desk.board.fold(slow)
    desk.warn("silent-node", 2.0)
    assert {node.id: node.slowness for node in desk.board.nodes()} == {HERE: 1.0, THERE: 1.5}


def test_it_is_in_the_journal_as_it_was_told() -> None:
    event = NodeWarned(at=1.0, node=HERE, reason=Reason("silent-node", "it is silent", {"silent_s": 5.0}))
    assert decode("NodeWarned", encode(event)) == event
