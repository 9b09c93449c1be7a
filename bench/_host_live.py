"""A host with live jobs, to be measured from outside: `python _host_live.py N_JOBS`.

There are `N_JOBS` with a deadline, and one more without if these are several.

It prints a line of JSON when all jobs run. Each line of its standard input is a list of deadlines, in seconds, one for each
job, which are moved to them one after another; at the end of the input the host ends its jobs and leaves.
"""

import json
import sys
import threading
import time
from collections.abc import Callable

from punctual.core.events import JobStarted
from punctual.core.ids import JobId
from punctual.core.protocols import Message
from punctual.daemon.capacity import capacity_here
from punctual.daemon.host_options import HostOptions
from punctual.daemon.local_host import LocalHost, local_host
from punctual.request.job_options import JobOptions
from punctual.request.spec_change import SpecChange
from punctual.request.submission import Submission, submission_of

#: Steps of 2 ms of computing and some sleep: fifty such jobs, held to what they need, leave most of two cores to the host.
JOB = """
import sys, time, punctual
n_steps, sleep_s = int(sys.argv[1]), float(sys.argv[2])
for _ in punctual.track(range(n_steps), total_steps=n_steps):
    until = time.process_time() + 0.002
    while time.process_time() < until:
        pass
    time.sleep(sleep_s)
"""
N_STEPS = 60_000
#: Jobs with a deadline could use twice what they need for it. The one without, which gets whatever they do not need, uses
#: next to nothing of it.
SLEEP_S, BACKGROUND_SLEEP_S = 0.1, 0.2
BACKGROUND = "background"
#: Hours are left, as of most of the time of a job that just runs.
DEADLINE_S = 4 * 3600.0
#: Between two jobs whose deadlines are moved, so that each change is decided by itself.
BETWEEN_S = 0.05


def submission(name: str, most_cores: float, sleep_s: float, deadline_s: float | None) -> Submission:
    options = JobOptions(
        program=[sys.executable, "-c", JOB, str(N_STEPS), str(sleep_s)], name=name,
        deadline=None if deadline_s is None else f"{deadline_s}s", cores=f"{min(0.01, most_cores)}..{most_cores}",
    )  # fmt: skip
    return submission_of(options, time.monotonic(), capacity_here())


def submissions(n_jobs: int) -> list[Submission]:
    """`n_jobs` with a deadline and, beside several, one without: else what they do not need were theirs as well."""
    cores = capacity_here().cores
    dated = [submission(f"job-{i_job}", cores / n_jobs, SLEEP_S, DEADLINE_S) for i_job in range(n_jobs)]
    return dated if n_jobs == 1 else [*dated, submission(BACKGROUND, cores, BACKGROUND_SLEEP_S, None)]


def ready_line(host: LocalHost, n_jobs: int) -> Callable[[Message], None]:
    """A listener that prints where the journal is once all jobs run."""
    started: set[JobId] = set()

    def note(message: Message) -> None:
        if isinstance(message, JobStarted):
            started.add(message.job)
            if len(started) == n_jobs:
                facts = {"journal": str(host.run_folder.journal), "actuator": host.facts(message.job)["actuator"]}
                print(json.dumps(facts), flush=True)

    return note


def obey(host: LocalHost, is_over: threading.Event) -> None:
    for line in sys.stdin:
        jobs = [status.id for status in host.jobs() if status.id != BACKGROUND]
        for job, deadline_s in zip(jobs, json.loads(line), strict=True):
            host.change(job, SpecChange(deadline_s=deadline_s))
            time.sleep(BETWEEN_S)
    is_over.set()
    host.stop(host.jobs()[0].id, "the measurement has ended")


def main(n_jobs: int) -> None:
    with local_host(f"bench-{n_jobs}", HostOptions(jobs_at_once=n_jobs + 1), output_of=lambda _: _drop) as host:
        jobs = submissions(n_jobs)
        host.subscribe(ready_line(host, len(jobs)))
        for job in jobs:
            host.submit(job)
        is_over = threading.Event()
        threading.Thread(target=obey, args=(host, is_over), daemon=True).start()
        host.run(is_over.is_set)


def _drop(_: bytes) -> None:
    """Drop the output of jobs."""


if __name__ == "__main__":
    main(int(sys.argv[1]))
