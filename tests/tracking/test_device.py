"""The clock of a device, and turns on one that jobs share."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.waiting import wait_until

import punctual
from punctual.channel import DEVICE_SHARE_VARIABLE, DEVICE_TURNS_VARIABLE, SharedBlock
from punctual.testing.stand_in_device import OutOfDeviceMemoryError, StandInDevice
from punctual.tracking import device as devices
from punctual.tracking.device import DeviceClock, DeviceTurns

WORK_S = 0.002


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInDevice:
    """The device of this process, as the client can tell."""
    monkeypatch.setattr(devices, "_registered", None)
    made = StandInDevice(str(tmp_path / "device"))
    punctual.use_device(made)
    return made


def test_what_the_device_computes_is_published(page: SharedBlock, device: StandInDevice) -> None:
    for i, _ in enumerate(punctual.track(range(10), epochs=1)):
        device.launch(WORK_S)
        assert page.progress().device_ns == max(0, i - 1) * 2_000_000, "one unit may be under way on the device"
    progress = page.progress()
    assert progress.device_ns == 20_000_000, "all has been done when all steps are"
    assert progress.busy_ns >= progress.device_ns


def test_the_work_of_phases_is_theirs(page: SharedBlock, device: StandInDevice) -> None:
    for _ in punctual.track(range(2), epochs=1, phases=["evaluate"]):
        device.launch(WORK_S)
    with punctual.phase("evaluate", units=3) as progress:
        for _ in range(3):
            device.launch(0.003)
            progress.advance()
    (entry,) = page.phases()
    assert (entry.device_ns, page.progress().device_ns) == (9_000_000, 13_000_000)
    assert entry.wall_ns >= entry.device_ns


def test_a_paced_step_is_done_when_the_device_is(
    page: SharedBlock, device: StandInDevice, pace: Callable[..., None]
) -> None:
    pace(0.02, 5)
    directives = page.directives()
    for i, _ in enumerate(punctual.track(range(5), epochs=1)):
        assert page.progress().device_ns == i * 2_000_000
        device.launch(WORK_S)
    assert page.progress().stamp_ns >= directives.end_ns


def test_the_wait_for_the_line_is_no_time_of_the_job(page: SharedBlock, pace: Callable[..., None]) -> None:
    pace(0.1, 5)
    begun_ns = time.monotonic_ns()
    for _ in punctual.track(range(5), epochs=1):
        pass
    took_ns = time.monotonic_ns() - begun_ns
    waited_ns = 400_000_000  # the line itself, less what may have passed before it was read
    assert page.progress().busy_ns <= took_ns - waited_ns


def test_nothing_is_asked_of_a_device_without_punctual(device: StandInDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "mark", lambda: pytest.fail("there is nobody to tell"))
    assert list(punctual.track(range(3), epochs=1)) == [0, 1, 2]


def test_a_device_that_cannot_be_timed_ends_no_training(
    page: SharedBlock, device: StandInDevice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise RuntimeError("the driver has gone")

    monkeypatch.setattr(device, "mark", broken)
    assert list(punctual.track(range(3), epochs=1)) == [0, 1, 2]
    assert page.progress().n_steps == 3
    told = capsys.readouterr().err
    assert told.count("the driver has gone") == 1, told


def test_name_and_memory_are_told(page: SharedBlock, device: StandInDevice) -> None:
    device.allocate(1000)
    list(punctual.track(range(2), epochs=1))
    use = page.device()
    assert (use.name, use.memory_bytes, use.total_bytes) == ("stand-in device", 1000, 2**30)


def test_the_memory_of_a_device_is_shared_and_ends_with_its_processes(tmp_path: Path) -> None:
    path = str(tmp_path / "device")
    device = StandInDevice(path, total_bytes=100)
    take = f"from punctual.testing.stand_in_device import StandInDevice; StandInDevice({path!r}, 100).allocate(60); input()"
    other = subprocess.Popen([sys.executable, "-c", take], stdin=subprocess.PIPE)

    def is_full() -> bool:
        try:
            StandInDevice(path, total_bytes=100).allocate(50)
        except OutOfDeviceMemoryError:
            return True
        return False

    wait_until(lambda: (tmp_path / "device.memory").stat().st_size > 0)
    wait_until(is_full)
    other.communicate()
    device.allocate(100)


OTHER = """
import sys, time
from punctual.tracking.device import DeviceTurns
turns = DeviceTurns(sys.argv[1], 0.5)
while True:
    turns.take()
    print("held", turns.is_held, flush=True)
    if sys.argv[2] == "keeps":
        sys.stdin.read()
    time.sleep(0.02)
    turns.give_up()
"""


def other_process(path: Path, what: str) -> subprocess.Popen[str]:
    """A process that has had a turn on the device."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path), what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held True\n"
    return process


def test_processes_have_the_device_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "device"
    turns, other = DeviceTurns(str(path), 0.5), other_process(path, "goes on")
    try:
        for _ in range(3):
            turns.take()
            assert turns.is_held
            wait_until(turns.is_over)  # the other one waits, and this turn has lasted its time
            turns.give_up()
            assert other.stdout is not None
            assert other.stdout.readline() == "held True\n", "it comes before this one"
        assert turns.n_turns == 3
    finally:
        other.kill()
        other.communicate()


def test_a_turn_goes_on_where_nobody_waits(tmp_path: Path) -> None:
    turns = DeviceTurns(str(tmp_path / "device"), 0.01)
    turns.take()
    time.sleep(0.01)
    assert not turns.is_over()
    assert turns.take() == 0, "it is held already"


def test_a_process_that_keeps_its_turn_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "device"
    turns, other = DeviceTurns(str(path), 0.5), other_process(path, "keeps")
    assert turns.take() >= 2_000_000_000
    assert not turns.is_held
    assert turns.take() < 1_000_000_000, "nor waited for again"
    other.kill()
    other.communicate()
    turns.take()
    assert turns.is_held, "the locks ended with the process"


def test_the_environment_says_which_part_of_the_device_is_the_jobs(
    device: StandInDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEVICE_TURNS_VARIABLE, str(tmp_path / "turns"))
    monkeypatch.setenv(DEVICE_SHARE_VARIABLE, "0.25")
    clock = DeviceClock.of_this_process()
    assert clock is not None
    clock.begin()
    device.launch(WORK_S)
    clock.end(is_done=True)
    assert (clock.ns, clock.use().n_turns) == (2_000_000, 1)
