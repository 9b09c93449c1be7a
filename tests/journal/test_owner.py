"""One process writes a journal at a time."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from tests.forked_python import ForkedPython
from tests.journal.journal_kit import ticks
from tests.waiting import wait_until

from punctual.core.ids import JobId
from punctual.executors.local.process_tree import state_of
from punctual.journal import file
from punctual.journal.errors import JournalTaken, JournalUnusable
from punctual.journal.job_records import JobRecords
from punctual.journal.owner import start_ticks, this_process
from punctual.journal.sqlite import SqliteJournal

#: Claims a journal, and writes to it whenever it is told to; told to "stay", it does not end what it writes.
WRITER = """
    import sys
    from punctual.journal.errors import JournalTaken
    from pathlib import Path
    from punctual.journal.sqlite import SqliteJournal
    from tests.journal.journal_kit import ticks

    def stay():
        with journal.writing():
            print("writes", flush=True)
            sys.stdin.readline()

    journal = SqliteJournal(Path(sys.argv[1]))
    print("claimed", flush=True)
    for line in sys.stdin:
        try:
            if line.startswith("stay"):
                stay()
            print(journal.append(ticks(2)), flush=True)
        except JournalTaken as error:
            print("taken" if "process" in error.got else error.got, flush=True)
"""


@contextmanager
def writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has claimed the journal."""
    command = [sys.executable, "-c", dedent(WRITER), str(path)]
    with ForkedPython[str](command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert answer(process) == "claimed"
            yield process
        finally:
            process.kill()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell_to_write(process: subprocess.Popen[str], how: str = "") -> str:
    assert process.stdin is not None
    print(how, file=process.stdin, flush=True)
    return answer(process)


def numbers(path: Path) -> list[int]:
    with SqliteJournal(path, read_only=True) as reader:
        return [number for number, _ in reader.read_from(1)]


def test_a_second_writer_is_refused_and_changes_nothing(path: Path) -> None:
    with writer(path) as other:
        assert tell_to_write(other) == "2"
        with pytest.raises(JournalTaken, match=f"process {other.pid} ") as refused:
            SqliteJournal(path)
        assert refused.value.remedy
        assert tell_to_write(other) == "4"
    assert numbers(path) == [1, 2, 3, 4]


def test_two_writers_in_one_process_are_two(path: Path) -> None:
    with SqliteJournal(path) as first:
        with pytest.raises(JournalTaken):
            SqliteJournal(path)
        assert first.append(ticks(1)) == 1


def test_anybody_may_read(path: Path) -> None:
    with writer(path) as other:
        tell_to_write(other)
        assert numbers(path) == [1, 2]


def test_a_closed_journal_is_free(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.append(ticks(1))
        assert journal.owner is not None
        assert journal.owner.pid == os.getpid()
    with SqliteJournal(path, read_only=True) as reader:
        assert reader.owner is None
    with SqliteJournal(path) as journal:
        assert journal.append(ticks(1)) == 2


def test_a_killed_writer_has_no_claim(path: Path) -> None:
    with writer(path) as other:
        tell_to_write(other)
        other.kill()
        other.wait()
        with SqliteJournal(path) as journal:
            assert journal.append(ticks(1)) == 3


def test_a_writer_that_was_stopped_cannot_write_after_a_take_over(path: Path) -> None:
    with writer(path) as other:
        os.kill(other.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(other.pid) == "T")
        with pytest.raises(JournalTaken):
            SqliteJournal(path)
        with SqliteJournal(path, take=True) as journal:
            journal.append(ticks(1))
            os.kill(other.pid, signal.SIGCONT)
            assert tell_to_write(other) == "taken"
            assert journal.append(ticks(1)) == 2
        assert tell_to_write(other) == "one that was closed"
    assert numbers(path) == [1, 2]


def test_a_writer_that_hangs_is_ended_by_a_take_over(path: Path) -> None:
    """Its other threads may go on, and steer jobs."""
    with writer(path) as other, SqliteJournal(path, take=True) as journal:
        assert other.wait() == -signal.SIGKILL
        assert journal.append(ticks(1)) == 1


def test_a_writer_that_was_stopped_within_a_write_holds_up_nobody_who_takes_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "_BUSY_S", 0.1)
    with writer(path) as other:
        assert tell_to_write(other) == "2"
        assert tell_to_write(other, "stay") == "writes"
        os.kill(other.pid, signal.SIGSTOP)
        with SqliteJournal(path, take=True) as journal:
            assert journal.append(ticks(1)) == 3
            assert other.wait() == -signal.SIGKILL, "the lock of a file goes with its process alone"
            assert journal.append(ticks(1)) == 4
    assert numbers(path) == [1, 2, 3, 4]


def test_what_a_user_says_of_a_job_is_recorded_beside_a_writer_that_was_stopped_within_a_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "_BUSY_S", 0.1)
    records = JobRecords(path)
    with writer(path) as other:
        assert tell_to_write(other) == "2"
        assert tell_to_write(other, "stay") == "writes"
        with pytest.raises(OSError, match="locked"):
            records.set_state(JobId("a"), "stopping")
        os.kill(other.pid, signal.SIGSTOP)
        records.set_state(JobId("a"), "stopping")
        assert other.wait() == -signal.SIGKILL
    assert [(row.id, row.state) for row in records.rows()] == [("a", "stopping")]
    assert numbers(path) == [1, 2]


def test_only_the_process_itself_is_killed() -> None:
    here = this_process()
    here.kill()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        ticks_of_other = start_ticks(other.pid)
        assert ticks_of_other is not None
        owner = replace(here, pid=other.pid, start_ticks=ticks_of_other)
        replace(owner, start_ticks=ticks_of_other + 1).kill()
        replace(owner, boot_id="other", machine="other").kill()
        assert owner.may_live()
        owner.kill()
        assert other.wait() == -signal.SIGKILL
        owner.kill()


def test_closing_does_not_end_the_claim_of_another(path: Path) -> None:
    first = SqliteJournal(path)
    with SqliteJournal(path, take=True) as second:
        first.close()
        assert second.append(ticks(1)) == 1


def test_every_kind_of_write_needs_the_claim(path: Path) -> None:
    with SqliteJournal(path) as first:
        first.append(ticks(3))
        with SqliteJournal(path, take=True):
            with pytest.raises(JournalTaken):
                first.save_snapshot(3, b"state")
            with pytest.raises(JournalTaken):
                first.thin([1], until=2)
            assert first.latest_snapshot() is None
    assert numbers(path) == [1, 2, 3]


def test_who_may_still_be_there() -> None:
    here = this_process()
    assert here.may_live()
    assert not replace(here, start_ticks=here.start_ticks + 1).may_live(), "its id was given to another process"
    assert not replace(here, boot_id="before").may_live(), "the machine was started again"
    assert replace(here, boot_id="other", machine="other").may_live(), "there it cannot be looked for"
    assert start_ticks(2**22 + 1) is None


def test_a_journal_that_is_found_to_be_damaged_when_it_is_opened_stays_nobodys(path: Path) -> None:
    """Else nobody could give up its jobs as long as this process lives."""
    SqliteJournal(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE message RENAME TO gone")
        with pytest.raises(JournalUnusable):
            SqliteJournal(path)
        assert not connection.execute("SELECT value FROM fact WHERE name = 'owner'").fetchall()
