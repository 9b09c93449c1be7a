"""What a host knows of its jobs and writes about them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from punctual import registry
from punctual.core.scheduler import Periods, Scheduler
from punctual.core.status import StatusBoard
from punctual.daemon.host_options import SHARING_POLICY
from punctual.daemon.journal_time import JournalTime
from punctual.daemon.run_folder import RunFolder
from punctual.journal.sqlite import SqliteJournal
from punctual.journal.state import dumps, loads

#: How long a plan may take, in seconds: several times as long as the planner waits for its worker process.
_PLAN_S_MAX = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """What a host knows and writes, new or restored: `scheduler` and `board` are of the history in `journal`."""

    run: RunFolder
    journal: SqliteJournal
    scheduler: Scheduler
    board: StatusBoard
    time: JournalTime

    def dumped(self) -> bytes:
        """The state as a snapshot keeps it."""
        return dumps((self.scheduler.dump(), self.board.dump()))

    def load(self, snapshot: bytes) -> None:
        """Take up what `dumped` gave; to be called on a state that is new."""
        scheduler_state, board_state = loads(snapshot)
        self.scheduler.load(scheduler_state)
        self.board.load(board_state)

    def policy(self, begun_with: str) -> tuple[str, Mapping[str, Any]]:
        """That is to make the plans, and what it is made with; raises `InvalidSpec` if it is not there.

        `begun_with`: that of a history in which no other was chosen.
        """
        policy, parameters = self.board.policy or (begun_with, {})
        if policy != SHARING_POLICY:  # an unknown name is the user's mistake; ours is not loaded where it is not run
            registry.load("policies", policy)
        return policy, parameters


def new_scheduler() -> Scheduler:
    """One without jobs, which knows every plug-in that is installed."""
    return Scheduler(
        registry.maker("controllers"),
        models=registry.maker("models"),
        convergences=registry.maker("convergence"),
        periods=Periods(plan_s=_PLAN_S_MAX),
    )


def new_state(run: RunFolder, journal: SqliteJournal, time: JournalTime) -> HostState:
    """That of a host without jobs."""
    scheduler = new_scheduler()
    return HostState(run=run, journal=journal, scheduler=scheduler, board=StatusBoard(scheduler), time=time)
