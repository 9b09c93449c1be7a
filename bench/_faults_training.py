"""The training whose processes are killed, paused and moved: ``FOLDER JOB``, where JOB is a `Job` as JSON.

It writes each step that it has done into a file of its own and holds a lock: a second process of the same job leaves a mark and
ends. A job of workers prints the checksum of its weights instead, which is the same to the bit however often it was disturbed.
"""

import fcntl
import json
import sys
import time
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

import punctual

CHECKPOINT_STEPS = 5
#: The file for which a job waits.
MOVED = "moved"
#: What a job of workers prints at its end, before the number of steps and the checksum.
FINAL = "final "


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training.

    Attributes
    ----------
    compute_s, sleep_s
        CPU seconds that a step computes, and seconds that it sleeps.
    """

    n_steps: int = 0
    compute_s: float = 0.0
    sleep_s: float = 0.0
    crashes_at: int | None = None  # The step before which its program ends once with exit code 1; None: it does not.
    waits_at: int | None = None  # The step before which its program waits for the file `MOVED`; None: it does not.
    n_epochs: int = 0  # Of a training of workers; 0: it is not made of workers.

    def command(self, folder: Path) -> list[str]:
        """The command that trains it, with its files in `folder`."""
        return [sys.executable, __file__, str(folder), json.dumps(asdict(self))]


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
    if job.n_epochs:
        punctual.elastic(train)
        return 0
    with (folder / "steps").open("a", buffering=1) as done:
        if not steps(folder, job, done):
            return 1
        done.write("end\n")
    return 0


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
    sys.exit(main())
