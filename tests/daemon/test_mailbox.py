"""Time and events of a live system."""

import time

from punctual.core.events import Event, JobSubmitted, NodeLost, StopRequested
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.daemon.engine import Due, Query
from punctual.daemon.mailbox import Mailbox

TICK = Timer("tick", JobId("a"))
LOST = NodeLost(at=1.0, node=NodeId("n"))


def test_events_come_in_the_order_of_posting() -> None:
    mailbox = Mailbox()
    other = NodeLost(at=2.0, node=NodeId("n"))
    mailbox.post(LOST)
    mailbox.post(other)
    assert mailbox.next() == [LOST, other]


def test_a_timer_that_is_due_comes_before_what_waits() -> None:
    mailbox = Mailbox()
    mailbox.post(LOST)
    mailbox.set_timer(TICK, time.monotonic() - 1.0)
    due = mailbox.next()
    assert isinstance(due, Due)
    assert list(due.timers) == [TICK]
    assert mailbox.next() == LOST


def test_its_pulse_goes_on_while_it_waits() -> None:
    n_pulses = 0

    def pulse() -> None:
        nonlocal n_pulses
        n_pulses += 1
        if n_pulses == 3:
            mailbox.post(LOST)

    mailbox = Mailbox()
    mailbox.pulse(pulse, 0.01)
    mailbox.set_timer(TICK, time.monotonic() + 3600.0)
    assert mailbox.next() == LOST
    assert n_pulses >= 3


def test_its_pulse_goes_on_while_events_keep_coming() -> None:
    n_pulses = 0

    def pulse() -> None:
        nonlocal n_pulses
        n_pulses += 1

    mailbox = Mailbox()
    mailbox.pulse(pulse, 0.0)
    for _ in range(500):
        mailbox.post(LOST)
    assert [mailbox.next() for _ in range(5)] == [[LOST] * 100] * 5
    assert n_pulses == 5


def test_what_has_come_meanwhile_comes_together_and_no_question_overtakes_it() -> None:
    mailbox, question = Mailbox(), Query(lambda: None)
    submissions = [JobSubmitted(at=0.0, spec=JobSpec(id=JobId(f"j{i}"), ceiling=Resources(1.0))) for i in range(250)]
    stops = [StopRequested(at=0.0, job=JobId(f"j{i}"), cause="enough") for i in range(2)]
    events: list[Event] = [*submissions, *stops, LOST]
    for event in events:
        mailbox.post(event)
    mailbox.ask(question)
    mailbox.post(stops[0])
    came = [mailbox.next() for _ in range(5)]
    assert came == [events[:100], events[100:200], events[200:], question, stops[0]]
