"""Commands to a service on the nodes of a cluster, typed on a machine that has less: agents of this process."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli.programs import Terminal
from tests.plants.cluster import FixedMembers, direct, new_agent
from tests.waiting import wait_until

from punctual.core.ids import NodeId
from punctual.daemon import host_executor
from punctual.daemon.capacity import capacity_here
from punctual.daemon.daemon import Daemon
from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.host import Host
from punctual.daemon.host_options import HostOptions

NODES = (NodeId("node-a"), NodeId("node-b"))
OPTIONS = HostOptions(actuator="pacing", engine="ray", shared=True)
#: What one node has, which is what this machine has.
CORES = capacity_here().cores


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    monkeypatch.setenv("PUNCTUAL_HOME", str(made.home))
    yield made
    made.close()


@pytest.fixture
def service(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A service on two nodes, each with as much as this machine."""
    with ExitStack() as closing:
        agents = {node: new_agent(node) for node in NODES}
        for agent in agents.values():
            closing.callback(agent.close)
        members = FixedMembers({node: direct(agent) for node, agent in agents.items()})
        monkeypatch.setattr(host_executor, "members_of", lambda run, options: members)
        daemon = closing.enter_context(Daemon(DaemonRequest(options=OPTIONS, stays=True)))
        daemon.begin()
        steering = threading.Thread(target=daemon.run, name="steering")
        steering.start()
        closing.callback(steering.join)
        closing.callback(daemon.leave)
        host = daemon.host
        wait_until(lambda: len(list(host.nodes())) == len(NODES))
        yield host
        for job in host.open_jobs():
            host.stop(job, "the test is over")
        wait_until(lambda: not host.open_jobs())


def elastic(terminal: Terminal) -> list[str]:
    return terminal.script("import time\ntime.sleep(1000)", "elastic.py")


def test_a_job_is_submitted_that_outgrows_the_machine_on_which_it_is_typed(service: Host, terminal: Terminal) -> None:
    workers = ["--workers", "1..2", "--cores-per-worker", f"{CORES:g}"]
    done = terminal.tell("submit", "--name", "big", *workers, "--", *elastic(terminal))
    assert done.returncode == 0, done.stderr
    spec = service.status(next(iter(service.open_jobs()))).spec
    assert (spec.id, spec.ceiling.cores) == ("big", 2 * CORES)


def test_a_job_of_a_file_may_outgrow_the_machine(service: Host, terminal: Terminal) -> None:
    program = json.dumps(elastic(terminal))
    (terminal.folder / "jobs.toml").write_text(
        f'[[job]]\nname = "big"\nworkers = "1..2"\ncores_per_worker = {CORES}\nprogram = {program}\n'
    )
    done = terminal.tell("submit", "--jobs", "jobs.toml")
    assert done.returncode == 0, done.stderr
    assert [service.status(job).spec.ceiling.cores for job in service.open_jobs()] == [2 * CORES]


def test_a_quote_is_given_for_a_job_that_outgrows_the_machine(service: Host, terminal: Terminal) -> None:
    workers = ["--workers", "1..2", "--cores-per-worker", f"{CORES:g}", "--steps", "1000", "--work", "1h"]
    done = terminal.tell("quote", "--json", *workers, "--", *elastic(terminal))
    assert done.returncode == 0, done.stderr
    assert not service.open_jobs()
    finishes = json.loads(done.stdout)["finishes"]
    assert max(finish["n_workers"] for finish in finishes) == 2


def test_what_no_node_has_is_refused_with_what_the_nodes_have(service: Host, terminal: Terminal) -> None:
    too_many = terminal.tell("submit", "--workers", "1..3", "--cores-per-worker", f"{CORES:g}", "--", "true")
    assert too_many.returncode == 2
    assert f"the nodes of this cluster, with {2 * CORES:g} cores" in too_many.stderr
    too_large = terminal.tell("submit", "--cores", f"{CORES + 1:g}", "--", "true")
    assert too_large.returncode == 2
    assert f"the largest node of this cluster, which has {CORES:g}" in too_large.stderr
    assert not service.open_jobs()


def test_a_change_of_a_job_is_held_to_what_one_node_has(service: Host, terminal: Terminal) -> None:
    assert terminal.tell("submit", "--name", "small", "--", *elastic(terminal)).returncode == 0
    refused = terminal.tell("set", "small", "--cores", f"{CORES + 1:g}")
    assert refused.returncode == 2
    assert "the largest node of this cluster" in refused.stderr
