"""Reading on in a log that is rotated meanwhile: nothing is read twice, and nothing is lost without a mark."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.daemon.log_snapshot import LogPlace, read_on
from punctual.executors.local.output import MISSING, earlier_log

LINE_BYTES = len("line 00000\n")


class Written:
    """A log as a supervisor writes it, of numbered lines."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.n_lines = 0

    def write(self, n_lines: int) -> None:
        with self.log.open("ab") as file:
            for _ in range(n_lines):
                file.write(f"line {self.n_lines:05}\n".encode())
                self.n_lines += 1

    def rotate(self) -> None:
        self.log.touch()
        self.log.rename(earlier_log(self.log))


class Reader:
    """Reads on from where it was."""

    def __init__(self, log: Path) -> None:
        self.log, self.place, self.text = log, LogPlace(), b""

    def read(self, n_bytes: int) -> bool:
        output, self.place, more = read_on(self.log, LogPlace(*self.place), n_bytes)
        self.text += output
        return more

    def read_all(self, n_bytes: int = 1000) -> None:
        while self.read(n_bytes):
            pass

    def numbers(self) -> list[int]:
        assert MISSING not in self.text
        return [int(line.split()[1]) for line in self.text.decode().splitlines()]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "job.log")


def test_a_log_that_is_not_there_yet_has_nothing(written: Written) -> None:
    assert read_on(written.log, LogPlace(), 10) == (b"", LogPlace(), False)


def test_what_was_not_read_of_a_file_that_is_rotated_away_comes_before_the_next_file(written: Written) -> None:
    reader = Reader(written.log)
    written.write(100)
    reader.read(505)
    written.write(100)
    written.rotate()
    written.write(50)  # less than was read of the file before
    reader.read_all()
    assert reader.numbers() == list(range(250))


def test_a_new_file_that_is_already_longer_than_what_was_read_is_not_begun_in_its_middle(written: Written) -> None:
    reader = Reader(written.log)
    written.write(10)
    reader.read_all()
    written.rotate()
    written.write(500)
    reader.read_all()
    assert reader.numbers() == list(range(510))


def test_files_that_are_gone_before_they_were_read_are_marked(written: Written) -> None:
    reader = Reader(written.log)
    written.write(100)
    reader.read(110)
    for _ in range(3):
        written.rotate()
        written.write(100)
    reader.read_all()
    before, after = reader.text.split(MISSING)
    assert before.endswith(b"line 00009\n")
    assert after.startswith(b"line 00200\n")
    assert after.endswith(b"line 00399\n")


def test_the_number_of_a_file_that_is_gone_does_not_make_another_one_the_same(written: Written) -> None:
    written.write(100)
    _, place, _ = read_on(written.log, LogPlace(), 600)
    written.log.write_bytes(b"x" * 2000)  # of the same number
    assert os.stat(written.log).st_ino == place.inode  # noqa: PTH116
    output, _, _ = read_on(written.log, place, 5000)
    assert output == MISSING + b"x" * 2000


@given(steps=st.lists(st.tuples(st.sampled_from(["write", "rotate", "read"]), st.integers(1, 400)), max_size=40))
def test_every_line_comes_once_and_in_order_or_a_mark_stands_for_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    written = Written(tmp_path_factory.mktemp("log") / "job.log")
    reader = Reader(written.log)
    for what, n in steps:
        if what == "write":
            written.write(n)
        elif what == "rotate" and written.log.exists():
            written.rotate()
        elif what == "read":
            reader.read(max(n, LINE_BYTES))  # a file whose first bytes are those of another is known by a whole line
    reader.read_all()
    parts = [part.decode().split("\n") for part in reader.text.split(MISSING)]
    lines = [int(line.split()[1]) for part in parts for line in part if len(line) == len("line 00000")]
    assert lines == sorted(set(lines))
    if len(parts) == 1:
        assert lines == list(range(written.n_lines))
