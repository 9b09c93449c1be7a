"""Routes of a job's course (progress, forecasts, cores, losses) and of its program."""

from typing import Annotated

from fastapi import APIRouter, Query

from punctual.api.context import Context
from punctual.api.history_response import N_POINTS, N_POINTS_MAX, history_answer, job_program, spending
from punctual.api.problems import answers
from punctual.client.schema import HistoryAnswer, JobProgram, PoolSpending

router = APIRouter(tags=["jobs"])


@router.get("/jobs/{job}/history", responses=answers(404))
def history(
    job: str,
    context: Context,
    points: Annotated[int, Query(ge=2, le=N_POINTS_MAX, description="How many a curve may have.")] = N_POINTS,
) -> HistoryAnswer:
    """Show the course of a job."""
    status, now = context.status(job), context.host.clocks()
    spent, spent_usd = list[PoolSpending](), context.host.spent_usd(status.id)
    if spent_usd is not None:
        with context.budget.costs(now.at) as costs:
            spent = spending(status, costs, spent_usd, points)
    with context.histories.of(status.id) as history:
        return history_answer(status, history, now, points, spent)


@router.get("/jobs/{job}/program", responses=answers(404))
def program(job: str, context: Context) -> JobProgram:
    """Show the job's program, without secrets."""
    return job_program(context.host.run_folder, context.status(job))
