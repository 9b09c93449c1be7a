"""The job of a host that a command shows."""

from collections.abc import Callable
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.protocols import Message
from punctual.core.status import JobStatus
from punctual.daemon.joined_host import JoinedHost
from punctual.request.deadlines import Now


class ShownJob:
    """What displays ask about one job."""

    def __init__(self, host: JoinedHost, job: JobId) -> None:
        self._host = host
        self.id = job

    def status(self) -> JobStatus:
        """How it stands; only once the host has come to its submission."""
        return self._host.status(self.id)

    def known_status(self) -> JobStatus | None:
        """How it stands; None: the host has not come to its submission yet."""
        try:
            return self.status()
        except InvalidSpec:
            return None

    def clocks(self) -> Now:
        """The present, on the clock of messages and on the wall's."""
        return self._host.clocks()

    def subscribe(self, tell: Callable[[Message], None]) -> None:
        """Let `tell` have each message about it, once `status` knows of it."""

        def listen(message: Message) -> None:
            if self._host.knows(self.id):
                tell(message)

        self._host.subscribe(listen, self.id)

    def facts(self) -> dict[str, Any]:
        """What does not change while it runs."""
        return {"controller": self.status().spec.controller, "actuator": self._host.run_folder.facts().get("actuator")}

    def steered_by(self) -> str:
        """Controller and actuator, in words."""
        facts = self.facts()
        return f"controller {facts['controller']}, actuator {facts['actuator']}"
