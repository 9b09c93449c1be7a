"""Routes of jobs: submit, list, show, why, change, pause, resume, stop."""

import base64
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from math import inf
from time import monotonic
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from punctual.api.context import N_STEPS_MAX, Context, ServiceContext, Submitter, encoded, json_answer, note_change
from punctual.api.guard import Caller
from punctual.api.history_response import N_POINTS, N_POINTS_MAX, history_answer, job_program, spending, why_answer
from punctual.api.problems import Refused, answers
from punctual.api.standing import job_answer
from punctual.client import schema
from punctual.core.errors import InvalidSpec, OptionChecks
from punctual.core.ids import JobId
from punctual.core.resources import Resources
from punctual.core.status import JobStatus, ToldState
from punctual.core.verdict import Verdict, verdict
from punctual.daemon.earlier_runs import run_like
from punctual.daemon.joining import names_in
from punctual.daemon.paths import user_home
from punctual.request.spec_change import SpecChange
from punctual.request.submission import Submission, submission_of

router = APIRouter(tags=["jobs"])

#: Variables of the service that every program gets.
USUAL_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")

IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[!-~]{1,128}$",
        description="Chosen by the caller. The same request sent again with the same key leads to the same job.",
    ),
]


@router.post("/jobs", status_code=201, response_model=schema.JobStanding, responses=answers(410, 415))
def submit(
    asked: schema.SubmitRequest,
    request: Request,
    context: Context,
    caller: Submitter,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Submit a job; answers once the journal has it."""
    context.check_takes_changes()
    if idempotency_key is None:
        job = _submitted(context, asked, caller)
    else:
        with context.submitting:
            job = _submitted_once(context, asked, caller, idempotency_key)
    return _shown(context, context.status(job), 201, {"Location": request.url_for("show", job=job).path})


@router.get("/jobs", response_model=schema.JobList, responses=answers())
async def list_jobs(
    context: Context,
    state: Annotated[list[ToldState], Query(max_length=16)] = [],  # noqa: B006 -- FastAPI copies it
    verdicts: Annotated[list[Verdict], Query(alias="verdict", max_length=16)] = [],  # noqa: B006 -- the same
    name: Annotated[str | None, Query(max_length=64, description="What the name begins with.")] = None,
    cursor: Annotated[str | None, Query(max_length=256, description="`nextCursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """List jobs in order of submission: open ones, and those that have ended lately."""
    now, after = context.host.clocks(), None if cursor is None else _read_cursor(cursor)
    wanted = [
        status
        for status in sorted(context.host.jobs(), key=_place)
        if (not state or status.display_state in state)
        and (not verdicts or verdict(status, now.at) in verdicts)
        and status.id.startswith(name or "")
        and (after is None or _place(status) > after)
    ]
    page = wanted[:limit]
    next_cursor = _cursor(page[-1]) if len(wanted) > len(page) else None
    return json_answer(
        b'{"jobs":[%b],"nextCursor":%b}'
        % (b",".join(context.standings.of_all(page, now)), json.dumps(next_cursor).encode())
    )


@router.get("/jobs/{job}", response_model=schema.JobStanding, responses=answers(404))
async def show(job: str, context: Context) -> Response:
    """Show the status of one job."""
    return _shown(context, context.status(job))


@router.get("/jobs/{job}/why", response_model=schema.WhyAnswer, responses=answers(404))
def why(
    job: str,
    context: Context,
    last: Annotated[int, Query(ge=1, le=N_STEPS_MAX, description="How many of the latest.")] = 10,
    every: Annotated[bool, Query(description="Also new pacing lines that changed no grant.")] = False,
) -> Response:
    """Explain the job's grants: reading, demand with its reason, grant asked, grant given."""
    status, now = context.status(job), context.host.clocks()
    with context.histories.of(status.id) as history:
        return encoded(why_answer(status, history, now, last, every=every))


@router.patch("/jobs/{job}", response_model=schema.JobStanding, responses=answers(404, 415))
def change(job: str, asked: schema.ChangeRequest, context: Context, caller: Submitter) -> Response:
    """Change the job while it works: all parts of the request or, if one is wrong, none."""
    status = context.status(job)
    context.check_takes_changes()
    change = _spec_change(context, status, asked)
    if change != SpecChange():
        status = replace(status, spec=context.host.change(status.id, change, by=str(caller)))
        context.host.settle()
        changes = ", ".join(f"{name} {value}" for name, value in asked.model_dump(exclude_unset=True).items())
        note_change(caller, f"job '{job}' was changed: {changes}")
    return _shown(context, status)


@router.post("/jobs/{job}/stop", status_code=202, response_model=schema.JobStanding, responses=answers(404, 415))
def stop(job: str, context: Context, caller: Submitter, asked: schema.CauseRequest | None = None) -> Response:
    """Ask the job to end, after a checkpoint if it can make one; an ended job stays as it is."""
    if context.status(job).ended:
        return _shown(context, context.status(job), 202)
    said = f": {asked.cause}" if asked is not None and asked.cause else ""
    act = partial(context.host.stop, cause=f"stopped over HTTP by {caller}{said}")
    return _done(context, job, caller, act, "was asked to stop")


@router.post("/jobs/{job}/pause", status_code=202, response_model=schema.JobStanding, responses=answers(404, 415))
def pause(job: str, context: Context, caller: Submitter, asked: schema.CauseRequest | None = None) -> Response:
    """Pause the job until it is resumed."""
    act = partial(context.host.pause, cause="" if asked is None else asked.cause)
    return _done(context, job, caller, act, "was paused")


@router.post("/jobs/{job}/resume", status_code=202, response_model=schema.JobStanding, responses=answers(404))
def resume(job: str, context: Context, caller: Submitter) -> Response:
    """Resume a paused job."""
    return _done(context, job, caller, context.host.resume, "was resumed")


@router.get("/jobs/{job}/history", responses=answers(404))
def history(
    job: str,
    context: Context,
    points: Annotated[int, Query(ge=2, le=N_POINTS_MAX, description="How many a curve may have.")] = N_POINTS,
) -> schema.HistoryAnswer:
    """Show the course of a job."""
    status, now = context.status(job), context.host.clocks()
    spent, spent_usd = list[schema.PoolSpending](), context.host.spent_usd(status.id)
    if spent_usd is not None:
        with context.budget.costs(now.at) as costs:
            spent = spending(status, costs, spent_usd, points)
    with context.histories.of(status.id) as history:
        return history_answer(status, history, now, points, spent)


@router.get("/jobs/{job}/program", responses=answers(404))
def program(job: str, context: Context) -> schema.JobProgram:
    """Show the job's program, without secrets."""
    return job_program(context.host.run_folder, context.status(job))


def _done(context: ServiceContext, name: str, caller: Caller, act: Callable[..., object], what: str) -> Response:
    """Call `act(job, by=caller)`; answer how the job stands once the journal has that."""
    job = context.status(name).id
    context.check_takes_changes()
    act(job, by=str(caller))
    context.host.settle()
    note_change(caller, f"job '{name}' {what}")
    return _shown(context, context.status(name), 202)


def _shown(
    context: ServiceContext, status: JobStatus, code: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return encoded(job_answer(context.host, status, context.host.clocks()), code, headers)


def _spec_change(context: ServiceContext, status: JobStatus, asked: schema.ChangeRequest) -> SpecChange:
    """Read the requested change; raises `InvalidSpec` if it cannot be read."""
    checks = OptionChecks()
    moved_s = partial(context.host.moved_deadline_s, status.id, now=context.host.clocks())
    none_any_more_s = inf if "deadline" in asked.model_fields_set else None
    deadline_s = checks.read("deadline", moved_s, asked.deadline, none_any_more_s)
    bounds = asked.model_dump(include={"weight", "cores", "workers"})
    budget_usd = inf if asked.budget_usd is None and "budget_usd" in asked.model_fields_set else asked.budget_usd
    change = checks.made(lambda: SpecChange.written(deadline_s=deadline_s, budget_usd=budget_usd, **bounds))
    checks.done()
    assert change is not None
    return change


# Submitting.


def _submitted(
    context: ServiceContext,
    asked: schema.SubmitRequest,
    caller: Caller,
    key: str | None = None,
    digest: str | None = None,
) -> JobId:
    submission = checked_submission_of(asked, context.host.capacity, context.host.capacity_together)
    (named,) = names_in(context.host.run_folder, [submission])
    context.host.submit_for_client([replace(named, by=str(caller), request_key=key, request_digest=digest)])
    note_change(caller, f"job '{named.spec.id}' was submitted")
    return named.spec.id


def _submitted_once(context: ServiceContext, asked: schema.SubmitRequest, caller: Caller, chosen: str) -> JobId:
    """Return the job that the caller's key has led to, after submitting it if there is none.

    * Raises `InvalidSpec`: another request had the key.
    * Raises `Refused`: the host has forgotten the job.
    """
    # A later token of the same name has keys of its own.
    key = sha256(json.dumps([caller.name, caller.created_at, chosen]).encode()).hexdigest()
    digest = sha256(asked.model_dump_json().encode()).hexdigest()
    before = context.host.run_folder.records.requested_by(key)
    if before is None:
        return _submitted(context, asked, caller, key, digest)
    job, digest_before = before
    if digest != digest_before:
        raise InvalidSpec(
            "an idempotency key must be used for one request only",
            "another request with the same key",
            f"key '{chosen}'",
            "Send the same request again, or choose another key.",
        )
    if not context.host.knows(job) and job in context.host.open_jobs():
        context.host.settle()  # the host has not come to it yet
    if not context.host.knows(job):
        ended = "it has ended and is not remembered any more"
        raise Refused(410, f"this request has led to job '{job}', which this service does not know: {ended}")
    return job


def checked_submission_of(
    asked: schema.SubmitRequest, capacity: Resources, together: Resources | None = None
) -> Submission:
    """Read the submission of a request; raises `InvalidSpec`."""
    options = asked if asked.cwd is not None else asked.model_copy(update={"cwd": str(user_home())})
    inherited = _inherited(asked.inherit_env)
    return submission_of(options, monotonic(), capacity, together, run_like, inherited)


def _inherited(names: list[str]) -> dict[str, str]:
    """Return the service's variables that a program gets: the usual ones, and those asked for."""
    for name in names:
        if name not in os.environ:
            raise InvalidSpec(
                "`inheritEnv` must name variables that the service has",
                repr(name),
                "the job",
                "Give its value instead (`env`), or start the service with it.",
                option="inherit_env",
            )
    return {name: os.environ[name] for name in (*USUAL_VARIABLES, *names) if name in os.environ}


# Pages.


def _place(status: JobStatus) -> tuple[float, str]:
    return status.submitted_at, status.id


def _cursor(status: JobStatus) -> str:
    return base64.urlsafe_b64encode(f"{status.submitted_at!r} {status.id}".encode()).decode()


def _read_cursor(text: str) -> tuple[float, str]:
    try:
        at, job = base64.urlsafe_b64decode(text.encode()).decode().split(" ")
        return float(at), job
    except ValueError as error:
        raise InvalidSpec(
            "`cursor` must be one that a page has named",
            repr(text),
            "the list of jobs",
            "Take `nextCursor` as it is, or leave it out for the first page.",
            option="cursor",
        ) from error
