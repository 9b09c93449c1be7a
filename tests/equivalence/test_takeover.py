"""The process that steers dies at any message; another one goes on from the journal, and every job lands as it would have."""

from collections.abc import Iterable, Iterator

import pytest
from tests.equivalence.replay import replay
from tests.equivalence.test_replay import CONTROLLERS, make_scheduler, spec
from tests.memory_journal import MemoryJournal
from tests.plants.dry_run import DryRun

from punctual.core.events import JobFinished, JobSubmitted, Message, NodeJoined, SteeringResumed
from punctual.core.ids import JobId, NodeId
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.daemon.engine import Engine
from punctual.daemon.planner import InlinePlanner
from punctual.history.run import summarize
from punctual.policies.proportional import Proportional
from punctual.sim.fake_clock import FakeClock

DEADLINE_S = 60.0
#: How long nobody steers.
GAP_S = 3.0


class _CrashError(Exception):
    pass


class Mortal:
    """A journal whose writer dies at write number `n_writes`: before it is written, or before anything is done about it."""

    def __init__(self, n_writes: int, *, written: bool) -> None:
        self.journal = MemoryJournal()
        self._n_left = n_writes
        self._written = written

    def append(self, messages: Iterable[Message]) -> int:
        self._n_left -= 1
        if self._n_left or self._written:
            self.journal.append(messages)
        if not self._n_left:
            raise _CrashError
        return 0

    def read_from(self, sequence: int) -> Iterator[tuple[int, Message]]:
        return self.journal.read_from(sequence)


class World:
    """What outlives whoever steers: the jobs, and time."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.executor = DryRun(steps_per_core_s=30.0)
        self.n_finished = 0

    def engine(self, scheduler: Scheduler, journal: Mortal | MemoryJournal) -> Engine:
        return Engine(
            scheduler,
            self.executor,
            InlinePlanner(Proportional()),
            journal=journal,
            time=self.clock,
            listeners=[self.listen],
        )

    def outlive_steering(self) -> None:
        """Time goes on; events and timers were the memory of whoever steered."""
        self.clock = FakeClock(self.clock.now() + GAP_S)

    def listen(self, message: Message) -> None:
        self.n_finished += isinstance(message, JobFinished)

    def has_ended(self) -> bool:
        return self.n_finished == len(CONTROLLERS)

    def resumed(self, journal: MemoryJournal) -> SteeringResumed:
        *_, (_, last) = journal.read_from(1)
        held = {id: job.granted for id, job in self.executor._jobs.items()}
        return SteeringResumed(at=self.clock.now(), lost_at=last.at, granted=held)


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("n_writes", [5, 6, 7, 8, 9, 10, 12, 61, 200])
def test_jobs_land_although_whoever_steered_them_died(n_writes: int, written: bool) -> None:
    world, mortal = World(), Mortal(n_writes, written=written)
    first = world.engine(make_scheduler(), mortal)
    first.post(NodeJoined(at=1000.0, node=NodeId("n"), capacity=Resources(2.0)))
    for controller in CONTROLLERS:
        first.post(JobSubmitted(at=1000.0, spec=spec(controller, DEADLINE_S)))
    with pytest.raises(_CrashError):
        first.run(world.has_ended)
    world.outlive_steering()
    journal = mortal.journal
    second = world.engine(replay(journal, make_scheduler), journal)
    second.post(world.resumed(journal))
    second.run(world.has_ended)
    for controller in CONTROLLERS:
        summary = summarize((message for _, message in journal.read_from(1)), JobId(controller))
        assert summary.on_time
        assert summary.deviation_frac is not None
        assert summary.deviation_frac > -0.1
        assert summary.unsteered_s == pytest.approx(GAP_S, abs=1.0)
