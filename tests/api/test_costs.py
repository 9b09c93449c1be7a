"""What machines of pools cost, over HTTP: by pool and by job, until now and from now on; also after a restart."""

import os
import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.cli.programs import Terminal
from tests.daemon.live_jobs import PACED, pid_of_waiting, submission
from tests.daemon.test_cluster import until_all
from tests.daemon.test_machines import market, obtainable, others
from tests.history.test_costs import FIRST, HOUR, SECOND, A, asked, offered, started, submitted
from tests.plants.agent_market import AgentMarket
from tests.waiting import wait_until

from punctual.api.budget_cache import BudgetCache
from punctual.api.budget_routes import budget_history
from punctual.api.context import ServiceContext
from punctual.api.history_response import spending
from punctual.api.metrics_text import job_metrics, metrics_text
from punctual.api.standing import cluster_standing, job_answer
from punctual.api.status_json_cache import StatusJsonCache
from punctual.cli._words import dollars
from punctual.client.schema import BudgetCosts
from punctual.core.events import JobFinished, JobStarted, MachinesAsked, Message, NodeLost
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.status import JobStatus
from punctual.daemon.host import Host
from punctual.daemon.opening import new_host
from punctual.daemon.restore import resumed_host
from punctual.daemon.run_folder import RunFolder, create_run, run_named
from punctual.daemon.runs import messages_of
from punctual.journal.job_records import NewJob
from punctual.journal.sqlite import SqliteJournal
from punctual.request.deadlines import Now

__all__ = ["market", "obtainable", "others"]


def journaled(*messages: Message, run: str = "host") -> RunFolder:
    made = create_run(run)
    with SqliteJournal(made.journal) as journal:
        journal.append(list(messages))
    return made


def costs_of(run: RunFolder, at: float, spent_usd: dict[str, float], **more: Any) -> BudgetCosts | None:
    """The costs as a host tells them at an instant that has such jobs, with the dollars that they have cost."""
    now = Now(at, datetime.now().astimezone())
    statuses = [JobStatus(spec=JobSpec(id=JobId(job), ceiling=Resources(1.0)), submitted_at=0.0) for job in spent_usd]
    told = {
        "clocks": lambda: now, "jobs": lambda: statuses, "nodes": list, "run_folder": run,
        "spent_usd": spent_usd.get, "promised_until_at": lambda _: None, **more,
    }  # fmt: skip
    context = SimpleNamespace(host=SimpleNamespace(**told), budget=BudgetCache(run))
    return budget_history(cast(ServiceContext, context), hours=at / HOUR, points=2).costs


def told_of(costs: BudgetCosts | None) -> tuple[dict[str, list[float]], dict[str, list[float] | None]]:
    assert costs is not None
    by_pool = {each.pool: each.usd_per_hour for each in costs.pools}
    return by_pool, {each.job: each.usd_per_hour for each in costs.jobs}


def test_costs_are_told_by_pool_and_by_job_over_time() -> None:
    run = journaled(
        offered(0.0, 1.0), offered(0.0, 4.0, "dear"), submitted(A), asked(0.0, FIRST),
        MachinesAsked(at=HOUR, pool="dear", nodes=(SECOND,)), started(HOUR, A, spot_0=4.0, spot_1=4.0),
    )  # fmt: skip
    costs = costs_of(run, 2 * HOUR, {"a": 6.0})
    assert told_of(costs) == ({"spot": [1.0, 1.0], "dear": [0.0, 4.0]}, {"a": [1.0, 5.0]})
    assert costs is not None
    assert [(each.spent_before_usd, each.spent_usd) for each in costs.pools] == [(0.0, 2.0), (0.0, 4.0)]
    assert (costs.spent_usd, costs.unused_usd) == (pytest.approx(6.0), 0.0)
    assert costs.expected_usd is None, "nobody knows how long the job takes"


@pytest.mark.parametrize(
    ("ends_at", "is_there", "expected_usd"),
    [
        (None, True, 2.0),  # two more hours to the promise
        (3 * HOUR, True, 1.0),  # taken away after one
        (None, False, None),  # it still starts
    ],
)
def test_present_machines_are_expected_to_cost_until_their_jobs_are_done(
    ends_at: float | None, *, is_there: bool, expected_usd: float | None
) -> None:
    run = journaled(offered(0.0, 1.0), submitted(A), asked(0.0, FIRST, SECOND), started(0.0, A, spot_0=4.0))
    spec = JobSpec(id=A, ceiling=Resources(4.0), work_core_s=HOUR)
    status = JobStatus(spec=spec, submitted_at=0.0, granted={FIRST: Resources(4.0)})
    there = [FIRST, SECOND] if is_there else [FIRST]
    nodes = [
        SimpleNamespace(id=node, ends_at=ends_at if node == FIRST else None, capacity=Resources(4.0)) for node in there
    ]
    costs = costs_of(
        run, 2 * HOUR, {"a": 2.0}, nodes=lambda: nodes, jobs=lambda: [status], promised_until_at=lambda _: 4 * HOUR
    )
    assert costs is not None
    assert costs.expected_usd == (None if expected_usd is None else pytest.approx(expected_usd, abs=1e-3))
    (pool,) = costs.pools
    assert [each.usd_per_hour for each in pool.planned] == [1.0], "a machine without a job ends"


def test_without_prices_nothing_is_told() -> None:
    assert costs_of(journaled(offered(0.0, 0.0), asked(0.0, FIRST)), HOUR, {}) is None
    assert costs_of(journaled(submitted(A), run="other"), HOUR, {"a": 0.0}) is None


def test_where_messages_of_removed_jobs_are_gone_no_false_cost_over_time_is_told() -> None:
    gone = JobId("gone")
    run = journaled(
        offered(0.0, 1.0), submitted(gone), asked(0.0, FIRST),
        JobStarted(at=0.0, job=gone, request=1, granted={FIRST: Resources(4.0)}),
        JobFinished(at=HOUR, job=gone, landed_at=HOUR), submitted(A), started(HOUR, A, spot_0=4.0),
    )  # fmt: skip
    assert told_of(costs_of(run, 2 * HOUR, {"a": 1.0}))[1] == {"gone": None, "a": [0.0, 1.0]}
    run.records.add([NewJob(id=gone, name="gone", start={})])
    run.records.set_state(gone, "finished")
    with SqliteJournal(run.journal) as journal:
        journal.thin([], 5)
    run.records.forget([gone])
    costs = costs_of(run, 2 * HOUR, {"a": 1.0})
    assert told_of(costs) == ({"spot": [1.0, 1.0]}, {"a": None}), "it would be told to have paid for the other"
    assert costs is not None
    assert [each.spent_usd for each in costs.jobs] == [1.0], "its host knows"
    status = JobStatus(spec=JobSpec(id=A, ceiling=Resources(1.0)), submitted_at=0.0)
    with BudgetCache(run).costs(2 * HOUR) as folded:
        assert spending(status, folded, 1.0) == []


def _costs(host: Host) -> BudgetCosts:
    context = SimpleNamespace(host=host, budget=BudgetCache(host.run_folder))
    costs = budget_history(cast(ServiceContext, context), hours=0.1, points=10).costs
    assert costs is not None
    return costs


def test_a_service_tells_what_machines_cost_and_goes_on_after_a_restart(market: AgentMarket, tmp_path: Path) -> None:
    go = tmp_path / "go"
    options = replace(PACED, engine="ray", policy="least-cost", cluster=str(tmp_path / "market.toml"))
    with new_host("host", options) as host:
        host.submit(submission("a", awaited=go))
        until_all(host, lambda: pid_of_waiting(go) > 0)
        first = _costs(host)
        assert first.spent_usd > 0
        assert [(each.pool, each.machines, each.price_usd_per_hour) for each in first.pools] == [("spot", 1, 3600.0)]
        assert host.budget({})["host_usd_h"] == 3600.0
        host.hand_over()
    with resumed_host(run_named("host")) as host:
        until_all(host, lambda: host.status(A).state == "running")
        again = _costs(host)
        assert again.spent_usd > first.spent_usd
        assert again.since - first.since < timedelta(seconds=1)
        (job,) = again.jobs
        assert job.usd_per_hour is not None, "journal and host agree"
        told = job_answer(host, host.status(A), host.clocks())
        assert told.spent_usd is not None
        assert told.spent_usd >= job.spent_usd > 0
        cluster = cluster_standing(host)
        assert cluster.usd_per_hour == 3600.0
        assert cluster.spent_usd is not None
        lines = metrics_text(host, StatusJsonCache(host, job_metrics)).splitlines()
        assert "punctual_usd_per_hour{} 3600" in lines
        values = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}
        assert min(values["punctual_spent_usd{}"], values['punctual_job_spent_usd{job="a"}']) >= told.spent_usd
        go.touch()
        until_all(host, lambda: host.status(A).ended and not host.nodes())
        assert cluster_standing(host).usd_per_hour == 0.0
        run = host.run_folder
        recorded = wait_until(lambda: run.end_facts(A).get("spent_usd")) or 0.0
        terminal = Terminal(tmp_path)
        terminal.home = Path(os.environ["PUNCTUAL_HOME"])
        cost = re.escape(dollars(recorded))
        assert re.search(rf"^cost +{cost}$", terminal.tell("show", "a").stdout, re.MULTILINE)
        assert re.search(rf"^cost: {cost}$", terminal.tell("report", "a", "--out", "out.html").stdout, re.MULTILINE)
        assert '\\"pool\\":\\"spot\\"' in (tmp_path / "out.html").read_text(), "with the cost over time"
    messages = messages_of(run)
    (begun,) = [message for message in messages if isinstance(message, MachinesAsked)]
    (lost,) = [message for message in messages if isinstance(message, NodeLost)]
    assert 0 < recorded <= 1.01 * (lost.at - begun.at)
