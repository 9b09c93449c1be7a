"""Routes of the budget over time: cores held by jobs, and the plan."""

from collections.abc import Mapping
from math import isfinite
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query

from punctual.api.budget_cache import FloatArray
from punctual.api.context import Context, ServiceContext
from punctual.api.problems import answers
from punctual.client.schema import BudgetHistory, BudgetShare, PlannedCores
from punctual.core.ids import JobId, NodeId
from punctual.core.resources import NOTHING
from punctual.core.status import JobStatus
from punctual.core.verdict import remaining_time
from punctual.request.deadlines import Now

router = APIRouter(tags=["cluster"])


@router.get("/budget/history", responses=answers())
def budget_history(
    context: Context,
    hours: Annotated[float, Query(gt=0, le=24 * 31, description="How far back.")] = 1.0,
    points: Annotated[int, Query(ge=2, le=500, description="Into how many equal parts that is divided.")] = 200,
    node: Annotated[str | None, Query(max_length=256, description="Only this node's cores.")] = None,
) -> BudgetHistory:
    """Show the cores that jobs held over time, and those planned for them."""
    host, now = context.host, context.host.clocks()
    edges_at = np.linspace(now.at - 3600.0 * hours, now.at, points + 1)
    asked = None if node is None else NodeId(node)
    planned = [share for status in host.jobs() if (share := _planned(context, status, now, asked)) is not None]
    return BudgetHistory(
        since=now.wall_of(float(edges_at[0])),
        until=now.wall,
        capacity_cores=sum(each.capacity.cores for each in host.nodes() if asked in (None, each.id)),
        held=_shares(context.budget.means(edges_at, asked)),
        planned=planned,
    )


def _shares(means: Mapping[JobId, FloatArray]) -> list[BudgetShare]:
    """Return the jobs that held most, in their order, and then all others as one."""
    # Jobs that are told one by one; the others, which held least, together.
    largest = set(sorted(means, key=lambda job: -means[job].sum())[:12])
    shares = [BudgetShare(job=job, cores=_rounded(cores)) for job, cores in means.items() if job in largest]
    others = [cores for job, cores in means.items() if job not in largest]
    return [*shares, BudgetShare(job=None, cores=_rounded(np.sum(others, axis=0)))] if others else shares


def _rounded(cores: FloatArray) -> list[float]:
    return [round(part, 3) for part in cores.tolist()]


def _planned(context: ServiceContext, status: JobStatus, now: Now, node: NodeId | None) -> PlannedCores | None:
    """Estimate the cores that the job will hold from now on, if it stays where it is; None: none, or nothing is known of it.

    Parameters
    ----------
    node
        Only those on this node. None: on all nodes.
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
    return PlannedCores(job=status.id, cores=cores, until=now.wall_of(until_at), promised=promised_at is not None)
