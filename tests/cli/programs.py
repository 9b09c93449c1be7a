"""Small training programs for the tests, and the command line: as a user has it, or without a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tests.forked_python import ForkedPython
from tests.no_successor import hold_back_successors
from tests.waiting import PATIENCE_S, wait_until

from punctual.cli import main
from punctual.daemon.run_folder import RunFolder

#: Steps of 10 ms of CPU time: a step of the programs below.
SPIN = """
import time
def step(seconds=0.01):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
"""

TRACKED = (
    SPIN
    + """
import sys, punctual
n = int(sys.argv[1])
for i in punctual.track(range(n), total_steps=n):
    step()
print("trained", n, flush=True)
"""
)

#: The same, which lets others compute: for tests that end it, or ask nothing of its CPU time.
TRACKED_IDLE = TRACKED.replace("step()", "time.sleep(0.01)")

#: Reports losses that reach 0.2 at step 80; after 60 steps it waits until it may go on.
LOSING = (
    SPIN
    + """
import pathlib, time, punctual
run = punctual.track(range(2000), epochs=1)
for i in run:
    step()
    run.report_loss(1 / (1 + (i + 1) / 20))
    while i == 60 and not pathlib.Path("go").exists():
        time.sleep(0.01)
print("left after", run.step + 1, flush=True)
"""
)

#: Waits, when it has begun, until it may go on: what a test says to it in between comes in time on any machine.
PAUSING = (
    SPIN
    + """
import pathlib, time, punctual
for i in punctual.track(range(200), total_steps=200):
    step(0.0005)
    while i == 20 and not pathlib.Path("go").exists():
        pathlib.Path("begun").touch()
        time.sleep(0.01)
print("trained", flush=True)
"""
)

#: The same, with a minute of work, most of which it leaves out once there is a file `soon`.
PAUSING_LONG = PAUSING.replace("200", "3000").replace(
    "step(0.0005)", "step(0.02 if i <= 20 or not pathlib.Path('soon').exists() else 0)"
)

STOPPABLE = """
import pathlib, sys, time, punctual
@punctual.on_stop
def save():
    pathlib.Path(sys.argv[1]).write_text("saved")
for i in punctual.track(range(5000), total_steps=5000):
    time.sleep(0.01)
"""

#: Says which process it is, and does not end when it is asked to.
STUBBORN = """
import os, pathlib, sys, time, punctual
@punctual.on_stop
def save():
    pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(100)
for i in punctual.track(range(5000), total_steps=5000):
    time.sleep(0.01)
"""

PRINTING = (
    SPIN
    + """
n = 150
for i in range(n):
    step()
    print(f"step {i + 1}/{n}", flush=True)
"""
)

#: The same, for tests that do not ask when it ends.
PRINTING_SOON = PRINTING.replace("step()", "step(0.002)")

FAILING = "import sys; sys.exit(7)"
SILENT = SPIN + "step(0.3)"
ZERO_STEPS = "import punctual\nfor i in punctual.track([], total_steps=0): pass"
FEWER_STEPS = SPIN + "import punctual\nfor i in punctual.track(range(20), total_steps=40): step()"
MORE_STEPS = SPIN + "import punctual\nfor i in punctual.track(range(40), total_steps=20): step()"

#: Options of `punctual simulate`: in the process of the command itself, and without its page, which is drawn for longer than it
#: is simulated.
INLINE = ("--processes", "1", "--no-report")


def without_rights(*rights: int, before: str = "") -> str:
    """The program of `punctual` as a user has it: root too has none of these rights from now on, nor what it starts."""
    return f"""
import ctypes, os, resource, runpy, sys
library = ctypes.CDLL(None)
header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
library.capget(header, sets)
for right in {rights}:
    library.prctl(24, right, 0, 0, 0)  # PR_CAPBSET_DROP
    for i in range(3):  # effective, permitted, inheritable
        sets[i] &= ~(1 << right)
library.capset(header, sets)
{before}
runpy.run_module("punctual", run_name="__main__", alter_sys=True)
"""


class Terminal:
    """Runs `punctual` in a home of its own."""

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        self.folder = folder
        self.home = folder / "home" if home is None else home
        self.environment = {**os.environ, "PUNCTUAL_HOME": str(self.home)}
        self._started: list[subprocess.Popen[str]] = []
        self._daemons: set[int] = set()
        self._locks: list[int] = []

    def script(self, text: str, name: str = "train.py") -> list[str]:
        """The command that runs `text` as a script."""
        path = self.folder / name
        path.write_text(text)
        return [sys.executable, str(path)]

    def hide_torch(self) -> None:
        """Have commands that look for PyTorch from now on find one that cannot be loaded: to load it takes them seconds."""
        (self.folder / "torch.py").write_text("raise ImportError")

    def punctual(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def tell(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that starts no job to its end, in this process: to start another one takes longer than most."""
        output, errors = StringIO(), StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
            patch.chdir(self.folder)
            patch.setenv("PUNCTUAL_HOME", str(self.home))
            patch.setattr(sys, "argv", ["punctual", *arguments])
            with pytest.raises(SystemExit) as left:
                main()
        code = left.value.code or 0
        assert isinstance(code, int)
        return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command, with its modules loaded beforehand; `close` ends it if the test does not."""
        return self.start_forked("-m", "punctual", *arguments)

    def start_forked(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a Python program in the same home, with the modules of commands loaded beforehand."""
        return self._begun(ForkedPython, *arguments)

    def start_on(self, output_fd: int, *arguments: str, errors_fd: int | None = None) -> subprocess.Popen[str]:
        """The same, with what it writes going to `output_fd`: a terminal, for instance; and its errors, if given, elsewhere."""
        return self._begun(
            ForkedPython, "-m", "punctual", *arguments, output_fd=output_fd,
            errors_fd=output_fd if errors_fd is None else errors_fd,
        )  # fmt: skip

    def start_python(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a Python program in the same home; `close` ends it if the test does not."""
        return self._begun(subprocess.Popen, *arguments)

    def _begun(
        self,
        popen: "type[subprocess.Popen[str]]",
        *arguments: str,
        output_fd: int = subprocess.PIPE,
        errors_fd: int = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        process = popen(
            [sys.executable, *arguments], env=self.environment, cwd=self.folder, text=True, stdout=output_fd,
            stderr=errors_fd,
        )  # fmt: skip
        self._started.append(process)
        return process

    def begin(self, program: str, *options: str) -> subprocess.Popen[str]:
        """Run `program` as a job, up to where it touches the file `begun` and waits for the file `go`."""
        run = self.start("run", *options, "--", *self.script(program))
        wait_until(lambda: (self.folder / "begun").exists() or run.poll() is not None)
        return run

    def go_on(self) -> None:
        (self.folder / "go").touch()

    def jobs(self) -> list[dict[str, Any]]:
        """What `punctual ps` says of each job, as far as it is known."""
        listed = self.tell("ps", "--json")
        assert listed.returncode == 0, listed.stderr
        told = [json.loads(line) for line in listed.stdout.splitlines()]
        return [{key: value for key, value in job.items() if value is not None} for job in told]

    def wait_for_job(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The one running job, once `holds` is true of it."""
        return wait_until(lambda: [job for job in self.jobs() if holds(job)])[0]

    def left_behind(self) -> list[str]:
        """What runs should have removed by now: sockets and pages, and control groups, named after their makers."""
        live = self.home / "runtime" / "live"
        files = list(live.rglob("*")) if live.exists() else []
        makers = {*(process.pid for process in self._started), *self._daemons}
        groups = [path for pid in makers for path in Path("/sys/fs/cgroup").glob(f"*/punctual/{pid}-*")]
        return [str(path) for path in files + groups]

    def daemons(self) -> list[int]:
        """The processes that steer jobs of this home now."""
        live = self.home / "runtime" / "live"
        names = [path.name for path in live.iterdir() if path.is_dir()] if live.exists() else []
        runs = [RunFolder(name, live / name, self.home / "state" / "runs" / name) for name in names]
        self._daemons.update(pid for run in runs if (pid := run.daemon_pid()) is not None)
        return [pid for pid in self._daemons if Path(f"/proc/{pid}").exists()]

    def has_cleared_up(self) -> bool:
        """Whether no job runs and nothing is left; what a job leaves that nobody steered is removed by the next command."""
        return self.jobs() == [] and self.left_behind() == []

    def kill_daemon(self) -> None:
        """Kill the one daemon, and the process that would start it again; no job starts one either."""
        self.hold_back_successors()
        (pid,) = self.daemons()
        watcher_pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        for killed in (watcher_pid, pid):
            os.kill(killed, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pid}").exists())

    def hold_back_successors(self) -> None:
        """Keep the jobs of a daemon that is killed or stopped from starting another one, up to `close`."""
        if (lock := hold_back_successors(self.home)) >= 0:  # else it has it already, or nobody can
            self._locks.append(lock)

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(PATIENCE_S / 4)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        for job in self.jobs() if self.daemons() or self.left_behind() else []:  # nobody waits for it any more
            self.tell("stop", job["job"])
        wait_until(lambda: self.daemons() == [])
        if self.left_behind():
            self.jobs()  # clears away what a command left that was killed, or began to follow at the very end
        for lock in self._locks:
            os.close(lock)


def objects(output: str) -> list[dict[str, Any]]:
    """The JSON lines in `output`."""
    return [json.loads(line) for line in output.splitlines()]
