"""A service of its own home on a small disk, and what can be done to it."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from _faults import groups_of

from punctual.daemon.paths import HOME_VARIABLE
from punctual.daemon.run_folder import RunFolder, run_named
from punctual.executors.local.cgroup_files import COMMAND_GROUP

#: A service that says nothing for so long hangs.
PATIENCE_S = 60.0
_DISK_BYTES = 24 << 20
#: What each process of a service reads at its start: its wall clock shows what a file says beside it. The monotonic clock
#: stays as it is. (libfaketime 0.9.10 has `time.sleep` of Python 3.11 fail.)
_FAKE_CLOCK = """
import pathlib, time
_file, _real = pathlib.Path(__file__).with_name("by_s"), time.time
time.time = lambda: _real() + float(_file.read_text())
"""


class LiveService:
    """`punctual up`, started again whenever it is gone.

    Attributes
    ----------
    pids
        Of all services that there were.
    refused
        What those said that could not start.
    """

    def __init__(self, folder: Path, actuator: str) -> None:
        self.folder, self.home = folder, folder / "home"
        self._options = ["--actuator", actuator]
        self._clock, self._output = folder / "clock" / "by_s", folder / "service.log"
        self._clock.parent.mkdir()
        self._clock.with_name("sitecustomize.py").write_text(_FAKE_CLOCK)
        self.step_clock(0)
        self.pids: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self.run: RunFolder = run_named("service")

    # Its process.

    def start(self) -> str | None:
        """Start it, and return once it answers; else what it says why it does not."""
        said_before = self._output.stat().st_size if self._output.exists() else 0
        with self._output.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "punctual", "up", "--listen", "127.0.0.1:0", "--json", *self._options],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output, env=self._environment(),
            )  # fmt: skip
        assert process.stdout is not None
        self.pids.append(process.pid)
        line = b""
        if select.select([process.stdout], [], [], PATIENCE_S)[0]:
            line = process.stdout.readline()
        if line:
            self._process = process
            return None
        process.kill()
        code = process.wait()
        return f"ended with {code}: {self._output.read_bytes()[said_before:].decode(errors='replace')[-2000:]}"

    def is_there(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def replace(self) -> tuple[str | None, "subprocess.Popen[bytes]"]:
        """Start another one beside the one that there is: why that did not start, and the one before."""
        before = self.process
        return self.start(), before

    def end(self) -> str | None:
        """End it as its user does; what is wrong about that."""
        if not self.is_there():
            return "the service was not there at the end"
        self.process.terminate()
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return "the service did not end"
        return None if code == 0 else f"the service ended with {code}"

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        """The last of what its processes have said."""
        return self._output.read_text(errors="replace")[-3000:] if self._output.exists() else ""

    def _environment(self) -> dict[str, str]:
        places = [str(self._clock.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return {**os.environ, HOME_VARIABLE: str(self.home), "PYTHONPATH": os.pathsep.join(filter(None, places))}

    def quotas_cores(self) -> dict[str, float]:
        """What the control groups of its jobs allow them; without a quota that is the whole machine.

        A job that stands still is allowed nothing, whatever its quota says.
        """
        spared = {group.name for group in groups_of(self.pids, ("freezer", "")) if _is_frozen(group)}
        spared |= {f"{pid}-{COMMAND_GROUP}" for pid in self.pids}  # the service itself
        cores: dict[str, float] = {}
        for group in groups_of(self.pids, ("cpu",)):
            quota, period = (_said(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
            moving = [pid for pid in _said(group / "cgroup.procs").split() if not _is_stopped(pid)]
            if group.name not in spared and quota and period and moving:
                cores[group.name] = (os.cpu_count() or 1) if int(quota) < 0 else int(quota) / int(period)
        return cores

    # Its world.

    def step_clock(self, by_s: int) -> None:
        """Have the wall clock of services show another time, from now on."""
        written = self._clock.with_suffix(".new")
        written.write_text(f"{by_s:+d}\n")
        written.replace(self._clock)

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """There is no room on it meanwhile."""
        filler = self.home / "filler"
        with filler.open("ab", buffering=0) as file:
            for n_bytes in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while file.write(b"x" * n_bytes):
                        pass
        try:
            yield
        finally:
            filler.unlink()

    @contextmanager
    def read_only_store(self) -> Iterator[None]:
        """Nothing can be opened for writing where journals are; what is open stays so."""
        place = str((self.home / "state").resolve())
        _mount("--bind", place, place)
        try:
            _mount("-o", "remount,bind,ro", place)
            yield
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """The home in `folder` lies on a small disk meanwhile."""
    place = folder / "disk"
    place.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={_DISK_BYTES},mode=700", "tmpfs", str(place))
    try:
        (folder / "home").symlink_to(place)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _is_frozen(group: Path) -> bool:
    return _said(group / "freezer.state") == "FROZEN" or "frozen 1" in _said(group / "cgroup.events")


def _is_stopped(pid: str) -> bool:
    """Whether a signal has it stand still, as jobs are paused where there is no freezer."""
    return _said(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] == ["T"]


def _said(file: Path) -> str:
    """What is in a control group's file; empty: the group is gone."""
    with suppress(OSError):
        return file.read_text().strip()
    return ""


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def code_of(process: "subprocess.Popen[bytes]") -> int | None:
    """With what it ends; None: it does not."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(PATIENCE_S)
    return None
