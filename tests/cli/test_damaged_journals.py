"""A command that reads a journal which is damaged says so, in four parts; it shows no traceback, whatever the damage is."""

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from socket import AF_UNIX, socket

import pytest
from tests.cli.programs import INLINE
from tests.journal.course import JOB, NODE, TICK_S, finished, just_running
from tests.small_disk import may_write, mounted

from punctual.cli._app import prepared
from punctual.core.errors import InvalidSpec
from punctual.core.events import Message, NodeJoined, ProgressReported
from punctual.core.resources import Resources
from punctual.daemon.paths import service_root
from punctual.daemon.run_folder import RunFolder, create_run
from punctual.journal.sqlite import SqliteJournal

COMMANDS = [
    ["why", JOB],
    ["why", JOB, "--all", "--json"],
    ["show", JOB],
    ["show", JOB, "--json"],
    ["report", JOB],
    ["report", JOB, "--out", "report.html"],
    ["report", JOB, "--out", "report.png"],
    ["ps", "--all"],
    ["doctor", "--json"],
    ["simulate", "--trace", JOB, "--policy", "fifo", *INLINE],
    ["quote", "--like", JOB, "--", "true"],
    ["clean", "--dry-run"],
]
Damage = Callable[[Path, random.Random], None]
#: Steps of the job.
N_STEPS = 303.0
#: Damages that are drawn are tried so often.
N_DRAWN = 2


def of_statement(statement: str, *values: object) -> Damage:
    def damage(file: Path, _: random.Random) -> None:
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            database.execute(statement, values)

    return damage


def of_bytes(change: Callable[[bytearray, random.Random], bytes | bytearray]) -> Damage:
    def damage(file: Path, rng: random.Random) -> None:
        file.write_bytes(change(bytearray(file.read_bytes()), rng))

    return damage


def flipped(data: bytearray, rng: random.Random) -> bytearray:
    for _ in range(40):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def with_page(data: bytearray, rng: random.Random) -> bytearray:
    begin = rng.randrange(4096, len(data), 4096)
    data[begin : begin + 4096] = rng.randbytes(4096)
    return data


EVERY = "UPDATE message SET body = ? WHERE sequence % 3 = 1"
DAMAGES: dict[str, Damage] = {
    "flipped": of_bytes(flipped),
    "page": of_bytes(with_page),
    "zeroed": of_bytes(lambda data, rng: data[:4096] + bytes(len(data) - 4096)),
    "cut": of_bytes(lambda data, rng: data[: rng.randrange(len(data))]),
    "garbage": of_bytes(lambda data, rng: rng.randbytes(9000)),
    "empty": of_bytes(lambda data, rng: b""),
    "no text": of_statement("UPDATE message SET body = CAST(? AS TEXT)", b"\xff\xfe{}"),
    "bytes": of_statement(EVERY, b"\x00"),
    "a number": of_statement(EVERY, 5),
    "no JSON": of_statement(EVERY, '{"at":'),
    "no message": of_statement(EVERY, '{"at": 1e999, "job": [], "spec": null}'),
    "deep": of_statement(EVERY, "[" * 100_000),
    "unknown kind": of_statement("UPDATE message SET kind = 'Nothing' WHERE sequence = 2"),
    "another kind": of_statement("UPDATE message SET kind = 'JobFinished' WHERE sequence % 4 = 2"),
    "no table": of_statement("DROP TABLE message"),
    "no facts": of_statement("DROP TABLE fact"),
    "no column": of_statement("ALTER TABLE message RENAME COLUMN body TO other"),
    "clock": of_statement("INSERT OR REPLACE INTO fact VALUES ('clock', '{\"boot_id\": 5}')"),
    "clock's kind": of_statement("INSERT OR REPLACE INTO fact VALUES ('clock', x'ff')"),
    "owner": of_statement("INSERT OR REPLACE INTO fact VALUES ('owner', '[]')"),
    "thinned": of_statement("INSERT OR REPLACE INTO fact VALUES ('compacted_until', 'soon')"),
    "no beginning": of_statement("DELETE FROM message WHERE sequence < 20"),
    "no messages": of_statement("DELETE FROM message"),
}


def short(messages: list[Message]) -> list[Message]:
    """The same messages of a job of `N_STEPS` steps, of which a replay takes as long as the job."""
    return [replace(one, steps_total=N_STEPS) if isinstance(one, ProgressReported) else one for one in messages]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run of one job, which has ended; its journal is one file."""
    monkeypatch.chdir(tmp_path)
    made = create_run(JOB)
    with SqliteJournal(made.journal) as journal:
        journal.append([NodeJoined(at=1000.0, node=NODE, capacity=Resources(4.0))])
        for messages in just_running(100, n_ticks_a_resize=10, deadline_s=120.0):
            journal.append(short(messages))
        journal.append(short(finished(1000.0 + 101 * TICK_S, N_STEPS)))
    made.record_end(JOB, "finished", None)
    made.remove_live_places()
    return made


def said(capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        prepared(words)()
    told = capsys.readouterr()
    assert "Traceback" not in told.out + told.err
    return int(left.value.code or 0), told.out + told.err


def test_every_command_reads_a_journal_that_is_whole(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for words in COMMANDS:
        assert said(capsys, words)[0] == 0, words


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_no_damage_of_a_journal_is_a_traceback(
    run: RunFolder, capsys: pytest.CaptureFixture[str], damage: Damage
) -> None:
    tried: list[bytes] = []
    for seed in range(N_DRAWN):
        whole = run.journal.read_bytes()
        damage(run.journal, random.Random(seed))
        if (damaged := run.journal.read_bytes()) not in tried:
            tried.append(damaged)
            for words in COMMANDS:
                code, told = said(capsys, words)
                assert code in {0, 1, 2}, told
                if code == 2:
                    assert "to do: " in told
        run.journal.write_bytes(whole)


@pytest.mark.parametrize("damage", ["zeroed", "garbage", "no text", "no JSON", "no table", "deep"])
def test_it_is_said_which_file_is_damaged(run: RunFolder, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    DAMAGES[damage](run.journal, random.Random(0))
    for words in (["why", JOB], ["report", JOB], ["show", JOB]):
        code, told = said(capsys, words)
        assert code == 2
        assert str(run.journal) in told


def socket_at(place: Path) -> None:
    with socket(AF_UNIX) as made:
        made.bind(os.path.relpath(place))  # a path of a socket is short


@pytest.mark.parametrize(
    ("kind", "put"),
    [
        ("a folder", lambda place: (place / "inside").mkdir(parents=True)),
        ("a pipe", os.mkfifo),
        ("a socket", socket_at),
        ("a link to no file", lambda place: place.symlink_to(place)),
        ("a link to no file", lambda place: place.symlink_to(place.with_name("nothing"))),
    ],
)
def test_what_is_in_the_place_of_a_journal_is_told(
    run: RunFolder, capsys: pytest.CaptureFixture[str], kind: str, put: Callable[[Path], None]
) -> None:
    run.journal.rename(run.journal.with_name("kept"))
    put(run.journal)
    for words in (["why", JOB], ["ps", "--all"], ["simulate", "--trace", JOB]):
        told = said(capsys, words)[1]
        assert kind in told, words
        assert str(run.journal) in told
    assert run.journal.with_name("kept").exists()


@pytest.mark.parametrize("damage", ["zeroed", "garbage", "cut", "empty"])
def test_the_remedy_for_a_damaged_journal_helps(
    run: RunFolder, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    DAMAGES[damage](run.journal, random.Random(1))
    _, told = said(capsys, ["ps", "--all"])
    assert "remove it with all else that has ended (`punctual clean --all`)" in told
    assert said(capsys, ["clean", "--all"])[0] == 0
    assert not run.state_dir.exists()


def test_a_journal_on_a_disk_that_is_read_only_is_read_with_what_its_write_ahead_file_has(
    tmp_path: Path, run: RunFolder
) -> None:
    with mounted(tmp_path / "disk") as disk:
        with SqliteJournal(run.journal) as journal:
            journal.append(finished(1200.0, 400_000.0))
            for file in run.journal.parent.glob("journal.db*"):
                shutil.copyfile(file, disk / file.name)
            (disk / "journal.db-shm").unlink()
            whole = [number for number, _ in journal.read_from(1)]
        before = sorted(disk.iterdir())
        may_write(disk, is_allowed=False)
        with SqliteJournal(disk / "journal.db", read_only=True) as copy:
            assert [number for number, _ in copy.read_from(1)] == whole
        may_write(disk, is_allowed=True)
        assert sorted(disk.iterdir()) == before
        (disk / "journal.db").write_bytes(b"x" * 5000)
        may_write(disk, is_allowed=False)
        with pytest.raises(InvalidSpec, match=r"disk/journal\.db"):
            SqliteJournal(disk / "journal.db", read_only=True)


@pytest.mark.parametrize("data", [b"x" * 9000, b"SQLite format 3\0" + b"\xff" * 9000])
def test_a_database_of_the_service_that_is_damaged_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    file = service_root() / "service.db"
    file.write_bytes(data)
    for words in (["token", "list"], ["token", "create", "a"], ["up", "--listen", "127.0.0.1:0"]):
        code, told = said(capsys, words)
        assert code == 2
        assert str(file) in told
    shutil.move(file, tmp_path)
    assert said(capsys, ["token", "list", "--json"]) == (0, "")
