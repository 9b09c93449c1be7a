"""A host whose machines are those of pools: its policy asks for them, and the next host goes on with them."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.daemon.live_jobs import PACED, pid_of_waiting, submission
from tests.daemon.test_cluster import until_all
from tests.plants.agent_market import AgentMarket

from punctual.core.bill import Bill
from punctual.core.commands import AskMachines
from punctual.core.events import MachinesAsked, NodeLost, PoolOffered
from punctual.core.ids import JobId, NodeId
from punctual.core.pools import PoolSpec
from punctual.core.resources import Resources
from punctual.daemon import host_executor
from punctual.daemon.local_host import local_host
from punctual.daemon.restore import resumed_host
from punctual.daemon.run_folder import run_named
from punctual.daemon.runs import messages_of
from punctual.executors.cluster.machines import Offer
from punctual.request.pool_file import read_pools

MARKET = """
[machines]
provider = "nobody:here"

[[pool]]
name = "spot"
market = "spot"
cores = 64.0
price_usd_h = 1.0
most = 3
"""
FIRST = NodeId("spot-0")


@pytest.fixture
def obtainable() -> list[int]:
    """Number of machines that the market offers now."""
    return [3]


@pytest.fixture
def market(obtainable: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentMarket]:
    (tmp_path / "market.toml").write_text(MARKET)
    ((pool,), _) = read_pools(tmp_path / "market.toml")
    spec = pool.spec()
    made = AgentMarket(lambda: {"spot": Offer(spec=spec, price_usd_h=3600.0, obtainable=obtainable[0])})
    monkeypatch.setattr(host_executor, "members_of", lambda run, options: made.members)
    monkeypatch.setattr(host_executor, "provider_of", lambda run, cluster, address: made)
    monkeypatch.setattr("punctual.daemon.machine_providers.maker_of", lambda name, file: None)
    yield made
    made.close(for_good=True)


def test_machines_are_asked_for_by_the_policy_go_on_with_the_next_host_and_end_with_the_job(
    market: AgentMarket, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    options = replace(PACED, engine="ray", policy="least-cost", cluster=str(tmp_path / "market.toml"))
    with local_host("host", options) as host:
        assert not host.nodes()
        assert host.capacity.cores == 64.0, "that of a machine that may come"
        host.submit(submission("a", awaited=go))
        until_all(host, lambda: pid_of_waiting(go) > 0)
        assert list(market.agents) == [FIRST]
        host.hand_over()
    market.start(PoolSpec(name="spot", capacity=Resources()), [NodeId("spot-9")])  # nobody knows of it
    with resumed_host(run_named("host")) as host:
        until_all(host, lambda: host.status(JobId("a")).state == "running" and list(market.agents) == [FIRST])
        assert market.started == [FIRST, NodeId("spot-9")]
        go.touch()
        until_all(host, host.all_ended)
        assert host.status(JobId("a")).state == "finished"
        until_all(host, lambda: not market.agents)
        until_all(host, lambda: not host.nodes())
    messages = messages_of(run_named("host"))
    assert [message.n_machines for message in messages if isinstance(message, AskMachines)] == [1]
    (asked,) = [message for message in messages if isinstance(message, MachinesAsked)]
    (lost,) = [message for message in messages if isinstance(message, NodeLost)]
    assert [message.obtainable for message in messages if isinstance(message, PoolOffered)] == [3, 3]
    bill = Bill()
    for message in messages:
        bill.add(message)
    bill.close()
    assert bill.total_usd == pytest.approx(lost.at - asked.at)
    assert set(bill.by_job) == {"a"}


def test_a_job_that_waits_for_machines_says_why_and_until_when_wherever_users_look(
    market: AgentMarket, obtainable: list[int], tmp_path: Path
) -> None:
    obtainable[0] = 0
    options = replace(PACED, engine="ray", policy="least-cost", cluster=str(tmp_path / "market.toml"))
    with local_host("host", options) as host:
        host.submit(submission("a"))
        until_all(host, lambda: bool(host.waits(host.now())))
        until_said = host.clocks().clock(host.lacks()[0].since_at)
        text = f"a machine of pool 'spot' since {until_said}: no more can be had; asked for again when there are more"
        with ThreadPoolExecutor() as threads:
            answers = [threads.submit(output_of, command) for command in ("ps", "show", "why")]
            while not all(answer.done() for answer in answers):
                host.run_for(0.1)
        for answer in answers:
            assert text in answer.result()
        obtainable[0] = 1
        until_all(host, host.all_ended)


def output_of(command: str) -> str:
    done = subprocess.run([sys.executable, "-m", "punctual", command], check=False, capture_output=True, text=True)
    return done.stdout + done.stderr
