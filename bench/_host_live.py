"""A host with live jobs, to be measured from outside: `python _host_live.py N_JOBS [PROFILE]`.

It prints a line of JSON when all jobs run. Each line of its standard input is a list of deadlines, in seconds, one for each
job, which are moved to them one after another; at the end of the input the host ends its jobs and leaves. With PROFILE, what
its thread did is written there, for `pstats`.
"""

import cProfile
import json
import os
import sys
import threading
import time
from collections.abc import Callable

from punctual.core.events import JobStarted
from punctual.core.ids import JobId
from punctual.core.protocols import Message
from punctual.runtime.local_host import HostOptions, LocalHost, capacity_here, local_host
from punctual.runtime.spec_change import SpecChange
from punctual.runtime.submission import JobRequest, Submission, checked_submission

#: Steps of 2 ms of computing and 0.2 s of sleep: fifty such jobs leave most of a machine of two cores to the host.
JOB = """
import sys, time, punctual
n_steps = int(sys.argv[1])
for _ in punctual.track(range(n_steps), total_steps=n_steps):
    until = time.process_time() + 0.002
    while time.process_time() < until:
        pass
    time.sleep(0.2)
"""
N_STEPS = 60_000
#: Hours are left, as of most of the time of a job that just runs.
DEADLINE_S = 4 * 3600.0
#: Between two jobs whose deadlines are moved, so that each change is decided by itself.
BETWEEN_S = 0.05


def submission(name: str, n_jobs: int) -> Submission:
    capacity = capacity_here()
    most = capacity.cores / n_jobs
    request = JobRequest(
        argv=(sys.executable, "-c", JOB, str(N_STEPS)), submitted_at=time.monotonic(), name=name, deadline_s=DEADLINE_S,
        inherited=dict(os.environ), floor_cores=min(0.01, most), ceiling_cores=most,
    )  # fmt: skip
    return checked_submission(request, capacity)


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
        for status, deadline_s in zip(host.jobs(), json.loads(line), strict=True):
            host.change(status.id, SpecChange(deadline_s=deadline_s))
            time.sleep(BETWEEN_S)
    is_over.set()
    host.stop(host.jobs()[0].id, "the measurement has ended")


def main(n_jobs: int, profile: str | None) -> None:
    with local_host(f"bench-{n_jobs}", HostOptions(), output_of=lambda _: _drop) as host:
        host.subscribe(ready_line(host, n_jobs))
        for i_job in range(n_jobs):
            host.submit(submission(f"job-{i_job}", n_jobs))
        is_over = threading.Event()
        threading.Thread(target=obey, args=(host, is_over), daemon=True).start()
        if profile is None:
            host.run(is_over.is_set)
            return
        with cProfile.Profile() as profiling:
            host.run(is_over.is_set)
        profiling.dump_stats(profile)


def _drop(_: bytes) -> None:
    """What jobs write is of no interest."""


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
