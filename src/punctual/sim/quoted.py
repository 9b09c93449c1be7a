"""Quote a job of a scenario at the scenario's beginning, with what was seen of its pools until then."""

from collections.abc import Sequence

from punctual.core.cluster import Snapshot
from punctual.core.pools import PoolTable
from punctual.core.quoting import Quote, quote
from punctual.core.resources import Resources, largest
from punctual.daemon.quotes import check_amounts, new_view
from punctual.request.cluster_file import nodes_of
from punctual.sim import parts
from punctual.sim.assembly import jobs_of
from punctual.sim.pool_traces import courses_of
from punctual.sim.scenario import Scenario


def quote_first(scenario: Scenario, amounts: Sequence[Resources]) -> Quote:
    """Return the quote of the scenario's first job, alone on its machines under its first policy; its instants count from 0.

    Raises
    ------
    InvalidSpec
        The job or the machines cannot be made, or an amount is more than one job may have.
    """
    job, pools = jobs_of(scenario, scenario.seeds[0])[0], PoolTable()
    for pool in courses_of(scenario.pool):
        for at, price_usd_h, n in pool.course:
            if at <= 0.0:
                pools.offer(at, pool.spec, price_usd_h, n)
    check_amounts(amounts, largest([job.spec.ceiling, *(group.capacity() for group in scenario.machines)]))
    choice = scenario.policies[0]
    policy = parts.made_as("policies", choice, f"policies.{choice.name}")
    snapshot = Snapshot.of(0.0, nodes_of(scenario.cluster), [], pools=pools.views())
    return quote(policy, snapshot, new_view(job.spec, 0.0), amounts)
