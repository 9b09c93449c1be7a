"""Instants survive a restart of the machine."""

from pathlib import Path

from tests.journal.journal_kit import ticks
from tests.memory_journal import MemoryJournal

from punctual.journal.boot import ClockRecord, boot_id, clock_now, clock_shift
from punctual.journal.sqlite import SqliteJournal

FIRST = ClockRecord(boot_id="first", wall_offset_s=1_000_000.0)
#: The machine was started again 500 s of wall time after the first boot.
SECOND = ClockRecord(boot_id="second", wall_offset_s=1_000_500.0)
THIRD = ClockRecord(boot_id="third", wall_offset_s=1_002_000.0)


def shift_on(path: Path, now: ClockRecord) -> float:
    with SqliteJournal(path, read_only=True) as journal:
        return clock_shift(journal.clock, now)


def test_within_one_boot_nothing_is_shifted(path: Path) -> None:
    SqliteJournal(path).close()
    with SqliteJournal(path, read_only=True) as journal:
        assert clock_shift(journal.clock) == 0.0
        assert journal.clock is not None
        assert journal.clock.boot_id == boot_id()


def wall_at(clock: ClockRecord, at: float) -> float:
    """Wall time, in seconds since 1970, of instant `at` of the journal."""
    return at + clock.shift_s + clock.wall_offset_s


def test_a_wall_clock_that_is_set_changes_nothing_within_one_boot(path: Path) -> None:
    SqliteJournal(path, now=FIRST).close()
    assert shift_on(path, ClockRecord(boot_id="first", wall_offset_s=5.0)) == 0.0


def test_an_instant_is_at_the_same_wall_time_after_a_boot(path: Path) -> None:
    SqliteJournal(path, now=FIRST).close()
    deadline_at = 600.0
    shifted_at = deadline_at + shift_on(path, SECOND)
    assert shifted_at == 100.0
    assert wall_at(SECOND, shifted_at) == wall_at(FIRST, deadline_at)


def test_journal_time_goes_on_over_several_boots(path: Path) -> None:
    for now in (FIRST, SECOND, SECOND, THIRD):
        SqliteJournal(path, now=now).close()
    shift_s = shift_on(path, THIRD)
    assert wall_at(THIRD, 600.0 + shift_s) == wall_at(FIRST, 600.0)
    with SqliteJournal(path, read_only=True) as journal:
        assert journal.clock is not None
        assert wall_at(journal.clock, 600.0) == wall_at(FIRST, 600.0)


def test_a_snapshot_notes_how_the_wall_clock_has_gone(path: Path) -> None:
    SqliteJournal(path, now=FIRST).close()
    slewed = ClockRecord(boot_id="first", wall_offset_s=FIRST.wall_offset_s + 2.0)
    with SqliteJournal(path, now=slewed) as journal:
        journal.append(ticks(1))
        journal.save_snapshot(1, b"state")
    assert shift_on(path, SECOND) == -498.0


def test_a_journal_in_memory_has_seen_no_other_boot() -> None:
    assert clock_shift(MemoryJournal().clock) == 0.0
    assert clock_shift(None, FIRST) == 0.0


def test_this_boot_has_a_name() -> None:
    now = clock_now()
    assert now.boot_id == boot_id()
    assert now.wall_offset_s > 0
