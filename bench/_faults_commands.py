"""Killing the command that steers: `punctual run` dies at a random moment, and `punctual attach` takes its job over."""

import random
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from _faults import send
from _faults_training import FINAL, Job
from _processes import home, wait_until, workers_of

from punctual.channel import Page
from punctual.core.errors import InvalidSpec
from punctual.core.events import SteeringResumed
from punctual.core.ids import JobId
from punctual.daemon.control_client import change
from punctual.daemon.control_socket import ControlFailed, ask
from punctual.daemon.run_folder import run_named
from punctual.daemon.runs import jobs_of
from punctual.executors.local.launch import MEMORY_NAME

PATIENCE_S = 420.0
#: How long the training may take to be there, or a command to steer it.
START_S_MAX = 120.0
#: Deadlines are moved to where the rest will take so many times what it would at the speed so far. One makes a job of workers want
#: all of them, the other the least; so the size has to change.
TIGHT, LOOSE = 0.5, 4.0
#: How long a change of size is waited for, to kill the command in the middle of it.
CHANGE_S_MAX = 15.0
#: What a step waits, as for data: a job that nobody steers would else leave hardly any time for a command to start in, since
#: a job outweighs what else runs, and the more if that is as nice as a benchmark should be.
PAUSE_S = 0.01
#: What the job may have, by the kind of the run.
SIZES = {"workers": ("--workers", "1..3"), "cores": ("--cores", "0.2..1")}


@dataclass
class Steered:
    """One training under commands that were killed."""

    seed: int
    kind: str
    final: str = ""
    n_commands_killed: int = 0
    n_amid_resizes: int = 0
    n_amid_takeovers: int = 0
    n_workers_killed: int = 0
    n_deadlines: int = 0
    n_takeovers: int = 0
    unsteered_s: float = 0.0
    ended_steered: bool = False
    took_s: float = 0.0
    began_at: float = 0.0


class Terminal:
    """Where the commands are given; all in one home of their own."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "output"
        self.run = run_named("kills")
        self.process: subprocess.Popen[bytes]

    def give(self, *arguments: str) -> None:
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "punctual", *arguments], stdout=output, stderr=output
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def is_steered(self) -> bool:
        try:
            return bool(ask(self.run.socket, {"verb": "status"}))
        except ControlFailed:
            return False

    def has_ended(self) -> bool:
        return self.process.poll() is not None and self.run.keeper_pid(JobId("kills")) is None

    def wait_until_steered(self) -> None:
        if not wait_until(lambda: self.is_steered() or self.has_ended(), START_S_MAX, 0.05):
            raise TimeoutError(
                f"the job is not steered, attach {self.process.poll()}: {self._output.read_text()[-2000:]}"
            )

    def final(self) -> str:
        """Return what the training printed at its end."""
        lines = self._output.read_text(errors="replace").splitlines()
        return next((line.removeprefix(FINAL) for line in lines if line.startswith(FINAL)), lines[-1][:200])


def disturbed(seed: int, kind: str, n_epochs: int, n_kills: int) -> Steered:
    """A run with so many killed commands, if it lasts long enough; then it is left to the last one."""
    rng, result = random.Random(seed), Steered(seed, kind)
    begun = time.monotonic()
    job = Job(n_steps=0, workers=(1, 3), n_epochs=n_epochs, sleep_s=PAUSE_S)
    with home("kills") as folder:
        terminal = Terminal(folder)
        command = job.command(folder / "job")
        terminal.give("run", "--quiet", "--deadline", "60s", "--name", "kills", *SIZES[kind], "--", *command)
        try:
            page = _page_of(terminal)
            result.began_at = time.monotonic()
            while not terminal.has_ended() and result.n_commands_killed < n_kills:
                _disturb(terminal, page, result, rng)
            _move_deadline(terminal, page, result, 0.0)  # the rest at full speed
            terminal.process.wait(PATIENCE_S)
            result.ended_steered = terminal.process.returncode == 0
            result.final = terminal.final()
            _count(terminal, result)
        finally:
            terminal.process.terminate()
            terminal.process.wait(30)
    result.took_s = time.monotonic() - begun
    return result


def _page_of(terminal: Terminal) -> Page:
    """Return the job's page, once it has done some steps."""
    assert wait_until(lambda: _pages(terminal), START_S_MAX, 0.1), "the training has not begun"
    page = Page.open(str(_pages(terminal)[0]))
    assert wait_until(lambda: page.progress().n_steps >= 5, START_S_MAX, 0.1), "the training has done no step"
    return page


def _pages(terminal: Terminal) -> list[Path]:
    """Return where the job's keeper, once it has started, holds its page."""
    pids = [pid for job in terminal.run.jobs() if (pid := terminal.run.keeper_pid(job)) is not None]
    with suppress(OSError):  # it is just starting, or ending
        files = [file for pid in pids for file in Path(f"/proc/{pid}/fd").iterdir()]
        return [file for file in files if MEMORY_NAME in str(file.readlink())]
    return []


def _disturb(terminal: Terminal, page: Page, result: Steered, rng: random.Random) -> None:
    time.sleep(rng.random())
    if result.kind == "workers" and rng.random() < 0.3:
        result.n_workers_killed += _kill_worker(page, rng)
    if rng.random() < 0.8:
        slack = (
            LOOSE if page.worker_status().n_workers > 1 or (result.kind == "cores" and rng.random() < 0.5) else TIGHT
        )
        result.n_deadlines += _move_deadline(terminal, page, result, slack)
    is_amid = result.kind == "workers" and rng.random() < 0.8 and _await_change(terminal, page)
    time.sleep(rng.random() * (0.05 if is_amid else 2.0))
    if terminal.process.poll() is not None:
        return
    result.n_amid_resizes += page.worker_target().request != page.worker_status().request
    terminal.kill()
    result.n_commands_killed += 1
    time.sleep(rng.random())
    terminal.give("attach", "--quiet")
    if rng.random() < 0.3:  # it may not even have begun, or be in the middle of taking over
        time.sleep(rng.random() * 3.0)
        if terminal.process.poll() is None:
            result.n_amid_takeovers += not terminal.is_steered()
            terminal.kill()
            result.n_commands_killed += 1
            terminal.give("attach", "--quiet")
    terminal.wait_until_steered()


def _move_deadline(terminal: Terminal, page: Page, result: Steered, slack: float) -> bool:
    n_left = max(0, page.declaration().total_steps - page.progress().n_steps)
    at_this_speed_s = n_left * (time.monotonic() - result.began_at) / page.progress().n_steps
    try:
        change(jobs_of(terminal.run)[0], when=f"{max(5.0, slack * at_this_speed_s):.1f}s")
    except InvalidSpec:  # it has just ended
        return False
    return True


def _await_change(terminal: Terminal, page: Page) -> bool:
    """Wait for the middle of a change of size; whether one came soon."""

    def is_amid() -> bool:
        return page.worker_target().request != page.worker_status().request

    wait_until(lambda: is_amid() or terminal.process.poll() is not None, CHANGE_S_MAX, 0.002)
    return is_amid()


def _kill_worker(page: Page, rng: random.Random) -> bool:
    agent_pid = page.worker_status().agent_pid
    workers = workers_of(agent_pid) if agent_pid else []
    return bool(workers) and send(rng.choice(workers))


def _count(terminal: Terminal, result: Steered) -> None:
    """Add what the journal says of takeovers."""
    with terminal.run.read_journal() as journal:
        resumed = [message for _, message in journal.read_from(1) if isinstance(message, SteeringResumed)]
    result.n_takeovers = len(resumed)
    result.unsteered_s = sum(one.at - one.lost_at for one in resumed)
