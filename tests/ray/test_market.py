"""Machines of a market on a real Ray cluster: noticed, killed, kept by the next host, and paid for."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.daemon.test_cluster import until_all
from tests.daemon.test_spread import TRAINING
from tests.forked_python import punctual
from tests.waiting import wait_until

from punctual.core.bill import Bill
from punctual.core.commands import LaunchJob
from punctual.core.events import (
    JobFailed,
    MachinesAsked,
    NodeLost,
    NodeNoticed,
    PoolOffered,
    ProgressReported,
)
from punctual.core.ids import JobId
from punctual.daemon.control_client import is_answering
from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.host import Host
from punctual.daemon.host_options import HostOptions
from punctual.daemon.joining import start_daemon
from punctual.daemon.machine_providers import abandoned
from punctual.daemon.opening import new_host
from punctual.daemon.restore import resumed_host
from punctual.daemon.run_folder import RunFolder, run_named
from punctual.daemon.runs import messages_of
from punctual.history.judge import NO_WAIT
from punctual.request.job_options import JobOptions
from punctual.request.spec_change import SpecChange
from punctual.request.submission import submission_of
from punctual.testing import market_machine

JOB = JobId("job")
N_STEPS = 200
#: Of the training: a small network, and steps so slow that it is not over before machines have come and gone.
VARIABLES = {"WIDTH": "8", "SLOW_S": "1.2"}
#: Two machines until second 10, then one, and from second 20 on two.
COUNTS = [2, 1, 2]
MARKET = """
[machines]
provider = "tests.plants.driven_market:provider"
options = {{ now = "{now}" }}

[[pool]]
name = "spot"
market = "spot"
cores = 1.0
price_usd_h = 36.0
least = 2
most = 2
trace = "spot.json"
notice_s = 60
"""


class Market:
    """A file of pools, and the time in its market."""

    def __init__(self, folder: Path) -> None:
        self.run = "host"
        self.file, self._now = folder / "market.toml", folder / "now"
        self.file.write_text(MARKET.format(now=self._now))
        (folder / "spot.json").write_text(json.dumps({"metadata": {"gap_seconds": 10}, "data": COUNTS}))
        self.turn_to(0.0)

    def turn_to(self, now_s: float) -> None:
        new = self._now.with_suffix(".new")
        new.write_text(str(now_s))
        new.replace(self._now)

    @property
    def folder(self) -> Path:
        run = run_named(self.run)
        return run.state_dir / "machines" / str(run.facts().get("machines"))

    def machines(self) -> set[str]:
        return set(market_machine.running(self.folder))


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Market]:
    made = Market(tmp_path)
    yield made
    left = made.machines()
    for name in left:
        market_machine.end(made.folder, name)
    assert not left, "a host that has ended leaves no machine"


def events_of(kind: type) -> list[Any]:
    return [event for event in messages_of(run_named("host")) if isinstance(event, kind)]


def n_workers(host: Host) -> int:
    status = host.executor.facts(JOB).workers if host.knows(JOB) else None
    return 0 if status is None else status.n_workers


def steps(host: Host) -> float:
    return host.status(JOB).steps_done


def nodes(host: Host) -> set[str]:
    return {str(node) for node in host.status(JOB).granted}


def n_redone(host: Host) -> int:
    status = host.executor.facts(JOB).workers
    assert status is not None
    return status.n_steps_redone


def begin(host: Host, folder: Path, n_machines: int = 2, **more: Any) -> None:
    """Submit the training, and wait until it has a worker on each of its machines."""
    job = JobOptions(
        program=[sys.executable, str(TRAINING), str(folder), str(N_STEPS)], name="job", workers="1..2",
        cores_per_worker="1", env=VARIABLES, **more,
    )  # fmt: skip
    host.submit(submission_of(job, time.monotonic(), host.capacity, host.capacity_together))
    until_all(host, lambda: n_workers(host) == n_machines and steps(host) > 1)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights of the training on this machine alone."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "fast").touch()
    command = [sys.executable, str(TRAINING), str(folder), str(N_STEPS)]
    subprocess.run(command, check=True, env={**os.environ, **VARIABLES})
    return dict(torch.load(folder / "weights"))


def finish(host: Host, folder: Path, expected: dict[str, torch.Tensor]) -> None:
    """Have the rest done fast; no step was lost but one at most, and the weights are those of a run on this machine alone."""
    (folder / "fast").touch()
    until_all(host, host.all_ended)
    assert host.status(JOB).state == "finished"
    assert all(event.is_stopped for event in events_of(JobFailed)), "it may have moved, after a checkpoint"
    # A process that has just moved reports 0 until it has read its checkpoint.
    seen = [event.steps_done for event in events_of(ProgressReported) if event.steps_done > 0]
    assert max(before - after for before, after in pairwise(seen)) <= 1.0
    found = torch.load(folder / "weights")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_workers_leave_a_machine_that_is_taken_away_between_two_steps(
    options: HostOptions, market: Market, tmp_path: Path, expected: dict[str, torch.Tensor]
) -> None:
    with new_host("host", replace(options, cluster=str(market.file), policy="promises-first")) as host:
        begin(host, tmp_path)
        assert nodes(host) == market.machines() == {"spot-0", "spot-1"}
        market.turn_to(10.0)
        until_all(host, lambda: nodes(host) == {"spot-0"} and n_workers(host) == 1)
        assert "spot-1" in market.machines(), "they are gone before the machine is"
        (noticed,) = events_of(NodeNoticed)
        assert noticed.node == "spot-1"
        finish(host, tmp_path, expected)
        assert n_redone(host) == 0


def test_machines_outlive_their_host_and_one_that_dies_costs_a_step_at_most_and_no_dollar_more(
    options: HostOptions, market: Market, tmp_path: Path, expected: dict[str, torch.Tensor]
) -> None:
    with new_host("host", replace(options, cluster=str(market.file), policy="promises-first")) as host:
        begin(host, tmp_path)
        before, machines = steps(host), market.machines()
        host.hand_over()
    assert market.machines() == machines == {"spot-0", "spot-1"}, "they go on without a host"
    with resumed_host(run_named("host")) as host:
        until_all(host, lambda: steps(host) > before and n_workers(host) == 2)
        assert market.machines() == machines
        assert [event.nodes for event in events_of(MachinesAsked)] == [("spot-0", "spot-1")], "none is started again"
        (launch,) = events_of(LaunchJob)[-1:]
        (other,) = machines - {next(iter(launch.grant))}  # the job's own process stays
        market_machine.end(market.folder, other)
        until_all(host, lambda: other in {event.node for event in events_of(NodeLost)})
        finish(host, tmp_path, expected)
        assert n_redone(host) <= 1
    check_bill()


def test_workers_save_and_leave_once_the_budget_is_spent_and_go_on_with_another_one(
    options: HostOptions, market: Market, tmp_path: Path
) -> None:
    """A second of the machine costs a cent at first, then a dollar."""
    market.file.write_text(market.file.read_text().replace("least = 2", "").replace("price_usd_h = 36.0", ""))
    prices = {"metadata": {"gap_seconds": 10, "spot_price": 36.0}, "data": COUNTS, "prices": [36.0, 36.0, 3600.0]}
    (tmp_path / "spot.json").write_text(json.dumps(prices))
    with new_host("host", replace(options, cluster=str(market.file), policy="least-cost")) as host:
        host.change_policy("least-cost", {"look_s": 1.0})
        begin(host, tmp_path, n_machines=1, budget_usd=7.0, stop_grace="5s")
        before = steps(host)
        market.turn_to(20.0)
        until_all(host, lambda: host.waits(host.now()).get(JOB, NO_WAIT).unbought is not None and not market.machines())
        reason = host.waits(host.now())[JOB].unbought
        assert reason is not None
        assert reason.code == "budget-spent"
        host.change(JOB, SpecChange(budget_usd=1e6))
        until_all(host, lambda: steps(host) > before)
        (left,) = events_of(JobFailed)
        assert left.is_stopped
        assert n_redone(host) == 0
        host.stop(JOB, "it has gone on")
        until_all(host, host.all_ended)


def check_bill() -> None:
    """Compare the bill with the time that each machine was there."""
    bill = Bill()
    for message in messages_of(run_named("host")):
        bill.add(message)
    bill.close()
    messages = list(messages_of(run_named("host")))
    ends = {event.node: event.at for event in events_of(NodeLost)}
    held_s = [ends.get(node, messages[-1].at) - event.at for event in events_of(MachinesAsked) for node in event.nodes]
    assert bill.total_usd == pytest.approx(sum(held_s) * 36.0 / 3600.0)
    assert bill.by_job[JOB] + bill.unused_usd == pytest.approx(bill.total_usd)


def kill_daemon(run: RunFolder) -> None:
    """Kill the daemon of a run, if it lives, after the parent that would start it again."""
    if (daemon := run.daemon_pid()) is not None:
        parent = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
        for pid in (parent, daemon):
            os.kill(pid, signal.SIGKILL)


def test_machines_of_a_killed_daemon_without_jobs_go_on_with_the_next_one_or_are_ended(
    options: HostOptions, market: Market, request: pytest.FixtureRequest
) -> None:
    text = market.file.read_text().replace("tests.plants.driven_market:provider", "market")
    market.file.write_text(re.sub("options = .*", "options = {}", text))
    market.file.with_name("spot.json").write_text(json.dumps({"metadata": {"gap_seconds": 10}, "data": [2]}))
    told = replace(options, cluster=str(market.file), policy="promises-first", shared=True)
    run = run_named(start_daemon(DaemonRequest(options=told, stays=True)).run)
    market.run = run.name
    request.addfinalizer(lambda: kill_daemon(run))
    wait_until(lambda: market.machines() == {"spot-0", "spot-1"})
    # The next daemon ends machines of which the journal does not know yet.
    wait_until(lambda: any(isinstance(message, MachinesAsked) for message in messages_of(run)))

    def n_offers() -> int:
        return sum(isinstance(message, PoolOffered) for message in messages_of(run))

    before, first = n_offers(), run.daemon_pid()
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: run.daemon_pid() not in (None, first))
    wait_until(lambda: n_offers() > before)
    wait_until(lambda: is_answering(run))
    assert market.machines() == {"spot-0", "spot-1"}, "its parent has started one that goes on with them"
    assert not abandoned()
    kill_daemon(run)
    wait_until(lambda: not run.is_live())
    assert market.machines() == {"spot-0", "spot-1"}, "nobody is there who could end them"
    assert "punctual clean ends them" in punctual("ps").stderr
    done = punctual("clean")
    assert done.returncode == 0, done.stderr
    assert "spot-0, spot-1" in done.stderr
    wait_until(lambda: not market.machines())
    assert not abandoned()
