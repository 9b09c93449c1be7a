"""What the agent tells Punctual of its crew, and what changes of it have cost."""

from dataclasses import replace

from punctual.wire import Crew, Page


class Account:
    """Keeps the crew on the page up to date.

    Parameters
    ----------
    agent_pid
        The process that looks after the crew.
    """

    def __init__(self, page: Page, agent_pid: int) -> None:
        self._page = page
        self._crew = Crew()
        #: Steps done when training last stopped, and when the last of them was; 1 if another one had been begun.
        self._n_steps = 0
        self._stopped_ns = 0
        self._n_in_flight = 0
        self._awaits_step = False
        self._put(replace(self._crew, agent_pid=agent_pid))

    @property
    def request(self) -> int:
        """The last wish that was answered."""
        return self._crew.request

    def answer(self, request: int, cause: str = "") -> None:
        """The wish is fulfilled, or given up for `cause`."""
        self._put(replace(self._crew, request=request, cause=cause))

    def lose(self, n_steps: int, stepped_ns: int) -> None:
        """A member has ended that was at `n_steps`."""
        self.stop(n_steps, stepped_ns)
        crew = self._crew
        self._put(replace(crew, n_workers=crew.n_workers - 1, n_workers_lost=crew.n_workers_lost + 1))

    def form(self, generation: int, n_workers: int, *, resizes: bool, after_fault: bool) -> None:
        """A generation begins; `resizes`: it is larger or smaller than the one before because that was wished for."""
        self._n_in_flight = int(after_fault)
        self._awaits_step = True
        n_resizes = self._crew.n_resizes + resizes
        self._put(replace(self._crew, generation=generation, n_workers=n_workers, n_resizes=n_resizes))

    def stop(self, n_steps: int, stepped_ns: int) -> None:
        """A member has left its generation after `n_steps`, the last of them done at `stepped_ns`."""
        self._n_steps = max(self._n_steps, n_steps)
        self._stopped_ns = max(self._stopped_ns, stepped_ns)

    def resume(self, n_steps: int, stepped_ns: int) -> None:
        """The first step of a generation is done, and with it `n_steps`."""
        if not self._awaits_step:  # the other members say it too
            return
        self._awaits_step = False
        if not self._stopped_ns:
            return
        crew, stop_ns = self._crew, stepped_ns - self._stopped_ns
        n_redone = max(0, self._n_steps - (n_steps - 1)) + self._n_in_flight
        self._stopped_ns = self._n_in_flight = 0
        self._n_steps = n_steps
        self._put(
            replace(
                crew,
                last_stop_ns=stop_ns,
                longest_stop_ns=max(crew.longest_stop_ns, stop_ns),
                n_steps_redone=crew.n_steps_redone + n_redone,
            )
        )

    def leave(self) -> None:
        """Nobody trains any more."""
        self._put(replace(self._crew, n_workers=0))

    def _put(self, crew: Crew) -> None:
        if crew != self._crew:
            self._crew = crew
            self._page.muster(crew)
