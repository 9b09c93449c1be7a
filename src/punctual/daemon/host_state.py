"""State of a host: scheduler, status board, journal and its time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from punctual import registry
from punctual.core.bill import Bill
from punctual.core.scheduler import Periods, Scheduler
from punctual.core.status import JobStatus, StatusBoard
from punctual.daemon.host_options import SHARING_POLICY
from punctual.daemon.mailbox import Mailbox
from punctual.daemon.run_folder import RunFolder
from punctual.journal.boot import clock_shift
from punctual.journal.sqlite import SqliteJournal
from punctual.journal.state import dumps, loads
from punctual.request.deadlines import Now


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """State of a host, new or restored; `scheduler` and `board` follow from the history in `journal`."""

    run: RunFolder
    journal: SqliteJournal
    scheduler: Scheduler
    board: StatusBoard
    time: Mailbox

    def dumped(self) -> bytes:
        """Return the state in the form of a snapshot."""
        return dumps((self.scheduler.dump(), self.board.dump()))

    def load(self, snapshot: bytes) -> None:
        """Load a snapshot that `dumped` returned; only into a new state."""
        scheduler_state, board_state = loads(snapshot)
        self.scheduler.load(scheduler_state)
        self.board.load(board_state)

    def clocks(self) -> Now:
        """Return the present instant in the journal's time, and on the wall clock."""
        return Now.read(self.time.shift_s)

    def policy(self, begun_with: str) -> tuple[str, Mapping[str, Any]]:
        """Return the policy to use and its parameters; raises `InvalidSpec` if it is not installed.

        `begun_with`: name of the policy of a history in which no other was chosen.
        """
        policy, parameters = self.board.policy or (begun_with, {})
        if policy != SHARING_POLICY:  # an unknown name is the user's mistake; ours is not loaded where it is not run
            registry.load("policies", policy)
        return policy, parameters


def facts_of_end(status: JobStatus, clocks: Now, bill: Bill) -> dict[str, Any]:
    """Return facts of an ended job for the list of past jobs."""
    return {
        "submitted_wall": clocks.wall_of(status.submitted_at).isoformat(timespec="seconds"),
        "argv": list(status.program.argv) if status.program is not None else [],
        "deadline_s": status.spec.deadline_s,
        "landed_s": None if status.landed_at is None else status.landed_at - status.submitted_at,
        "ended_s": None if status.ended_at is None else status.ended_at - status.submitted_at,
        "cause": status.cause,
        "exit_code": status.exit_code,
        "budget_usd": status.spec.budget_usd,
        "spent_usd": bill.spent_usd(status.id, clocks.at) if bill.has_price else None,
    }


def new_scheduler() -> Scheduler:
    """Make a scheduler without jobs, which can load every installed plug-in."""
    return Scheduler(
        registry.maker("controllers"),
        models=registry.maker("models"),
        convergences=registry.maker("convergence"),
        # Seconds that a plan may take: several times as long as the planner waits for its worker process.
        periods=Periods(plan_s=10.0, gather_s=0.1),  # no controller ticks more often
    )


def new_state(run: RunFolder, journal: SqliteJournal) -> HostState:
    """Make the state of a host without jobs, in the journal's time."""
    scheduler, time = new_scheduler(), Mailbox(clock_shift(journal.clock))
    return HostState(run=run, journal=journal, scheduler=scheduler, board=StatusBoard(scheduler.forecast), time=time)
