"""Another policy makes the plans: what the one before carried, promised and had in flight does not count any more."""

import pickle

import pytest
from tests.core.desk import A, Desk, cores, none, only

from punctual.core.codec import decode
from punctual.core.commands import RequestPlan, ResizeJob, UsePolicy, WarnUser
from punctual.core.events import PlanProposed, PolicyChanged
from punctual.core.plan import Plan
from punctual.core.status import StatusBoard


def changed(before: str, at: float = 10.0) -> PolicyChanged:
    return PolicyChanged(at=at, policy="fifo", parameters={"size": "smallest"}, before=before, by="anna")


@pytest.fixture
def promised(desk: Desk) -> Desk:
    """A plan has promised something to `a` and carries something; another one is in flight."""
    desk.run(A, 1.0)
    desk.tell(desk.joined)
    revision = desk.scheduler.snapshot(1.0).revision
    plan = Plan(revision=revision, grants={A: cores(1.0)}, promises={A: 100.0}, carry={"old": 1.0})
    desk.tell(PlanProposed(at=1.0, plan=plan, revision=revision))
    only(desk.tell(desk.joined), RequestPlan)
    return desk


def test_it_is_used_from_the_next_plan_on_which_is_asked_for_at_once(promised: Desk) -> None:
    commands = promised.tell(changed("promises-first"))
    use = only(commands, UsePolicy)
    assert (use.policy, use.parameters) == ("fifo", {"size": "smallest"})
    asked = only(commands, RequestPlan)
    assert commands.index(use) < commands.index(asked)
    assert promised.scheduler.snapshot(10.0).carry is None


def test_a_plan_that_was_in_flight_is_dropped(promised: Desk) -> None:
    old = promised.scheduler.snapshot(9.0).revision
    new = only(promised.tell(changed("promises-first")), RequestPlan).revision
    late = Plan(revision=old, grants={A: cores(2.0)}, carry={"old": 2.0})
    assert none(promised.tell(PlanProposed(at=11.0, plan=late, revision=old)), ResizeJob)
    assert promised.scheduler.snapshot(11.0).carry is None
    plan = Plan(revision=new, grants={A: cores(2.0)})
    only(promised.tell(PlanProposed(at=12.0, plan=plan, revision=new)), ResizeJob)


@pytest.mark.parametrize(("before", "until_at"), [("promises-first", None), ("fifo", 100.0)])
def test_promises_stand_only_under_the_same_policy(promised: Desk, before: str, until_at: float | None) -> None:
    commands = promised.tell(changed(before))
    assert promised.scheduler.promised_until_at(A) == until_at
    assert promised.scheduler.job(A).promised_until_at == until_at
    told = [command.reason.code for command in commands if isinstance(command, WarnUser) and command.job == A]
    assert told == ([] if until_at else ["promise-lost"]), "also whoever did not change the policy"


def test_the_board_knows_which_it_is_also_when_it_was_loaded() -> None:
    board, loaded = StatusBoard(), StatusBoard()
    assert board.policy is None
    board.fold(changed("greedy"))
    loaded.load(pickle.loads(pickle.dumps(board.dump())))
    assert loaded.policy == ("fifo", {"size": "smallest"})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "JobSubmitted",
            '{"at":1.0,"spec":{"id":"a","ceiling":{"cores":1.0,"gpus":0,"memory_bytes":0}},"program":null}',
        ),
        ("SpecChanged", '{"at":1.0,"spec":{"id":"a","ceiling":{"cores":1.0,"gpus":0,"memory_bytes":0}}}'),
        ("StopRequested", '{"at":1.0,"job":"a","cause":"enough"}'),
    ],
)
def test_what_was_written_before_it_was_said_who_did_it_is_read(kind: str, text: str) -> None:
    assert getattr(decode(kind, text), "by") == ""  # noqa: B009 -- of any of these messages
