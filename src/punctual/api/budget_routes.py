"""Routes of the budget over time: cores held by jobs, their cost, and the plan."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query

from punctual.api.budget_cache import FloatArray
from punctual.api.context import Context, ServiceContext
from punctual.api.problems import Refused, answers
from punctual.client import schema
from punctual.core.bill import PaidMachine
from punctual.core.ids import JobId, NodeId
from punctual.core.resources import NOTHING
from punctual.core.status import JobStatus
from punctual.core.units import HOUR_S
from punctual.core.verdict import remaining_time
from punctual.history.costs import CostHistory, is_same_cost
from punctual.request.deadlines import Now
from punctual.request.words import visible

router = APIRouter(tags=["cluster"])


@router.get("/budget/history", responses=answers(404))
def budget_history(
    context: Context,
    hours: Annotated[float, Query(ge=1 / 3600, le=24 * 31, description="How far back.")] = 1.0,
    points: Annotated[int, Query(ge=2, le=500, description="Into how many equal parts that is divided.")] = 200,
    node: Annotated[str | None, Query(max_length=256, description="Only this node's cores.")] = None,
) -> schema.BudgetHistory:
    """Show the cores that jobs held over time and those planned for them, and what machines cost."""
    host, now = context.host, context.host.clocks()
    edges_at = np.linspace(now.at - 3600.0 * hours, now.at, points + 1)
    asked = None if node is None else NodeId(node)
    planned = [share for status in host.jobs() if (share := _planned(context, status, now, asked)) is not None]
    held = _shares(context.budget.means(edges_at, asked))
    nodes = [each for each in host.nodes() if asked in (None, each.id)]
    if asked is not None and not (held or nodes):  # of one that has left is told what was held there
        raise Refused(404, f"there is no node '{visible(asked[:64])}'; `GET /v1/cluster` lists those that there are")
    return schema.BudgetHistory(
        since=now.wall_of(float(edges_at[0])),
        until=now.wall,
        capacity_cores=sum(each.capacity.cores for each in nodes),
        held=held,
        planned=planned,
        costs=_costs(context, edges_at.tolist(), now, planned) if asked is None else None,
    )


def _costs(
    context: ServiceContext, edges_at: Sequence[float], now: Now, planned: Sequence[schema.PlannedCores]
) -> schema.BudgetCosts | None:
    """Return what machines of pools have cost, and what those that are there will; None: none has a price."""
    with context.budget.costs(now.at) as costs:
        bill, since_at = costs.bill, costs.since_at
        if not bill.has_price or since_at is None:
            return None
        machines = bill.machines()
        until_at = _untils(context, machines, now, planned)
        pools = [
            schema.PoolCost(
                pool=pool,
                machines=len(nodes := [node for node, machine in machines.items() if machine.pool == pool]),
                price_usd_per_hour=bill.price_usd_h(pool),
                usd_per_hour=_rounded(curve.usd_h(edges_at)),
                spent_before_usd=round(curve.usd(edges_at[:1])[0], 6),
                spent_usd=round(bill.by_pool[pool], 6),
                planned=[
                    schema.PlannedCost(usd_per_hour=machines[node].usd_h, until=now.wall_of(at))
                    for node in nodes
                    if (at := until_at[node]) is not None and at > now.at
                ],
            )
            for pool, curve in costs.by_pool.items()
        ]
        ends = [(machine, until_at[node]) for node, machine in machines.items() if machine.usd_h]
        further = [each.usd_h * max(0.0, at - each.paid_until_at) / HOUR_S for each, at in ends if at is not None]
        return schema.BudgetCosts(
            since=now.wall_of(since_at),
            spent_usd=round(bill.total_usd, 6),
            expected_usd=round(sum(further), 6) if len(further) == len(ends) else None,
            unused_usd=round(bill.unused_usd, 6),
            pools=pools,
            jobs=_job_costs(context, costs, edges_at),
        )


def _job_costs(context: ServiceContext, costs: CostHistory, edges_at: Sequence[float]) -> list[schema.JobCost]:
    """Return the jobs that hold a machine, and of the others the dearest."""
    by_job = costs.bill.by_job
    told = {job for machine in costs.bill.machines().values() for job in machine.jobs}
    told |= set(sorted(by_job, key=lambda job: -by_job[job])[:100])
    jobs = list[schema.JobCost]()
    for job in [job for job in costs.by_job if job in told]:
        spent_usd = context.host.spent_usd(job) or 0.0
        usd_h = map(sum, zip(*(curve.usd_h(edges_at) for curve in costs.by_job[job].values()), strict=True))
        is_known = is_same_cost(by_job[job], spent_usd)
        jobs.append(
            schema.JobCost(job=job, usd_per_hour=_rounded(usd_h) if is_known else None, spent_usd=round(spent_usd, 6))
        )
    return jobs


def _untils(
    context: ServiceContext, machines: Mapping[NodeId, PaidMachine], now: Now, planned: Sequence[schema.PlannedCores]
) -> dict[NodeId, float | None]:
    """Return the instant until which each machine stays: its jobs are done, or it is taken away. None: not known.

    A machine that no job holds ends now, unless it still starts.
    """
    done_at = {JobId(each.job): now.at + (each.until - now.wall).total_seconds() for each in planned}
    nodes = {node.id: node for node in context.host.nodes()}
    until_at = dict[NodeId, float | None]()
    for node, machine in machines.items():
        of_jobs = [done_at.get(job, inf) for job in machine.jobs]
        there = nodes.get(node)
        ends_at = inf if there is None or there.ends_at is None else there.ends_at
        stays_until_at = min(ends_at, inf if there is None else max(of_jobs, default=now.at))
        until_at[node] = stays_until_at if isfinite(stays_until_at) else None
    return until_at


def _shares(means: Mapping[JobId, FloatArray]) -> list[schema.BudgetShare]:
    """Return the jobs that held most, in their order, and then all others as one."""
    # Jobs that are told one by one; the others, which held least, together.
    largest = set(sorted(means, key=lambda job: -means[job].sum())[:12])
    shares = [
        schema.BudgetShare(job=job, cores=_rounded(cores.tolist())) for job, cores in means.items() if job in largest
    ]
    others = [cores for job, cores in means.items() if job not in largest]
    return (
        [*shares, schema.BudgetShare(job=None, cores=_rounded(np.sum(others, axis=0).tolist()))] if others else shares
    )


def _rounded(parts: Iterable[float]) -> list[float]:
    return [round(part, 3) for part in parts]


def _planned(context: ServiceContext, status: JobStatus, now: Now, node: NodeId | None) -> schema.PlannedCores | None:
    """Estimate the cores that the job will hold from now on, if it stays where it is; None: none, or nothing is known of it.

    `node`: only those on this node. None: on all nodes.
    """
    if status.ended or status.landed:
        return None
    there_frac = 1.0
    if node is not None:
        there_frac = status.granted.get(node, NOTHING).cores / (status.held.cores or 1.0)
    promised_at, remaining = context.host.promised_until_at(status.id), remaining_time(status, now.at)
    if remaining is not None and isfinite(remaining.expected_s):
        left_core_s, until_at = status.held.cores * remaining.expected_s, now.at + remaining.expected_s
    elif status.spec.work_core_s is not None and promised_at is not None:
        left_core_s, until_at = status.spec.work_core_s, promised_at
    else:
        return None
    if promised_at is not None:
        until_at = promised_at
    if until_at <= now.at or left_core_s <= 0 or not there_frac:
        return None
    cores = there_frac * min(left_core_s / (until_at - now.at), status.spec.ceiling.cores)
    return schema.PlannedCores(
        job=status.id, cores=cores, until=now.wall_of(until_at), promised=promised_at is not None
    )
