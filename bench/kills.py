"""Random kills: does every training finish, with the weights that it has when nobody disturbs it?

A small elastic training (bit for bit reproducible, a checkpoint every half second) is disturbed at random instants until it
ends: its number of workers is changed, workers are killed or stopped (SIGSTOP: it hangs), half of the times just after a change of
size was asked for, and now and then the agent is killed, after which the same command is started again. Every
run must print the same step count and the same checksum of all weights and buffers as the undisturbed one.

Then the command that steers such a training is killed, again and again, in the middle of a change of size and in the middle of
taking over as well, and `punctual attach` steers on; see `_kills_commands`.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import _kills_commands
import _kills_training
from _common import RESULTS, commit, parser, print_table, write_results
from resize import children

from punctual.wire import PAGE_VARIABLE, CrewWish, Page

N_EPOCHS = 60
N_KILLS = 100
#: Of the trainings whose commands are killed: epochs, and the kinds of the runs with how many kills.
N_EPOCHS_STEERED = 500
STEERED = (("workers", 12), ("workers", 12), ("workers", 12), ("cores", 6))
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
    n_wishes: int = 0
    n_resizes: int = 0
    n_steps_redone: int = 0
    took_s: float = 0.0


class Training:
    """The program under an agent; started again with the same folder when its agent was killed."""

    def __init__(self, folder: Path, n_epochs: int, n_workers: int) -> None:
        self._folder, self._n_epochs, self._n_starts = folder, n_epochs, 0
        self.start(n_workers)

    def start(self, n_workers: int) -> None:
        self._n_starts += 1
        path = self._folder / f"page-{self._n_starts}"
        self.page = Page.create(str(path))
        self.n_wishes = 0
        self.wish(n_workers)
        environment = {
            **os.environ, PAGE_VARIABLE: str(path), "OMP_NUM_THREADS": "1", "PUNCTUAL_HANG_S": str(HANG_S),
        }  # fmt: skip
        command = [
            sys.executable,
            str(_kills_training.__file__),
            str(self._n_epochs),
            str(self._folder / "checkpoints"),
        ]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def wish(self, n_workers: int) -> None:
        self.n_wishes += 1
        self.page.wish_for(CrewWish(self.n_wishes, n_workers))

    def workers(self) -> list[int]:
        return [worker for forkserver in children(self.process.pid) for worker in children(forkserver)]

    def final(self) -> str:
        """What it printed at its end."""
        output, _ = self.process.communicate(timeout=30)
        return next((line.removeprefix("final ") for line in output.splitlines() if line.startswith("final ")), "")


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
        training.wish(rng.choice((1, 2, 3)))
        run.n_wishes += 1
        time.sleep(rng.random() * 0.3)  # in the middle of the change
    workers = training.workers()
    if not workers or rng.random() < 0.4:
        return
    chance = rng.random()
    try:
        if chance < 0.05:
            training.process.kill()
            run.n_agents_killed += 1
            run.n_kills += 1
        elif chance < 0.15:
            os.kill(rng.choice(workers), signal.SIGSTOP)
            run.n_stops += 1
        else:
            os.kill(rng.choice(workers), signal.SIGKILL)
            run.n_kills += 1
    except ProcessLookupError:
        pass


def _count(training: Training, run: Run) -> None:
    crew = training.page.crew()
    run.n_resizes += crew.n_resizes
    run.n_steps_redone += crew.n_steps_redone


HEADS = [
    "run", "workers and agents killed", "agents", "stopped", "sizes asked for", "resizes", "steps redone", "as undisturbed",
]  # fmt: skip
STEERED_HEADS = [
    "run", "steers by", "commands killed", "amid a change of size", "amid taking over", "workers killed", "deadlines moved",
    "taken over", "unsteered (s)", "of (s)", "as undisturbed",
]  # fmt: skip


def kill_workers(
    n_epochs: int, n_kills: int, n_each: int, n_runs: int, expected: str
) -> tuple[list[Run], list[list[str]]]:
    """Trainings whose workers and agents are killed, and their rows."""
    runs: list[Run] = []
    while sum(run.n_kills for run in runs) < n_kills and len(runs) < n_runs:
        runs.append(disturbed(len(runs), n_epochs, n_each))
        print(asdict(runs[-1]), file=sys.stderr, flush=True)
    rows = [
        [
            str(run.seed), str(run.n_kills), str(run.n_agents_killed), str(run.n_stops), str(run.n_wishes),
            str(run.n_resizes), str(run.n_steps_redone), _verdict(run.final, expected),
        ]
        for run in runs
    ]  # fmt: skip
    return runs, rows


def kill_commands(
    kinds: tuple[tuple[str, int], ...], n_epochs: int, expected: str
) -> tuple[list[_kills_commands.Steered], list[list[str]]]:
    """Trainings whose commands are killed and taken over, and their rows."""
    runs: list[_kills_commands.Steered] = []
    for seed, (kind, n_kills) in enumerate(kinds):
        runs.append(_kills_commands.disturbed(seed, kind, n_epochs, n_kills))
        print(asdict(runs[-1]), file=sys.stderr, flush=True)
    rows = [
        [
            str(run.seed), run.kind, str(run.n_commands_killed), str(run.n_amid_resizes), str(run.n_amid_takeovers),
            str(run.n_workers_killed), str(run.n_deadlines), str(run.n_takeovers), f"{run.unsteered_s:.0f}",
            f"{run.took_s:.0f}", _verdict(run.final, expected),
        ]
        for run in runs
    ]  # fmt: skip
    return runs, rows


def _verdict(final: str, expected: str) -> str:
    return "yes" if final == expected else f"NO: {final}"


def _markdown(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    options = parser(__doc__ or "").parse_args()
    n_epochs, n_kills, n_each, n_runs = (12, 6, 6, 1) if options.quick else (N_EPOCHS, N_KILLS, 30, 12)
    n_epochs_steered, kinds = (30, (("workers", 1),)) if options.quick else (N_EPOCHS_STEERED, STEERED)
    expected, expected_steered = undisturbed(n_epochs), undisturbed(n_epochs_steered)
    runs, rows = kill_workers(n_epochs, n_kills, n_each, n_runs, expected)
    steered, steered_rows = kill_commands(kinds, n_epochs_steered, expected_steered)
    print_table(HEADS, rows)
    print()
    print_table(STEERED_HEADS, steered_rows)
    equal = [run.final == expected for run in runs] + [run.final == expected_steered for run in steered]
    n_killed, n_commands = sum(run.n_kills for run in runs), sum(run.n_commands_killed for run in steered)
    last = (
        f"{sum(equal)} of {len(equal)} disturbed trainings ended with the undisturbed one's weights (target: all), "
        f"{n_killed + n_commands + sum(run.n_workers_killed for run in steered)} kills, {n_commands} of them of the command that steers"
    )
    if not options.quick:
        results = {
            "commit": commit(), "expected": expected, "runs": [asdict(run) for run in runs],
            "expected_steered": expected_steered, "steered": [asdict(run) for run in steered],
        }  # fmt: skip
        write_results("kills", results)
        tables = f"{_markdown(HEADS, rows)}\n\n{_markdown(STEERED_HEADS, steered_rows)}"
        (RESULTS / "kills.md").write_text(f"{last}\n\n{tables}\n\nMeasured at revision {commit()}.\n")
    print(last)
    return int(not expected or not expected_steered or not all(equal))


if __name__ == "__main__":
    sys.exit(main())
