"""`punctual node`: a machine that is drained runs nothing, and its jobs go on when it stays after all."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.programs import objects
from tests.cli.test_sharing import SharedMachine, finished
from tests.waiting import wait_until


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SharedMachine]:
    made = SharedMachine(tmp_path)
    yield made
    made.let("a")
    made.close()
    assert made.left_behind() == []


def test_the_jobs_of_a_machine_that_is_drained_wait_until_it_stays(machine: SharedMachine) -> None:
    a = machine.begin_job("a", "--retries", "0")
    drained = machine.tell("node", "drain", "--in", "30s")
    assert drained.returncode == 0, drained.stderr
    assert drained.stdout.startswith("node local is leaving at ")
    wait_until(lambda: [job["state"] for job in machine.jobs()] == ["queued"])
    assert "node local is leaving at " in machine.tell("ps").stdout
    wait_until(lambda: "it waits for a node" in machine.tell("ps").stdout)
    (stays,) = objects(machine.tell("node", "undrain", "local", "--json").stdout)
    assert stays == {"node": "local", "leaves_wall": None}
    wait_until(lambda: machine.n_starts("a") == 2)
    assert "is leaving" not in machine.tell("ps").stdout
    machine.let("a")
    output, errors = finished(a)
    assert "its node 'local' is taken away in 30 s" in output + errors
    told = machine.tell("why", "a").stdout
    assert "it has left its node: its node 'local' is taken away" in told
    report = machine.tell("report", "a")
    assert report.returncode == 0, report.stderr


@pytest.mark.parametrize(
    ("words", "got"),
    [
        (["nowhere"], "'nowhere'"),
        (["local", "--here"], "'local' and `--here`"),
        (["--here"], "no agent of yours"),
        (["--in", "soon"], "'soon'"),
        (["--in", "999999999d"], "'999999999d'"),
    ],
)
def test_what_cannot_be_drained_is_refused_in_four_parts(machine: SharedMachine, words: list[str], got: str) -> None:
    machine.begin_job("a")
    refused = machine.tell("node", "drain", *words)
    assert refused.returncode == 2
    assert [line.split()[0] for line in refused.stderr.splitlines()] == ["error:", "got:", "for:", "to"]
    assert got in refused.stderr
    if words == ["nowhere"]:
        assert "Name one of its nodes: local." in refused.stderr


def test_without_a_host_there_is_nothing_to_drain(machine: SharedMachine) -> None:
    refused = machine.tell("node", "drain")
    assert refused.returncode == 2
    assert "there must be one host to ask" in refused.stderr
