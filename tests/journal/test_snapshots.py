"""A journal keeps the last two snapshots, and knows which of them are whole."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.journal.journal_kit import ticks
from tests.memory_journal import MemoryJournal

from punctual.core.errors import InvalidSpec
from punctual.journal.sqlite import SqliteJournal


def with_snapshots(path: Path, *sequences: int) -> None:
    with SqliteJournal(path) as journal:
        journal.append(ticks(max(sequences)))
        for sequence in sequences:
            journal.save_snapshot(sequence, b"state %d" % sequence * 1000)


def damage(path: Path, sequence: int) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE snapshot SET state = X'00' || substr(state, 2) WHERE sequence = ?", (sequence,))


def latest(path: Path) -> tuple[int, bytes] | None:
    with SqliteJournal(path, read_only=True) as journal:
        return journal.latest_snapshot()


@pytest.mark.parametrize("journal", [MemoryJournal(), None], ids=["memory", "sqlite"])
def test_the_newest_is_read(journal: MemoryJournal | None, path: Path) -> None:
    with SqliteJournal(path) as file:
        kept = journal or file
        assert kept.latest_snapshot() is None
        kept.append(ticks(5))
        for sequence in (2, 4, 5):
            kept.save_snapshot(sequence, b"state %d" % sequence)
            assert kept.latest_snapshot() == (sequence, b"state %d" % sequence)


def test_the_last_two_are_kept(path: Path) -> None:
    with_snapshots(path, 2, 3, 7, 9)
    with SqliteJournal(path, read_only=True) as journal:
        assert journal.snapshot_sequences() == [7, 9]


def test_one_that_is_saved_again_replaces_the_one_before(path: Path) -> None:
    with_snapshots(path, 2, 3)
    with SqliteJournal(path) as journal:
        journal.save_snapshot(3, b"again")
        assert journal.snapshot_sequences() == [2, 3]
        assert journal.latest_snapshot() == (3, b"again")


def test_a_damaged_one_gives_way_to_the_one_before(path: Path) -> None:
    with_snapshots(path, 2, 7, 9)
    damage(path, 9)
    assert latest(path) == (7, b"state 7" * 1000)


def test_a_state_under_another_number_is_damaged(path: Path) -> None:
    with_snapshots(path, 2, 7)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE snapshot SET sequence = 8 WHERE sequence = 7")
    assert latest(path) == (2, b"state 2" * 1000)


def test_without_any_the_messages_tell_all(path: Path) -> None:
    with_snapshots(path, 7, 9)
    damage(path, 7)
    damage(path, 9)
    assert latest(path) is None


def test_without_any_and_without_all_messages_nothing_can_be_told(path: Path) -> None:
    with_snapshots(path, 7, 9)
    with SqliteJournal(path) as journal:
        journal.thin([3], until=7)
    assert latest(path) is not None
    damage(path, 7)
    damage(path, 9)
    with pytest.raises(InvalidSpec, match="must be whole"):
        latest(path)


def test_pages_that_cannot_be_read_are_damage(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.append(ticks(2))
        journal.save_snapshot(1, b"old")
        journal.save_snapshot(2, b"new" * 50_000)  # lies on pages of its own
    content = path.read_bytes()
    # The second half of the state, with the pointers from page to page.
    start, end = content.index(b"new" * 100) + 75_000, content.rindex(b"new" * 100)
    path.write_bytes(content[:start] + b"\xff" * (end - start) + content[end:])
    assert latest(path) == (1, b"old")


def test_removed_messages_leave_gaps_and_their_numbers_are_not_given_again(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.append(ticks(5))
        journal.thin([2, 3, 5], until=5)
        assert [number for number, _ in journal.read_from(1)] == [1, 4, 5]
        assert journal.compacted_until == 5
        assert journal.append(ticks(1)) == 6
