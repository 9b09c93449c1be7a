"""What a policy has promised to jobs, as far as it says so."""

from collections.abc import Mapping

from punctual.core.events import PlanProposed
from punctual.core.ids import JobId
from punctual.core.protocols import Message


class Promises:
    """Until when each job is promised to be done; to be given each message.

    A policy that makes promises carries them from plan to plan as ``promised``: job -> instant. Those to jobs on shares
    of cores are in a table of the same name under ``cores``.
    """

    def __init__(self) -> None:
        self._until_at: Mapping[JobId, float] = {}

    def take(self, message: Message) -> None:
        """Take in a message."""
        if not isinstance(message, PlanProposed) or message.plan is None or not isinstance(message.plan.carry, dict):
            return
        carry = message.plan.carry
        parts = [part for part in (carry, carry.get("cores")) if isinstance(part, dict)]
        tables = [part["promised"] for part in parts if isinstance(part.get("promised"), dict)]
        if tables:
            promised = [pair for table in tables for pair in table.items()]
            self._until_at = {JobId(job): at for job, at in promised if isinstance(at, int | float)}

    def until_at(self, job: JobId) -> float | None:
        """The instant by which the job is promised to be done; None: nothing is promised."""
        return self._until_at.get(job)
