"""Small real trainings for the tests of hosts."""

import sys
import time
from pathlib import Path

from punctual.daemon.capacity import capacity_here
from punctual.daemon.host_options import HostOptions
from punctual.request.job_options import JobOptions
from punctual.request.submission import Submission, submission_of

#: Without control groups, which not every machine has.
PACED = HostOptions(actuator="pacing")

#: Does so many steps of 10 ms of CPU time; before the last one it waits for a file, if one is named. Then exits.
TRAINING = """
import os, pathlib, sys, time, punctual
n_steps, awaited, code = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for i in punctual.track(range(n_steps), total_steps=n_steps):
    until = time.process_time() + 0.01
    while time.process_time() < until:
        pass
    while awaited and i == n_steps - 2 and not pathlib.Path(awaited).exists():
        written = pathlib.Path(f"{awaited}.{os.getpid()}")
        written.write_text(str(os.getpid()))
        written.replace(awaited + ".awaited")  # whole: who reads meanwhile finds a number in any case
        time.sleep(0.01)
print(os.environ.get("SECRET", "nothing"), flush=True)
sys.exit(code)
"""


def submission(
    name: str,
    *,
    n_steps: int = 10,
    awaited: Path | None = None,
    code: int = 0,
    secret: str = "",
    floor_cores: float | None = None,
    deadline_s: float | None = None,
    n_retries: int | None = None,
    budget_usd: float | None = None,
    work: str | None = None,
) -> Submission:
    """A training that ends with exit status `code`, once the file `awaited` is there; it prints `secret`."""
    options = JobOptions(
        program=[sys.executable, "-c", TRAINING, str(n_steps), str(awaited or ""), str(code)], name=name,
        env={"SECRET": secret}, retries=n_retries,
        cores=None if floor_cores is None else f"{floor_cores}..{capacity_here().cores}",
        deadline=None if deadline_s is None else f"{deadline_s}s",
        budget_usd=budget_usd, work=work, stop_grace=None if budget_usd is None else "1s",
    )  # fmt: skip
    return submission_of(options, time.monotonic(), capacity_here())


def pid_of_waiting(awaited: Path) -> int:
    """The process that waits for the file `awaited`; 0: none does yet."""
    told = awaited.with_name(f"{awaited.name}.awaited")
    return int(told.read_text() or 0) if told.exists() else 0
