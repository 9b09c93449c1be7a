"""Memory that jobs ask for, and how many run at once, as a user sees it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.programs import TRACKED
from tests.cli.test_service import Service
from tests.cli.test_sharing import NAMED
from tests.executors.conftest import memory_limiter
from tests.waiting import wait_until

MIB = 1 << 20

#: Holds so many mebibytes while it trains.
HOLDS = """
import sys, punctual
held = bytearray(int(sys.argv[1]) << 20)
for i in range(0, len(held), 4096): held[i] = 1
for _ in punctual.track(range(3)): pass
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.go_on()
    made.let("a", "b", "c")
    wait_until(lambda: made.jobs() == [])
    made.punctual("down")
    made.close()
    assert made.left_behind() == []


@pytest.fixture
def needs_limits() -> None:
    memory_limiter()


@pytest.mark.cgroup
@pytest.mark.usefixtures("needs_limits")
def test_a_job_that_runs_out_of_memory_says_so_and_how_to_give_it_more(machine: Service) -> None:
    run = machine.punctual("run", "--memory", "96M", "--name", "a", "--", *machine.script(HOLDS), "160")
    assert run.returncode == 137
    assert "out of memory: its processes held 96 MiB of the 96 MiB that it asked for (`--memory`)" in run.stderr
    assert "Ask for more (`--memory 192MiB`)" in run.stderr
    (past,) = (json.loads(line) for line in machine.tell("ps", "--all", "--json").stdout.splitlines())
    assert past["cause"].startswith("out of memory: ")


@pytest.mark.cgroup
@pytest.mark.usefixtures("needs_limits")
def test_it_is_started_again_with_more_if_that_was_asked_for(machine: Service) -> None:
    run = machine.punctual("run", "--memory", "96M..192M", "--name", "a", "--", *machine.script(HOLDS), "120")
    assert run.returncode == 0, run.stderr
    assert "started again with 192 MiB" in run.stderr
    shown = json.loads(machine.tell("show", "a", "--json").stdout)
    assert (shown["asked_memory_bytes"], shown["n_attempts"]) == (192 * MIB, 2)


def test_jobs_wait_where_no_more_may_run_at_once_and_say_so(machine: Service) -> None:
    machine.up("--listen", "none", "--jobs-at-once", "2")
    script = machine.script(NAMED, "named.py")
    for name in "abc":
        assert machine.punctual("submit", "--name", name, "--", *script, name).returncode == 0
    wait_until(lambda: machine.n_starts("a") and machine.n_starts("b"))
    waiting = wait_until(lambda: {job["job"]: job["waits"] for job in machine.jobs()}, lambda jobs: bool(jobs["c"]))
    assert waiting["c"] == "it waits until a job ends: 2 jobs run, and no more do at once (`--jobs-at-once`)"
    assert waiting["a"] == ""
    listed = machine.tell("ps").stdout
    assert "MEMORY" in listed
    assert "of memory used" in listed
    assert "1 job waits for room" in listed
    assert waiting["c"] in machine.tell("show", "c").stdout
    machine.let("a")
    wait_until(lambda: machine.n_starts("c"))


def test_a_job_that_waits_for_a_place_says_when_it_is_expected_to_start(machine: Service) -> None:
    """As soon as the job that has the place is measured, and not before."""
    machine.up("--listen", "none", "--jobs-at-once", "1")
    machine.punctual("submit", "--name", "a", "--deadline", "1h", "--", *machine.script(TRACKED), "100000")
    wait_until(lambda: machine.states().get("a") == "running")
    machine.punctual("submit", "--name", "b", "--", "true")
    told = wait_until(lambda: {job["job"]: job for job in machine.jobs()}, lambda jobs: "starts_s" in jobs.get("b", {}))
    starts = re.compile(r"waits for room: starts about [-0-9: ]+, when a ends", re.IGNORECASE)
    assert starts.fullmatch(told["b"]["phrase"])
    assert "lands_s" in told["a"]
    assert starts.search(machine.tell("ps").stdout)
    assert starts.search(machine.tell("why", "b").stdout.splitlines()[-1])
    assert starts.search(machine.tell("show", "b").stdout.splitlines()[0])
    machine.punctual("stop", "a")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--memory", "4"), "memory must be a number with a unit"),
        (("--memory", "8G..4G"), "the least must not lie above the most"),
        (("--memory", "4000T"), "`--memory` must not exceed the memory of the machine"),
        (("--memory", "1M..4000T"), "`--memory` must not exceed the memory of the machine"),
        (("--memory", "1G", "--workers", "1..4000", "--cores-per-worker", "0.0001"), "must"),
        (("--jobs-at-once", "0"), "--jobs-at-once"),
    ],
)
def test_what_cannot_be_is_refused(machine: Service, words: tuple[str, ...], complaint: str) -> None:
    refused = machine.tell("run", *words, "--", "true")
    assert refused.returncode == 2
    assert complaint in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_host_that_lets_another_number_run_is_refused(machine: Service) -> None:
    machine.up("--listen", "none", "--jobs-at-once", "2")
    refused = machine.punctual("submit", "--jobs-at-once", "3", "--", "true")
    assert refused.returncode == 2
    assert "`--jobs-at-once` must be that of the host that there is" in refused.stderr
