"""A host's job, as displays show it."""

from collections.abc import Callable
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.protocols import Message
from punctual.core.status import JobStatus
from punctual.daemon.follower import JobFollower
from punctual.daemon.status_reader import standing
from punctual.request.deadlines import Now


class ShownJob:
    """A job with the queries of displays."""

    def __init__(self, host: JobFollower, job: JobId) -> None:
        self._host = host
        self.id = job

    def status(self) -> JobStatus:
        """Return its status; raises `InvalidSpec` until the host has processed its submission."""
        return self._host.status(self.id)

    def known_status(self) -> JobStatus | None:
        """Return its status; None: the host has not processed its submission yet."""
        try:
            return self.status()
        except InvalidSpec:
            return None

    def clocks(self) -> Now:
        """Present instant on the clock of messages and on the wall clock."""
        return self._host.clocks()

    def standing(self) -> dict[str, Any]:
        """Return how it stands, with its host's knowledge of promises, nodes and waits."""
        status, told = self.status(), self._host.standing_of(self.id)
        is_promised = told.get("promised_until_wall") is not None
        own = standing(status, self.clocks(), most_cores=told.get("host_cores"), is_promised=is_promised)
        return {**own, **told} if own["state"] == told.get("state") == "queued" else {**told, **own}

    def subscribe(self, tell: Callable[[Message], None]) -> None:
        """Call `tell` with each message about it, once `status` reflects the message."""

        def listen(message: Message) -> None:
            if self._host.knows(self.id):
                tell(message)

        self._host.listen(listen, self.id)

    def facts(self) -> dict[str, Any]:
        """Return facts that do not change while it runs."""
        return {"controller": self.status().spec.controller, "actuator": self._host.run_folder.facts().get("actuator")}

    def steered_by(self) -> str:
        """Describe its controller and actuator in words."""
        facts = self.facts()
        return f"controller {facts['controller']}, actuator {facts['actuator']}"
