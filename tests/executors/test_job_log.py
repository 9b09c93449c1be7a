"""What a job writes is kept, whoever looks, and comes out as it went in."""

import os
import pty
import random
import signal
import subprocess
import sys
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.waiting import PATIENCE_S

from punctual.daemon.log_snapshot import LogSnapshot, n_bytes_before
from punctual.executors.local import job_log
from punctual.executors.local.job_log import JobLog
from punctual.executors.local.output import MISSING, LogTail, earlier_log
from punctual.progress_text.reader import Belief, ProgressReader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "output.log"


class Job:
    """Stands for a job and its supervisor: what is written is moved into the log at once, in this thread."""

    def __init__(self, path: Path, limit_bytes: int = 1 << 30) -> None:
        source_fd, self.write_fd = os.pipe()
        self.log = JobLog(str(path), limit_bytes, source_fd)

    def write(self, output: bytes) -> None:
        for start in range(0, len(output), 4096):  # no more than a pipe takes
            os.write(self.write_fd, output[start : start + 4096])
            assert self.log.relay()

    def end(self) -> None:
        os.close(self.write_fd)
        self.log.finish()


@contextmanager
def job(path: Path, limit_bytes: int = 1 << 30) -> Iterator[Job]:
    running = Job(path, limit_bytes)
    try:
        yield running
    finally:
        running.end()


@contextmanager
def followed(path: Path, receive: Callable[[bytes], None], *, skip: bool = False) -> Iterator[None]:
    """Follows until the job has ended and all has come."""
    tail = LogTail(path, receive, skip=skip)
    yield
    tail.finish(PATIENCE_S)
    assert not tail._thread.is_alive()


def written(path: Path) -> bytes:
    earlier = path.with_name(f"{path.name}.1")
    return (earlier.read_bytes() if earlier.exists() else b"") + path.read_bytes()


# The supervisor's side.


def test_output_is_kept_as_it_came(path: Path) -> None:
    with job(path) as running:
        running.write(b"a line\nand \xff\0 half")
    assert path.read_bytes() == b"a line\nand \xff\0 half"
    assert path.stat().st_mode & 0o777 == 0o600


def test_nobody_has_to_look(path: Path) -> None:
    with job(path) as running:
        for _ in range(70_000):
            os.write(running.write_fd, b"line\n")
            running.log.relay()
    assert path.stat().st_size == 5 * 70_000


def test_what_is_left_when_the_job_has_ended_is_kept(path: Path) -> None:
    running = Job(path)
    os.write(running.write_fd, b"x" * 60_000)
    running.end()
    assert path.stat().st_size == 60_000


def test_a_process_that_got_away_and_writes_on_holds_nothing_up(path: Path) -> None:
    running = Job(path)
    os.write(running.write_fd, b"last\n")
    running.log.finish()
    assert path.read_bytes() == b"last\n"
    os.close(running.write_fd)


def test_a_terminal_that_nobody_writes_to_any_more_is_at_its_end(path: Path) -> None:
    source_fd, write_fd = pty.openpty()
    tty.setraw(write_fd)
    log = JobLog(str(path), 1000, source_fd)
    os.write(write_fd, b"bar\r")
    assert log.relay()
    os.close(write_fd)
    assert not log.relay()
    log.finish()
    assert path.read_bytes() == b"bar\r"


def test_a_log_is_begun_anew_at_its_limit_and_after_a_line(path: Path) -> None:
    lines = [b"line %03d\n" % i for i in range(100)]
    with job(path, limit_bytes=300) as running:
        for line in lines:
            running.write(line)
            assert path.stat().st_size <= 300 + len(line)
    assert b"".join(lines).endswith(written(path))
    assert written(path).startswith(b"line ")
    assert len(written(path)) >= 300
    assert len([each for each in path.parent.iterdir() if each.suffix != ".times"]) == 2


def test_output_without_line_ends_is_limited_as_well(path: Path) -> None:
    with job(path, limit_bytes=10_000) as running:
        for _ in range(100):
            running.write(b"#" * 10_000)
    assert len(written(path)) <= 2 * (10_000 + job_log._LINE_BYTES_MAX)


def test_a_log_that_was_begun_before_goes_on(path: Path) -> None:
    path.write_bytes(b"before\n")
    with job(path, limit_bytes=20) as running:
        running.write(b"after\n")
        running.write(b"more than there is room for\n")
        running.write(b"next\n")
    assert path.with_name("output.log.1").read_bytes() == b"before\nafter\nmore than there is room for\n"
    assert path.read_bytes() == b"next\n"


def test_a_full_disk_costs_output_and_not_the_job(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = True
    write = os.write

    def failing(fd: int, output: bytes) -> int:
        if full and fd == running.log._file_fd:
            raise OSError(28, "No space left on device")
        return write(fd, output)

    with job(path) as running:
        monkeypatch.setattr(job_log.os, "write", failing)
        running.write(b"lost\n")
        running.write(b"lost too\n")
        full = False
        running.write(b"kept\n")
        running.write(b"and kept\n")
    assert path.read_bytes() == b"\n[14 bytes of output were lost: the disk was full]\nkept\nand kept\n"


def test_a_folder_that_is_gone_costs_output_and_not_the_job(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with job(folder / "output.log") as running:
        running.write(b"lost\n")
        folder.mkdir()
        running.write(b"kept\n")
    assert (folder / "output.log").read_bytes().endswith(b"lost: the disk was full]\nkept\n")


def aged(log: Path, by_s: float) -> None:
    """Let so many seconds pass for a log and its times."""
    times = Path(job_log.times_of(str(log)))
    for file in (log, times):
        if file.exists():
            os.utime(file, (0.0, file.stat().st_mtime - by_s))
    if times.exists():
        entries = [line.split() for line in times.read_text().splitlines()]
        changed_s = times.stat().st_mtime
        times.write_text("".join(f"{float(wall_s) - by_s:.3f} {n_bytes}\n" for wall_s, n_bytes in entries))
        os.utime(times, (0.0, changed_s))


def test_it_is_known_what_was_written_by_when(path: Path) -> None:
    """To a second; an incomplete line belongs to what comes."""
    earlier = path.with_name("output.log.1")
    with job(path, limit_bytes=50) as running:
        for output in (b"first\n", b"second\nand a part", b" of the third\n", b"fourth, where the file is full\n"):
            running.write(output)
            aged(path, 100)
        aged(earlier, 100)
        running.write(b"of the next file\n")
        running.write(b"at the same time\n")
    whole, now_s = written(path), time.time()
    assert earlier.read_bytes().endswith(b"full\n")
    lines = [n_bytes_before(path, now_s - ago_s) for ago_s in (450, 350, 250, 150, 50, 0)]
    starts = (b"first", b"second", b"and a part", b"fourth", b"of the next")
    assert lines == [*(whole.index(start) for start in starts), len(whole)]


def test_a_log_without_times_is_known_by_its_last_change(path: Path) -> None:
    path.write_bytes(b"line\n")
    assert [n_bytes_before(path, time.time() + ahead_s) for ahead_s in (-10, 10)] == [0, 5]
    assert n_bytes_before(path.with_name("none.log"), time.time()) == 0


def test_times_take_an_eighth_of_the_log_at_most(path: Path) -> None:
    times = Path(job_log.times_of(str(path)))
    with job(path) as running:
        for _ in range(2000):
            running.write(b"short\n")
            os.utime(path, (0.0, 0.0))  # long ago
    assert 4096 < times.stat().st_size < 4096 + 64 + path.stat().st_size / 8


def test_spoilt_times_are_left_out(path: Path) -> None:
    path.write_bytes(b"one\ntwo\n")
    spoilt = "nonsense\n1.0\n1.0 -5\n1.0 99\n1.0 4\nnan 8\n1.0 " + 5000 * "9" + "\n2.0 0x8\n\xff"
    Path(job_log.times_of(str(path))).write_bytes(spoilt.encode("latin-1"))
    assert n_bytes_before(path, 5.0) == 4


def test_times_are_noted_once_a_second(path: Path) -> None:
    with job(path) as running:
        for i in range(2000):
            running.write(b"line %d\n" % i)
    n_noted = len(Path(job_log.times_of(str(path))).read_text().splitlines())
    assert 1 <= n_noted < 200


# The side of those who look.


def test_a_follower_gets_what_was_written_before_and_after(path: Path) -> None:
    pieces: list[bytes] = []
    running = Job(path)
    running.write(b"before\n")
    with followed(path, pieces.append):
        running.write(b"after\n")
        running.end()
    assert b"".join(pieces) == b"before\nafter\n"


def test_a_follower_may_skip_what_was_shown_already(path: Path) -> None:
    pieces: list[bytes] = []
    running = Job(path)
    running.write(b"before\n")
    with followed(path, pieces.append, skip=True):
        running.write(b"after\n")
        running.end()
    assert b"".join(pieces) == b"after\n"


def test_a_follower_goes_on_over_rotations(path: Path) -> None:
    """As long as no more than two files are written while it looks away; here it is waited for."""
    lines = [b"line %04d\n" % i for i in range(500)]
    pieces: list[bytes] = []
    arrived = threading.Condition()

    def receive(output: bytes) -> None:
        with arrived:
            pieces.append(output)
            arrived.notify_all()

    running = Job(path, limit_bytes=200)
    with followed(path, receive):
        for i in range(0, len(lines), 20):
            running.write(b"".join(lines[i : i + 20]))
            n_bytes = 10 * (i + 20)
            with arrived:
                assert arrived.wait_for(partial(_is_all, pieces, n_bytes), PATIENCE_S)
        running.end()
    assert b"".join(pieces) == b"".join(lines)


def test_what_a_follower_was_too_slow_for_is_marked(path: Path) -> None:
    pieces: list[bytes] = []
    is_stuck, may_go_on = threading.Event(), threading.Event()

    def receive(output: bytes) -> None:
        pieces.append(output)
        is_stuck.set()
        may_go_on.wait(PATIENCE_S)

    running = Job(path, limit_bytes=200)
    with followed(path, receive):
        running.write(b"first\n")
        assert is_stuck.wait(PATIENCE_S)
        for i in range(500):
            running.write(b"line %04d\n" % i)
        may_go_on.set()
        running.end()
    before, after = b"".join(pieces).split(MISSING)
    assert before.startswith(b"first\nline 0000\n")
    assert after.endswith(b"line 0499\n")


def _is_all(pieces: list[bytes], n_bytes: int) -> bool:
    return len(b"".join(pieces)) == n_bytes


def test_a_follower_that_comes_late_gets_all_that_is_kept(path: Path) -> None:
    pieces: list[bytes] = []
    running = Job(path, limit_bytes=200)
    for i in range(500):
        running.write(b"line %04d\n" % i)
    with followed(path, pieces.append):
        running.end()
    assert b"".join(pieces) == written(path)


def test_a_receiver_that_fails_is_called_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pieces: list[bytes] = []
    running = Job(path)
    failed = threading.Event()

    def receive(output: bytes) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("the screen is gone")
        pieces.append(output)

    with followed(path, receive):
        running.write(b"first\n")
        assert failed.wait(PATIENCE_S)
        running.write(b"second\n")
        running.end()
    assert b"".join(pieces) == b"second\n"
    assert "could not be passed on" in caplog.text


def test_a_receiver_that_hangs_holds_up_nothing(path: Path) -> None:
    gate = threading.Event()
    pieces: list[bytes] = []

    def receive(output: bytes) -> None:
        gate.wait(PATIENCE_S)
        pieces.append(output)

    running = Job(path)
    with followed(path, receive):
        for _ in range(2000):
            running.write(b"x" * 999 + b"\n")
        running.end()
        assert path.stat().st_size == 2_000_000
        gate.set()
    assert len(b"".join(pieces)) == 2_000_000


def test_a_follower_that_is_stopped_lets_go(path: Path) -> None:
    with job(path) as running:
        pieces: list[bytes] = []
        tail = LogTail(path, pieces.append)
        tail.stop()
        tail.finish(PATIENCE_S)
        assert not tail._thread.is_alive()
        running.write(b"more\n")
    assert pieces == []


def test_two_followers_of_one_log_both_get_everything(path: Path) -> None:
    """One that was stopped and goes on after another has taken the job over."""
    received: list[list[bytes]] = [[], []]
    running = Job(path)
    with followed(path, received[0].append), followed(path, received[1].append):
        for i in range(50):
            running.write(b"line %d\n" % i)
        running.end()
    assert b"".join(received[0]) == b"".join(received[1]) == path.read_bytes()


SUPERVISOR = """
    import os, sys
    from punctual.executors.local.job_log import JobLog

    log = JobLog(sys.argv[1], 1 << 20, 0)
    os.set_blocking(0, True)
    while log.relay():
        pass
    log.finish()
"""
FOLLOWER = """
    import os, sys
    from pathlib import Path
    from punctual.executors.local.output import LogTail

    LogTail(Path(sys.argv[1]), lambda output: print(len(output), flush=True))
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_job_writes_on_when_whoever_looks_is_stopped_or_killed(path: Path, number: signal.Signals) -> None:
    """Far more than pipes hold, and none of it is lost."""
    looker = subprocess.Popen(
        [sys.executable, "-c", dedent(FOLLOWER), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    supervisor = subprocess.Popen([sys.executable, "-c", dedent(SUPERVISOR), str(path)], stdin=subprocess.PIPE)
    try:
        assert supervisor.stdin is not None
        supervisor.stdin.write(b"x" * 9 + b"\n")
        supervisor.stdin.flush()
        assert looker.stdout is not None
        assert looker.stdout.readline()
        looker.send_signal(number)
        supervisor.stdin.write((b"x" * 9 + b"\n") * 50_000)
        supervisor.stdin.close()
        assert supervisor.wait(PATIENCE_S) == 0
        assert path.stat().st_size == 10 * 50_001
    finally:
        for process in (looker, supervisor):
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
        for stream in (looker.stdin, looker.stdout):
            if stream is not None:
                stream.close()


# What a job puts in the place of its log.


def _pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def _link(path: Path, elsewhere: Path) -> None:
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("put", [_pipe, _link])
def test_a_pipe_or_link_in_the_place_of_a_log_holds_nothing_up_and_leads_nowhere(
    path: Path, put: Callable[[Path, Path], None]
) -> None:
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_bytes(b"secret\n")
    times = Path(job_log.times_of(str(path)))
    for file in (path, earlier_log(path), times):
        put(file, elsewhere)
    pieces: list[bytes] = []
    with followed(path, pieces.append):
        pass
    snapshot = LogSnapshot(path)
    assert (pieces, snapshot.n_bytes) == ([], 0)
    snapshot.close()
    with job(path, 50) as running:  # it is started again
        running.write(b"line\n")
        assert n_bytes_before(path, time.time() + 60.0) == 5
        put_again = path.with_name("again")
        put(put_again, elsewhere)
        put_again.rename(path)
        with followed(path, pieces.append):
            running.write(b"next\n" * 30)
    assert path.read_bytes().endswith(b"next\n")
    assert elsewhere.read_bytes() == b"secret\n"
    assert b"secret" not in b"".join(pieces)


# Garbage.


@given(st.integers(0), st.integers(50, 60_000))
@settings(deadline=None, max_examples=8)
def test_garbage_comes_out_byte_for_byte_and_progress_after_it_is_read(seed: int, size: int) -> None:
    garbage = random.Random(seed).randbytes(1 << 20)
    reader = ProgressReader()
    received = bytearray()
    latest: list[Belief | None] = []

    def receive(output: bytes) -> None:
        received.extend(output)
        reader.feed(output, float(len(received)))
        latest.append(reader.belief)

    with TemporaryDirectory() as folder:
        log = Path(folder) / "output.log"
        running = Job(log)
        with followed(log, receive):
            for start in range(0, len(garbage), size):
                running.write(garbage[start : start + size])
            running.write(b"\nstep 41/90\nstep 42/90\n")
            running.end()
    assert bytes(received) == garbage + b"\nstep 41/90\nstep 42/90\n"
    assert latest[-1] == Belief(steps=42, total=90, is_sure=True)
