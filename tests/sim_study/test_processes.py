"""Workers end with whoever started them, however that ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, wait_until

from punctual.core.errors import InvalidSpec
from punctual.sim.processes import in_processes


def double(number: int, tell: Callable[[float], None]) -> int:
    tell(0.5)
    return 2 * number


def die(number: int, tell: Callable[[float], None]) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def tell_nobody(i_piece: int, frac: float) -> None:
    pass


def test_every_piece_is_done_once() -> None:
    told: list[tuple[int, float]] = []
    done = dict(in_processes(double, [3, 4, 5], lambda i, frac: told.append((i, frac)), 2))
    assert done == {0: 6, 1: 8, 2: 10}
    assert set(told) <= {(0, 0.5), (1, 0.5), (2, 0.5)}


def test_a_killed_worker_is_a_user_s_error() -> None:
    with pytest.raises(InvalidSpec, match="memory"):
        list(in_processes(die, [1, 2], tell_nobody, 2))


#: Writes the id of each worker into a folder, and would then work for a minute.
SLOW = """
import os, pathlib, sys, time
from punctual.sim.processes import in_processes

def slow(number, tell):
    (pathlib.Path(sys.argv[1]) / str(os.getpid())).touch()
    time.sleep(60)

if __name__ == "__main__":
    list(in_processes(slow, [1, 2], lambda i, frac: None, 2))
"""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_workers_leave_when_the_first_process_is_told_to(tmp_path: Path, how: signal.Signals) -> None:
    script, workers = tmp_path / "slow.py", tmp_path / "workers"
    script.write_text(SLOW)
    workers.mkdir()
    process = subprocess.Popen([sys.executable, str(script), str(workers)], stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: len(list(workers.iterdir())) == 2)
        process.send_signal(how)
        process.communicate(timeout=PATIENCE_S)
        wait_until(lambda: not any(lives(int(path.name)) for path in workers.iterdir()))
    finally:
        process.kill()
        process.wait()
