"""The course of a job: progress, forecasts, cores, losses."""

from typing import Annotated

from fastapi import APIRouter, Query

from punctual.service.context import Context
from punctual.service.problems import answers
from punctual.service.schema import JobHistory
from punctual.service.told_course import N_POINTS, N_POINTS_MAX, job_history

router = APIRouter(tags=["jobs"])


@router.get("/jobs/{job}/history", responses=answers(404))
def history(
    job: str,
    context: Context,
    points: Annotated[int, Query(ge=2, le=N_POINTS_MAX, description="How many a curve may have.")] = N_POINTS,
) -> JobHistory:
    """Tell how the job came to stand as it does."""
    status, now = context.status(job), context.host.clocks()
    with context.courses.of(status.id) as course:
        course.thin(N_POINTS_MAX)
        return job_history(status, course, now, points)
