"""Jobs that are left behind when everything that looked after them is killed."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.executors.conftest import SPIN, groups_of, is_alive, until
from tests.forked_python import ForkedPython
from tests.waiting import PATIENCE_S

from punctual.executors.local import supervisor
from punctual.executors.local.orphans import SUPERVISOR_VARIABLE, end_left, end_orphans, processes_of

FILES = {"cpu.cfs_quota_us": "2000\n", "cpu.max": "2000 20000\n", "cgroup.freeze": "1\n", "freezer.state": "FROZEN\n"}
LIFTED = {"cpu.cfs_quota_us": "-1", "cpu.max": "max", "cgroup.freeze": "0", "freezer.state": "THAWED"}


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[int]:
    """A process that no supervisor looks after."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def maker() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


class Removed(type(Path())):  # type: ignore[misc]
    """A folder that another process removes just after it was looked for."""

    def is_dir(self) -> bool:
        return True


def test_a_folder_of_groups_that_another_process_has_just_removed_has_none(tmp_path: Path) -> None:
    assert end_orphans([Removed(tmp_path / "punctual")]) == []


def group_with(parent: Path, maker: int, *pids: int) -> Path:
    """What looks like a group with these processes."""
    group = parent / f"{maker}-job"
    group.mkdir(parents=True)
    for name, text in FILES.items():
        (group / name).write_text(text)
    (group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return group


def test_an_orphan_is_released_and_ended(tmp_path: Path, maker: int, sleeper: int) -> None:
    group = group_with(tmp_path, maker, sleeper)
    assert end_orphans([tmp_path, tmp_path / "missing"]) == [sleeper]
    assert {name: (group / name).read_text() for name in FILES} == LIFTED
    until(lambda: not is_alive(sleeper))


def test_a_group_whose_maker_is_there_is_left_alone(tmp_path: Path, sleeper: int) -> None:
    group_with(tmp_path, os.getpid(), sleeper)
    assert end_orphans([tmp_path]) == []
    assert is_alive(sleeper)


def test_a_group_of_another_pid_namespace_is_left_alone(
    tmp_path: Path, maker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    group = group_with(tmp_path, maker, 0)
    assert end_orphans([tmp_path]) == killed == []
    assert {name: (group / name).read_text() for name in FILES} == FILES


def test_a_job_that_a_supervisor_looks_after_is_left_alone(tmp_path: Path, maker: int, sleeper: int) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    kept = subprocess.Popen([sys.executable, "-c", code, supervisor.__file__], stdin=subprocess.PIPE)
    try:
        until(lambda: Path(f"/proc/{kept.pid}/cmdline").read_bytes().count(b"\0") == 4)
        group_with(tmp_path, maker, kept.pid, sleeper)
        assert end_orphans([tmp_path]) == []
        assert is_alive(sleeper)
    finally:
        kept.communicate(b"\n")


def test_the_processes_of_a_job_are_found_without_a_control_group(tmp_path: Path, sleeper: int) -> None:
    address = tmp_path / "job.keeper"
    environment = {**os.environ, SUPERVISOR_VARIABLE: str(address)}
    orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], env=environment)
    try:
        until(lambda: processes_of(tmp_path / "other", address) == [orphan.pid])
        threading.Thread(target=orphan.wait).start()  # it has another parent
        end_left(partial(processes_of, address))
        assert processes_of(address) == []
        assert is_alive(sleeper)
    finally:
        orphan.kill()


def test_what_a_killed_supervisor_has_left_may_save_first(tmp_path: Path) -> None:
    address, waits = tmp_path / "job.keeper", "while not os.path.exists('may-save'): time.sleep(0.01)"
    saver = subprocess.Popen(
        [sys.executable, "-c", f"import os, time\n{waits}\nopen('saved', 'w')"],
        env={**os.environ, SUPERVISOR_VARIABLE: str(address)},
        cwd=tmp_path,
    )
    try:
        until(lambda: processes_of(address) == [saver.pid])
        os.kill(saver.pid, signal.SIGSTOP)  # as a job that is paused
        ending = threading.Thread(target=end_left, args=(partial(processes_of, address), 1000.0))
        ending.start()
        (tmp_path / "may-save").touch()
        assert saver.wait(PATIENCE_S) == 0
        ending.join(PATIENCE_S)
        assert (tmp_path / "saved").exists()
    finally:
        saver.kill()


CONTROLLER = """
import sys, time
from pathlib import Path
from tests.executors.conftest import Stage
stage = Stage(Path(sys.argv[1]) / "runtime")
stage.run(Path(sys.argv[1], "job.py").read_text(), cores=0.2, actuator=sys.argv[2], cwd=sys.argv[1])
Path(sys.argv[1], "keeper").write_text(str(stage.supervisors["job"]))
Path(sys.argv[1], "up").touch()
time.sleep(1000)
"""
#: SIGTERM, which the kernel sends when its supervisor is killed, does not end it.
STUBBORN = SPIN + (
    "import os, signal\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "open('pid', 'w').write(str(os.getpid()))\n"
    "spin(1000)\n"
)


@pytest.mark.cgroup
def test_nothing_stays_behind_when_all_are_killed(tmp_path: Path, quota: str) -> None:
    (tmp_path / "job.py").write_text(STUBBORN)
    controller = ForkedPython[bytes](
        [sys.executable, "-c", CONTROLLER, str(tmp_path), quota], cwd=Path(__file__).parents[2]
    )  # fmt: skip
    pids: list[int] = []
    try:
        until((tmp_path / "up").exists)
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pids = [int((tmp_path / name).read_text()) for name in ("keeper", "pid")]
        for pid in (controller.pid, pids[0]):
            os.kill(pid, signal.SIGKILL)
        controller.wait()
        until(lambda: not is_alive(pids[0]))
        until(lambda: end_orphans() or not is_alive(pids[1]))
    finally:
        controller.kill()
        for pid in pids:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pids[1]))
    until(lambda: (end_orphans(), groups_of(controller.pid))[1] == [])
