"""How many workers a job is to have and has: the executor's side of the agent, which has them in the job's process."""

import time
from dataclasses import dataclass
from math import ceil

from punctual.core.ids import NodeId
from punctual.core.job import JobSpec, shape_of
from punctual.core.resources import Resources
from punctual.wire import Crew, CrewWish, Page, State

#: How long a change may take: newcomers load the data and build the model before they count.
_CHANGE_S_MAX = 120.0
#: Where the workers are does not change how many they are.
_ANYWHERE = NodeId("")


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a wish: fulfilled, or why not; and the workers that there are."""

    n_workers: int
    cause: str = ""


class Workers:
    """Wishes and answers of one job.

    Parameters
    ----------
    worker
        What one of them holds.
    """

    def __init__(self, page: Page, worker: Resources) -> None:
        self._page = page
        self._worker = worker
        wish = page.wish()
        self.n_wished = wish.n_workers
        self._request = max(wish.request, page.crew().request)
        self._give_up_at = time.monotonic() + _CHANGE_S_MAX

    @property
    def crew(self) -> Crew:
        """What the agent last told of them."""
        return self._page.crew()

    def wish_for(self, n_workers: int) -> None:
        """Have the agent bring the number of workers to `n_workers`; returns at once."""
        self._request += 1
        self.n_wished = n_workers
        self._give_up_at = time.monotonic() + _CHANGE_S_MAX
        self._page.wish_for(CrewWish(self._request, n_workers, ceil(self._worker.gpus)))

    def answer(self) -> Answer | None:
        """The answer to the last wish; None: it is not there yet.

        A program that trains without an agent has no workers: what they would hold is its own, and the client has told
        its user so.
        """
        crew = self._page.crew()
        if crew.agent_pid == 0:
            return Answer(self.n_wished) if self._page.claim().state != State.STARTING else None
        if crew.request == self._request:
            return Answer(crew.n_workers, crew.cause)
        if time.monotonic() < self._give_up_at:
            return None
        return Answer(crew.n_workers or self.n_wished, f"its workers were not ready within {_CHANGE_S_MAX:g} s")


def n_workers_in(spec: JobSpec, amount: Resources) -> int:
    """How many workers `amount` holds, of a job that is made of them; at least one."""
    return max(1, shape_of(spec, {_ANYWHERE: amount}, {}).n_workers)
