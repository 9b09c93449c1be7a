"""What is killed: a small training with checkpoints. ``FOLDER STEPS STEP_S EXIT_CODE [stubborn]``.

A stubborn one does not end when it is asked to (SIGTERM), as the kernel asks it when its keeper was killed.

It writes every step that it has done into a file of its own, and holds a lock: a second process of the same job leaves a
mark and ends.
"""

import fcntl
import signal
import sys
import time
from pathlib import Path

import punctual

CHECKPOINT_STEPS = 5


def main(folder: Path, n_steps: int, step_s: float, code: int) -> int:
    folder.mkdir(exist_ok=True)
    alive = (folder / "alive").open("a")
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (folder / "twice").touch()
        return 9
    checkpoint = folder / "checkpoint"
    start = int(checkpoint.read_text()) if checkpoint.exists() else 0
    with (folder / "steps").open("a", buffering=1) as done:
        done.write(f"start {start}\n")
        run = punctual.track(range(start, n_steps), total_steps=n_steps, start_step=start, phases=("check",))
        for i in run:
            time.sleep(step_s)
            run.report_loss(1.0 / (1 + i))
            done.write(f"{i}\n")
            if (i + 1) % CHECKPOINT_STEPS == 0:
                written = folder / "checkpoint.new"
                written.write_text(str(i + 1))
                written.replace(checkpoint)
        with punctual.phase("check"):
            time.sleep(step_s)
        done.write("end\n")
    return code


if __name__ == "__main__":
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
