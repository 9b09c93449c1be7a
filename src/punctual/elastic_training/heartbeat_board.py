"""Heartbeats of an agent and its workers at every step, in memory that all of them map.

Words of 64 bits, each with one writer and written at once: no lock, and nothing to be torn. The first line of the
board is the agent's; each worker has a line of its own, so that no step waits for another processor's cache.
"""

import mmap
import os
from dataclasses import dataclass

#: Most workers of a job that live at the same time.
N_SLOTS = 255

_WORDS_PER_LINE = 8
_N_BYTES = 8 * _WORDS_PER_LINE * (N_SLOTS + 1)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Last state that a worker has shown. `stamp_ns` 0: it has shown none yet.

    `waiting`: it waits for the others; `excused`: the others may have to wait for it, which is on purpose.
    `stepped_ns`: the instant at which it first showed this number of steps.
    """

    n_steps: int
    waiting: bool
    stamp_ns: int
    excused: bool = False
    stepped_ns: int = 0


class HeartbeatBoard:
    """Board in the file `fd`, which stays open while it is used."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, _N_BYTES)
        self._words = memoryview(self._map).cast("q")

    @classmethod
    def create(cls) -> "HeartbeatBoard":
        """Create a board in memory; other processes get its `fd`."""
        fd = os.memfd_create("punctual-board")
        os.truncate(fd, _N_BYTES)
        return cls(fd)

    def close(self) -> None:
        self._words.release()
        self._map.close()
        os.close(self.fd)

    @property
    def generation_wanted(self) -> int:
        """Newest generation to be formed."""
        return self._words[0]

    @generation_wanted.setter
    def generation_wanted(self, generation: int) -> None:
        self._words[0] = generation

    @property
    def generation_broken(self) -> int:
        """Newest generation that has lost a member; below 0: none has."""
        return self._words[1] - 1

    @generation_broken.setter
    def generation_broken(self, generation: int) -> None:
        self._words[1] = generation + 1

    def show(self, i_slot: int, n_steps: int, waiting: bool, stamp_ns: int) -> None:
        """Write a worker's stamp. The hot path: some times a step."""
        i = (i_slot + 1) * _WORDS_PER_LINE
        if n_steps != self._words[i] or not self._words[i + 2]:
            self._words[i + 4] = stamp_ns
        self._words[i] = n_steps
        self._words[i + 1] = waiting
        self._words[i + 2] = stamp_ns

    def excuse(self, i_slot: int, excused: bool) -> None:
        """Set whether a worker keeps the others waiting on purpose."""
        self._words[(i_slot + 1) * _WORDS_PER_LINE + 3] = excused

    def heartbeat(self, i_slot: int) -> Heartbeat:
        i = (i_slot + 1) * _WORDS_PER_LINE
        n_steps, waiting, stamp_ns, excused, stepped_ns = self._words[i : i + 5]
        return Heartbeat(n_steps, bool(waiting), stamp_ns, bool(excused), stepped_ns)

    def wipe(self, i_slot: int) -> None:
        """Clear the slot for another worker."""
        self.show(i_slot, 0, False, 0)
        self.excuse(i_slot, False)
