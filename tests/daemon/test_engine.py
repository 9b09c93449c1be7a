"""The engine: its order, its timers and what it survives."""

from collections.abc import Callable
from threading import Thread

import pytest
from tests.memory_journal import MemoryJournal
from tests.plants.dry_run import DryRun

from punctual.core.cluster import Snapshot
from punctual.core.commands import Command, LaunchJob, RejectJob, RequestPlan, ResizeJob, SetTimer, WarnUser
from punctual.core.control import Demand, Reading
from punctual.core.errors import InvariantBroken
from punctual.core.events import (
    Event,
    JobFinished,
    JobSubmitted,
    Message,
    NodeJoined,
    PlanProposed,
    ProgressReported,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import JobSpec
from punctual.core.plan import Plan
from punctual.core.protocols import Executor, Policy, Sink
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.daemon.engine import Engine, TimeSource
from punctual.daemon.mailbox import Mailbox
from punctual.daemon.planner import InlinePlanner, Planner
from punctual.daemon.status_reader import logged
from punctual.policies.proportional import Proportional
from punctual.sim.fake_clock import FakeClock

JOB = JobId("a")
NODE = NodeId("n")


class Steady:
    """A controller that wants one core, once a second."""

    def init(self, spec: JobSpec) -> None:
        return None

    def step(self, spec: JobSpec, state: None, reading: Reading) -> tuple[Demand, None]:
        return Demand(resources=Resources(1.0), next_tick_s=1.0, reason=Reason("steady", "one core")), None


class Bench:
    """An engine with everything that can be looked at."""

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        executor: Executor | None = None,
        time: TimeSource | None = None,
        planner: Planner | None = None,
        strict: bool = False,
        listeners: tuple[Callable[[Message], None], ...] = (),
    ) -> None:
        self.journal = MemoryJournal()
        self.heard: list[Message] = []
        self.engine = Engine(
            Scheduler({"steady": Steady()}, strict=strict),
            executor or DryRun(steps_per_core_s=10.0),
            planner or InlinePlanner(policy or Proportional()),
            journal=self.journal,
            time=time or FakeClock(),
            listeners=(*map(logged, listeners), self.heard.append),
        )

    def submit(self, *, floor_cores: float = 0.05, work_steps: float = 50.0, at: float = 0.0) -> None:
        self.engine.post(NodeJoined(at=at, node=NODE, capacity=Resources(2.0)))
        spec = JobSpec(
            id=JOB, ceiling=Resources(8.0), floor=Resources(floor_cores), work_steps=work_steps, deadline_s=60.0,
            controller="steady",
        )  # fmt: skip
        self.engine.post(JobSubmitted(at=at, spec=spec))

    def run_until(self, kind: type) -> None:
        self.engine.run(lambda: any(isinstance(message, kind) for message in self.heard))

    def messages(self) -> list[Message]:
        return [message for _, message in self.journal.read_from(1)]


def test_runs_a_job_to_its_end() -> None:
    bench = Bench()
    bench.submit()
    bench.run_until(JobFinished)
    finished = bench.messages()[-1]
    # Two cores for the first quarter of a second, then one: 50 steps at 10 a core-second.
    assert isinstance(finished, JobFinished)
    assert finished.landed_at == pytest.approx(4.75)
    assert finished.at == pytest.approx(5.25)


def test_listeners_hear_exactly_what_the_journal_holds() -> None:
    bench = Bench()
    bench.submit()
    bench.run_until(JobFinished)
    assert bench.heard == bench.messages()


def test_a_message_is_in_the_journal_before_anybody_acts_on_it() -> None:
    bench = Bench()
    unwritten: list[Message] = []

    class Watching(DryRun):
        def perform(self, command: Command, sink: Sink) -> None:
            if command not in bench.messages():
                unwritten.append(command)
            super().perform(command, sink)

    def watch(message: Message) -> None:
        if message not in bench.messages():
            unwritten.append(message)

    bench = Bench(executor=Watching(steps_per_core_s=10.0), listeners=(watch,))
    bench.submit()
    bench.run_until(JobFinished)
    assert unwritten == []
    assert any(isinstance(message, ResizeJob) for message in bench.messages())


def test_a_fresh_reading_comes_before_each_tick() -> None:
    bench = Bench()
    bench.submit()
    bench.run_until(JobFinished)
    events = [message for message in bench.messages() if isinstance(message, Event)]
    ticks = [i for i, event in enumerate(events) if isinstance(event, TimerFired) and event.timer == Timer("tick", JOB)]
    assert len(ticks) > 3
    for i in ticks[:-1]:
        reading = events[i - 1]
        assert isinstance(reading, ProgressReported)
        assert reading.at == events[i].at


def test_timers_that_are_no_ticks_ask_for_no_reading() -> None:
    class Counting(DryRun):
        n_observed = 0

        def observe(self, job: JobId, at: float, sink: Sink) -> None:
            self.n_observed += 1
            super().observe(job, at, sink)

    executor = Counting()
    bench = Bench(executor=executor)
    bench.submit()
    bench.run_until(JobFinished)
    fired = [message.timer for message in bench.messages() if isinstance(message, TimerFired)]
    assert executor.n_observed in (fired.count(Timer("tick", JOB)), fired.count(Timer("tick", JOB)) + 1)


def test_a_failing_listener_is_logged_and_nobody_else_suffers(caplog: pytest.LogCaptureFixture) -> None:
    def fail(message: Message) -> None:
        raise RuntimeError("the view is broken")

    bench = Bench(listeners=(fail,))
    bench.submit()
    bench.run_until(JobFinished)
    assert bench.heard == bench.messages()
    assert "a listener failed on JobSubmitted" in caplog.text


def test_a_policy_that_fails_becomes_an_event_and_is_asked_again() -> None:
    class Stumbling:
        n_calls = 0

        def allocate(self, snapshot: Snapshot) -> Plan:
            self.n_calls += 1
            if self.n_calls == 1:
                raise ZeroDivisionError("no shares")
            return Proportional().allocate(snapshot)

    bench = Bench(policy=Stumbling())
    bench.submit()
    bench.run_until(JobFinished)
    plans = [message for message in bench.messages() if isinstance(message, PlanProposed)]
    assert plans[0] == PlanProposed(at=0.0, plan=None, revision=1, cause="ZeroDivisionError: no shares")
    assert any(isinstance(message, WarnUser) for message in bench.messages())
    assert any(isinstance(message, LaunchJob) for message in bench.messages())


def test_what_is_for_the_user_does_not_reach_the_executor() -> None:
    class Recording(DryRun):
        def __init__(self) -> None:
            super().__init__()
            self.performed: list[Command] = []

        def perform(self, command: Command, sink: Sink) -> None:
            self.performed.append(command)
            super().perform(command, sink)

    executor = Recording()
    bench = Bench(executor=executor)
    bench.submit(floor_cores=3.0)
    bench.run_until(RejectJob)
    assert any(isinstance(message, RejectJob) for message in bench.heard)
    assert executor.performed == []


def test_what_breaks_an_invariant_leaves_no_trace_in_the_journal() -> None:
    class Greedy:
        def allocate(self, snapshot: Snapshot) -> Plan:
            return Plan(revision=snapshot.revision, grants={JOB: {NODE: Resources(99.0)}})

    bench = Bench(policy=Greedy(), strict=True)
    bench.submit()
    with pytest.raises(InvariantBroken, match="the plan is not valid"):
        bench.run_until(JobFinished)
    assert any(isinstance(message, RequestPlan) for message in bench.messages())
    assert not any(isinstance(message, PlanProposed) for message in bench.messages())


def test_an_event_from_another_thread_wakes_the_engine() -> None:
    bench = Bench(time=Mailbox())
    event = NodeJoined(at=0.0, node=NODE, capacity=Resources(1.0))
    sender = Thread(target=bench.engine.post, args=(event,))
    sender.start()
    bench.run_until(NodeJoined)
    sender.join()
    assert bench.messages() == [event]


def test_the_monotonic_clock_wakes_for_timers() -> None:
    bench = Bench(time=Mailbox())
    bench.submit(work_steps=10.0, at=Mailbox().now())
    bench.run_until(JobFinished)
    fired = [message for message in bench.messages() if isinstance(message, TimerFired)]
    assert any(message.timer == Timer("tick", JOB) for message in fired)
    assert all(message.late_s >= 0.0 for message in fired)


def test_the_journal_holds_no_timers_that_were_set() -> None:
    bench = Bench()
    bench.submit()
    bench.run_until(JobFinished)
    assert not any(isinstance(message, SetTimer) for message in (*bench.messages(), *bench.heard))


def test_a_fake_clock_says_when_an_engine_would_wait_for_ever() -> None:
    with pytest.raises(RuntimeError, match="no timer is set"):
        Bench().run_until(JobFinished)


def test_does_nothing_when_the_end_is_already_there() -> None:
    bench = Bench()
    bench.submit()
    bench.engine.run(lambda: True)
    assert bench.messages() == []


def test_the_plan_is_made_of_the_revision_that_was_asked_for() -> None:
    bench = Bench()
    bench.submit()
    bench.run_until(JobFinished)
    asked = [message.revision for message in bench.messages() if isinstance(message, RequestPlan)]
    given = [
        message.plan.revision for message in bench.messages() if isinstance(message, PlanProposed) and message.plan
    ]
    assert asked == given


def test_events_that_come_together_are_written_together_and_planned_for_one_by_one() -> None:
    planned: list[int] = []

    class Noting(InlinePlanner):
        def request(self, snapshot: Snapshot, sink: Sink) -> None:
            planned.append(len(snapshot.jobs))
            super().request(snapshot, sink)

    bench = Bench(time=Mailbox(), planner=Noting(Proportional()))
    bench.engine.post(NodeJoined(at=0.0, node=NODE, capacity=Resources(2.0)))
    for i in range(3):
        spec = JobSpec(id=JobId(f"j{i}"), ceiling=Resources(0.5), controller="steady")
        bench.engine.post(JobSubmitted(at=0.0, spec=spec))
    bench.run_until(LaunchJob)
    kinds = [type(message) for message in bench.messages()]
    assert kinds[:5] == [NodeJoined, JobSubmitted, RequestPlan, JobSubmitted, JobSubmitted]
    assert planned[0] == 1
    assert bench.heard == bench.messages()
