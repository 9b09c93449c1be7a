"""One scenario, twice the same journal; and the journal alone gives the state back."""

from pathlib import Path

from tests.equivalence.replay import replay
from tests.memory_journal import MemoryJournal
from tests.plants.dry_run import DryRun

from punctual import registry
from punctual.core.commands import SetTimer
from punctual.core.events import Event, JobFinished, JobSubmitted, Message, NodeJoined, SpecChanged
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.protocols import Journal
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.daemon.engine import Engine
from punctual.daemon.planner import InlinePlanner
from punctual.history.run import summarize
from punctual.journal.sqlite import SqliteJournal
from punctual.policies.proportional import Proportional
from punctual.sim.fake_clock import FakeClock

CONTROLLERS = ("remaining-cost", "decor-pi", "proportional-integral")


def make_scheduler() -> Scheduler:
    return Scheduler({name: registry.load("controllers", name)() for name in CONTROLLERS}, strict=True, seed=3)


def spec(controller: str, deadline_s: float) -> JobSpec:
    return JobSpec(
        id=JobId(controller), ceiling=Resources(1.0), floor=Resources(0.05), work_steps=600, deadline_s=deadline_s,
        controller=controller,
    )  # fmt: skip


def play(journal: Journal) -> Scheduler:
    """Three jobs on two cores, one deadline moved; until all have ended."""
    scheduler = make_scheduler()
    ended: list[Message] = []

    def listen(message: Message) -> None:
        if isinstance(message, JobFinished):
            ended.append(message)

    clock = FakeClock(1000.0)
    engine = Engine(
        scheduler,
        DryRun(steps_per_core_s=30.0),
        InlinePlanner(Proportional()),
        journal=journal,
        time=clock,
        listeners=[listen],
    )
    engine.post(NodeJoined(at=1000.0, node=NodeId("n"), capacity=Resources(2.0)))
    for controller in CONTROLLERS:
        engine.post(JobSubmitted(at=1000.0, spec=spec(controller, 60.0)))
    engine.run(lambda: clock.now() >= 1020.0)
    engine.post(SpecChanged(at=clock.now(), spec=spec("remaining-cost", 45.0)))
    engine.run(lambda: len(ended) == len(CONTROLLERS))
    return scheduler


def messages(journal: Journal) -> list[Message]:
    return [message for _, message in journal.read_from(1)]


def test_a_scenario_played_twice_gives_equal_journals() -> None:
    one, other = MemoryJournal(), MemoryJournal()
    play(one)
    play(other)
    assert len(messages(one)) > 100
    assert messages(one) == messages(other)


def test_a_journal_in_a_file_equals_one_in_memory(tmp_path: Path) -> None:
    memory = MemoryJournal()
    play(memory)
    with SqliteJournal(tmp_path / "journal.db") as file:
        play(file)
        assert messages(file) == messages(memory)


def test_replaying_a_file_gives_the_state_back(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        scheduler = play(journal)
        again = replay(journal, make_scheduler)
    for controller in CONTROLLERS:
        assert again.job(JobId(controller)) == scheduler.job(JobId(controller))
        assert again.demand(JobId(controller)) == scheduler.demand(JobId(controller))
    assert again.snapshot(2000.0) == scheduler.snapshot(2000.0)


def test_a_replay_of_any_part_goes_on_as_the_run_did() -> None:
    journal = MemoryJournal()
    play(journal)
    whole = messages(journal)
    event_numbers = [i for i, message in enumerate(whole) if isinstance(message, Event)]
    for i in event_numbers[5::97]:
        part = MemoryJournal()
        part.append(whole[:i])
        event = whole[i]
        assert isinstance(event, Event)
        commands = [each for each in replay(part, make_scheduler).handle(event) if not isinstance(each, SetTimer)]
        assert commands == whole[i + 1 : i + 1 + len(commands)]


def test_the_scenario_is_worth_playing() -> None:
    journal = MemoryJournal()
    play(journal)
    summary = summarize(messages(journal), JobId("remaining-cost"))
    assert [one.deadline_s for one in summary.deadlines] == [60.0, 45.0]
    assert summary.on_time
    assert summary.deviation_frac is not None
    assert -0.03 < summary.deviation_frac <= 0.0  # 2 % are kept for the process to leave, which a dry run does not need
    assert summary.n_resizes >= 2
