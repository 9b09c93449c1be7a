"""All journals run one kit; the file also survives what happens to files and processes."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random
from textwrap import dedent

import pytest
from tests.forked_python import ForkedPython
from tests.history.scene import chain
from tests.journal.journal_kit import JournalConformance, ticks
from tests.memory_journal import MemoryJournal

from punctual.core.commands import ResizeJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted, NodeJoined, PlanProposed, StopRequested
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.plan import Plan
from punctual.core.protocols import Journal
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.history.decision_trace import decision_steps
from punctual.history.job import JobHistory
from punctual.journal import file, sqlite
from punctual.journal.errors import JournalTaken, JournalUnusable
from punctual.journal.file import SCHEMA_VERSION
from punctual.journal.sqlite import About, SqliteJournal


class TestMemoryJournal(JournalConformance):
    @pytest.fixture
    def journal(self) -> Journal:
        return MemoryJournal()


class TestSqliteJournal(JournalConformance):
    @pytest.fixture
    def journal(self, tmp_path: Path) -> Iterator[Journal]:
        with SqliteJournal(tmp_path / "journal.db") as journal:
            yield journal


def test_goes_on_where_it_stopped(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.append(ticks(2))
    with SqliteJournal(path) as journal:
        assert journal.append(ticks(1, first=2)) == 3
        assert [message for _, message in journal.read_from(1)] == ticks(3)


def test_is_for_its_owner_only(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.append(ticks(1))
        modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {0o600}


def test_is_read_by_another_connection_while_it_is_written(path: Path) -> None:
    with SqliteJournal(path) as journal, SqliteJournal(path, read_only=True) as reader:
        journal.append(ticks(2))
        assert [number for number, _ in reader.read_from(1)] == [1, 2]
        journal.append(ticks(1))
        assert [number for number, _ in reader.read_from(3)] == [3]


def test_reads_only_what_is_asked_for(path: Path) -> None:
    stops = [
        StopRequested(at=float(i), job=JobId(name), cause='it\'s "5%"') for i, name in enumerate(("a", "b_", "bc"))
    ]
    with SqliteJournal(path) as journal:
        journal.append([*ticks(700), *stops, *ticks(2)])
        asked = About(kinds=("SpecChanged", "StopRequested"))
        assert list(journal.read_from(1, asked)) == list(enumerate(stops, start=701))
        many = tuple(f"kind-{i}" for i in range(5000))
        assert list(journal.read_from(1, About(kinds=many))) == []
        asked = About(kinds=("TimerFired", "StopRequested"), but_kinds=("StopRequested",))
        assert [number for number, _ in journal.read_from(699, asked)] == [699, 700, 704, 705]
        asked = About(but_kinds=("TimerFired",), until=702)
        assert list(journal.read_from(1, asked)) == [(701, stops[0]), (702, stops[1])]
        assert [number for number, _ in journal.read_from(699, About(until=703))] == [699, 700, 701, 702, 703]


def test_reads_of_some_jobs_what_may_concern_them(path: Path) -> None:
    joined = NodeJoined(at=0.0, node=NodeId("n"), capacity=Resources(cores=2))
    names = ("a", "b_%", "it's", "NodeJoined", "a")
    stops = [StopRequested(at=float(i), job=JobId(name), cause='"job":"other"') for i, name in enumerate(names)]
    with SqliteJournal(path) as journal:
        journal.append([joined, *ticks(3), *stops])
        for job, numbers in (("a", [1, 5, 9]), ("b_%", [1, 6]), ("it's", [1, 7]), ("1", [1, 3]), ("other", [1])):
            assert [number for number, _ in journal.read_of([JobId(job)])] == numbers
        many = [JobId(f"job-{i}") for i in range(5000)]
        assert [number for number, _ in journal.read_of([*many, JobId("a"), JobId("it's")], 5)] == [5, 7, 9]


def _plan(at: int) -> PlanProposed:
    return PlanProposed(at=float(at), plan=Plan(revision=at, grants={}, bound=100.0 + at, objective=100.0), revision=at)


def _asked(at: int, job: str) -> ResizeJob:
    grant = {NodeId("n"): Resources(cores=0.01 * at)}
    return ResizeJob(at=float(at), job=JobId(job), request=at, grant=grant, reason=Reason("test", "it is a test"))


def test_the_chain_of_a_job_is_the_same_from_what_concerns_it_as_from_all(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command rests on the last plan before it, whichever jobs that names; also where pages and looks end between them."""
    monkeypatch.setattr(sqlite, "_N_ROWS", 3)
    rng = Random(0)
    with SqliteJournal(path) as journal, SqliteJournal(path, read_only=True) as reader:
        kept, sequence = JobHistory(JobId("a")), 1
        for at in range(1, 120):
            kind = rng.choices(("plan", "a", "b", "tick"), (2, 2, 1, 3))[0]
            journal.append([_plan(at) if kind == "plan" else _asked(at, kind) if kind != "tick" else ticks(1)[0]])
            if rng.random() < 0.2:
                last = reader.last_sequence
                for number, message in reader.read_of([JobId("a")], sequence):
                    kept.take(message)
                    sequence = number + 1
                sequence = max(sequence, last + 1)
                every = [message for _, message in journal.read_from(1)]
                assert decision_steps(kept) == chain(every, JobId("a"))
                assert decision_steps(kept) == chain(
                    (message for _, message in journal.read_of([JobId("a")])), JobId("a")
                )


@pytest.mark.parametrize("n_others", [1_000, 30_000])
def test_what_concerns_a_job_is_found_without_looking_at_all(tmp_path: Path, n_others: int) -> None:
    """Steps of SQLite's machine are counted: they are the same on any machine."""
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        for first in range(0, n_others, 1_000):
            journal.append([*ticks(999, first=1), _plan(first)])
            if first % (n_others // 4) == 0:
                journal.append([_asked(first, "a")])
    with SqliteJournal(path, read_only=True) as reader:
        steps = count()
        reader._connection.set_progress_handler(lambda: next(steps) and 0, 10)
        read = [message for _, message in reader.read_of([JobId("a")])]
        assert _asked(0, "a") in read
        assert len(read) < 10
        assert next(steps) < 100


def test_what_is_told_to_be_accepted_is_on_the_disk_and_other_messages_wait_for_nothing(path: Path) -> None:
    with SqliteJournal(path) as journal:
        said: list[str] = []
        journal._connection.set_trace_callback(said.append)
        journal.append(ticks(1))
        assert not any("synchronous" in statement for statement in said)
        said.clear()
        journal.append([StopRequested(at=1.0, job=JobId("a"), cause="test"), *ticks(1)])
        journal._connection.set_trace_callback(None)
        assert said[0] == "PRAGMA synchronous = FULL"
        assert said[-2:] == ["COMMIT", "PRAGMA synchronous = NORMAL"]


def test_reading_does_not_write(path: Path) -> None:
    with SqliteJournal(path):
        pass
    with SqliteJournal(path, read_only=True) as reader, pytest.raises(JournalTaken):
        reader.append(ticks(1))


def test_a_missing_file_is_not_made_by_reading(path: Path) -> None:
    with pytest.raises(InvalidSpec, match="must exist"):
        SqliteJournal(path, read_only=True)
    assert not path.exists()


@pytest.mark.parametrize(("version", "got"), [(SCHEMA_VERSION + 1, "a later Punctual"), (1, "an earlier Punctual")])
def test_another_version_is_refused_and_said_that_its_jobs_may_still_run(path: Path, version: int, got: str) -> None:
    SqliteJournal(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    for read_only in (True, False):
        with pytest.raises(JournalUnusable, match=f"version {version}, of {got}") as refused:
            SqliteJournal(path, read_only=read_only)
        assert "to end its jobs (`punctual stop JOB`): some may still run" in refused.value.remedy


@pytest.mark.parametrize("read_only", [True, False])
def test_other_files_are_refused_and_left_alone(path: Path, read_only: bool) -> None:
    path.write_text("a text, long enough to be looked at as a database file, and yet none. " * 20)
    before = path.read_bytes()
    with pytest.raises(InvalidSpec, match="journal of Punctual"):
        SqliteJournal(path, read_only=read_only)
    assert path.read_bytes() == before


def test_anothers_database_is_refused_and_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(InvalidSpec, match="another SQLite database"):
        SqliteJournal(path)
    assert path.read_bytes() == before


WRITER = """
    import sys
    from pathlib import Path
    from punctual.journal.sqlite import SqliteJournal
    from tests.journal.journal_kit import ticks

    journal = SqliteJournal(Path(sys.argv[1]))
    while True:
        print(journal.append(ticks(7)), flush=True)
"""


@pytest.mark.parametrize("n_appends", [1, 40])
def test_survives_a_kill_in_the_middle_of_writing(path: Path, n_appends: int) -> None:
    writer = ForkedPython[str](
        [sys.executable, "-c", dedent(WRITER), str(path)], stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    with writer:
        assert writer.stdout is not None
        confirmed = [int(writer.stdout.readline()) for _ in range(n_appends)][-1]
        os.kill(writer.pid, signal.SIGKILL)
        confirmed = max([confirmed, *(int(line) for line in writer.stdout if line.endswith("\n"))])
    with SqliteJournal(path) as journal:
        found = [number for number, _ in journal.read_from(1)]
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= confirmed, "what was confirmed is there"
        assert len(found) % 7 == 0, "an append is there wholly or not at all"
        assert journal.append(ticks(1)) == len(found) + 1


def test_a_journal_whose_writer_was_stopped_in_a_write_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of a file is its process's until that goes on or ends: nobody can take it away."""
    path = tmp_path / "journal.db"
    SqliteJournal(path).close()
    monkeypatch.setattr(file, "_BUSY_S", 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as stopped:
        stopped.execute("BEGIN IMMEDIATE")
        with pytest.raises(InvalidSpec, match="Let the process go on"):
            SqliteJournal(path, take=True)
    SqliteJournal(path, take=True).close()


def submitted(job: str) -> JobSubmitted:
    return JobSubmitted(at=1.0, spec=JobSpec(id=JobId(job), ceiling=Resources(cores=1)))


def test_a_state_that_begins_anew_has_no_job_of_before_and_the_messages_stay(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.reset()
        assert journal.begun_after == 0
        journal.append([submitted("a"), submitted("b")])
        journal.save_snapshot(2, b"state")
        for _ in range(2):  # a daemon had no job
            journal.reset()
        assert (journal.begun_after, journal.latest_snapshot()) == (2, None)
        journal.append([submitted("c")])
        assert [number for number, _ in journal.read_from(1)] == [1, 2, 3]
        assert (journal.period_of(JobId("a")), journal.period_of(JobId("b"))) == ((1, 2), (1, 2))
        first, last = journal.period_of(JobId("c"))
        assert (first, last > 10**9) == (3, True)
