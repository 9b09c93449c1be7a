"""Random kills: does every training finish, with the weights that it has when nobody disturbs it?

A small elastic training (bit for bit reproducible, a checkpoint every half second) is disturbed at random instants until it
ends: its number of workers is changed, workers are killed or stopped (SIGSTOP: it hangs), half of the times just after a change of
size was asked for, and now and then the agent is killed, after which the same command is started again. Then the daemon that steers
such a training is killed again and again, also amid changes of size and amid taking over: alone, so that the process that watches it
starts the next one; with that process, so that the command that follows the training does; or with both, so that `punctual attach`
does. Now and then the command alone is killed, which changes nothing for the training.

With ``--random`` it plays other rounds instead, 300 in about 50 minutes on two quiet cores: two commands start a daemon at once, and one
of daemon, watcher, supervisor, planner, job and command is killed at start, run, recovery or shut-down (`bench/_kills_random.py`).
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import _kills_random
from _agent import Agent
from _common import Results, parser
from _faults import send, watcher_of, words_of
from _faults_training import FINAL, Job
from _processes import home, processes_of, wait_until, workers_of
from _report import Column, Section, Target, conclude_report, table_of

from punctual.channel import SharedBlock
from punctual.core.errors import InvalidSpec
from punctual.core.events import SteeringResumed
from punctual.core.ids import JobId
from punctual.daemon.control_client import change
from punctual.daemon.control_socket import ControlFailed, ask
from punctual.daemon.run_folder import run_named
from punctual.daemon.runs import jobs_of
from punctual.executors.local.launch import MEMORY_NAME

COUNT = "{:.0f}".format

# Workers and agents are killed.

N_EPOCHS, N_EPOCHS_QUICK = 60, 40
PATIENCE_S, HANG_S = 300.0, 3.0


@dataclass
class Run:
    """One training, and what was done to it."""

    seed: int
    final: str = ""
    n_kills: int = 0
    n_stops: int = 0
    n_agents_killed: int = 0
    n_targets: int = 0
    n_resizes: int = 0
    n_steps_redone: int = 0
    took_s: float = 0.0


class Training:
    """The program under an agent; started again with the same folder when its agent was killed."""

    def __init__(self, folder: Path, n_epochs: int, n_workers: int) -> None:
        self._command, self._folder, self._n_starts = Job(n_epochs=n_epochs).command(folder / "job"), folder, 0
        self.start(n_workers)

    def start(self, n_workers: int) -> None:
        self._n_starts += 1
        self.agent = Agent(
            self._folder / f"page-{self._n_starts}", self._command, n_workers,
            variables={"PUNCTUAL_HANG_S": str(HANG_S)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.process = self.agent.process

    def final(self) -> str:
        """Return what it printed at its end."""
        output, _ = self.process.communicate(timeout=30)
        return next((line.removeprefix(FINAL) for line in output.splitlines() if line.startswith(FINAL)), "")


def undisturbed(n_epochs: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), n_epochs, 1)
        training.process.wait(PATIENCE_S)
        return training.final()


def disturbed(seed: int, n_epochs: int, n_kills: int) -> Run:
    """A run with at most so many kills: after them it is left alone, so that it ends."""
    rng, one = random.Random(seed), Run(seed)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), n_epochs, 2)
        try:
            while training.process.poll() is None and time.monotonic() < begun + PATIENCE_S:
                if one.n_kills + one.n_stops < n_kills:
                    _disturb(training, one, rng)
                time.sleep(rng.random() * 1.2)
                if training.process.poll() == -signal.SIGKILL:
                    _count(training, one)
                    training.start(rng.choice((1, 2, 3)))
            _count(training, one)
            one.final = training.final() if training.process.poll() == 0 else f"ended with {training.process.poll()}"
        finally:
            training.process.kill()
    one.took_s = time.monotonic() - begun
    return one


def _disturb(training: Training, run: Run, rng: random.Random) -> None:
    if rng.random() < 0.5:
        training.agent.send_target(rng.choice((1, 2, 3)))
        run.n_targets += 1
        time.sleep(rng.random() * 0.3)  # in the middle of the change
    workers = training.agent.workers()
    if not workers or rng.random() < 0.4:
        return
    chance = rng.random()
    if chance < 0.05:
        training.process.kill()
        run.n_agents_killed += 1
        run.n_kills += 1
    elif chance < 0.15:
        run.n_stops += send(rng.choice(workers), signal.SIGSTOP)
    else:
        run.n_kills += send(rng.choice(workers))


def _count(training: Training, run: Run) -> None:
    status = training.agent.page.worker_status()
    run.n_resizes += status.n_resizes
    run.n_steps_redone += status.n_steps_redone


def kill_workers(*, quick: bool) -> Results:
    """Trainings whose workers and agents are killed."""
    n_epochs, n_kills, n_each, n_runs = (N_EPOCHS_QUICK, 6, 6, 1) if quick else (N_EPOCHS, 100, 30, 12)
    expected = undisturbed(n_epochs)
    runs: list[Run] = []
    while sum(run.n_kills for run in runs) < n_kills and len(runs) < n_runs:
        runs.append(disturbed(len(runs), n_epochs, n_each))
        print(asdict(runs[-1]), file=sys.stderr, flush=True)
    return {"expected": expected, "runs": [asdict(run) for run in runs]}


# The daemon that steers is killed, and whoever misses it first starts the next one.

#: Epochs of a training, and the kinds of the runs with how many kills.
N_EPOCHS_STEERED = 150
STEERED = (("workers", 12), ("workers", 12), ("cores", 5))
STEERED_PATIENCE_S = 420.0
#: How long the training may take to be there, or a daemon to steer it.
START_S_MAX = 120.0
#: How long a training may be without steering.
UNSTEERED_S_MAX = 15.0
#: Processes that are killed together, as often as they stand here.
VICTIMS = (("daemon",), ("daemon", "watcher"), ("daemon", "watcher", "command"), ("command",))
#: Deadlines are moved to where the rest will take so many times what it would at the speed so far. One makes a job of workers want
#: all of them, the other the least; so the size has to change.
TIGHT, LOOSE = 0.5, 4.0
#: How long a change of size is waited for, to kill the daemon in the middle of it.
CHANGE_S_MAX = 15.0
#: What a step waits, as for data: a job that nobody steers would else leave hardly any time for a daemon to start in, since
#: a job outweighs what else runs, and the more if that is as nice as a benchmark should be.
PAUSE_S = 0.01
#: What the job may have, by the kind of the run.
SIZES = {"workers": ("--workers", "1..3"), "cores": ("--cores", "0.2..1")}


@dataclass
class Steered:
    """One training under daemons and commands that were killed."""

    seed: int
    kind: str
    final: str = ""
    n_daemons_killed: int = 0
    n_commands_killed: int = 0
    n_amid_resizes: int = 0
    n_amid_takeovers: int = 0
    n_workers_killed: int = 0
    n_deadlines: int = 0
    n_takeovers: int = 0
    unsteered_s: float = 0.0
    longest_unsteered_s: float = 0.0
    took_s: float = 0.0
    began_at: float = 0.0


class Terminal:
    """A terminal for commands, all in one home of their own."""

    def __init__(self, folder: Path) -> None:
        self._home, self._output = folder / "home", folder / "output"
        self.run = run_named("daemon")
        self.process: subprocess.Popen[bytes]

    def give(self, *arguments: str) -> None:
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "punctual", *arguments], stdout=output, stderr=output
            )

    def pid_of(self, victim: str) -> int:
        """Process id of a victim; 0: it is not there."""
        if victim == "command":
            return self.process.pid if self.process.poll() is None else 0
        daemon_pid = int(self.run.record()["pid"]) if self.run.is_live() else self._beginning_pid()
        return daemon_pid if victim == "daemon" else watcher_of(daemon_pid)

    def _beginning_pid(self) -> int:
        """Process id of a daemon that does not steer yet; 0: there is none."""
        pids = processes_of(self._home)
        return next((pid for pid in pids if watcher_of(pid) and b"punctual.api.watcher" in words_of(pid)), 0)

    def kill(self, victims: Sequence[str]) -> list[str]:
        """Kill those of the victims that are there, the daemon last, so that nobody starts it before; return them."""
        pids = {victim: self.pid_of(victim) for victim in victims}
        killed = [victim for victim in reversed(victims) if pids[victim] and send(pids[victim])]
        if "command" in killed:
            self.process.wait()
        return killed

    def is_steered(self) -> bool:
        try:
            return bool(ask(self.run.socket, {"verb": "status"}))
        except ControlFailed:
            return False

    def has_ended(self) -> bool:
        return self.process.poll() is not None and self.run.supervisor_pid(JobId("kills")) is None

    def wait_until_steered(self) -> None:
        if not wait_until(lambda: self.is_steered() or self.has_ended(), START_S_MAX, 0.05):
            raise TimeoutError(
                f"the job is not steered, command {self.process.poll()}: {self._output.read_text()[-2000:]}"
            )

    def final(self) -> str:
        """Return what the training printed at its end."""
        lines = self._output.read_text(errors="replace").splitlines()
        return next((line.removeprefix(FINAL) for line in lines if line.startswith(FINAL)), lines[-1][:200])


def steered(seed: int, kind: str, n_epochs: int, n_kills: int) -> Steered:
    """A run with so many killed daemons, if it lasts long enough; then it is left to the last daemon."""
    rng, result = random.Random(seed), Steered(seed, kind)
    begun = time.monotonic()
    job = Job(n_epochs=n_epochs, sleep_s=PAUSE_S)
    with home("kills") as folder:
        terminal = Terminal(folder)
        command = job.command(folder / "job")
        terminal.give("run", "--quiet", "--deadline", "60s", "--name", "kills", *SIZES[kind], "--", *command)
        try:
            page = _page_of(terminal)
            result.began_at = time.monotonic()
            while not terminal.has_ended() and result.n_daemons_killed < n_kills:
                _disturb_steering(terminal, page, result, rng)
            _move_deadline(terminal, page, result, 0.0)  # the rest at full speed
            terminal.process.wait(STEERED_PATIENCE_S)
            result.final = terminal.final()
            _count_takeovers(terminal, result)
        finally:
            terminal.process.terminate()
            terminal.process.wait(30)
    result.took_s = time.monotonic() - begun
    return result


def _page_of(terminal: Terminal) -> SharedBlock:
    """Return the job's page, once it has done some steps."""
    assert wait_until(lambda: _pages(terminal), START_S_MAX, 0.1), "the training has not begun"
    page = SharedBlock.open(str(_pages(terminal)[0]))
    assert wait_until(lambda: page.progress().n_steps >= 5, START_S_MAX, 0.1), "the training has done no step"
    return page


def _pages(terminal: Terminal) -> list[Path]:
    """Return where the job's keeper, once it has started, holds its page."""
    pids = [pid for job in terminal.run.jobs() if (pid := terminal.run.supervisor_pid(job)) is not None]
    with suppress(OSError):  # it is just starting, or ending
        files = [file for pid in pids for file in Path(f"/proc/{pid}/fd").iterdir()]
        return [file for file in files if MEMORY_NAME in str(file.readlink())]
    return []


def _disturb_steering(terminal: Terminal, page: SharedBlock, result: Steered, rng: random.Random) -> None:
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
    _kill(terminal, result, rng.choice(VICTIMS), rng)
    if rng.random() < 0.3:  # the next daemon may not even have begun, or be in the middle of taking over
        time.sleep(rng.random() * 3.0)
        is_amid_takeover = not terminal.is_steered()
        n_before = result.n_daemons_killed
        _kill(terminal, result, rng.choice(VICTIMS), rng)
        result.n_amid_takeovers += is_amid_takeover and result.n_daemons_killed > n_before
    terminal.wait_until_steered()


def _kill(terminal: Terminal, result: Steered, victims: Sequence[str], rng: random.Random) -> None:
    """Kill processes and, where the command was one of them, give another one a little later."""
    killed = terminal.kill(victims)
    result.n_daemons_killed += "daemon" in killed
    if "command" in killed:
        result.n_commands_killed += 1
        time.sleep(rng.random())
        terminal.give("attach", "--quiet")


def _move_deadline(terminal: Terminal, page: SharedBlock, result: Steered, slack: float) -> bool:
    n_left = max(0, page.declaration().total_steps - page.progress().n_steps)
    at_this_speed_s = n_left * (time.monotonic() - result.began_at) / page.progress().n_steps
    try:
        change(jobs_of(terminal.run)[0], when=f"{max(5.0, slack * at_this_speed_s):.1f}s")
    except InvalidSpec:  # it has just ended
        return False
    return True


def _await_change(terminal: Terminal, page: SharedBlock) -> bool:
    """Wait for the middle of a change of size; whether one came soon."""

    def is_amid() -> bool:
        return page.worker_target().request != page.worker_status().request

    wait_until(lambda: is_amid() or terminal.process.poll() is not None, CHANGE_S_MAX, 0.002)
    return is_amid()


def _kill_worker(page: SharedBlock, rng: random.Random) -> bool:
    agent_pid = page.worker_status().agent_pid
    workers = workers_of(agent_pid) if agent_pid else []
    return bool(workers) and send(rng.choice(workers))


def _count_takeovers(terminal: Terminal, result: Steered) -> None:
    """Add what the journal says of takeovers."""
    with terminal.run.read_journal() as journal:
        resumed = [message for _, message in journal.read_from(1) if isinstance(message, SteeringResumed)]
    result.n_takeovers = len(resumed)
    without_s = [one.at - one.lost_at for one in resumed]
    result.unsteered_s, result.longest_unsteered_s = sum(without_s), max(without_s, default=0.0)


def kill_daemons(*, quick: bool) -> Results:
    """Trainings whose daemons and commands are killed and that are taken over."""
    n_epochs, kinds = (30, (("workers", 1),)) if quick else (N_EPOCHS_STEERED, STEERED)
    expected = undisturbed(n_epochs)
    runs: list[Steered] = []
    for seed, (kind, n_kills) in enumerate(kinds):
        runs.append(steered(seed, kind, n_epochs, n_kills))
        print(asdict(runs[-1]), file=sys.stderr, flush=True)
    return {"expected": expected, "runs": [asdict(run) for run in runs]}


# What is told of them.

PARTS: dict[str, Callable[..., Results]] = {"workers": kill_workers, "daemons": kill_daemons}
#: Columns of each part, as many heads as keys.
HEADS = {
    "workers": {
        "workers and agents killed": "n_kills", "agents": "n_agents_killed", "stopped": "n_stops",
        "sizes asked for": "n_targets", "resizes": "n_resizes", "steps redone": "n_steps_redone",
    },
    "daemons": {
        "daemons killed": "n_daemons_killed", "commands": "n_commands_killed", "amid a change of size": "n_amid_resizes",
        "amid taking over": "n_amid_takeovers", "workers killed": "n_workers_killed", "deadlines moved": "n_deadlines",
        "taken over": "n_takeovers", "unsteered (s)": "unsteered_s", "longest (s)": "longest_unsteered_s", "of (s)": "took_s",
    },
}  # fmt: skip
#: Those of them that count processes which were killed.
KILLED = ("n_kills", "n_workers_killed", "n_daemons_killed", "n_commands_killed")


def measured(*, quick: bool) -> Results:
    return {part: measure(quick=quick) for part, measure in PARTS.items()}


def sections(results: Results) -> list[Section]:
    if "n_rounds" in results:
        return _kills_random.sections(results)
    workers = _section("Trainings whose workers and agents are killed", results, "workers", {"run": "seed"})
    daemons = _section(
        "Trainings whose daemons and commands are killed", results, "daemons", {"run": "seed", "steered by": "kind"}
    )
    longest_s = max(run["longest_unsteered_s"] for run in results["daemons"]["runs"])
    unsteered = Target("longest time without steering (s)", UNSTEERED_S_MAX, longest_s, "{:.1f}".format)
    return [workers, replace(daemons, targets=[*daemons.targets, unsteered])]


def _section(name: str, results: Results, part: str, rows: dict[str, str]) -> Section:
    expected = results[part]["expected"]
    runs = [
        {**run, "same": "yes" if run["final"] == expected else f"NO: {run['final']}"} for run in results[part]["runs"]
    ]
    columns = [
        *(Column(head, key, COUNT) for head, key in HEADS[part].items()),
        Column("as undisturbed", "same", str, max),
    ]
    n_killed = sum(run.get(key, 0) for run in runs for key in KILLED)
    n_same = sum(bool(expected) and run["final"] == expected for run in runs)
    text = f"trainings of {len(runs)} that ended with the undisturbed one's weights, {n_killed} kills"
    return Section(name, *table_of(runs, rows, columns), [Target(text, len(runs), n_same, COUNT, at_least=True)])


def main() -> int:
    made = parser(__doc__ or "")
    made.add_argument("--random", action="store_true", help="play random kills; goes on where it was interrupted")
    made.add_argument("--rounds", type=int, default=300, help="random kills in all (default: 300)")
    made.add_argument("--minutes", type=float, default=120.0, help="begin no round of them later (default: 120)")
    made.add_argument("--seed", type=int, default=0, help="of random kills")
    made.add_argument("--round", type=int, help="this random kill alone, by its number")
    made.add_argument("--log", type=Path, help="file of the rounds that were played (default: one for each revision)")
    options = made.parse_args()
    if options.random:
        results = _kills_random.play_rounds(options.rounds, options.seed, options.minutes, options.round, options.log)
        return conclude_report("kills_random", results, sections, quick=options.round is not None)
    return conclude_report("kills", measured(quick=options.quick), sections, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
