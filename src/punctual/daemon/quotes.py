"""Quotes: of new jobs, of an idle machine, and their plain fields."""

from collections.abc import Sequence
from typing import Any

from punctual import registry
from punctual.core.cluster import Node, Snapshot, usual_jobs_at_once
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted
from punctual.core.ids import NodeId
from punctual.core.job import JobSpec, JobView
from punctual.core.plug_ins import PlugIns
from punctual.core.quoting import Finish, Quote, quote
from punctual.core.resources import Resources
from punctual.core.scheduled_job import ScheduledJob
from punctual.request.deadlines import Now
from punctual.request.submission import check_budget


def new_view(spec: JobSpec, at: float) -> JobView:
    """Return the view that a policy would get of a job submitted at `at`; raises `InvalidSpec` if refused."""
    job = ScheduledJob.of(JobSubmitted(at=at, spec=spec), revision=0, n_retries=0)
    plug_ins = PlugIns(registry.maker("controllers"), registry.maker("models"), registry.maker("convergence"))
    plug_ins.equip(job)
    return job.view({}, None)


def check_amounts(amounts: Sequence[Resources], capacity: Resources) -> None:
    """Raise `InvalidSpec` for an amount above `capacity`, the most that one job may have."""
    for amount in amounts:
        if not amount.fits_in(capacity):
            raise InvalidSpec(
                "`--at` must not ask for more than there is",
                str(amount),
                f"what one job can have at most: {capacity}",
                f"Ask for less (`--at {capacity.cores:g}`).",
            )


def quote_alone(spec: JobSpec, policy: str, capacity: Resources, now: Now, amounts: Sequence[Resources]) -> Quote:
    """Quote a job alone on hardware with `capacity`; raises `InvalidSpec` as `check_amounts` does, and for a budget."""
    check_budget(spec, (), policy)
    check_amounts(amounts, capacity)
    nodes = [Node(NodeId("local"), capacity, jobs_at_once=usual_jobs_at_once(capacity.cores))]
    snapshot = Snapshot.of(now.at, nodes, [])
    return quote(registry.load("policies", policy)(), snapshot, new_view(spec, now.at), amounts)


def quote_fields(quote: Quote, now: Now) -> dict[str, Any]:
    """Encode the quote as plain fields: each instant as seconds from now, `_s`, and on the wall clock, `_wall`."""
    return {
        "job": quote.job,
        "promises": quote.promises,
        **_instant("deadline", quote.deadline_at, now),
        "can_be_promised": quote.can_be_promised,
        **_instant("earliest", quote.earliest_at, now),
        "expected": None if quote.expected is None else _finish(quote.expected, now),
        "finishes": [_finish(finish, now) for finish in quote.finishes],
        "hurt": [
            {
                "job": hurt.job,
                "loses_promise": hurt.promised_until_at is not None,
                **_instant("promised_until", hurt.promised_until_at, now),
                "cores_before": hurt.cores_before,
                "cores_after": hurt.cores_after,
                "later_s": hurt.later_s,
            }
            for hurt in quote.hurt
        ],
        "prices": [{**_instant("deadline", price.deadline_at, now), "usd": price.usd} for price in quote.prices],
        "budget_usd": quote.budget_usd,
        **_instant("bought", quote.bought_at, now),
        "reason": quote.reason.code,
        "text": quote.reason.text,
        "facts": dict(quote.reason.facts),
    }


def _finish(finish: Finish, now: Now) -> dict[str, Any]:
    return {
        "cores": finish.cores,
        "n_workers": finish.n_workers or None,
        **_instant("finish", finish.finish_at, now),
        **_instant("low", finish.low_at, now),
        **_instant("high", finish.high_at, now),
    }


def _instant(name: str, at: float | None, now: Now) -> dict[str, Any]:
    if at is None:
        return {f"{name}_s": None, f"{name}_wall": None}
    return {f"{name}_s": at - now.at, f"{name}_wall": now.wall_of(at).isoformat()}
