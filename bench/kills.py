"""Random kills: does every training finish, with the weights that it has when nobody disturbs it?

A small elastic training (bit for bit reproducible, a checkpoint every half second) is disturbed at random instants until it
ends: its number of workers is changed, workers are killed or stopped (SIGSTOP: it hangs), half of the times just after a change of
size was asked for, and now and then the agent is killed, after which the same command is started again. Every
run must print the same step count and the same checksum of all weights and buffers as the undisturbed one.

Then the command that steers such a training is killed, again and again, in the middle of a change of size and in the middle of
taking over as well, and `punctual attach` steers on; see `_faults_commands`.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import _faults_commands
from _agent import Agent
from _common import Results
from _faults import Part, conclude_parts, page_of, parser_of, send
from _faults_training import FINAL, Job

N_EPOCHS = 60
N_KILLS = 100
#: Of the trainings whose commands are killed: epochs, and the kinds of the runs with how many kills.
N_EPOCHS_STEERED = 150
STEERED = (("workers", 12), ("workers", 12), ("cores", 5))
PATIENCE_S = 300.0
HANG_S = 3.0


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
        job = Job(n_steps=0, workers=(1, 3), n_epochs=n_epochs, sleep_s=0.0)
        self._command, self._folder, self._n_starts = job.command(folder / "job"), folder, 0
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
    rng, run = random.Random(seed), Run(seed)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), n_epochs, 2)
        try:
            while training.process.poll() is None and time.monotonic() < begun + PATIENCE_S:
                if run.n_kills + run.n_stops < n_kills:
                    _disturb(training, run, rng)
                time.sleep(rng.random() * 1.2)
                if training.process.poll() == -signal.SIGKILL:
                    _count(training, run)
                    training.start(rng.choice((1, 2, 3)))
            _count(training, run)
            run.final = training.final() if training.process.poll() == 0 else f"ended with {training.process.poll()}"
        finally:
            training.process.kill()
    run.took_s = time.monotonic() - begun
    return run


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
        run.n_agents_killed += 1
        run.n_kills += send(training.process.pid)
    elif chance < 0.15:
        run.n_stops += send(rng.choice(workers), signal.SIGSTOP)
    else:
        run.n_kills += send(rng.choice(workers))


def _count(training: Training, run: Run) -> None:
    status = training.agent.page.worker_status()
    run.n_resizes += status.n_resizes
    run.n_steps_redone += status.n_steps_redone


def kill_workers(options: Namespace) -> dict[str, Any]:
    """Trainings whose workers and agents are killed."""
    n_epochs, n_kills, n_each, n_runs = (12, 6, 6, 1) if options.quick else (N_EPOCHS, N_KILLS, 30, 12)
    expected = undisturbed(n_epochs)
    runs: list[Run] = []
    while sum(run.n_kills for run in runs) < n_kills and len(runs) < n_runs:
        runs.append(disturbed(options.seed + len(runs), n_epochs, n_each))
        print(asdict(runs[-1]), file=sys.stderr, flush=True)
    return {"expected": expected, "runs": [asdict(run) for run in runs]}


def kill_commands(options: Namespace) -> dict[str, Any]:
    """Trainings whose commands are killed and that are taken over."""
    n_epochs, kinds = (30, (("workers", 1),)) if options.quick else (N_EPOCHS_STEERED, STEERED)
    expected = undisturbed(n_epochs)
    runs: list[_faults_commands.Steered] = []
    for seed, (kind, n_kills) in enumerate(kinds, options.seed):
        runs.append(_faults_commands.disturbed(seed, kind, n_epochs, n_kills))
        print(asdict(runs[-1]), file=sys.stderr, flush=True)
    return {"expected": expected, "runs": [asdict(run) for run in runs]}


def _rows(part: Results, columns: Sequence[str]) -> list[list[str]]:
    return [
        [
            *(f"{run[key]:.0f}" if isinstance(run[key], float) else str(run[key]) for key in columns),
            "yes" if run["final"] == part["expected"] else f"NO: {run['final']}",
        ]
        for run in part["runs"]
    ]


def _short(part: Results) -> list[str]:
    return [
        f"seed {run['seed']}: ended as {run['final'] or 'nothing'}"
        for run in part["runs"]
        if run["final"] != part["expected"] or not part["expected"]
    ]


def _part(measure: Callable[[Namespace], Results], columns: Mapping[str, str]) -> Part:
    """Return a part whose table has these columns: what is at the head, and what stands below."""
    heads = [*columns, "as undisturbed"]
    return Part(measure, heads, lambda part: _rows(part, list(columns.values())), _short)


PARTS = {
    "workers": _part(kill_workers, {
        "run": "seed", "workers and agents killed": "n_kills", "agents": "n_agents_killed", "stopped": "n_stops",
        "sizes asked for": "n_targets", "resizes": "n_resizes", "steps redone": "n_steps_redone",
    }),
    "commands": _part(kill_commands, {
        "run": "seed", "steers by": "kind", "commands killed": "n_commands_killed", "amid a change of size": "n_amid_resizes",
        "amid taking over": "n_amid_takeovers", "workers killed": "n_workers_killed", "deadlines moved": "n_deadlines",
        "taken over": "n_takeovers", "unsteered (s)": "unsteered_s", "of (s)": "took_s",
    }),
}  # fmt: skip


def last_line(parts: dict[str, Results]) -> str:
    """Return the key figure beside its target."""
    equal = [run["final"] == part["expected"] for part in parts.values() for run in part["runs"]]
    runs = [run for part in parts.values() for run in part["runs"]]
    n_commands = sum(run.get("n_commands_killed", 0) for run in runs)
    n_kills = n_commands + sum(run.get("n_kills", 0) + run.get("n_workers_killed", 0) for run in runs)
    return (
        f"{sum(equal)} of {len(equal)} disturbed trainings ended with the undisturbed one's weights (target: all), "
        f"{n_kills} kills, {n_commands} of them of the command that steers"
    )


def page(results: Results) -> str:
    return page_of(PARTS, results, last_line)


def main() -> int:
    options = parser_of(__doc__ or "", PARTS).parse_args()
    return conclude_parts("kills", PARTS, options, last_line, page)


if __name__ == "__main__":
    sys.exit(main())
