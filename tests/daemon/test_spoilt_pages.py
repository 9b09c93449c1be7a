"""Jobs that write anything into their pages, beside jobs that do not, under quotas and under pacing alone."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.live_jobs import pid_of_waiting, submission

from punctual.core.ids import JobId
from punctual.daemon.capacity import capacity_here
from punctual.daemon.host_options import HostOptions
from punctual.daemon.opening import new_host
from punctual.daemon.restore import resumed_host
from punctual.daemon.run_folder import run_named
from punctual.request.job_options import JobOptions
from punctual.request.submission import Submission, submission_of

#: Writes extremes into every region of its page, its own ones and Punctual's, with some steps between; argument: a seed.
SPOILER = (
    f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    """
import mmap, os, random, re, time
from math import inf, nan
from punctual import channel as wire
from tests.page_layout import REGIONS
rng = random.Random(int(sys.argv[1]))
page = wire.SharedBlock.open(os.environ[wire.BLOCK_VARIABLE])
content = mmap.mmap(os.open(os.environ[wire.BLOCK_VARIABLE], os.O_RDWR), 0)
INTEGERS = [0, 1, 2, 100, -1, 10**12, 10**15, 2**28, 2**53 + 1, 2**62, 2**63 - 1, -2**63]
NUMBERS = [0.0, 1.0, -1.0, 1e-9, 1e15, 1e308, -1e308, 5e-324, inf, -inf, nan]
VERSIONS = [2**63, 2**64 - 1]

def payload(region):
    for count, kind in re.findall(r"(\\d*)([qds])", region.payload):
        for _ in range(1 if kind == "s" else int(count or 1)):
            yield {"q": rng.choice([*INTEGERS, time.monotonic_ns()]), "d": rng.choice(NUMBERS), "s": rng.randbytes(9)}[kind]

page.declare(wire.Declaration(pid=os.getpid(), total_steps=100, state=wire.ProgramState.TRAINING))
for i in range(80):
    page.publish_progress(i + 1, time.monotonic_ns(), time.process_time_ns(), -1)
    time.sleep(rng.choice([0.0, 0.01, 0.04]))
    region = rng.choice(REGIONS)
    region.write(content, rng.choice([i + 2, *VERSIONS]), *payload(region))
    time.sleep(rng.choice([0.0, 0.01, 0.04]))
    if i % 10 == 9:
        page.declare(wire.Declaration(pid=os.getpid(), total_steps=rng.choice([100, 10**12]), state=wire.ProgramState.TRAINING))
"""
)
#: What people write for a training without an end.
ENDLESS = """
import itertools, sys, time, punctual
for _ in punctual.track(itertools.count(), total_steps=int(sys.argv[1])):
    end = time.process_time() + 0.01
    while time.process_time() < end: pass
"""


#: Spoils the head of its page once, so that no other host can open that; ends at once when it is started again.
BEHEADER = """
import os, pathlib, sys, time
spoilt = pathlib.Path(sys.argv[1])
if spoilt.exists(): sys.exit()
with open(os.environ["PUNCTUAL_PAGE"], "r+b") as page:
    page.write(b"spoilt!!")
spoilt.touch()
time.sleep(600)
"""


def program(name: str, code: str, *argv: object, **more: Any) -> Submission:
    options = JobOptions(program=[sys.executable, "-c", code, *map(str, argv)], name=name, deadline="8s", **more)
    return submission_of(options, time.monotonic(), capacity_here(), inherited={})


@pytest.mark.parametrize(("actuator", "seed"), [("pacing", 1), ("auto", 2)])
def test_jobs_that_spoil_their_pages_end_neither_the_host_nor_another_job(actuator: str, seed: int) -> None:
    with new_host("host", HostOptions(actuator=actuator)) as host:
        for i in range(3):
            host.submit(program(f"spoiler-{i}", SPOILER, 10 * seed + i, retries=0))
        host.submit(program("endless", ENDLESS, 10**12))
        host.submit(submission("honest", n_steps=100, deadline_s=5.0, floor_cores=0.05))
        host.run(lambda: host.open_jobs() == ("endless",))
        host.stop(JobId("endless"), "enough")
        host.run(host.all_ended)
        assert (host.status(JobId("honest")).state, host.status(JobId("honest")).steps_done) == ("finished", 100)
        assert {host.status(JobId(f"spoiler-{i}")).state for i in range(3)} == {"finished"}


def test_a_job_whose_page_cannot_be_opened_any_more_is_started_again_and_the_others_are_gone_on_with(
    tmp_path: Path,
) -> None:
    spoilt, go = tmp_path / "spoilt", tmp_path / "go"
    with new_host("host", HostOptions(actuator="pacing")) as host:
        host.submit(program("beheader", BEHEADER, spoilt))
        host.submit(submission("honest", awaited=go))
        host.run(lambda: spoilt.exists() and pid_of_waiting(go) > 0)
        host.hand_over()
    go.touch()
    with resumed_host(run_named("host")) as host:
        host.run(host.all_ended)
        standings = {status.id: (status.state, status.n_attempts) for status in host.jobs()}
    assert standings == {"beheader": ("finished", 2), "honest": ("finished", 1)}
