"""A host whose machines are those of pools: its policy asks for them, and the next host goes on with them."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from tests.daemon.live_jobs import PACED, pid_of_waiting, submission
from tests.daemon.test_cluster import until_all
from tests.forked_python import punctual
from tests.plants.agent_market import AgentMarket

from punctual.api.standing import job_answer
from punctual.cli._words import dollars
from punctual.core.bill import Bill
from punctual.core.commands import AskMachines
from punctual.core.errors import InvalidSpec
from punctual.core.events import MachinesAsked, NodeLost, PoolOffered
from punctual.core.ids import JobId, NodeId
from punctual.core.pools import PoolSpec
from punctual.core.resources import Resources
from punctual.daemon import host_executor
from punctual.daemon.host import Host
from punctual.daemon.opening import new_host
from punctual.daemon.restore import resumed_host
from punctual.daemon.run_folder import run_named
from punctual.daemon.runs import messages_of
from punctual.executors.cluster.machines import Offer
from punctual.history.judge import NO_WAIT
from punctual.request.cluster_file import read_pools
from punctual.request.spec_change import SpecChange

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
T = TypeVar("T")


@pytest.fixture
def obtainable() -> list[int]:
    """Number of machines that the market offers now."""
    return [3]


@pytest.fixture
def others() -> dict[str, Offer]:
    """Offers of the market beside that of spot machines, or in its place."""
    return {}


@pytest.fixture
def market(
    obtainable: list[int], others: dict[str, Offer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AgentMarket]:
    (tmp_path / "market.toml").write_text(MARKET)
    ((pool,), _) = read_pools(tmp_path / "market.toml")
    spec = pool.spec()
    made = AgentMarket(lambda: {"spot": Offer(spec=spec, price_usd_h=3600.0, obtainable=obtainable[0]), **others})
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
    with new_host("host", options) as host:
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
    with new_host("host", options) as host:
        host.submit(submission("a"))
        until_all(host, lambda: bool(host.waits(host.now())))
        until_said = host.clocks().clock(host.lacks()[0].since_at)
        text = f"a machine of pool 'spot' since {until_said}: no more can be had; asked for again when there are more"
        for answer in outputs_of(host, "ps", "show", "why"):
            assert text in answer
        obtainable[0] = 1
        until_all(host, host.all_ended)


def answers_of(host: Host, *questions: Callable[[], T]) -> list[T]:
    """Return the answers to questions to a host that runs meanwhile."""
    with ThreadPoolExecutor() as threads:
        answers = [threads.submit(question) for question in questions]
        while not all(answer.done() for answer in answers):
            host.run_for(0.1)
    return [answer.result() for answer in answers]


def outputs_of(host: Host, *commands: str) -> list[str]:
    """Return the outputs of commands that ask the host."""
    return answers_of(host, *(partial(output_of, command) for command in commands))


def output_of(command: str) -> str:
    done = punctual(*command.split())
    return done.stdout + done.stderr


JOB = JobId("a")
SPENT = "its budget pays for no machine any more"


def check_is_told(host: Host, reason: str) -> None:
    """Look for the reason why a job waits wherever users look."""
    for answer in outputs_of(host, "ps", "show", "why"):
        assert reason[1:] in answer
    told = job_answer(host, host.status(JOB), host.clocks())
    assert told.reason is not None
    assert told.reason.text.startswith(reason)
    assert told.phrase.startswith(told.reason.text)
    assert told.headline[1:].startswith(told.phrase[1:])


def test_a_job_leaves_its_machine_once_its_budget_is_spent_and_goes_on_with_another_budget(
    market: AgentMarket, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    options = replace(PACED, engine="ray", policy="least-cost", cluster=str(tmp_path / "market.toml"))
    with new_host("host", options) as host:
        host.change_policy("least-cost", {"look_s": 1.0})
        host.submit(submission("a", awaited=go, budget_usd=6.0))
        until_all(host, lambda: pid_of_waiting(go) > 0)
        until_all(host, lambda: host.waits(host.now()).get(JOB, NO_WAIT).unbought is not None and not market.agents)
        check_is_told(host, SPENT)
        spent_usd = host.spent_usd(JOB)
        assert spent_usd is not None
        assert spent_usd > 2.0
        assert f"{dollars(spent_usd)} of $6.00" in outputs_of(host, "ps")[0]
        host.hand_over()
    with resumed_host(run_named("host")) as host:
        until_all(host, lambda: host.waits(host.now()).get(JOB, NO_WAIT).unbought is not None)
        assert host.spent_usd(JOB) == spent_usd, "it is known after a restart"
        with pytest.raises(InvalidSpec, match="a policy that heeds budgets"):
            host.change_policy("earliest-deadline")
        (answer,) = outputs_of(host, "set a --budget 1000 --json")
        assert json.loads(answer)["budget_usd"] == 1000.0
        until_all(host, lambda: host.knows(JOB) and host.status(JOB).state == "running")
        assert not host.status(JOB).warnings
        go.touch()
        until_all(host, host.all_ended)
        assert host.status(JOB).state == "finished"
    assert "of $1,000.00" in output_of("show a")
    assert "now $1000" in output_of("why a")


def test_a_job_for_which_machines_are_too_dear_says_so_wherever_users_look(
    market: AgentMarket, others: dict[str, Offer], tmp_path: Path
) -> None:
    stays = PoolSpec(name="stays", capacity=Resources(cores=64.0))
    spot = replace(stays, name="spot", market="spot")
    others["stays"] = Offer(spec=stays, price_usd_h=36_000.0, obtainable=1)
    others["spot"] = Offer(spec=spot, price_usd_h=3600.0, obtainable=0, seen=[(172_800.0, 3600.0, 1)])
    options = replace(PACED, engine="ray", policy="least-cost", cluster=str(tmp_path / "market.toml"))
    with new_host("host", options) as host:
        host.submit(submission("a", deadline_s=7 * 86_400.0, work="2m"))
        until_all(host, lambda: host.waits(host.now()).get(JOB, NO_WAIT).unbought is not None and not market.agents)
        check_is_told(host, "no machine now is worth its price: it waits for cheaper ones")
        assert "waits for a machine of pool 'spot' since" in job_answer(host, host.status(JOB), host.clocks()).phrase
        other = submission("b", work="2m", budget_usd=400_000.0).spec
        (quote,) = answers_of(host, lambda: host.quote(other))
        assert quote.budget_usd == 400_000.0
        assert quote.bought_at is not None
        del others["spot"]
        until_all(host, host.all_ended)
        assert host.status(JOB).state == "finished"


def test_a_budget_is_refused_where_nothing_heeds_it(market: AgentMarket, tmp_path: Path) -> None:
    del market
    options = replace(PACED, engine="ray", policy="earliest-deadline", cluster=str(tmp_path / "market.toml"))
    with new_host("host", options) as host:
        with pytest.raises(InvalidSpec, match="a policy that heeds budgets") as refused:
            host.submit(submission("a", budget_usd=8.0))
        assert refused.value.option == "budget_usd"
    with new_host("other", PACED) as host:
        with pytest.raises(InvalidSpec, match="which have prices"):
            host.submit(submission("a", budget_usd=8.0))
        go = tmp_path / "go"
        host.submit(submission("a", awaited=go))
        until_all(host, lambda: host.knows(JOB) and host.status(JOB).state == "running")
        with pytest.raises(InvalidSpec, match="which have prices"):
            host.change(JOB, SpecChange(budget_usd=8.0))
        go.touch()
        until_all(host, host.all_ended)
