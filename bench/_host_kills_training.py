"""What is killed: a small training with checkpoints. ``FOLDER JOB [stubborn]``; JOB: a job of a scenario, as a JSON object.

A stubborn one does not end when it is asked to (SIGTERM), as the kernel asks it when its keeper was killed.

It writes every step that it has done into a file of its own, and holds a lock: a second process of the same job leaves a
mark and ends. One that is made of workers writes what became of its weights instead.
"""

import fcntl
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import punctual

CHECKPOINT_STEPS = 5
#: The file that says that the job's deadline has been moved.
MOVED = "moved"


def main(folder: Path, job: dict[str, Any]) -> int:
    folder.mkdir(exist_ok=True)
    alive = (folder / "alive").open("a")
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (folder / "twice").touch()
        return 9
    with (folder / "steps").open("a", buffering=1) as done:
        if job["workers"]:
            done.write("start 0\n")
            punctual.elastic(train)
        elif not steps(folder, job, done):
            return 1
        done.write("end\n")
    return int(job["exit_code"])


def steps(folder: Path, job: dict[str, Any], done: TextIO) -> bool:
    """Do the steps from the last checkpoint on; False: it has crashed, which it does once."""
    checkpoint, crashed = folder / "checkpoint", folder / "crashed"
    start = int(checkpoint.read_text()) if checkpoint.exists() else 0
    done.write(f"start {start}\n")
    run = punctual.track(range(start, job["n_steps"]), total_steps=job["n_steps"], start_step=start, phases=("check",))
    for i in run:
        if i == job["crashes_at"] and not crashed.exists():
            crashed.touch()
            return False
        while i == job["waits_at"] and not (folder / MOVED).exists():
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


def work(job: dict[str, Any]) -> None:
    """Compute and sleep for a step."""
    until_s = time.thread_time() + job["compute_s"]
    while time.thread_time() < until_s:
        pass
    time.sleep(job["sleep_s"])


def train(context: object) -> None:
    """What each worker does."""
    folder, job = Path(sys.argv[1]), json.loads(sys.argv[2])
    sys.argv[1:] = [str(job["n_epochs"]), str(folder / "checkpoints")]
    from _kills_training import train as training  # needs torch, which the others do without

    training(context)


if __name__ == "__main__":
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
