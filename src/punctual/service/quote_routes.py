"""Quotes: what a deadline would take, before anything is changed."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from fastapi import APIRouter

from punctual.core.errors import OptionChecks
from punctual.core.quoting import Finish, Quote
from punctual.core.resources import Resources
from punctual.runtime.planner import QuoteFailed
from punctual.runtime.when import Now
from punctual.service.context import Context, ServiceContext, Submitter
from punctual.service.job_routes import checked_submission_of
from punctual.service.problems import Refused, answers
from punctual.service.schema import (
    FinishEntry,
    HurtEntry,
    JobQuoteRequest,
    NewQuoteRequest,
    QuoteAnswer,
    ReasonText,
    finite,
)

router = APIRouter(tags=["quotes"])


@router.post("/jobs/{job}/quote", responses=answers(404, 415))
def quote(job: str, asked: JobQuoteRequest, context: Context, _: Submitter) -> QuoteAnswer:
    """Tell what another deadline of the job would take, and who would be hurt; nothing is changed."""
    status = context.status(job)
    checks = OptionChecks()
    moved_s = partial(context.host.moved_deadline_s, status.id, now=context.host.clocks())
    deadline_s = checks.read("deadline", moved_s, asked.deadline, None)
    checks.done()
    amounts = [Resources(cores) for cores in asked.cores]
    return _answered(context, lambda: context.host.quote(status.id, deadline_s, amounts))


@router.post("/quote", responses=answers(415))
def quote_new(asked: NewQuoteRequest, context: Context, _: Submitter) -> QuoteAnswer:
    """Tell what a job would take that is not submitted; nothing is changed."""
    submission = checked_submission_of(asked.job)
    amounts = [Resources(cores) for cores in asked.cores]
    return _answered(context, lambda: context.host.quote(submission.spec, amounts=amounts))


def _answered(context: ServiceContext, quoted: Callable[[], Quote]) -> QuoteAnswer:
    context.check_takes_changes()  # a host that is leaving answers no questions either
    try:
        quote = quoted()
    except (QuoteFailed, TimeoutError) as error:
        detail = str(error) or "the host is too busy"
        raise Refused(503, f"there is no quote just now: {detail}", {"Retry-After": "1"}) from error
    return _told(quote, context.host.clocks())


def _told(quote: Quote, now: Now) -> QuoteAnswer:
    def wall(at: float | None) -> datetime | None:
        return None if at is None else now.wall_of(at)

    return QuoteAnswer(
        job=quote.job,
        promises=quote.promises,
        deadline=wall(quote.deadline_at),
        can_be_promised=quote.can_be_promised,
        earliest=wall(quote.earliest_at),
        expected=None if quote.expected is None else _finish(quote.expected, now),
        finishes=[_finish(finish, now) for finish in quote.finishes],
        hurt=[
            HurtEntry(
                job=hurt.job,
                promised_until=wall(hurt.promised_until_at),
                cores_before=hurt.cores_before,
                cores_after=hurt.cores_after,
                later_seconds=hurt.later_s,
            )
            for hurt in quote.hurt
        ],
        reason=ReasonText(code=quote.reason.code, text=quote.reason.text, facts=finite(quote.reason.facts)),
    )


def _finish(finish: Finish, now: Now) -> FinishEntry:
    return FinishEntry(
        cores=finish.cores,
        workers=finish.n_workers or None,
        finish=now.wall_of(finish.finish_at),
        low=now.wall_of(finish.low_at),
        high=now.wall_of(finish.high_at),
    )
