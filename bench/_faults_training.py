"""The training whose processes are killed, paused and moved: ``FOLDER JOB [stubborn]``, where JOB is a `Job` as JSON.

It writes each step that it has done into a file of its own and holds a lock: a second process of the same job leaves a mark and
ends. A job of workers prints the checksum of its weights instead, which is the same to the bit however often it was disturbed.
A stubborn one ignores SIGTERM.
"""

import fcntl
import json
import signal
import sys
import time
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TextIO

import punctual

CHECKPOINT_STEPS = 5
#: The file that says that the job's deadline has been moved.
MOVED = "moved"
#: What a job of workers prints at its end, before the number of steps and the checksum.
FINAL = "final "

#: A user does something once the named job has done so many steps, or has ended.
After = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training, and what its user does.

    Attributes
    ----------
    arrives, stops, moves
        When it is submitted (None: at once), stopped, and given `moved_s` as its deadline.
    compute_s, sleep_s
        CPU seconds that a step computes, and seconds that it sleeps.
    exit_code
        Exit code of its program when all steps are done.
    crashes_at
        The step before which its program ends once with exit code 1; None: it does not.
    waits_at
        The step before which its program waits until its deadline has been moved, since a starved host comes too late
        otherwise; None: it does not.
    cores
        The most it may hold; None: all of the machine's.
    is_rigid
        It holds that or nothing.
    workers
        Least and most workers of an elastic training, whose length is `n_epochs`; None: it is not made of workers.
    is_stubborn
        Ignores SIGTERM in some of the rounds.
    is_rare
        Takes part only in rounds that have the jobs that take long.
    ends
        How it ends when nothing is killed; a job that *fails* may not be retried.
    """

    n_steps: int
    arrives: After | None = None
    deadline_s: float | None = None
    stops: After | None = None
    moves: After | None = None
    moved_s: float | None = None
    compute_s: float = 0.0
    sleep_s: float = 0.02
    exit_code: int = 0
    crashes_at: int | None = None
    waits_at: int | None = None
    cores: float | None = None
    is_rigid: bool = False
    preemptible: bool = True
    has_goal: bool = False
    n_retries: int | None = None
    workers: tuple[int, int] | None = None
    n_epochs: int = 0
    is_stubborn: bool = False
    is_rare: bool = False
    ends: Literal["finished", "stopped", "fails"] = "finished"

    def command(self, folder: Path, *, is_stubborn: bool = False) -> list[str]:
        """The command that trains it, with its files in `folder`."""
        return [sys.executable, __file__, str(folder), json.dumps(asdict(self)), *["stubborn"] * is_stubborn]


def asked() -> tuple[Path, Job]:
    """The folder and the job of this process."""
    return Path(sys.argv[1]), Job(**json.loads(sys.argv[2]))


def main() -> int:
    folder, job = asked()
    folder.mkdir(exist_ok=True)
    alive = (folder / "alive").open("a")
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (folder / "twice").touch()
        return 9
    with (folder / "steps").open("a", buffering=1) as done:
        if job.workers:
            done.write("start 0\n")
            punctual.elastic(train)
        elif not steps(folder, job, done):
            return 1
        done.write("end\n")
    return job.exit_code


def steps(folder: Path, job: Job, done: TextIO) -> bool:
    """Do the steps from the last checkpoint on; False: it has crashed, which it does once."""
    checkpoint, crashed = folder / "checkpoint", folder / "crashed"
    start = int(checkpoint.read_text()) if checkpoint.exists() else 0
    done.write(f"start {start}\n")
    run = punctual.track(range(start, job.n_steps), total_steps=job.n_steps, start_step=start, phases=("check",))
    for i in run:
        if i == job.crashes_at and not crashed.exists():
            crashed.touch()
            return False
        while i == job.waits_at and not (folder / MOVED).exists():
            time.sleep(0.02)
        work(job)
        run.report_loss(1.0 / (1 + i))
        done.write(f"{i}\n")
        if (i + 1) % CHECKPOINT_STEPS == 0:
            written = folder / "checkpoint.new"
            written.write_text(str(i + 1))
            written.replace(checkpoint)
    with punctual.phase("check"):
        work(job)
    return True


def work(job: Job) -> None:
    """Compute and sleep for a step."""
    until_s = time.thread_time() + job.compute_s
    while time.thread_time() < until_s:
        pass
    time.sleep(job.sleep_s)


def train(context: object) -> None:
    """Train with BatchNorm and dropout, as each worker of a job of workers does."""
    import torch  # the other jobs do without
    from torch import nn
    from torch.utils.data import TensorDataset

    folder, job = asked()
    torch.manual_seed(0)
    inputs = torch.randn(960, 16)
    dataset = TensorDataset(inputs, inputs[:, :4].argmax(1))
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    with context.elastic(  # type: ignore[attr-defined]
        model=model, optimizer=optimizer, deterministic=True, virtual_ranks=4,
        checkpoint_dir=str(folder / "checkpoints"), checkpoint_every_s=0.5,
    ) as run:  # fmt: skip
        for _ in run.epochs(job.n_epochs):
            for batch, targets in run.batches(dataset, global_batch_size=32, seed=0):
                time.sleep(job.sleep_s)
                run.backward(nn.functional.cross_entropy(run.model(batch), targets))
                run.step()
        state = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
        run.print(FINAL.strip(), run.step_number, zlib.crc32(state))


if __name__ == "__main__":
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(main())
