"""The course of a job: progress, forecasts, cores, losses."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query

from punctual.metrics.run import Point
from punctual.service.context import Context
from punctual.service.problems import answers
from punctual.service.schema import CourseCurve, JobHistory

router = APIRouter(tags=["jobs"])

_N_POINTS_MAX = 500


@router.get("/jobs/{job}/history", responses=answers(404))
def history(
    job: str,
    context: Context,
    points: Annotated[int, Query(ge=2, le=_N_POINTS_MAX, description="How many a curve may have.")] = 200,
) -> JobHistory:
    """Tell how the job came to stand as it does."""
    status, now = context.status(job), context.host.clocks()
    with context.courses.of(status.id) as course:
        course.thin(_N_POINTS_MAX)
        series = course.series()
    return JobHistory(
        job=status.id,
        submitted=now.wall_of(status.submitted_at),
        until=now.wall_of(now.at if status.ended_at is None else status.ended_at),
        progress=_curve([(elapsed_s, 100 * done_frac) for elapsed_s, done_frac in series.progress], points),
        granted=_curve(series.grant, points),
        used=_curve(series.usage, points),
        workers=_curve(series.workers, points),
        deadlines=_curve(series.deadlines, points),
        forecasts=_curve(series.forecasts, points),
        losses=_curve(series.losses, points),
    )


def _curve(curve: Sequence[Point], n_points: int) -> CourseCurve:
    """`curve` with `n_points` at most, its first and last among them."""
    if len(curve) > n_points:
        curve = [curve[round(i * (len(curve) - 1) / (n_points - 1))] for i in range(n_points)]
    return CourseCurve(seconds=[round(at_s, 3) for at_s, _ in curve], values=[round(value, 6) for _, value in curve])
