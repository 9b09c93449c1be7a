"""Course of a job and its reasons, for the service and for reports."""

from collections.abc import Sequence

from punctual.client import schema
from punctual.core.status import JobStatus
from punctual.daemon.run_folder import RunFolder
from punctual.history.costs import CostHistory, is_same_cost
from punctual.history.decision_trace import DecisionStep, decision_steps, decisive_step
from punctual.history.job import JobHistory, PhaseCourse
from punctual.history.run import Point, series, smooth_usage, summary
from punctual.request.deadlines import Now
from punctual.request.json_text import finite
from punctual.request.redaction import LEFT_OUT, is_secret_name
from punctual.request.submission import written_options

#: Points that a curve has at most, where nothing else is asked for, and that can be asked for.
N_POINTS, N_POINTS_MAX = 200, 500


def history_answer(
    status: JobStatus,
    history: JobHistory,
    now: Now,
    n_points: int = N_POINTS,
    spent: Sequence[schema.PoolSpending] = (),
) -> schema.HistoryAnswer:
    """Return the job's course, with `n_points` of each curve at most."""
    course, until_at = series(history), now.at if status.ended_at is None else status.ended_at
    return schema.HistoryAnswer(
        job=status.id,
        submitted=now.wall_of(status.submitted_at),
        until=now.wall_of(until_at),
        progress=_curve([(elapsed_s, 100 * done_frac) for elapsed_s, done_frac in course.progress], n_points),
        granted=_curve(course.grant, n_points),
        used=_curve(smooth_usage(course.usage, until_at - status.submitted_at), n_points),
        demanded=_curve(course.demand, n_points),
        workers=_curve(course.workers, n_points),
        deadlines=_curve(course.deadlines, n_points),
        forecasts=_curve(course.forecasts, n_points),
        losses=_curve(course.losses, n_points),
        resizes=_curve(course.resizes, n_points),
        lines=[
            schema.LineToDeadline(
                since_seconds=line.from_s,
                since_percentage=100 * line.from_frac,
                until_seconds=line.until_s,
                until_percentage=100 * line.until_frac,
            )
            for line in course.lines[-n_points:]
        ],
        phases=[
            schema.PhaseTimes(name=phase.name, since_seconds=phase.from_s, until_seconds=phase.until_s)
            for phase in course.phases[-n_points:]
        ],
        changes=summary(history).n_resizes,
        changes_seconds=sum(took_s for _, took_s in course.resizes),
        phase_sums=_phase_sums(course.phases),
        spent=list(spent),
    )


def _phase_sums(phases: Sequence[PhaseCourse]) -> list[schema.PhaseSum]:
    by_name: dict[str, list[float]] = {}
    for phase in phases:
        by_name.setdefault(phase.name, []).append(phase.until_s - phase.from_s)
    return [schema.PhaseSum(name=name, times=len(spans_s), seconds=sum(spans_s)) for name, spans_s in by_name.items()]


def spending(
    status: JobStatus, costs: CostHistory, spent_usd: float, n_points: int = N_POINTS
) -> list[schema.PoolSpending]:
    """Return the dollars spent on the job over time, by pool; none where messages are gone from the journal.

    `spent_usd`: what it has cost in all, as its host knows it.
    """
    if not is_same_cost(costs.bill.by_job.get(status.id, 0.0), spent_usd):
        return []
    courses = {pool: curve.course() for pool, curve in costs.by_job.get(status.id, {}).items()}
    return [
        schema.PoolSpending(
            pool=pool,
            usd=_curve(
                [(each - status.submitted_at, sum_usd) for each, sum_usd in zip(at, usd, strict=True)], n_points
            ),
        )
        for pool, (at, usd) in courses.items()
    ]


def job_program(run: RunFolder, status: JobStatus) -> schema.JobProgram:
    """Return the job's program, without secrets."""
    program = status.program
    if program is None:
        return schema.JobProgram(arguments=[], folder=None, variables={}, handed_on=[])
    facts = run.start_facts(status.id)
    variables = {name: LEFT_OUT if is_secret_name(name) else value for name, value in program.environment.items()}
    return schema.JobProgram(
        arguments=list(program.argv),
        folder=program.cwd,
        variables=variables,
        handed_on=[] if facts is None else sorted(facts.environment.keys() - variables.keys()),
        options=written_options(status.spec, program),
    )


def _curve(curve: Sequence[Point], n_points: int) -> schema.CourseCurve:
    """Thin out `curve` to `n_points` at most, with its first and last."""
    if len(curve) > n_points:
        curve = [curve[round(i * (len(curve) - 1) / (n_points - 1))] for i in range(n_points)]
    return schema.CourseCurve(
        seconds=[round(at_s, 3) for at_s, _ in curve], values=[round(value, 6) for _, value in curve]
    )


def why_answer(
    status: JobStatus, history: JobHistory, now: Now, n_steps: int | None = None, *, every: bool = False
) -> schema.WhyAnswer:
    """Return the job's last `n_steps` events and their reasons, oldest first, and the decisive one."""

    def entry(step: DecisionStep) -> schema.WhyEntry:
        return schema.WhyEntry(
            elapsed_seconds=step.elapsed_s,
            time=now.wall_of(status.submitted_at + step.elapsed_s),
            kind=step.kind,
            text=step.text,
            facts=finite(step.facts),
        )

    decisive = decisive_step(history)
    return schema.WhyAnswer(
        job=status.id,
        decisive=None if decisive is None else entry(decisive),
        entries=[entry(step) for step in decision_steps(history, n_steps, every=every)],
    )
