"""Routes of quotes: the consequences of a deadline, before anything is changed."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter

from punctual.api.context import Context, ServiceContext, Submitter
from punctual.api.job_routes import checked_submission_of
from punctual.api.problems import Refused, answers, within
from punctual.client import schema
from punctual.core.errors import OptionChecks
from punctual.core.quoting import Quote
from punctual.core.resources import Resources
from punctual.daemon.planner import QuoteFailed
from punctual.daemon.quotes import quote_fields
from punctual.request.deadlines import Now
from punctual.request.json_text import finite

router = APIRouter(tags=["quotes"])


@router.post("/jobs/{job}/quote", responses=answers(404, 415))
def quote(job: str, asked: schema.JobQuoteRequest, context: Context, _: Submitter) -> schema.QuoteAnswer:
    """Quote another deadline of the job, and the jobs that it would delay; nothing is changed."""
    status = context.status(job)
    checks = OptionChecks()
    moved_s = partial(context.host.moved_deadline_s, status.id, now=context.host.clocks())
    deadline_s = checks.read("deadline", moved_s, asked.deadline, None)
    checks.done()
    amounts = [Resources(cores) for cores in asked.cores]
    return _answered(context, lambda: context.host.quote(status.id, deadline_s, amounts))


@router.post("/quote", responses=answers(415))
def quote_new(asked: schema.NewQuoteRequest, context: Context, _: Submitter) -> schema.QuoteAnswer:
    """Quote a job that is not submitted; nothing is changed."""
    with within("job"):
        submission = checked_submission_of(asked.job, context.host.capacity, context.host.capacity_together)
        amounts = [Resources(cores) for cores in asked.cores]
        return _answered(context, lambda: context.host.quote(submission.spec, amounts=amounts))


def _answered(context: ServiceContext, quoted: Callable[[], Quote]) -> schema.QuoteAnswer:
    context.check_takes_changes()  # a host that is leaving answers no questions either
    try:
        quote = quoted()
    except (QuoteFailed, TimeoutError) as error:
        detail = str(error) or "the host is too busy"
        raise Refused(503, f"there is no quote just now: {detail}", {"Retry-After": "1"}) from error
    return quote_answer(quote, context.host.clocks())


def quote_answer(quote: Quote, now: Now) -> schema.QuoteAnswer:
    """Encode the quote with HTTP's field names."""
    fields = quote_fields(quote, now)
    reason = {"code": fields["reason"], "text": fields["text"], "facts": finite(fields["facts"])}
    return schema.QuoteAnswer.model_validate({**_renamed(fields), "reason": reason})


def _renamed(fields: Any) -> Any:
    """Rename the fields of a terminal: over HTTP instants are on the wall clock alone."""
    if isinstance(fields, list):
        return [_renamed(part) for part in fields]
    if isinstance(fields, dict):
        names = {"later_s": "later_seconds", "n_workers": "workers"}
        return {names.get(name, name.removesuffix("_wall")): _renamed(part) for name, part in fields.items()}
    return fields
