"""A journal stays small and quick to start from."""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from tests.journal.course import TICK_S, just_running
from tests.journal.journal_kit import ticks

from punctual.core.errors import InvalidSpec
from punctual.core.events import Message
from punctual.journal.maintenance import JournalMaintenance, UpkeepLimits
from punctual.journal.sqlite import JournalTaken, SqliteJournal

STATE = b"state " * 700
FOLD = JournalMaintenance._fold_beside
#: Everything happens often.
BUSY = UpkeepLimits(snapshot_messages=100, snapshot_s=1.0, thin_messages=30)


@contextmanager
def kept(
    path: Path, limits: UpkeepLimits | None = None, dump: Callable[[], bytes] = lambda: STATE
) -> Iterator[Callable[[list[Message]], None]]:
    """Writes messages as an engine does: all of them, and then each is told."""
    with SqliteJournal(path) as journal:
        upkeep = JournalMaintenance(journal, dump, limits=limits)

        def write(messages: list[Message]) -> None:
            journal.append(messages)
            for message in messages:
                upkeep([message])

        yield write
        upkeep.close()


def play(path: Path, n_ticks: int, limits: UpkeepLimits | None = None) -> None:
    with kept(path, limits) as write:
        for messages in just_running(n_ticks):
            write(messages)


def n_bytes(path: Path) -> int:
    """All files of the journal."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def test_a_job_that_just_runs_writes_less_than_5_mb_a_day(tmp_path: Path) -> None:
    """An hour of a job that ticks, and two more: what those add is what each other two add, or less."""
    n_ticks_hour = int(3600 / TICK_S)
    play(tmp_path / "hour.db", n_ticks_hour)
    play(tmp_path / "longer.db", 3 * n_ticks_hour)
    hour, longer = n_bytes(tmp_path / "hour.db"), n_bytes(tmp_path / "longer.db")
    assert longer + 21 / 2 * max(0, longer - hour) < 5_000_000


def test_the_write_ahead_file_is_folded_into_the_database(path: Path) -> None:
    wal = path.with_name("journal.db-wal")
    with SqliteJournal(path) as journal:
        upkeep = JournalMaintenance(journal, lambda: STATE)
        for i in range(20):
            journal.append(ticks(2000, first=2000 * i))
        assert wal.stat().st_size > 2_000_000
        upkeep(ticks(1))
        upkeep.close()
        assert path.stat().st_size > 1_000_000
        journal.append(ticks(1))
        assert wal.stat().st_size <= 1 << 20


def test_a_file_that_was_folded_is_folded_again_only_when_it_has_grown(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_folds: list[None] = []

    def counted(upkeep: JournalMaintenance) -> None:
        n_folds.append(None)
        FOLD(upkeep)

    monkeypatch.setattr(JournalMaintenance, "_fold_beside", counted)
    with SqliteJournal(path) as journal:
        upkeep = JournalMaintenance(journal, lambda: STATE, limits=UpkeepLimits(snapshot_s=inf, fold_s=0.0))
        for i in range(40):
            journal.append(ticks(2000, first=2000 * i))
            upkeep(ticks(1))
            upkeep.close()
    assert 2 <= len(n_folds) <= 10


def test_a_file_that_cannot_be_folded_is_not_tried_again_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n_folds: list[None] = []
    monkeypatch.setattr(JournalMaintenance, "_fold_beside", lambda _: n_folds.append(None))
    with SqliteJournal(path) as journal:
        upkeep = JournalMaintenance(journal, lambda: STATE, limits=UpkeepLimits(snapshot_s=inf, fold_s=10.0))
        for i in range(20):
            journal.append(ticks(2000, first=2000 * i))
        for message in (*ticks(50), *ticks(50)):
            upkeep([replace(message, at=0.0)])
            upkeep.close()
        assert len(n_folds) == 1
        upkeep([replace(ticks(1)[0], at=11.0)])
        upkeep.close()
        assert len(n_folds) == 2


def test_a_start_reads_a_snapshot_and_what_came_after_it(path: Path) -> None:
    counted = [0]
    with SqliteJournal(path) as journal:
        upkeep = JournalMaintenance(journal, lambda: b"%d" % journal.last_sequence, limits=BUSY)
        for messages in just_running(1000):
            counted[0] = journal.append(messages)
            for message in messages:
                upkeep([message])
        upkeep.close()
    with SqliteJournal(path) as journal:
        latest = journal.latest_snapshot()
        assert latest is not None
        sequence, state = latest
        assert int(state) == sequence
        tail = [number for number, _ in journal.read_from(sequence + 1)]
        assert tail == list(range(sequence + 1, counted[0] + 1)), "nothing behind it is missing"
        assert len(tail) < 150


def test_the_older_snapshot_is_as_good(path: Path) -> None:
    play(path, 1000, BUSY)
    with SqliteJournal(path, read_only=True) as journal:
        older, newest = journal.snapshot_sequences()
        assert journal.compacted_until <= older < newest
        numbers = [number for number, _ in journal.read_from(older + 1)]
        assert numbers == list(range(older + 1, numbers[-1] + 1))
        assert sum(1 for _ in journal.read_from(1)) < 600, "before it, most is gone"


def test_an_engine_that_starts_again_goes_on_thinning(path: Path) -> None:
    play(path, 300, BUSY)
    with kept(path, BUSY) as write:
        for i in range(100):
            write(ticks(10, first=10_000 + 10 * i))
    with SqliteJournal(path, read_only=True) as journal:
        assert journal.compacted_until > 1000
        assert sum(1 for _ in journal.read_from(1)) < 500


def test_no_snapshot_is_made_too_often(path: Path) -> None:
    made = []

    def dump() -> bytes:
        made.append(1)
        return STATE

    with kept(path, UpkeepLimits(snapshot_messages=10, snapshot_s=100.0), dump) as write:
        write(ticks(1001))
    assert len(made) == 10


def test_a_snapshot_is_made_sooner_where_many_messages_come(path: Path) -> None:
    made = []

    def dump() -> bytes:
        made.append(1)
        return STATE

    with kept(path, UpkeepLimits(snapshot_messages=10, snapshot_s=inf, snapshot_messages_most=100), dump) as write:
        write(ticks(1001))
    assert len(made) == 10


def test_one_call_does_one_thing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision waits for one call, and so for one piece of work of bounded size."""
    n_writes = []
    writing = SqliteJournal.writing

    def counted(journal: SqliteJournal, **given: bool) -> object:
        n_writes.append(1)
        return writing(journal, **given)

    monkeypatch.setattr(SqliteJournal, "writing", counted)
    with SqliteJournal(path) as journal:
        upkeep = JournalMaintenance(journal, lambda: STATE, limits=BUSY)
        for messages in just_running(1000):
            journal.append(messages)
            for message in messages:
                n_writes.clear()
                upkeep([message])
                assert len(n_writes) <= 1
        upkeep.close()


def test_a_state_that_cannot_be_kept_costs_nothing_but_room(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    n_tried = []

    def dump() -> bytes:
        n_tried.append(1)
        raise InvalidSpec("must", "got", "where", "remedy")

    with caplog.at_level(logging.WARNING), kept(path, BUSY, dump) as write:
        for messages in just_running(1000):
            write(messages)
    assert "stays as long as it is" in caplog.text
    assert 1 < len(n_tried) < 50, "it is tried again, but not with each message"
    with SqliteJournal(path, read_only=True) as journal:
        assert journal.latest_snapshot() is None
        numbers = [number for number, _ in journal.read_from(1)]
        assert numbers == list(range(1, len(numbers) + 1)), "all of it is there to be folded"


def test_an_owner_that_has_lost_its_claim_thins_nothing(path: Path) -> None:
    with SqliteJournal(path) as journal:
        upkeep = JournalMaintenance(journal, lambda: STATE, limits=BUSY)
        messages = ticks(99)
        journal.append(messages)
        for message in messages:
            upkeep([message])
        with SqliteJournal(path, take=True), pytest.raises(JournalTaken):
            upkeep(ticks(1, first=99))


def test_room_that_is_not_needed_any_more_is_given_back(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.append(ticks(60_000))
    long = path.stat().st_size
    with kept(path, UpkeepLimits(snapshot_messages=40, snapshot_s=0.0, thin_messages=5000, free_pages=10)) as write:
        for i in range(160):
            write(ticks(1, first=100_000 + i))
    assert path.stat().st_size < long / 2


def test_a_full_disk_loses_nothing_that_was_written(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.append(ticks(100))
        journal._connection.execute("PRAGMA max_page_count = 16")
        journal.append(ticks(200))
        with pytest.raises(sqlite3.OperationalError, match="full"):
            journal.append(ticks(10_000))
        n_written = journal.last_sequence
        with pytest.raises(sqlite3.OperationalError, match="full"):
            journal.save_snapshot(n_written, STATE * 10)
        assert [number for number, _ in journal.read_from(1)] == list(range(1, 301))
        journal._connection.execute("PRAGMA max_page_count = 1000")  # there is room again
        assert journal.append(ticks(1)) == n_written + 1
        journal.save_snapshot(n_written, STATE)
        assert journal.latest_snapshot() == (n_written, STATE)


def test_a_snapshot_that_takes_long_is_not_made_every_few_seconds() -> None:
    limits = UpkeepLimits(snapshot_messages_most=100, snapshot_s=60.0, snapshot_frac=0.02)
    assert limits.snapshot_is_due(100, 5.0, took_s=0.1)
    assert not limits.snapshot_is_due(100, 5.0, took_s=0.5)
    assert limits.snapshot_is_due(5000, 25.0, took_s=0.5)
    assert limits.snapshot_is_due(2000, 60.0, took_s=10.0)
