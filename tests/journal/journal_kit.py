"""The conformance kit of journals: subclass it, give it a fixture `journal`, and inherit the tests."""

from collections.abc import Iterator
from typing import cast

import pytest

from punctual.core.events import Message, TimerFired
from punctual.core.ids import JobId, Timer
from punctual.core.protocols import Journal


def ticks(n_messages: int, first: int = 0) -> list[Message]:
    """Messages that can be told apart."""
    return [TimerFired(at=float(i), timer=Timer("tick", JobId(str(i)))) for i in range(first, first + n_messages)]


class JournalConformance:
    """What every journal must do. A subclass defines the fixture `journal`, an empty one.

    Examples
    --------
    >>> class TestListJournal(JournalConformance):
    ...     @pytest.fixture
    ...     def journal(self):
    ...         return ListJournal()
    """

    def test_is_empty_at_first(self, journal: Journal) -> None:
        assert list(journal.read_from(1)) == []

    def test_numbers_from_one_without_gaps(self, journal: Journal) -> None:
        assert journal.append(ticks(2)) == 2
        assert journal.append(ticks(1, first=2)) == 3
        assert list(journal.read_from(1)) == list(enumerate(ticks(3), start=1))

    def test_reads_from_any_number(self, journal: Journal) -> None:
        journal.append(ticks(5))
        assert [number for number, _ in journal.read_from(4)] == [4, 5]
        assert list(journal.read_from(6)) == []
        assert [number for number, _ in journal.read_from(0)] == [1, 2, 3, 4, 5]

    def test_reads_many_in_order(self, journal: Journal) -> None:
        journal.append(ticks(1234))
        assert [number for number, _ in journal.read_from(1)] == list(range(1, 1235))

    def test_appending_nothing_changes_nothing(self, journal: Journal) -> None:
        journal.append(ticks(1))
        assert journal.append([]) == 1
        assert len(list(journal.read_from(1))) == 1

    def test_takes_all_messages_of_one_call_or_none(self, journal: Journal) -> None:
        def broken() -> Iterator[Message]:
            yield from ticks(2)
            raise RuntimeError("in the middle")

        journal.append(ticks(1))
        with pytest.raises(RuntimeError, match="in the middle"):
            journal.append(broken())
        assert [number for number, _ in journal.read_from(1)] == [1]
        assert journal.append(ticks(1, first=1)) == 2

    def test_may_grow_while_it_is_read(self, journal: Journal) -> None:
        journal.append(ticks(3))
        reading = journal.read_from(1)
        first = next(reading)
        journal.append(ticks(1, first=3))
        seen = [first, *reading]
        assert seen == list(enumerate(ticks(4), start=1))[: len(seen)]
        assert len(seen) >= 3

    def test_does_not_give_out_what_it_keeps(self, journal: Journal) -> None:
        messages = ticks(1)
        journal.append(messages)
        messages.append(cast(Message, None))
        assert len(list(journal.read_from(1))) == 1
