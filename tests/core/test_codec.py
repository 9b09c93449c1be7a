"""Messages survive being written."""

import json
from dataclasses import replace
from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from tests.examples import examples
from tests.journal.messages import KINDS, messages, messages_of

from punctual.core.codec import decode, encode, kind_of
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, Message, NodeJoined, PlanProposed, TimerFired
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import Resources


def round_trip(message: Message) -> Message:
    return decode(kind_of(message), encode(message))


@given(messages())
@settings(deadline=None, max_examples=examples(300))
def test_any_message(message: Message) -> None:
    assert round_trip(message) == message


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind(kind: type) -> None:
    @given(messages_of(kind))
    @settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
    def check(message: Message) -> None:
        again = round_trip(message)
        assert again == message
        assert type(again) is kind

    check()


def test_nested_values_are_what_they_were() -> None:
    grant = {NodeId("n"): Resources(cores=0.1, gpus=2, memory_bytes=1 << 40)}
    reasons = {JobId("j"): Reason("scaled", "…", {"earliest_finish_s": inf, "late_s": -inf})}
    plan = Plan(revision=7, grants={JobId("j"): grant}, reasons=reasons, status="partial", carry={"a": [1, None, "x"]})
    plan = replace(plan, promises={JobId("j"): 60.5})
    again = round_trip(PlanProposed(at=1.5, plan=plan, revision=plan.revision))
    assert isinstance(again, PlanProposed)
    assert again.plan == plan


def test_amounts_of_kinds_with_names_are_kept_and_journals_without_them_are_read() -> None:
    capacity = Resources(cores=2.0, others={"disk_mbps": 500.0})
    event = NodeJoined(at=1.0, node=NodeId("n"), capacity=capacity)
    assert round_trip(event) == event
    assert "others" not in encode(replace(event, capacity=Resources(cores=2.0)))
    text = '{"at":1.0,"node":"n","capacity":{"cores":2.0,"gpus":0,"memory_bytes":0}}'
    assert decode("NodeJoined", text) == replace(event, capacity=Resources(cores=2.0))
    for wrong in ('[["gpus",1.0]]', '[["disk_mbps",-1.0]]', '[["disk_mbps",Infinity]]'):
        with pytest.raises(InvalidSpec):
            decode("NodeJoined", text.replace('"memory_bytes":0', f'"memory_bytes":0,"others":{wrong}'))


def test_plans_of_journals_that_tell_no_promises_are_read() -> None:
    text = '{"at":1.0,"revision":1,"cause":"","plan":{"revision":1,"grants":{},"carry":{"promised":{"j":60.0}}}}'
    event = decode("PlanProposed", text)
    assert isinstance(event, PlanProposed)
    assert event.plan == Plan(revision=1, grants={}, carry={"promised": {"j": 60.0}})


def test_text_that_is_no_unicode() -> None:
    message = JobFailed(at=1.0, job=JobId("j"), cause="no file '\udcff'")
    assert round_trip(message) == message


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="'JobDreamt'"):
        decode("JobDreamt", "{}")


@pytest.mark.parametrize("text", ["{", "{}", '{"at":"soon","key":"k"}', "[]", "null"])
def test_a_damaged_message_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="TimerFired"):
        decode("TimerFired", text)


def test_what_cannot_be_kept_is_refused_when_it_is_written() -> None:
    plan = Plan(revision=1, grants={}, carry=object())
    with pytest.raises(TypeError, match="cannot keep object"):
        encode(PlanProposed(at=0.0, plan=plan, revision=1))


def test_the_text_is_json() -> None:
    assert json.loads(encode(TimerFired(at=0.5, timer=Timer("tick", JobId("a"))))) == {
        "at": 0.5,
        "timer": ["tick", "a"],
        "late_s": 0.0,
    }
