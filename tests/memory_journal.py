"""A journal in memory, for tests and simulation."""

from collections.abc import Iterable, Iterator
from itertools import islice

from punctual.core.events import Message
from punctual.journal.boot import ClockRecord


class MemoryJournal:
    """Keeps the messages themselves; may be read while it is written."""

    #: It does not outlive its process, and so neither the boot of its machine.
    clock: ClockRecord | None = None

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._snapshot: tuple[int, bytes] | None = None

    def append(self, messages: Iterable[Message]) -> int:
        # One list operation, so that a reader in another thread sees all of them or none.
        self._messages += tuple(messages)
        return len(self._messages)

    def read_from(self, sequence: int) -> Iterator[tuple[int, Message]]:
        first = max(sequence, 1)
        return enumerate(islice(self._messages, first - 1, len(self._messages)), start=first)

    def save_snapshot(self, sequence: int, state: bytes) -> None:
        self._snapshot = (sequence, state)

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        return self._snapshot
