"""Who trains together, as a worker sees it."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """A worker's place in one generation of the group.

    Attributes
    ----------
    generation
        Number of this membership; grows by one or more with each change.
    rank, n_workers
        Which worker this is, and of how many.
    store_host, store_port
        Where the agent's store listens; empty and 0 for a worker that is alone.
    source
        Rank of the worker whose state is the training's; None: all members hold equal state already. -1: nobody holds
        any (the first generation, or all workers were lost): begin from the last checkpoint, or from the start.
    i_device
        Which of the node's devices this worker uses; None on a CPU.
    """

    generation: int
    rank: int
    n_workers: int
    store_host: str = ""
    store_port: int = 0
    source: int | None = None
    i_device: int | None = None


class Link(Protocol):
    """A worker's connection with its agent."""

    @property
    def generation_wanted(self) -> int:
        """The newest generation that is to be formed; read at each step, costs about a microsecond."""
        ...

    def join(self, *, n_steps: int, after_fault: bool = False) -> Roster | None:
        """Say that this worker is ready for the next generation, and wait until it is formed.

        Parameters
        ----------
        n_steps
            Steps this worker's state has behind it; 0 for a newcomer, which takes another's state.
        after_fault
            The last generation ended because a collective failed.

        Returns
        -------
        Roster | None
            None: the worker is not needed any more and should leave.
        """
        ...

    def stamp(self, n_steps: int, *, waiting: bool) -> None:
        """Show the agent that the worker is alive: at `n_steps`, about to wait for the others or not."""
        ...

    def finish(self) -> None:
        """The training function has returned."""
        ...


class Alone:
    """The link of a training that nobody manages: one worker, in the script's own process."""

    generation_wanted = 0

    def join(self, *, n_steps: int, after_fault: bool = False) -> Roster | None:
        return Roster(generation=0, rank=0, n_workers=1, source=-1)

    def stamp(self, n_steps: int, *, waiting: bool) -> None:
        """Nobody looks."""

    def finish(self) -> None:
        """Nobody waits."""
