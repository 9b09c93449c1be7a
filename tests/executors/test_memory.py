"""What is known of a job's memory, the limit on it, and how a job ends that runs out of it."""

import os
from pathlib import Path

import pytest
from tests.executors.conftest import JOB, Stage, memory_limiter

from punctual.core.events import JobFailed, JobWarned
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.daemon.adoption import recorded_end
from punctual.executors.local.memory import (
    ASKED_BYTES,
    MACHINE_OOM_KILLS,
    OOM_KILLS,
    PEAK_BYTES,
    CgroupMemory,
    JobMemory,
    lack_of_memory,
    memory_of,
)

MIB = 1 << 20
LIMIT_BYTES = 96 * MIB

#: Holds so many mebibytes, and says so.
HOLDS = """
import sys, time
def hold(n_mib):
    held = bytearray(n_mib << 20)
    for i in range(0, len(held), 4096): held[i] = 1
    return held
"""


@pytest.fixture
def limited() -> str:
    """The name of an actuator under which memory is limited on this machine."""
    return memory_limiter()


def launch(stage: Stage, memory_bytes: int = 0) -> None:
    spec = JobSpec(id=JOB, ceiling=Resources(1.0)).with_memory(memory_bytes)
    stage.executor.perform(stage.launch_command(Resources(1.0, memory_bytes=memory_bytes), spec), stage.sink)


def failure(stage: Stage) -> JobFailed:
    event = stage.ended()
    assert isinstance(event, JobFailed)
    return event


# Under the kernel.


@pytest.mark.cgroup
def test_a_job_that_needs_more_than_it_asked_for_is_ended_and_told_so(stage: Stage, limited: str) -> None:
    stage.prepare(HOLDS + "hold(160)", actuator=limited)
    launch(stage, LIMIT_BYTES)
    event = failure(stage)
    assert (event.exit_code, event.out_of_memory, event.retryable) == (137, True, True)
    assert "out of memory: its processes held 96 MiB of the 96 MiB that it asked for (`--memory`)" in event.cause
    assert "SIGKILL" in event.cause


@pytest.mark.cgroup
def test_so_is_one_whose_child_the_kernel_has_ended(stage: Stage, limited: str) -> None:
    code = f"""
import subprocess, sys
worker = subprocess.run([sys.executable, "-c", {HOLDS + "hold(160)"!r}])
sys.exit("the loader has died" if worker.returncode else 0)
"""
    stage.prepare(code, actuator=limited)
    launch(stage, LIMIT_BYTES)
    event = failure(stage)
    assert (event.exit_code, event.out_of_memory) == (1, True)
    assert event.cause.startswith("out of memory: ")
    assert event.cause.endswith("its process ended with exit code 1")


@pytest.mark.cgroup
def test_a_job_within_what_it_asked_for_is_left_alone(stage: Stage, limited: str) -> None:
    stage.prepare(HOLDS + "held = hold(64); sys.exit(3)", actuator=limited)
    launch(stage, LIMIT_BYTES)
    event = failure(stage)
    assert (event.cause, event.out_of_memory) == ("its process ended with exit code 3", False)


@pytest.mark.cgroup
def test_the_cache_of_files_is_not_what_a_job_holds(stage: Stage, limited: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(48 * MIB))
    stage.prepare(
        HOLDS + "file = open('data', 'rb')\nwhile file.read(1 << 16): pass\nheld = hold(24); time.sleep(1000)",
        actuator=limited,
        cwd=str(tmp_path),
    )
    launch(stage)
    seen = stage.look_until(lambda report: report.memory_bytes >= 24 * MIB)
    assert seen.memory_bytes < 48 * MIB


def test_what_a_job_holds_is_known_without_control_groups_and_that_nothing_limits_it_is_told(stage: Stage) -> None:
    stage.prepare(HOLDS + "held = hold(64); time.sleep(1000)")
    launch(stage, 32 * MIB)
    warned = stage.wait(JobWarned)
    assert warned.reason.code == "memory-not-limited"
    assert "more memory than the 32 MiB that it asked for" in warned.reason.text
    seen = stage.look_until(lambda report: report.memory_bytes >= 64 * MIB)
    assert seen.memory_bytes < 96 * MIB


def test_memory_that_processes_share_is_counted_once(stage: Stage) -> None:
    code = HOLDS + "import os; held = hold(32); [os.fork() for _ in range(3)]; time.sleep(1000)"
    stage.prepare(code)
    launch(stage)
    seen = stage.look_until(lambda report: report.memory_bytes >= 32 * MIB)
    assert seen.memory_bytes < 8 * 32 * MIB


# On plain files.


def group_of(tmp_path: Path, version: int) -> Path:
    files = {
        1: {"memory.limit_in_bytes": str(2**63 - 4096), "memory.memsw.limit_in_bytes": "", "memory.usage_in_bytes": f"{70 * MIB}\n"},
        2: {"memory.max": "max\n", "memory.swap.max": "max\n", "memory.current": f"{70 * MIB}\n"},
    }  # fmt: skip
    prefix = {1: "total_", 2: ""}[version]
    stat = f"active_file 1\n{prefix}active_file {10 * MIB}\n{prefix}inactive_file {20 * MIB}\nanon {40 * MIB}\n"
    for name, text in {
        **files[version],
        "memory.stat": stat if version == 1 else stat.removeprefix("active_file 1\n"),
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "limit", "swap"),
    [(1, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), (2, "memory.max", "memory.swap.max")],
)
def test_a_group_is_limited_and_cannot_swap_instead(tmp_path: Path, version: int, limit: str, swap: str) -> None:
    memory = CgroupMemory(group_of(tmp_path, version))
    memory.limit(LIMIT_BYTES)
    assert (tmp_path / limit).read_text() == str(LIMIT_BYTES)
    assert (tmp_path / swap).read_text() == ("0" if version == 2 else str(LIMIT_BYTES))
    assert memory.used_bytes() == 40 * MIB
    assert {Path(path).name for path, _ in memory.counters.values()} <= {
        "memory.events", "memory.peak", "memory.oom_control", "memory.max_usage_in_bytes"
    }  # fmt: skip


def test_where_a_group_does_not_count_memory_processes_are_looked_at(tmp_path: Path) -> None:
    def processes() -> list[int]:
        return [os.getpid(), 1 << 22]

    assert memory_of([tmp_path / "none", group_of(tmp_path, 2)], processes).can_limit
    for folders in ([tmp_path / "none"], []):
        memory = memory_of(folders, processes)
        assert not memory.can_limit
        assert memory.used_bytes() > MIB


class Slow(JobMemory):
    """Memory that takes long to look at."""

    def __init__(self) -> None:
        super().__init__(list)
        self.n_looks = 0

    def used_bytes(self) -> int:
        self.n_looks += 1
        if self.n_looks > 1:
            raise OSError
        return 5


def test_memory_is_looked_at_seldom_and_what_was_seen_last_stands() -> None:
    memory = Slow()
    assert [memory.read() for _ in range(3)] == [5, 5, 5]
    assert memory.peak_bytes == 5


# In words.

ASKED = 4 << 30


@pytest.mark.parametrize(
    ("counted", "code", "asked", "seen", "expected"),
    [
        ({}, 137, ASKED, ASKED, None),
        ({OOM_KILLS: 0, PEAK_BYTES: ASKED}, 137, ASKED, 0, None),
        ({OOM_KILLS: 1, PEAK_BYTES: ASKED}, 137, ASKED, MIB, ("held 4 GiB of the 4 GiB that it asked for", True)),
        ({OOM_KILLS: 1}, 1, ASKED, ASKED, ("held 4 GiB of the 4 GiB", True)),
        ({OOM_KILLS: 1, PEAK_BYTES: 2 << 30}, 137, ASKED, 1 << 30, ("the machine had no more, when its processes had held up to 1 GiB, and the kernel killed one", False)),
        ({OOM_KILLS: 2, PEAK_BYTES: 2 << 30}, 137, 0, 0, ("the machine had no more, and the kernel killed one", False)),
        ({MACHINE_OOM_KILLS: 1}, 137, 0, 3 << 30, ("probably this one too", False)),
        ({MACHINE_OOM_KILLS: 1}, 137, ASKED, 5 << 30, ("held 5 GiB of the 4 GiB", True)),
        ({MACHINE_OOM_KILLS: 1}, 1, ASKED, 5 << 30, None),
        ({MACHINE_OOM_KILLS: 0}, 137, ASKED, 5 << 30, None),
    ],
)  # fmt: skip
def test_lack_of_memory_is_told_as_that(
    counted: dict[str, int], code: int, asked: int, seen: int, expected: tuple[str, bool] | None
) -> None:
    told = lack_of_memory({**counted, ASKED_BYTES: asked}, code, seen)
    if expected is None or told is None:
        assert told is expected is None
    else:
        assert expected[0] in told[0]
        assert told[1] is expected[1]


def test_the_end_of_a_job_that_nobody_steered_is_told_in_the_same_way() -> None:
    record = {"ended": 137, "core_s": 1.0, "counted": {OOM_KILLS: 1, PEAK_BYTES: ASKED, ASKED_BYTES: ASKED}}
    _, event = recorded_end(JOB, record, at_least=5.0)
    assert isinstance(event, JobFailed)
    assert event.cause.startswith("out of memory: its processes held 4 GiB of the 4 GiB")
    assert (event.out_of_memory, event.retryable) == (True, True)
    _, event = recorded_end(JOB, {"ended": 137, "core_s": 1.0}, at_least=5.0)  # of an earlier version
    assert isinstance(event, JobFailed)
    assert (event.cause, event.out_of_memory) == ("its process was ended by SIGKILL", False)
