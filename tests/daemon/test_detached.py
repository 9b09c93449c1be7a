"""The logs of processes in the background are limited, whoever writes into them."""

import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.waiting import wait_until

from punctual.daemon.detached import start_detached

N_BYTES_MAX = 20_000
#: Bounds its log, as a service does, while a process that it has started writes there, too.
PROGRAM = f"""
import os, subprocess, sys, time
from pathlib import Path
from punctual.daemon.detached import log_bounded
log = Path(sys.argv[1])
with log_bounded(log, {N_BYTES_MAX}, poll_s=0.01):
    child = "import sys\\nfor i in range(3000): print(f'child {{i}}', file=sys.stderr, flush=True)"
    subprocess.run([sys.executable, "-c", child], check=True)
    for i in range(3000):
        os.write(2, b"own %d\\n" % i)
    while True:
        time.sleep(0.1)
        os.write(2, b"ready\\n")
"""


@contextmanager
def writer(log: Path) -> Iterator[int]:
    """The id of a process that writes to `log`."""
    process = start_detached([sys.executable, "-c", PROGRAM, str(log)], log, os.environ)
    try:
        yield process.pid
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def written(log: Path) -> bytes:
    """All that is kept of the log, the earlier file first."""
    files = [log.with_name(f"{log.name}.1"), log]
    return b"".join(file.read_bytes() for file in files if file.exists())


def test_a_log_that_is_full_is_begun_anew_also_where_a_child_writes_to_it(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    earlier = tmp_path / "service.log.1"
    with writer(log):
        wait_until(lambda: b"ready\n" in written(log))
        wait_until(lambda: log.stat().st_size <= N_BYTES_MAX)
        assert earlier.stat().st_size <= N_BYTES_MAX + 10_000  # what came between two looks
        assert b"own 2" in written(log)
    assert [stat.S_IMODE(file.stat().st_mode) for file in (log, earlier)] == [0o600, 0o600]


def test_a_log_that_was_removed_does_not_grow_unseen(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    earlier = tmp_path / "service.log.1"
    with writer(log) as pid:
        wait_until(lambda: written(log))  # it is bounded from before the first line on
        log.unlink()
        unseen = Path(f"/proc/{pid}/fd/2")
        wait_until(lambda: earlier.exists() and b"ready\n" in unseen.read_bytes() + earlier.read_bytes())
        assert unseen.stat().st_size <= N_BYTES_MAX


def test_a_log_of_an_earlier_version_is_cut_at_the_start_and_becomes_private(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    log.write_bytes(b"before\n" * 1_000_000)
    log.chmod(0o644)
    with writer(log):
        wait_until(lambda: b"ready\n" in written(log))
        assert len(written(log)) < 4 * N_BYTES_MAX
        assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_named_pipe_in_place_of_a_log_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError, match="log"):
        start_detached([sys.executable, "-c", ""], tmp_path / "log", os.environ)
