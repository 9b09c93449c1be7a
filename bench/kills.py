"""Random kills: does every training finish, with the weights that it has when nobody disturbs it?

A small elastic training (bit for bit reproducible, a checkpoint every half second) is disturbed at random instants until it
ends: its number of workers is changed, workers are killed or stopped (SIGSTOP: it hangs), half of the times just after a change of
size was asked for, and now and then the agent is killed, after which the same command is started again.

With ``--random`` it plays other rounds instead, 300 in about 50 minutes on two quiet cores: two commands start a daemon at once, and one
of daemon, watcher, supervisor, planner, job and command is killed at start, run, recovery or shut-down (`bench/_kills_random.py`).
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import _kills_random
from _agent import Agent
from _common import Results, parser
from _faults import send
from _faults_training import FINAL, Job
from _report import Column, Section, Target, conclude_report, table_of

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
    return {"workers": {"expected": expected, "runs": [asdict(run) for run in runs]}}


# What is told of them.

#: Heads of the table, with their keys.
HEADS = {
    "workers and agents killed": "n_kills", "agents": "n_agents_killed", "stopped": "n_stops",
    "sizes asked for": "n_targets", "resizes": "n_resizes", "steps redone": "n_steps_redone",
}  # fmt: skip


def sections(results: Results) -> list[Section]:
    if "n_rounds" in results:
        return _kills_random.sections(results)
    expected = results["workers"]["expected"]
    runs = [
        {**run, "same": "yes" if run["final"] == expected else f"NO: {run['final']}"}
        for run in results["workers"]["runs"]
    ]
    columns = [*(Column(head, key, COUNT) for head, key in HEADS.items()), Column("as undisturbed", "same", str, max)]
    n_killed = sum(run["n_kills"] for run in runs)
    n_same = sum(bool(expected) and run["final"] == expected for run in runs)
    text = f"trainings of {len(runs)} that ended with the undisturbed one's weights, {n_killed} kills"
    target = Target(text, len(runs), n_same, COUNT, at_least=True)
    table = table_of(runs, {"run": "seed"}, columns)
    return [Section("Trainings whose workers and agents are killed", *table, [target])]


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
    return conclude_report("kills", kill_workers(quick=options.quick), sections, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
